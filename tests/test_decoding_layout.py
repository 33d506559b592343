"""Forms that weights are kept in: each device has its own, and none changes what is computed."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from decoding_pairs import DRAFT, TARGET, small_pair

from decoding import target as model
from decoding.config_eagle3 import Eagle3Config
from decoding.drafter import AnyDraftConfig
from decoding.layers import Paired, Turned, attend, attend_all_heads, linear, product
from decoding.layout import laid_out
from decoding.loop import Decoder, generate, required_capacity
from decoding.pair import random_pair
from decoding.parallel import device_mesh, split_params

KEYS = jax.random.split(jax.random.key(7), 8)

PROMPTS = [[3, 1, 4, 1, 5], [9, 2, 6]]


@pytest.mark.parametrize("num_rows", [1, 2, 5])
def test_a_form_gives_the_plain_product(num_rows: int) -> None:
    """[in, out] = [24, 40], turned or paired; one row and several."""
    weight, x = jax.random.normal(KEYS[0], (24, 40)), jax.random.normal(KEYS[1], (1, num_rows, 24))
    assert Turned(weight.T).shape == Paired(weight).shape == weight.shape
    np.testing.assert_allclose(jax.jit(linear)(x, Turned(weight.T)), x @ weight, rtol=1e-5, atol=1e-5)
    narrow, narrow_x = weight.astype(jnp.bfloat16), x.astype(jnp.bfloat16)
    wide = np.asarray(narrow_x, np.float64) @ np.asarray(narrow, np.float64)
    found = jax.jit(product)(narrow_x, Paired(narrow))
    assert found.dtype == jnp.float32
    np.testing.assert_allclose(found, wide, rtol=1e-4, atol=1e-4)


def test_a_cpu_turns_float32_and_pairs_bfloat16() -> None:
    """A tied head is stored again for bfloat16 only; abstract weights stay abstract; other devices get what they gave."""
    pair = random_pair(dataclasses.replace(TARGET, tied_embeddings=True), None, 0)
    placed = laid_out(pair.target_params, "cpu")
    assert isinstance(placed["layers"][0]["down"], Turned)
    assert "head" not in placed
    assert placed["layers"][0]["mlp_norm"] is pair.target_params["layers"][0]["mlp_norm"]
    narrow = jax.tree.map(lambda x: x.astype(jnp.bfloat16), pair.target_params)
    placed = laid_out(narrow, "cpu")
    assert isinstance(placed["layers"][0]["qkv"], Paired)
    np.testing.assert_array_equal(placed["head"].as_built, narrow["embed"].T)
    assert laid_out(narrow, "NVIDIA H100") is narrow
    shapes = jax.eval_shape(lambda: pair.target_params)
    down = laid_out(shapes, "cpu")["layers"][0]["down"]
    assert isinstance(down.matrix, jax.ShapeDtypeStruct)
    assert down.matrix.shape == (TARGET.hidden_size, TARGET.intermediate_size)


EAGLE3 = Eagle3Config(
    vocab_size=TARGET.vocab_size, draft_vocab_size=24, hidden_size=32, intermediate_size=48, num_heads=4, num_kv_heads=2, head_dim=8,
    rms_norm_eps=1e-6, rope_theta=1e4, target_hidden_size=32, target_layer_ids=(0, 1), norm_before_residual=True,
)  # fmt: skip


@pytest.mark.parametrize("draft", [DRAFT, EAGLE3], ids=["dflash", "eagle3"])
def test_the_forms_of_a_cpu_change_no_token(draft: AnyDraftConfig) -> None:
    """Float32, K = 4: the same answers and accepted counts as with the weights as they were built."""
    drafter = random_pair(TARGET, draft, 3)
    pair = small_pair(3, lean=6.0, draft_config=drafter.draft_config, draft_params=drafter.draft_params)
    placed = dataclasses.replace(
        pair, target_params=laid_out(pair.target_params, "cpu"), draft_params=laid_out(pair.draft_params, "cpu")
    )
    assert isinstance(placed.draft_params["fc"], Turned)
    found = [generate(Decoder(p, 4, 2, required_capacity(5, 12, 4)), PROMPTS, 12) for p in (pair, placed)]
    assert found[0].tokens == found[1].tokens
    assert found[0].committed == found[1].committed


def test_bfloat16_on_a_cpu_keeps_its_logits() -> None:
    """One row, tied head: the doubled row gives what the plain product gives, to bfloat16's rounding of the hidden states."""
    config = dataclasses.replace(TARGET, tied_embeddings=True)
    params = jax.tree.map(lambda x: x.astype(jnp.bfloat16), random_pair(config, None, 1).target_params)
    token, position = jnp.array([[5]]), jnp.array([[0]])

    @jax.jit
    def last(params: model.Params) -> jax.Array:
        hidden, _, _ = model.forward(params, config, token, position, model.init_cache(config, 1, 16, jnp.dtype("bfloat16")))
        return model.logits(params, config, hidden)

    plain, paired = last(params), last(laid_out(params, "cpu"))
    np.testing.assert_allclose(paired, plain, rtol=0.02, atol=0.02 * float(jnp.abs(plain).max()))


def test_split_over_devices_weights_are_as_they_were_built() -> None:
    """Columns and rows are told apart as [in, out], whatever form a CPU had them in."""
    pair, mesh = small_pair(0), device_mesh(jax.devices()[:1])
    built = split_params(pair.target_params, pair.target_config, mesh)
    placed = split_params(laid_out(pair.target_params, "cpu"), pair.target_config, mesh)
    jax.tree.map(np.testing.assert_array_equal, placed, built)


@pytest.mark.parametrize("num_queries", [1, 5])
def test_all_heads_at_once_is_attention(num_queries: int) -> None:
    """Six query heads on two KV heads, two requests that see different lengths."""
    q = jax.random.normal(KEYS[2], (2, num_queries, 6, 8))
    keys, values = jax.random.normal(KEYS[3], (2, 2, 20, 2, 8))
    positions = np.array([[3], [8]]) + np.arange(num_queries)
    visible = jnp.asarray(np.arange(20) <= positions[..., None])
    found = jax.jit(attend_all_heads)(q, keys, values, visible)
    np.testing.assert_allclose(found, jax.jit(attend)(q, keys, values, visible), rtol=1e-5, atol=1e-6)
    first = jnp.asarray(np.arange(20) < 1) & visible  # one key alone: its value, whatever its score
    alone = np.asarray(jax.jit(attend_all_heads)(q, keys, values, first)).reshape(2, num_queries, 2, 3, 8)
    np.testing.assert_allclose(alone, np.broadcast_to(values[:, :1, :, None], alone.shape), rtol=1e-6)
