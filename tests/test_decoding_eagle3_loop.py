"""The EAGLE-3 drafter in the decode loop: lossless, the reference's accepted counts, any batch, and the target's law when sampling."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest
from decoding_pairs import TARGET, VOCAB_SIZE, small_pair
from eagle3_reference import Tensors, chain_logits
from scipy import stats

from decoding import eagle3, target
from decoding.config_eagle3 import Eagle3Config
from decoding.loop import Decoder, Generation, generate, required_capacity
from decoding.pair import Pair
from decoding.sampling import Sampling, probabilities

CONFIG = Eagle3Config(
    vocab_size=VOCAB_SIZE, draft_vocab_size=24, hidden_size=32, intermediate_size=48, num_heads=4, num_kv_heads=2, head_dim=8,
    rms_norm_eps=1e-6, rope_theta=1e4, target_hidden_size=32, target_layer_ids=(0, 1), norm_before_residual=True,
)  # fmt: skip
PROMPTS = [[5, 9, 2, 7], [3, 3, 8, 1, 30, 44, 2], [17], [60, 2, 11, 4, 6]]
NEW_TOKENS = 24


def leaning_pair() -> tuple[Pair, Tensors]:
    """A target that likes a few tokens, and a drafter with the target's head on its last feature: often right, often wrong."""
    pair = small_pair(3, lean=2.0)
    tensors = Tensors(CONFIG, seed=4)
    ids = np.unique(np.concatenate([np.arange(4), np.flatnonzero(tensors.tensors["t2d"])]))[:24]
    tensors.tensors |= {
        "d2t": ids - np.arange(24), "t2d": np.isin(np.arange(VOCAB_SIZE), ids),
        "lm_head.weight": np.asarray(pair.target_params["head"]).T[ids], "norm.weight": np.asarray(pair.target_params["norm"]),
        "fc.weight": np.concatenate([0.1 * tensors.tensors["fc.weight"][:, :32], np.eye(32, dtype=np.float32)], axis=1),
        "midlayer.self_attn.o_proj.weight": 0.5 * tensors.tensors["midlayer.self_attn.o_proj.weight"],
        "midlayer.mlp.down_proj.weight": 0.5 * tensors.tensors["midlayer.mlp.down_proj.weight"],
    }  # fmt: skip
    params = eagle3.params_from(tensors, CONFIG, jnp.float32)
    return dataclasses.replace(pair, draft="eagle3", draft_config=CONFIG, draft_params=params), tensors


PAIR, TENSORS = leaning_pair()


def decode(block_size: int, prompts: list[list[int]], **options: object) -> Generation:
    capacity = required_capacity(max(map(len, prompts)), NEW_TOKENS, block_size)
    return generate(Decoder(PAIR, block_size, len(prompts), capacity), prompts, NEW_TOKENS, **options)


@pytest.fixture(scope="module")
def plain() -> Generation:
    return decode(1, PROMPTS)


def features_of(tokens: list[int]) -> np.ndarray:
    cache = target.init_cache(TARGET, 1, len(tokens), jnp.float32)
    _, features, _ = target.forward(
        PAIR.target_params, TARGET, jnp.array([tokens]), jnp.arange(len(tokens))[None], cache, CONFIG.target_layer_ids
    )
    return np.asarray(features)[0]


def reference_counts(prompt: list[int], answer: tuple[int, ...], block_size: int) -> list[int]:
    """Tokens committed per step, from dense chains over the whole text anew at every step."""
    text = [*prompt, *answer]
    features = features_of(text)
    place, counts = len(prompt), []
    while place < len(text) - 1:
        _, drafts = chain_logits(
            CONFIG, TENSORS.tensors, np.asarray(PAIR.target_params["embed"]), features[:place], text[: place + 1], block_size - 1
        )
        behind = text[place + 1 :]
        accepted = next(
            (i for i, (d, t) in enumerate(zip(drafts, behind, strict=False)) if d != t), min(len(drafts), len(behind))
        )
        counts.append(min(accepted + 1, len(behind)))
        place += counts[-1]
    return counts


@pytest.mark.parametrize("block_size", [5, *(pytest.param(k, marks=pytest.mark.slow) for k in (2, 3, 8))])
def test_greedy_is_lossless_and_accepts_what_the_reference_accepts(block_size: int, plain: Generation) -> None:
    # A batch of unlike prompts: accepted counts differ per request and step.
    given = decode(block_size, PROMPTS)
    assert given.tokens == plain.tokens
    for prompt, tokens, committed in zip(PROMPTS, given.tokens, given.committed, strict=True):
        assert list(committed) == reference_counts(prompt, tokens, block_size)
    steps = [count for counts in given.committed for count in counts]
    assert 1.2 < np.mean(steps) < block_size - 0.2  # drafts were accepted, and drafts were rejected


@pytest.mark.slow
def test_alone_as_in_a_batch(plain: Generation) -> None:
    alone = decode(5, PROMPTS[1:2])
    together = decode(5, PROMPTS)
    assert alone.tokens[0] == plain.tokens[1]
    assert alone.committed[0] == together.committed[1]


@pytest.mark.slow
@pytest.mark.parametrize("proposals", ["greedy", "sampled"])
def test_sampled_answers_have_the_targets_law(proposals: str) -> None:
    # The first two tokens behind the prefill's, over many requests with one prompt; the target's law by enumeration.
    sampling = Sampling(0.7, top_k=3, proposals=proposals)
    num, prompt = 512, PROMPTS[0]
    decoder = Decoder(PAIR, 4, num, required_capacity(len(prompt), 3, 4), sampling=sampling)
    counts: dict[tuple[int, ...], int] = {}
    for seed in range(8):
        for tokens in generate(decoder, [prompt] * num, 3, seed=seed).tokens:
            counts[tokens] = counts.get(tokens, 0) + 1
    law = joint_law(prompt, 3, sampling)
    assert set(counts) <= set(law)
    kept = [tokens for tokens, p in law.items() if p * num * 8 >= 5]
    observed = np.array([counts.get(tokens, 0) for tokens in kept])
    expected = np.array([law[tokens] for tokens in kept])
    assert expected.sum() > 0.97
    assert stats.chisquare(observed, expected / expected.sum() * observed.sum()).pvalue > 1e-4


def joint_law(prompt: list[int], length: int, sampling: Sampling) -> dict[tuple[int, ...], float]:
    law = {(): 1.0}
    for _ in range(length):
        rows = [[*prompt, *answer] for answer in law]
        cache = target.init_cache(TARGET, len(rows), len(rows[0]), jnp.float32)
        positions = jnp.broadcast_to(jnp.arange(len(rows[0])), (len(rows), len(rows[0])))
        hidden, _, _ = target.forward(PAIR.target_params, TARGET, jnp.array(rows), positions, cache)
        p = np.asarray(probabilities(target.logits(PAIR.target_params, TARGET, hidden[:, -1:]), sampling))[:, 0]
        law = {
            (*answer, int(token)): mass * float(p[i, token])
            for i, (answer, mass) in enumerate(law.items())
            for token in np.flatnonzero(p[i])
        }
    return law
