"""Speculative sampling against exact laws: a tiny vocabulary, many requests at once, chi-square."""

import functools
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from decoding.accept import NO_TOKEN, Accepted, accept_sampled
from decoding.sampling import ACCEPT, DRAFT, Chooser, Sampling, choose, draw, probabilities, request_keys, step_keys
from perfmodel.errors import InputError

VOCAB = 5
NUM_REQUESTS = 20_000
SETTINGS = [
    Sampling(1.3, top_k=3),
    Sampling(0.7, top_p=0.7),
    Sampling(0.8, top_k=4, top_p=0.8),
]
LEAST_P = 1e-4
"""A right sampler fails a test at this level once in ten thousand seeds; the seeds are fixed."""


def law(logits: np.ndarray, sampling: Sampling) -> np.ndarray:
    """The distribution written out in plain words, one row."""
    scaled = logits.astype(np.float64) / sampling.temperature
    order = sorted(range(VOCAB), key=lambda token: (-scaled[token], token))[: sampling.top_k or VOCAB]
    weights = {token: np.exp(scaled[token]) for token in order}
    total = sum(weights.values())
    kept, mass = {}, 0.0
    for token in order:
        if mass >= sampling.top_p:
            break
        kept[token] = weights[token] / total
        mass += kept[token]
    return np.array([kept.get(token, 0.0) / mass for token in range(VOCAB)])


def chains(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Logits of a target and of an unlike drafter, each a table: the token before → the next."""
    generator = np.random.default_rng(seed)
    target = 1.5 * generator.standard_normal((VOCAB, VOCAB))
    return target, target + 1.5 * generator.standard_normal((VOCAB, VOCAB))


def goodness(counts: np.ndarray, expected: np.ndarray) -> float:
    """Chi-square p-value of counts against probabilities; what has probability 0 must not occur."""
    assert counts[expected == 0].sum() == 0
    counts, expected = counts[expected > 0], expected[expected > 0]
    return float(stats.chisquare(counts, expected / expected.sum() * counts.sum()).pvalue)


def speculate(
    target: np.ndarray, draft: np.ndarray, sampling: Sampling, keys: jax.Array, anchor: np.ndarray, position: np.ndarray, k: int
) -> tuple[np.ndarray, np.ndarray]:
    """One step of K = `k` for every request: committed tokens and accepted drafts."""
    accepted = _speculate(target, draft, keys, anchor, position, sampling=sampling, k=k)
    return np.asarray(accepted.committed), np.asarray(accepted.num_accepted)


@functools.partial(jax.jit, static_argnames=("sampling", "k"))
def _speculate(
    target: jax.Array, draft: jax.Array, keys: jax.Array, anchor: jax.Array, position: jax.Array, sampling: Sampling, k: int
) -> Accepted:
    choose_one = Chooser(step_keys(keys, position, DRAFT), sampling)
    token, drafts, qs = anchor, [], []
    for slot in range(k - 1):
        chosen, q = choose_one(draft[token][:, None], slot)
        token = chosen[:, 0]
        drafts.append(token)
        qs.append(q)
    drafted = jnp.stack(drafts, axis=1)
    rows = target[jnp.concatenate([anchor[:, None], drafted], axis=1)]
    q = None if qs[0] is None else jnp.concatenate(qs, axis=1)
    return accept_sampled(step_keys(keys, position, ACCEPT), drafted, probabilities(rows, sampling), q)


@pytest.mark.parametrize("sampling", SETTINGS)
def test_filters_are_in_the_one_order(sampling: Sampling) -> None:
    target, _ = chains(0)
    given_ = np.asarray(probabilities(jnp.asarray(target)[None], sampling))[0]
    np.testing.assert_allclose(given_, [law(row, sampling) for row in target], atol=1e-6)


def test_ties_are_cut_by_id_and_the_best_token_always_stays() -> None:
    logits = jnp.zeros((1, 1, VOCAB))
    assert probabilities(logits, Sampling(1.0, top_k=2))[0, 0].tolist() == [0.5, 0.5, 0, 0, 0]
    assert probabilities(logits, Sampling(1.0, top_p=1e-6))[0, 0].tolist() == [1, 0, 0, 0, 0]
    np.testing.assert_allclose(probabilities(logits, Sampling(1.0, top_k=99)), 0.2)


@pytest.mark.parametrize(
    ("sampling", "proposals"),
    [
        *((sampling, "sampled") for sampling in SETTINGS),
        *(pytest.param(sampling, "greedy", marks=pytest.mark.slow) for sampling in SETTINGS[:-1]),
        (SETTINGS[-1], "greedy"),
    ],
)
def test_two_tokens_have_the_targets_joint_law(sampling: Sampling, proposals: str) -> None:
    # Steps of K = 3 until each request has two tokens: where a step commits one, the next step adds the other.
    sampling = replace(sampling, proposals=proposals)
    target, draft = chains(1)
    keys = request_keys(7, range(NUM_REQUESTS))
    start = np.zeros(NUM_REQUESTS, np.int32)
    first, accepted = speculate(target, draft, sampling, keys, start, start, 3)
    second, _ = speculate(target, draft, sampling, keys, first[:, 0], start + 1, 3)
    pairs = np.stack([first[:, 0], np.where(first[:, 1] == NO_TOKEN, second[:, 0], first[:, 1])], axis=1)
    counts = np.zeros((VOCAB, VOCAB))
    np.add.at(counts, (pairs[:, 0], pairs[:, 1]), 1)
    rows = np.array([law(row, sampling) for row in target])
    assert goodness(counts, rows[0][:, None] * rows) > LEAST_P
    assert 0.05 < (accepted > 0).mean() < 0.95  # both branches were walked


def test_every_place_of_a_step_has_the_targets_law() -> None:
    # The token behind each committed one, wherever in the step it came about: accepted, replaced, or behind all drafts.
    sampling = Sampling(0.9, top_k=4, proposals="sampled")
    target, draft = chains(2)
    target, draft = target / 2, target / 2 + (draft - target) / 4  # alike enough that all places are reached
    committed, accepted = speculate(
        target, draft, sampling, request_keys(3, range(NUM_REQUESTS)), np.ones(NUM_REQUESTS, int), np.ones(NUM_REQUESTS, int), 4
    )
    rows = np.array([law(row, sampling) for row in target])
    before = np.concatenate([np.ones((NUM_REQUESTS, 1), int), committed[:, :-1]], axis=1)
    # Given that place i was reached and what stands before it, the next token follows the target's row.
    for place in range(4):
        for token in range(VOCAB):
            reached = (accepted >= place) & (before[:, place] == token)
            if reached.sum() >= 500:
                counts = np.bincount(committed[reached, place], minlength=VOCAB)
                assert goodness(counts, rows[token]) > LEAST_P, (place, token)
    assert (accepted == 3).sum() > 500


def test_acceptance_is_the_overlap_of_the_two_laws() -> None:
    target, draft = chains(4)
    start = np.zeros(NUM_REQUESTS, np.int32)
    p, q = law(target[0], Sampling(1.0)), law(draft[0], Sampling(1.0))
    for proposals, expected in (("sampled", np.minimum(p, q).sum()), ("greedy", p[q.argmax()])):
        _, accepted = speculate(
            target, draft, Sampling(1.0, proposals=proposals), request_keys(5, range(NUM_REQUESTS)), start, start, 2
        )
        error = np.sqrt(expected * (1 - expected) / NUM_REQUESTS)
        assert accepted.mean() == pytest.approx(expected, abs=5 * error)


def test_the_wrong_residual_would_be_seen() -> None:
    # Replacing a rejected draft by a draw from p itself, the classic mistake, fails the same chi-square.
    target, draft = chains(1)
    keys, start = request_keys(7, range(NUM_REQUESTS)), np.zeros(NUM_REQUESTS, np.int32)
    committed, accepted = speculate(target, draft, Sampling(1.0, proposals="sampled"), keys, start, start, 2)
    p = law(target[0], Sampling(1.0))
    wrong = np.random.default_rng(0).choice(VOCAB, NUM_REQUESTS, p=p)
    mixed = np.where(accepted > 0, committed[:, 0], wrong)
    assert goodness(np.bincount(mixed, minlength=VOCAB), p) < 1e-12
    assert goodness(np.bincount(committed[:, 0], minlength=VOCAB), p) > LEAST_P


def test_equal_laws_accept_everything_and_disjoint_ones_nothing() -> None:
    p = jnp.tile(jnp.array([0.5, 0.5, 0.0, 0.0, 0.0]), (64, 3, 1))
    drafts = draw(request_keys(1, range(64)), p[:, :2])
    keys = request_keys(2, range(64))
    accept = jax.jit(accept_sampled)
    assert accept(keys, drafts, p, p[:, :2]).num_accepted.tolist() == [2] * 64
    q = jnp.tile(jnp.array([0.0, 0.0, 0.0, 0.5, 0.5]), (64, 2, 1))
    rejected = accept(keys, 3 + drafts, p, q)
    assert rejected.num_accepted.tolist() == [0] * 64
    assert set(np.asarray(rejected.committed[:, 0]).tolist()) == {0, 1}
    assert (np.asarray(rejected.committed[:, 1:]) == NO_TOKEN).all()


def test_a_request_draws_the_same_wherever_in_a_batch_it_stands() -> None:
    target, draft = chains(6)
    sampling = replace(SETTINGS[0], proposals="sampled")
    anchors, keys = np.arange(NUM_REQUESTS, dtype=np.int32) % VOCAB, request_keys(11, range(NUM_REQUESTS))
    positions = anchors + 7
    in_order, _ = speculate(target, draft, sampling, keys, anchors, positions, 3)
    shuffled = np.random.default_rng(0).permutation(NUM_REQUESTS)
    other, _ = speculate(target, draft, sampling, keys[shuffled], anchors[shuffled], positions[shuffled], 3)
    np.testing.assert_array_equal(other, in_order[shuffled])


def test_draws_differ_between_positions_slots_and_streams() -> None:
    keys = request_keys(0, range(1))
    flat = jnp.ones((1, 1, 1000))
    at = jnp.array([3])
    drawn = [
        int(draw(step_keys(keys, at, DRAFT), flat)[0, 0]),
        int(draw(step_keys(keys, at + 1, DRAFT), flat)[0, 0]),
        int(draw(step_keys(keys, at, ACCEPT), flat)[0, 0]),
        *(int(Chooser(step_keys(keys, at, DRAFT), Sampling(1.0, proposals="sampled"))(flat, slot)[0][0, 0]) for slot in range(3)),
    ]
    assert len(set(drawn)) == 6


def test_greedy_proposals_are_argmaxes_without_probabilities() -> None:
    logits = jax.random.normal(jax.random.key(0), (3, 2, VOCAB))
    tokens, q = choose(request_keys(0, range(3)), logits, Sampling(2.0))
    assert q is None
    np.testing.assert_array_equal(tokens, logits.argmax(-1))


@pytest.mark.parametrize(
    "change",
    [{"temperature": 0.0}, {"temperature": float("nan")}, {"top_k": -1}, {"top_p": 0.0}, {"top_p": 1.5}, {"proposals": "x"}],
)
def test_settings_that_mean_nothing_are_refused(change: dict) -> None:
    with pytest.raises(InputError):
        Sampling(**({"temperature": 1.0} | change))
