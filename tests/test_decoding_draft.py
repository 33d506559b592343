"""The drafter against a dense NumPy reference, and what it must and must not see."""

import jax.numpy as jnp
import numpy as np

from decoding import draft
from decoding.checkpoint import random_draft
from decoding.config import DraftConfig

CONFIG = DraftConfig(
    vocab_size=31, hidden_size=24, intermediate_size=40, num_layers=2, num_heads=4, num_kv_heads=2, head_dim=8, rms_norm_eps=1e-6,
    rope_theta=1e4, block_size=4, mask_token_id=30, target_layer_ids=(0, 2), num_target_layers=3, target_hidden_size=24,
)  # fmt: skip
CAPACITY = 16


def inputs(seed: int = 0, num_context: int = 6, num_slots: int = 4) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    return (
        generator.standard_normal((num_context, 48)).astype(np.float32),
        generator.standard_normal((num_slots, 24)).astype(np.float32),
    )


def run(params: dict, features: np.ndarray, block: np.ndarray, anchor: int | None = None, capacity: int = CAPACITY) -> np.ndarray:
    cache = draft.init_cache(CONFIG, 1, capacity, jnp.float32)
    cache = draft.extend_context(params, CONFIG, features[None], jnp.arange(len(features))[None], cache)
    anchors = jnp.array([len(features) if anchor is None else anchor])
    return np.asarray(draft.forward(params, CONFIG, block[None], anchors, cache))[0]


def reference(params: dict, features: np.ndarray, block: np.ndarray) -> np.ndarray:
    """Keys of context and block joined, no mask at all, float64."""
    n, k, h, s = CONFIG.num_heads, CONFIG.num_kv_heads, CONFIG.head_dim, len(features)
    wide = {key: np.asarray(value, np.float64) for key, value in params.items() if key != "layers"}

    def norm(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + CONFIG.rms_norm_eps) * weight

    def turn(x: np.ndarray, positions: np.ndarray) -> np.ndarray:
        angle = positions[:, None] * CONFIG.rope_theta ** (-np.arange(h // 2) / (h // 2))
        a, b = x[:, : h // 2], x[:, h // 2 :]
        return np.concatenate([a * np.cos(angle) - b * np.sin(angle), b * np.cos(angle) + a * np.sin(angle)], axis=1)

    context, x = norm(features @ wide["fc"], wide["hidden_norm"]), block.astype(np.float64)
    for layer in params["layers"]:
        w = {key: np.asarray(value, np.float64) for key, value in layer.items()}
        normed = norm(x, w["attn_norm"])
        kv, out = np.concatenate([context, normed]) @ w["kv"], []
        for head in range(n):
            g = head // (n // k)
            q = turn(norm(normed @ w["q"][:, head * h : (head + 1) * h], w["q_norm"]), s + np.arange(len(block)))
            keys = turn(norm(kv[:, g * h : (g + 1) * h], w["k_norm"]), np.arange(s + len(block)))
            scores = np.exp(q @ keys.T / np.sqrt(h))
            out.append(scores / scores.sum(1, keepdims=True) @ kv[:, (k + g) * h : (k + g + 1) * h])
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
    cache = draft.init_cache(CONFIG, 1, 24, jnp.float32)
    for start, stop in ((0, 3), (3, 4), (4, 6)):
        cache = draft.extend_context(params, CONFIG, features[None, start:stop], jnp.arange(start, stop)[None], cache)
    pieces = np.asarray(draft.forward(params, CONFIG, block[None], jnp.array([6]), cache))[0]
    np.testing.assert_allclose(pieces, run(params, features, block), atol=1e-5)


def test_requests_of_unlike_lengths_share_a_batch() -> None:
    params, (features, block) = random_draft(CONFIG, 5, jnp.float32), inputs()
    cache = draft.init_cache(CONFIG, 2, CAPACITY, jnp.float32)
    both, positions = np.stack([features, features[::-1]]), jnp.stack([jnp.arange(6), jnp.arange(6)])
    cache = draft.extend_context(params, CONFIG, both, positions, cache)
    out = np.asarray(draft.forward(params, CONFIG, np.stack([block, block]), jnp.array([6, 2]), cache))
    np.testing.assert_allclose(out[0], run(params, features, block), atol=1e-5)
    np.testing.assert_allclose(out[1], run(params, features[::-1][:2], block), atol=1e-5)
