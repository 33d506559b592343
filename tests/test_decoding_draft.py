"""The drafter against a dense NumPy reference, and what it must and must not see."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_decoding_target import CONFIG as TARGET

from decoding import draft, draft2, drafter
from decoding.checkpoint import as_built, random_draft, random_target
from decoding.config_draft import Draft2Config, DraftConfig
from decoding.layers import KVCache

CONFIG = DraftConfig(
    vocab_size=31, hidden_size=24, intermediate_size=40, num_layers=2, num_heads=4, num_kv_heads=2, head_dim=8, rms_norm_eps=1e-6,
    rope_theta=1e4, block_size=4, mask_token_id=30, target_layer_ids=(0, 2), num_target_layers=3, target_hidden_size=24,
)  # fmt: skip
CAPACITY = 16

forward = jax.jit(draft.forward, static_argnums=1)
extend_context = jax.jit(draft.extend_context, static_argnums=(1, 3))


def inputs(seed: int = 0, num_context: int = 6, num_slots: int = 4) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    return (
        generator.standard_normal((num_context, 48)).astype(np.float32),
        generator.standard_normal((num_slots, 24)).astype(np.float32),
    )


def extend(params: dict, config: DraftConfig, features: np.ndarray, positions: np.ndarray, cache: KVCache) -> KVCache:
    """The cache with all of these rows; the drafter reads neither tokens nor the target."""
    num_new = jnp.full(features.shape[0], features.shape[1])
    return extend_context(params, config, {}, TARGET, features, positions * 0, positions, num_new, cache)


def run(
    params: dict, features: np.ndarray, block: np.ndarray, anchor: int | None = None, config: DraftConfig = CONFIG
) -> np.ndarray:
    cache = draft.init_state(config, 1, CAPACITY, jnp.float32)
    cache = extend(params, config, features[None], jnp.arange(len(features))[None], cache)
    anchors = jnp.array([len(features) if anchor is None else anchor])
    return np.asarray(forward(params, config, block[None], anchors, cache))[0]


def attention_by_hand(config: DraftConfig, layer: int, num_context: int, num_slots: int, q: int, key: int) -> bool:
    """Whether slot q of the block sees the key at this absolute position."""
    position, window = num_context + q, config.layer_windows[layer]
    near = window is None or abs(position - key) < window
    ahead = key > position
    return near and not (ahead and config.layer_causality[layer]) and key < num_context + num_slots


def reference(
    params: dict, features: np.ndarray, block: np.ndarray, config: DraftConfig = CONFIG, value_scale: float = 1.0
) -> np.ndarray:
    """Keys of context and block joined, what each slot sees by its layer's rule, float64."""
    n, k, h, s = CONFIG.num_heads, CONFIG.num_kv_heads, CONFIG.head_dim, len(features)
    wide = {key: np.asarray(value, np.float64) for key, value in params.items() if key != "layers"}

    def norm(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + CONFIG.rms_norm_eps) * weight

    def turn(x: np.ndarray, positions: np.ndarray) -> np.ndarray:
        angle = positions[:, None] * CONFIG.rope_theta ** (-np.arange(h // 2) / (h // 2))
        a, b = x[:, : h // 2], x[:, h // 2 :]
        return np.concatenate([a * np.cos(angle) - b * np.sin(angle), b * np.cos(angle) + a * np.sin(angle)], axis=1)

    context, x = norm(features @ wide["fc"], wide["hidden_norm"]), block.astype(np.float64)
    for number, layer in enumerate(params["layers"]):
        seen = [
            [attention_by_hand(config, number, s, len(block), q, key) for key in range(s + len(block))] for q in range(len(block))
        ]
        w = {key: np.asarray(value, np.float64) for key, value in layer.items()}
        normed = norm(x, w["attn_norm"])
        kv, out = np.concatenate([context, normed]) @ w["kv"], []
        for head in range(n):
            g = head // (n // k)
            q = turn(norm(normed @ w["q"][:, head * h : (head + 1) * h], w["q_norm"]), s + np.arange(len(block)))
            keys = turn(norm(kv[:, g * h : (g + 1) * h], w["k_norm"]), np.arange(s + len(block)))
            scores = np.exp(q @ keys.T / np.sqrt(h)) * np.array(seen)
            out.append(scores / scores.sum(1, keepdims=True) @ (value_scale * kv[:, (k + g) * h : (k + g + 1) * h]))
        x = x + np.concatenate(out, axis=1) @ w["o"]
        gate, up = np.split(norm(x, w["mlp_norm"]) @ w["gate_up"], 2, axis=1)
        x = x + (gate / (1 + np.exp(-gate)) * up) @ w["down"]
    return norm(x, wide["norm"])


def test_matches_dense_reference_and_needs_its_context() -> None:
    params, (features, block) = random_draft(CONFIG, 1, jnp.float32), inputs()
    out = run(params, features, block)
    np.testing.assert_allclose(out, reference(params, features, block), atol=3e-5)
    without = run(params, features, block, anchor=0)  # same positions apart, no context visible
    assert np.abs(out - without).max() > 0.1


def test_a_scale_of_the_values_is_that_of_context_and_block() -> None:
    scaled = dataclasses.replace(CONFIG, value_scale=0.707)
    params, (features, block) = random_draft(scaled, 1, jnp.float32), inputs()
    out = run(params, features, block, config=as_built(scaled))
    plain = random_draft(CONFIG, 1, jnp.float32)
    np.testing.assert_allclose(out, reference(plain, features, block, value_scale=0.707), atol=3e-5)
    assert np.abs(out - run(plain, features, block)).max() > 0.05


def test_block_is_bidirectional() -> None:
    params, (features, block) = random_draft(CONFIG, 2, jnp.float32), inputs()
    changed = block.copy()
    changed[-1] += 1.0
    assert np.abs(run(params, features, changed) - run(params, features, block))[0].max() > 1e-3


def test_only_slots_before_the_anchor_are_seen() -> None:
    params, (features, block) = random_draft(CONFIG, 3, jnp.float32), inputs(num_context=9)
    expected = run(params, features[:6], block)
    np.testing.assert_allclose(run(params, features, block, anchor=6), expected, atol=1e-6)  # features of rejected rows behind it
    changed = features.copy()
    changed[5] += 1.0
    assert np.abs(run(params, changed, block, anchor=6) - expected).max() > 1e-3


def test_context_in_pieces_and_other_capacities() -> None:
    params, (features, block) = random_draft(CONFIG, 4, jnp.float32), inputs()
    cache = draft.init_state(CONFIG, 1, 24, jnp.float32)
    for start, stop in ((0, 3), (3, 4), (4, 6)):
        cache = extend(params, CONFIG, features[None, start:stop], jnp.arange(start, stop)[None], cache)
    pieces = np.asarray(forward(params, CONFIG, block[None], jnp.array([6]), cache))[0]
    np.testing.assert_allclose(pieces, run(params, features, block), atol=1e-5)


def test_requests_of_unlike_lengths_share_a_batch() -> None:
    params, (features, block) = random_draft(CONFIG, 5, jnp.float32), inputs()
    cache = draft.init_state(CONFIG, 2, CAPACITY, jnp.float32)
    both, positions = np.stack([features, features[::-1]]), jnp.stack([jnp.arange(6), jnp.arange(6)])
    cache = extend(params, CONFIG, both, positions, cache)
    out = np.asarray(forward(params, CONFIG, np.stack([block, block]), jnp.array([6, 2]), cache))
    np.testing.assert_allclose(out[0], run(params, features, block), atol=1e-5)
    np.testing.assert_allclose(out[1], run(params, features[::-1][:2], block), atol=1e-5)


WINDOWED = dataclasses.replace(CONFIG, windows=(3, None), causal=(True, False))


@pytest.mark.parametrize("config", [WINDOWED, dataclasses.replace(WINDOWED, windows=(3, 2), causal=(False, True))])
def test_windows_and_causality_against_the_dense_reference(config: DraftConfig) -> None:
    params, (features, block) = random_draft(config, 1, jnp.float32), inputs(num_context=9)
    np.testing.assert_allclose(run(params, features, block, config=config), reference(params, features, block, config), atol=3e-5)
    full = dataclasses.replace(config, windows=(), causal=())
    assert np.abs(run(params, features, block, config=full) - run(params, features, block, config=config)).max() > 1e-2


@pytest.mark.parametrize("batch", [1, 2])
def test_a_windowed_cache_is_small_and_as_good_as_an_unbounded_one(batch: int) -> None:
    """Steps with rejected rows, far beyond the window: a ring of the window's size against a slot for every position."""
    config = dataclasses.replace(CONFIG, windows=(5, 5), causal=(True, True))
    params = random_draft(config, 6, jnp.float32)
    generator = np.random.default_rng(6)
    ring = draft.init_state(config, batch, 64, jnp.float32)
    assert [leaf.shape[1] for leaf in (*ring.k, *ring.v)] == [5] * 4
    wide = draft.init_state(CONFIG, batch, 64, jnp.float32)
    position = np.zeros(batch, np.int32)
    for num_rows, kept in ((11, (11, 7)), (4, (1, 3)), (4, (4, 1)), (4, (2, 4)), (16, (9, 5)), (4, (1, 1))):
        features = generator.standard_normal((batch, num_rows, 48)).astype(np.float32)
        positions, num_new = position[:, None] + np.arange(num_rows), np.array(kept[:batch])
        ring = extend_context(params, config, {}, TARGET, features, positions, positions, num_new, ring)
        wide = extend_context(params, config, {}, TARGET, features, positions, positions, num_new, wide)
        position = position + num_new
        block = generator.standard_normal((batch, 4, 24)).astype(np.float32)
        anchors = jnp.asarray(position)
        np.testing.assert_allclose(
            forward(params, config, block, anchors, ring), forward(params, config, block, anchors, wide), atol=1e-5
        )
    assert position.min() > 3 * 5


def test_a_sink_takes_weight_from_every_key() -> None:
    config = dataclasses.replace(CONFIG, attention_sinks=True)
    params, (features, block) = random_draft(config, 2, jnp.float32), inputs()
    deep = params | {"layers": [layer | {"sinks": jnp.full(4, -1e9)} for layer in params["layers"]]}
    plain = params | {"layers": [{k: v for k, v in layer.items() if k != "sinks"} for layer in params["layers"]]}
    np.testing.assert_allclose(run(deep, features, block), run(plain, features, block), atol=1e-6)
    # A sink far above all scores leaves nothing of attention: what remains is the MLPs alone.
    high = params | {"layers": [layer | {"sinks": jnp.full(4, 1e9)} for layer in params["layers"]]}
    silent = plain | {"layers": [layer | {"o": jnp.zeros_like(layer["o"])} for layer in plain["layers"]]}
    np.testing.assert_allclose(run(high, features, block), run(silent, features, block), atol=1e-5)


def proposal(config: DraftConfig, params: dict, target_params: dict, block_size: int, choose=drafter.argmax) -> tuple:
    state = draft.init_state(config, 1, CAPACITY, jnp.float32)
    features, _ = inputs()
    positions = jnp.arange(6)[None]
    state = drafter.extend_context(
        params, config, target_params, TARGET, features[None], positions, positions, jnp.array([6]), state
    )
    drafts, probabilities, _ = drafter.propose(
        params, config, target_params, TARGET, jnp.array([[5]]), jnp.array([6]), state, block_size, choose
    )
    return np.asarray(drafts)[0], probabilities


def logits_by_hand(config: DraftConfig, params: dict, target_params: dict, num_slots: int) -> np.ndarray:
    """Logits of all slots of the block, from the target's embedding and head."""
    features, _ = inputs()
    ids = [5] + [config.mask_token_id] * (num_slots - 1)
    block = np.asarray(target_params["embed"])[ids] * config.input_embedding_scale
    return run(params, features, block, config=config) @ np.asarray(target_params["head"])


def test_slot_k_predicts_its_own_token_or_with_sampling_from_the_anchor_the_next() -> None:
    target_params, params = random_target(TARGET, 1, jnp.float32), random_draft(CONFIG, 2, jnp.float32)
    drafts, _ = proposal(CONFIG, params, target_params, 4)
    np.testing.assert_array_equal(drafts, logits_by_hand(CONFIG, params, target_params, 4).argmax(-1)[1:])
    shifted = dataclasses.replace(CONFIG, sample_from_anchor=True, input_embedding_scale=0.5)
    drafts, _ = proposal(shifted, params, target_params, 4)
    np.testing.assert_array_equal(drafts, logits_by_hand(shifted, params, target_params, 3).argmax(-1))  # 3 slots, 3 drafts
    assert drafter.trained_block_size(shifted) == 5


def test_scalars_shape_the_logits() -> None:
    config = dataclasses.replace(CONFIG, output_multiplier=3.0, final_logit_softcapping=2.0, logit_scale=0.5)
    target_params, params = random_target(TARGET, 1, jnp.float32), random_draft(CONFIG, 2, jnp.float32)
    hidden = np.ones((1, 1, 24), np.float32)
    plain = draft.draft_logits(params, CONFIG, target_params, TARGET, hidden)
    scaled = draft.draft_logits(params, config, target_params, TARGET, hidden)
    np.testing.assert_allclose(scaled, 0.5 * 2 * np.tanh(3 * np.asarray(plain) / 2), rtol=1e-5)


def test_a_draft_vocabulary_speaks_the_targets_ids() -> None:
    config = dataclasses.replace(CONFIG, draft_vocab_size=7)
    target_params, params = random_target(TARGET, 1, jnp.float32), random_draft(config, 2, jnp.float32)
    ids = np.array([3, 4, 8, 9, 20, 25, 30])
    params |= {"d2t": jnp.asarray(ids)}

    def softmax(logits: np.ndarray, slot: int = 0) -> tuple:
        return jnp.argmax(logits, axis=-1), jax.nn.softmax(logits, axis=-1)

    drafts, probabilities = proposal(config, params, target_params, 4, softmax)
    assert set(drafts) <= set(ids)
    assert probabilities.shape == (1, 3, 31)
    np.testing.assert_array_equal(np.asarray(probabilities)[0].argmax(-1), drafts)
    np.testing.assert_allclose(np.asarray(probabilities)[..., ids].sum(-1), 1.0, rtol=1e-5)


def test_a_mask_embedding_of_its_own_replaces_the_tables_row() -> None:
    target_params, params = random_target(TARGET, 1, jnp.float32), random_draft(CONFIG, 2, jnp.float32)
    row = target_params["embed"][CONFIG.mask_token_id]
    same, _ = proposal(CONFIG, params | {"mask_embedding": row}, target_params, 4)
    np.testing.assert_array_equal(same, proposal(CONFIG, params, target_params, 4)[0])
    embedded = draft.block_embeddings(params | {"mask_embedding": 0 * row}, CONFIG, target_params, jnp.array([[5]]), 2)
    np.testing.assert_array_equal(embedded[0, 1:], 0)
    np.testing.assert_array_equal(embedded[0, 0], target_params["embed"][5])


def test_the_selector_walks_from_left_to_right_and_gives_a_distribution() -> None:
    own = {"conv_kernel_size": 2, "conv_group_size": 8, "selector_rank": 3, "selector_top_k": 4}
    config = Draft2Config(**vars(CONFIG), **own)
    params = random_draft(config, 3, jnp.float32)
    generator = np.random.default_rng(0)
    hidden, logits = (
        generator.standard_normal((1, 3, 24)).astype(np.float32),
        generator.standard_normal((1, 3, 31)).astype(np.float32),
    )

    def softmax(scores: np.ndarray, slot: int = 0) -> tuple:
        return jnp.argmax(scores, axis=-1), jax.nn.softmax(scores, axis=-1)

    tokens, probabilities = draft2.select(params["selector"], config, hidden, logits, jnp.array([7]), softmax)
    selector = {name: np.asarray(value) for name, value in params["selector"].items()}
    previous, expected = 7, []
    for slot in range(3):
        best = np.argsort(-logits[0, slot])[:4]
        code = selector["predecessor"][previous] * (hidden[0, slot] @ selector["hidden"])
        scores = logits[0, slot, best] + selector["successor"][best] @ code
        previous = best[scores.argmax()]
        expected.append(previous)
        weights = np.exp(scores) / np.exp(scores).sum()
        np.testing.assert_allclose(np.asarray(probabilities)[0, slot, best], weights, rtol=1e-4)
    assert np.asarray(tokens)[0].tolist() == expected
    np.testing.assert_allclose(np.asarray(probabilities).sum(-1), 1.0, rtol=1e-5)
