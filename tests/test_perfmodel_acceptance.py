"""Acceptance profiles: counting, censoring, τ and its intervals, survival given by hand."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfmodel import acceptance
from perfmodel.errors import InputError

PAIR = "qwen3-4b-dflash-b16"


def profile(committed, block_size, **options):
    return acceptance.from_committed(committed, block_size=block_size, task="t", target="T", draft="D", **options)


def simulate(rng, num_answers, block_size, alpha, num_tokens):
    """Answers of `num_tokens` tokens cut at the limit: (as counted, as they would have been), last step flagged."""
    seen, whole = [], []
    for _ in range(num_answers):
        left, steps, full = num_tokens, [], []
        while left > 0:
            accepted = int(np.argmin(np.append(rng.random(block_size - 1) < alpha, False)))
            full.append(accepted + 1)
            steps.append(min(accepted + 1, left))
            left -= steps[-1]
        seen.append(steps)
        whole.append(full)
    return seen, whole


# counting ---------------------------------------------------------------------------------------------------------------------


def test_survival_of_four_steps_by_hand():
    # accepted drafts a = c − 1: 3, 0, 1, 2 → at least 1: 3 of 4; at least 2: 2 of 4; at least 3: 1 of 4
    found = profile([[4, 1], [2, 3]], 4)
    assert found.survival == pytest.approx((3 / 4, 2 / 4, 1 / 4))
    assert found.at_risk == (4.0, 3.0, 2.0)
    assert acceptance.tau_pooled(found) == pytest.approx((4 + 1 + 2 + 3) / 4)
    assert (found.num_steps, found.num_prompts, found.committed) == (4, 2, ((4, 1), (2, 3)))
    assert acceptance.alpha(found) == pytest.approx((3 / 4, 2 / 3, 1 / 2))


def test_tau_at_smaller_blocks_is_the_mean_of_clipped_counts():
    # verifying only the first K tokens commits min(c, K)
    found = profile([[4, 1], [2, 3]], 4)
    for block_size in range(1, 5):
        assert acceptance.tau(found, block_size) == pytest.approx(np.mean([min(c, block_size) for c in (4, 1, 2, 3)]))


def test_pooled_and_per_answer_tau_differ_when_answers_differ_in_length():
    found = profile([[8], [1, 1, 1]], 8)
    assert acceptance.tau_pooled(found) == pytest.approx(11 / 4)
    assert acceptance.tau_per_answer(found) == pytest.approx((8 + 1) / 2)


def test_cut_last_step_says_only_at_least():
    # step 1 rejects its first draft; step 2 was cut at 3 tokens: drafts 1 and 2 were accepted, draft 3 is unknown
    found = profile([[1, 3]], 4, last_step_cut=[True])
    assert found.survival == pytest.approx((1 / 2, 1 / 2))  # α_1 = 1/2, α_2 = 1/1, and nobody saw draft 3
    assert found.at_risk == (2.0, 1.0)
    assert acceptance.measured_block_size(found) == 3
    assert acceptance.tau(found, 3) == pytest.approx(1 + 1 / 2 + 1 / 2)
    assert acceptance.tau_source(found, 4) == "extrapolated"
    assert "positions-unseen" in [finding.code for finding in found.findings]
    # taken at face value the same counts say S_3 = 0
    assert profile([[1, 3]], 4).survival == pytest.approx((1 / 2, 1 / 2, 0.0))


def test_a_cut_step_that_filled_the_block_hides_nothing():
    assert profile([[4, 4]], 4, last_step_cut=[True]).survival == (1.0, 1.0, 1.0)


def test_censoring_recovers_the_truth_where_plain_counting_is_biased():
    block_size, alpha = 8, 0.8
    truth = (1 - alpha**block_size) / (1 - alpha)  # 4.16
    seen, whole = simulate(np.random.default_rng(1), 6000, block_size, alpha, num_tokens=20)
    plain = acceptance.tau_pooled(profile(seen, block_size))
    censored = acceptance.tau_pooled(profile(seen, block_size, last_step_cut=[True] * len(seen)))
    assert np.mean([c for steps in whole for c in steps]) == pytest.approx(truth, rel=0.01)
    assert plain < 0.92 * truth
    assert censored == pytest.approx(truth, rel=0.01)


def test_after_survival_reaches_zero_it_stays_zero():
    assert profile([[1, 2], [1]], 5).survival == pytest.approx((1 / 3, 0, 0, 0))
    assert acceptance.alpha(profile([[1, 2], [1]], 5)) == (pytest.approx(1 / 3), 0.0, None, None)


def test_plain_decoding_has_a_profile_without_drafts():
    found = profile([[1, 1], [1]], 1)
    assert found.survival == ()
    assert acceptance.tau(found, 1) == 1.0
    assert acceptance.tau_draws(found, 1).shape == (400, 1)
    assert acceptance.tau_draws(found, 1).max() == 1.0
    with pytest.raises(InputError, match="holds no drafts"):
        acceptance.tau(found, 2)


@pytest.mark.parametrize(
    ("committed", "block_size", "message"),
    [
        ([[5]], 4, "committed 5 tokens at block size 4"),
        ([[0]], 4, "committed 0 tokens"),
        ([[], []], 4, "no decoding step"),
        ([], 4, "no decoding step"),
        ([[1]], 0, "block size 0"),
    ],
)
def test_impossible_counts_are_refused(committed, block_size, message):
    with pytest.raises(InputError, match=message) as caught:
        profile(committed, block_size)
    assert caught.value.hint


def test_flags_must_match_the_answers():
    with pytest.raises(InputError, match="2 flags"):
        profile([[1]], 4, last_step_cut=[True, False])


def test_few_prompts_are_said():
    assert "few-prompts" in [finding.code for finding in profile([[1, 2]] * 7, 4).findings]
    assert profile([[1, 2]] * 8, 4).findings == ()


counts = st.integers(2, 9).flatmap(
    lambda k: st.tuples(
        st.just(k), st.lists(st.lists(st.integers(1, k), max_size=6), min_size=1, max_size=6).filter(any), st.booleans()
    )
)


@given(counts)
@settings(max_examples=150, deadline=None)
def test_laws_of_any_profile(case):
    block_size, committed, cut = case
    found = profile(committed, block_size, last_step_cut=[cut] * len(committed))
    survival = np.array(found.survival)
    assert np.all((survival >= 0) & (survival <= 1))
    assert np.all(np.diff(survival) <= 1e-12)
    assert len(found.at_risk) == len(found.survival)
    known = acceptance.tau_curve(found, len(survival) + 1)
    assert np.all((known >= 1) & (known <= np.arange(1, len(known) + 1) + 1e-9))
    assert np.all(np.diff(known) >= 0)
    if not cut:
        assert acceptance.tau_pooled(found) == pytest.approx(np.mean([c for steps in committed for c in steps]))
    if found.survival:
        curve = acceptance.tau_curve(found, 64)
        assert np.all(np.diff(curve) >= 0)
        assert np.all(np.diff(curve, 2) <= 1e-9)  # each further draft adds no more than the one before
        draws = acceptance.tau_draws(found, 16, num_draws=20)
        if draws is not None:
            assert np.all((draws >= 1) & (draws <= np.arange(1, 17) + 1e-9))
            assert np.all(np.diff(draws, 2, axis=1) <= 1e-9)


# intervals --------------------------------------------------------------------------------------------------------------------


def answers_with_own_alpha(rng, num_answers, block_size=8, num_steps=30):
    """Answers whose difficulty differs: α is drawn per answer."""
    result = []
    for alpha in rng.uniform(0.5, 0.9, num_answers):
        accepted = np.argmin(np.column_stack([rng.random((num_steps, block_size - 1)) < alpha, np.zeros(num_steps)]), axis=1)
        result.append((accepted + 1).tolist())
    return result


def test_bootstrap_draws_have_the_standard_error_of_the_mean_over_answers():
    # equally long answers: the pooled τ is the mean of their means, so its standard error is s / √n
    answers = answers_with_own_alpha(np.random.default_rng(3), 40)
    means = np.array([np.mean(steps) for steps in answers])
    draws = acceptance.tau_draws(profile(answers, 8), 8, num_draws=4000)
    assert draws.shape == (4000, 8)
    assert draws[:, 7].std() == pytest.approx(means.std(ddof=1) / np.sqrt(len(means)), rel=0.05)
    assert draws[:, 7].mean() == pytest.approx(means.mean(), rel=0.01)


def test_fewer_prompts_give_a_wider_interval():
    answers = answers_with_own_alpha(np.random.default_rng(4), 64)
    widths = []
    for num in (64, 16, 4):
        low, high = acceptance.tau_interval(profile(answers[:num], 8), 8)
        widths.append(high - low)
    assert widths[0] < widths[1] < widths[2]


def test_intervals_cover_the_truth_about_as_often_as_they_say():
    rng = np.random.default_rng(5)
    alphas = rng.uniform(0.5, 0.9, 200_000)
    truth = np.mean((1 - alphas**8) / (1 - alphas))
    covered = 0
    for _ in range(200):
        low, high = acceptance.tau_interval(profile(answers_with_own_alpha(rng, 12), 8), 8)
        covered += low <= truth <= high
    assert 0.86 <= covered / 200 <= 0.99


def test_draws_repeat_with_their_seed_and_are_curves():
    found = profile(answers_with_own_alpha(np.random.default_rng(6), 10), 8)
    draws = acceptance.tau_draws(found, 24)
    assert np.array_equal(draws, acceptance.tau_draws(found, 24))
    assert not np.array_equal(draws, acceptance.tau_draws(found, 24, seed=1))
    assert np.all(draws[:, 0] == 1.0)
    assert np.all(np.diff(draws, axis=1) >= 0)
    assert np.all(draws <= np.arange(1, 25) + 1e-9)


def test_one_answer_tells_nothing_of_the_spread_between_answers():
    found = profile([[1, 2, 3, 4]], 4)
    assert acceptance.tau_draws(found, 4) is None
    assert acceptance.tau_interval(found, 4) is None
    assert acceptance.ceiling_share(found, 4).low is None


def test_survival_with_steps_has_the_binomial_error_and_without_none():
    # τ(2) = 1 + S_1, standard error √(S_1 (1 − S_1) / n)
    known = acceptance.from_survival([0.7, 0.5], num_steps=400)
    draws = acceptance.tau_draws(known, 2, num_draws=8000)[:, 1]
    assert draws.mean() == pytest.approx(1.7, abs=0.005)
    assert draws.std() == pytest.approx(np.sqrt(0.7 * 0.3 / 400), rel=0.05)
    assert acceptance.tau_interval(acceptance.from_survival([0.7, 0.5]), 2) is None


def test_a_published_interval_is_honoured():
    found = acceptance.load_profile(f"{PAIR}/alpaca")
    assert acceptance.tau_interval(found, 16, num_draws=4000) == pytest.approx((2.2, 4.2), abs=0.08)
    draws = acceptance.tau_draws(found, 16)
    assert np.median(draws[:, 15]) == pytest.approx(2.855, abs=0.08)
    assert np.all(np.diff(np.diff(draws, axis=1), axis=1) <= 1e-9)


# given by hand ----------------------------------------------------------------------------------------------------------------


def test_from_survival_reads_off_tau():
    found = acceptance.from_survival([0.9, 0.8, 0.5])
    assert found.block_size == 4
    assert [acceptance.tau(found, k) for k in (1, 2, 3, 4)] == pytest.approx([1.0, 1.9, 2.7, 3.2])
    assert found.at_risk == (None, None, None)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([], "empty"),
        ([0.5, 0.6], "rises at position 2"),
        ([86.0], "86 at position 1"),
        ([0.5, float("nan")], "nan at position 2"),
    ],
)
def test_impossible_survival_is_refused(values, message):
    with pytest.raises(InputError, match=message):
        acceptance.from_survival(values)


def test_a_list_that_starts_with_the_anchor_is_pointed_out():
    assert [f.code for f in acceptance.from_survival([1.0, 0.8]).findings] == ["anchor-in-survival"]
    assert acceptance.from_survival([1.0, 1.0]).findings == ()


def test_block_sizes_start_at_one():
    with pytest.raises(InputError, match="block size 0"):
        acceptance.tau_curve(acceptance.from_survival([0.5]), 0)


def test_pooling_keeps_the_longest_context():
    first = acceptance.from_committed([[1, 2]], block_size=2, task="a", target="T", draft="D", longest_context=100)
    second = acceptance.from_committed([[2, 2]], block_size=2, task="b", target="T", draft="D", longest_context=300)
    bare = acceptance.from_committed([[2, 2]], block_size=2, task="b", target="T", draft="D")
    assert acceptance.pool([first, second], "p", "t").longest_context == 300
    assert acceptance.pool([first, bare], "p", "t").longest_context is None
