"""The target network against a plain NumPy reference, and the promises its cache makes."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

from decoding import target
from decoding.checkpoint import random_target
from decoding.config import TargetConfig
from decoding.config_rope import Llama3Scaling
from decoding.layers import rope_frequencies

CONFIG = TargetConfig(
    vocab_size=31, hidden_size=24, intermediate_size=40, num_layers=3, num_heads=4, num_kv_heads=2, head_dim=8, rms_norm_eps=1e-6,
    rope_theta=1e4, qk_norm=True, tied_embeddings=False,
)  # fmt: skip
TOKENS = np.array([[3, 1, 4, 1, 5, 9, 2, 6, 5, 3]])


def run(
    config: TargetConfig,
    params: dict,
    tokens: np.ndarray,
    start: int = 0,
    cache: object = None,
    layers: tuple = (),
    capacity: int = 16,
):
    positions = start + jnp.broadcast_to(jnp.arange(tokens.shape[1]), tokens.shape)
    cache = target.init_cache(config, tokens.shape[0], capacity, jnp.float32) if cache is None else cache
    return target.forward(params, config, jnp.asarray(tokens), positions, cache, layers)


def reference(config: TargetConfig, params: dict, tokens: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
    """One request in float64, head by head, token by token."""
    f = {key: np.asarray(value, np.float64) for key, value in params.items() if key != "layers"}
    n, k, h = config.num_heads, config.num_kv_heads, config.head_dim

    def norm(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + config.rms_norm_eps) * weight

    def turn(x: np.ndarray, position: int) -> np.ndarray:
        angle = position * config.rope_theta ** (-np.arange(h // 2) / (h // 2))
        a, b = x[: h // 2], x[h // 2 :]
        return np.concatenate([a * np.cos(angle) - b * np.sin(angle), b * np.cos(angle) + a * np.sin(angle)])

    x, streams = f["embed"][tokens], []
    for layer in params["layers"]:
        w = {key: np.asarray(value, np.float64) for key, value in layer.items()}
        qkv = norm(x, w["attn_norm"]) @ w["qkv"]
        out = np.zeros((len(tokens), n * h))
        for head in range(n):
            kv = head // (n // k)
            q, keys = qkv[:, head * h : (head + 1) * h], qkv[:, (n + kv) * h : (n + kv + 1) * h]
            values = qkv[:, (n + k + kv) * h : (n + k + kv + 1) * h]
            if config.qk_norm:
                q, keys = norm(q, w["q_norm"]), norm(keys, w["k_norm"])
            q, keys = (np.stack([turn(row, p) for p, row in enumerate(rows)]) for rows in (q, keys))
            for p in range(len(tokens)):
                scores = np.exp(q[p] @ keys[: p + 1].T / np.sqrt(h))
                out[p, head * h : (head + 1) * h] = scores / scores.sum() @ values[: p + 1]
        x = x + out @ w["o"]
        gate, up = np.split(norm(x, w["mlp_norm"]) @ w["gate_up"], 2, axis=1)
        x = x + (gate / (1 + np.exp(-gate)) * up) @ w["down"]
        streams.append(x)
    return norm(x, f["norm"]), streams


@pytest.mark.parametrize("qk_norm", [True, False], ids=["qwen3", "llama"])
def test_matches_reference(qk_norm: bool) -> None:
    config = dataclasses.replace(CONFIG, qk_norm=qk_norm)
    params = random_target(config, 1, jnp.float32)
    hidden, features, _ = run(config, params, TOKENS, layers=(0, 2))
    expected, streams = reference(config, params, TOKENS[0])
    np.testing.assert_allclose(hidden[0], expected, atol=2e-5)
    np.testing.assert_allclose(features[0], np.concatenate([streams[0], streams[2]], axis=1), atol=2e-5)
    logits = target.logits(params, config, hidden)
    np.testing.assert_allclose(logits[0], expected @ np.asarray(params["head"], np.float64), atol=1e-4)


def test_feature_order_is_the_order_asked_for() -> None:
    params = random_target(CONFIG, 1, jnp.float32)
    _, ab, _ = run(CONFIG, params, TOKENS, layers=(0, 2))
    _, ba, _ = run(CONFIG, params, TOKENS, layers=(2, 0))
    np.testing.assert_array_equal(np.roll(np.asarray(ab), 24, axis=-1), ba)


def test_pieces_give_what_the_whole_gives() -> None:
    params = random_target(CONFIG, 2, jnp.float32)
    whole, _, _ = run(CONFIG, params, TOKENS)
    first, _, cache = run(CONFIG, params, TOKENS[:, :4])
    second, _, cache = run(CONFIG, params, TOKENS[:, 4:5], 4, cache)
    third, _, _ = run(CONFIG, params, TOKENS[:, 5:], 5, cache)
    np.testing.assert_allclose(np.concatenate([first, second, third], axis=1), whole, atol=1e-5)


def test_rejected_rows_leave_no_trace() -> None:
    params = random_target(CONFIG, 3, jnp.float32)
    whole, _, _ = run(CONFIG, params, TOKENS)
    _, _, cache = run(CONFIG, params, TOKENS[:, :4])
    _, _, cache = run(CONFIG, params, np.array([[7, 8, 9, 10, 11, 12]]), 4, cache)  # a block that gets rejected
    again, _, _ = run(CONFIG, params, TOKENS[:, 4:], 4, cache)
    np.testing.assert_allclose(again, whole[:, 4:], atol=1e-5)


def test_requests_of_unlike_lengths_share_a_batch() -> None:
    params = random_target(CONFIG, 4, jnp.float32)
    padded = np.array([[3, 1, 4, 1, 5], [2, 7, 0, 0, 0]])
    _, _, cache = run(CONFIG, params, padded)
    positions = jnp.array([[5, 6], [2, 3]])
    batch, _, _ = target.forward(params, CONFIG, jnp.array([[9, 2], [8, 2]]), positions, cache)
    alone_a, _, _ = run(CONFIG, params, np.array([[3, 1, 4, 1, 5, 9, 2]]))
    alone_b, _, _ = run(CONFIG, params, np.array([[2, 7, 8, 2]]))
    np.testing.assert_allclose(batch[0], alone_a[0, 5:], atol=1e-5)
    np.testing.assert_allclose(batch[1], alone_b[0, 2:], atol=1e-5)


def test_tied_head_is_the_embedding() -> None:
    config = dataclasses.replace(CONFIG, tied_embeddings=True)
    params = random_target(config, 5, jnp.float32)
    hidden, _, _ = run(config, params, TOKENS)
    expected = np.asarray(hidden[0]) @ np.asarray(params["embed"]).T
    np.testing.assert_allclose(target.logits(params, config, hidden)[0], expected, atol=1e-4)


def test_bfloat16_stays_near_float32() -> None:
    wide, _, _ = run(CONFIG, random_target(CONFIG, 6, jnp.float32), TOKENS)
    params = random_target(CONFIG, 6, jnp.bfloat16)
    cache = target.init_cache(CONFIG, 1, 16, jnp.bfloat16)
    narrow, _, _ = run(CONFIG, params, TOKENS, cache=cache)
    assert narrow.dtype == jnp.bfloat16
    assert target.logits(params, CONFIG, narrow).dtype == jnp.float32
    error = np.abs(np.asarray(narrow, np.float32) - np.asarray(wide)).mean() / np.abs(np.asarray(wide)).mean()
    assert error < 0.05  # 8 bits of mantissa: 0.4 % per rounding, a few dozen roundings deep


def test_llama3_frequencies_by_hand() -> None:
    scaling = Llama3Scaling(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=8192)
    plain, scaled = np.asarray(rope_frequencies(128, 5e5, None)), np.asarray(rope_frequencies(128, 5e5, scaling))
    wavelength = 2 * np.pi / plain
    np.testing.assert_allclose(scaled[wavelength < 8192 / 4], plain[wavelength < 8192 / 4], rtol=1e-6)
    np.testing.assert_allclose(scaled[wavelength > 8192], plain[wavelength > 8192] / 8, rtol=1e-6)
    middle = (wavelength > 8192 / 4) & (wavelength < 8192)
    smooth = (8192 / wavelength[middle] - 1) / (4 - 1)
    np.testing.assert_allclose(scaled[middle], (1 - smooth) * plain[middle] / 8 + smooth * plain[middle], rtol=1e-4)
    assert middle.any()


def test_gate_and_up_apart_give_the_same_hidden_states():
    """Split over devices the two matrices are apart; on one they lie side by side."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    from decoding.layers import swiglu

    keys = jax.random.split(jax.random.key(0), 3)
    layer = {"gate_up": jax.random.normal(keys[0], (16, 48)), "down": jax.random.normal(keys[1], (24, 16))}
    x = jax.random.normal(keys[2], (1, 3, 16))
    apart = tuple(jnp.split(layer["gate_up"], 2, axis=1))
    np.testing.assert_allclose(swiglu(x, apart, layer["down"]), swiglu(x, layer["gate_up"], layer["down"]), rtol=1e-5, atol=1e-5)


def test_a_tpu_is_told_how_much_memory_an_operation_may_use_and_a_v7x_gets_tall_tiles():
    import jax
    import jax.numpy as jnp
    from jax.sharding import SingleDeviceSharding

    from decoding.layout import laid_out
    from decoding.tpu import compiler_options

    assert compiler_options("TPU v5") == {"xla_tpu_scoped_vmem_limit_kib": "49152"}
    assert compiler_options("cpu") == compiler_options("TPU v4") == {}
    shapes = {"down": ((24, 16), jnp.bfloat16), "norm": ((16,), jnp.bfloat16), "wide": ((8, 16), jnp.float32)}
    params = {name: jax.ShapeDtypeStruct(*shape) for name, shape in shapes.items()}
    assert laid_out(params, "TPU v6 lite") is params
    tall = laid_out(params, "TPU7x", SingleDeviceSharding(jax.devices()[0]))
    tiles = {name: None if leaf.format.layout is None else leaf.format.layout.tiling for name, leaf in tall.items()}
    assert tiles == {"down": ((16, 128), (2, 1)), "norm": None, "wide": None}
