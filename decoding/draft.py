"""The DFlash drafter: one bidirectional pass over a block of mask tokens, conditioned on the target's own features.

Each token's features (residual streams of several target layers, joined) pass once through `fc` and `hidden_norm`; the result is
projected to keys and values in every drafter layer and cached. The block (the last committed token, called the anchor, followed
by mask tokens) attends to that context and to itself without a causal mask, and slot k predicts the token at its own position.
Only the context is cached; the block's keys and values are thrown away. Embedding and head are the target's.
Source: DFlash, arXiv 2602.06036, section 3, and the layout of the z-lab checkpoints.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from .config import DraftConfig
from .layers import (
    MASKED,
    KVCache,
    attention_mix,
    attention_scores,
    empty_cache,
    linear,
    rms_norm,
    rope_table,
    rotate,
    swiglu,
    write_rows,
)

Params = dict[str, Any]
"""fc [nd d] · hidden_norm · layers[i] {attn_norm, q [d nh], kv [d 2kh], q_norm, k_norm, o, mlp_norm, gate_up, down} · norm."""


def init_cache(config: DraftConfig, batch: int, capacity: int, dtype: jnp.dtype) -> KVCache:
    """An empty context cache: it will hold only keys and values computed from target features."""
    return empty_cache(config.num_layers, batch, capacity, config.num_kv_heads, config.head_dim, dtype)


def context_states(params: Params, config: DraftConfig, features: Float[Array, "b m nd"]) -> Float[Array, "b m d"]:
    """hidden_norm(fc(features)): the context state every drafter layer reads."""
    with jax.named_scope("fc"):
        return rms_norm(linear(features, params["fc"]), params["hidden_norm"], config.rms_norm_eps)


def context_kv(
    layer: Params, config: DraftConfig, context: Float[Array, "b m d"], table: tuple[Array, Array]
) -> tuple[Float[Array, "b m k h"], Float[Array, "b m k h"]]:
    """Keys (normed, rotated) and values of a layer for inputs that are already normed: context states or a normed block."""
    b, m, _ = context.shape
    k, v = jnp.split(linear(context, layer["kv"]), 2, axis=-1)
    k = rms_norm(k.reshape(b, m, config.num_kv_heads, config.head_dim), layer["k_norm"], config.rms_norm_eps)
    return rotate(k, table), v.reshape(b, m, config.num_kv_heads, config.head_dim)


def extend_context(
    params: Params, config: DraftConfig, features: Float[Array, "b m nd"], positions: Int[Array, "b m"], cache: KVCache
) -> KVCache:
    """The cache with the context keys and values of these positions, which are consecutive in each request."""
    context = context_states(params, config, features)
    table = rope_table(positions, config.head_dim, config.rope_theta, config.rope_scaling)
    keys, values = [], []
    for layer, old_k, old_v in zip(params["layers"], cache.k, cache.v, strict=True):
        with jax.named_scope("context_kv"):
            k, v = context_kv(layer, config, context, table)
            keys.append(write_rows(old_k, k, positions))
            values.append(write_rows(old_v, v, positions))
    return KVCache(tuple(keys), tuple(values))


def forward(
    params: Params,
    config: DraftConfig,
    block_embeddings: Float[Array, "b t d"],
    anchor_positions: Int[Array, " b"],
    cache: KVCache,
) -> Float[Array, "b t d"]:
    """Hidden states of the block after the final norm; slot k predicts the token at anchor + k (slot 0, the anchor, nothing).

    The block sees the context strictly before its anchor, whose own features do not exist yet, and all of itself.
    """
    positions = anchor_positions[:, None] + jnp.arange(block_embeddings.shape[1])
    table = rope_table(positions, config.head_dim, config.rope_theta, config.rope_scaling)
    visible = jnp.arange(cache.k[0].shape[1]) < anchor_positions[:, None]
    x = block_embeddings
    for layer, keys, values in zip(params["layers"], cache.k, cache.v, strict=True):
        x = block_layer(layer, config, x, table, functools.partial(attend_block, keys, values, visible))
    return rms_norm(x, params["norm"], config.rms_norm_eps)


def attend_block(
    keys: Float[Array, "b s k h"],
    values: Float[Array, "b s k h"],
    visible: Bool[Array, "b s"],
    q: Float[Array, "b t n h"],
    block_k: Float[Array, "b t k h"],
    block_v: Float[Array, "b t k h"],
) -> Float[Array, "b t nh"]:
    """Attention of a block over the visible context and all of itself."""
    # Scores are joined rather than keys: joining keys would copy the whole cache at every step.
    context_scores = jnp.where(visible[:, None, None, None], attention_scores(q, keys), MASKED)
    weights = jax.nn.softmax(jnp.concatenate([context_scores, attention_scores(q, block_k)], axis=-1), axis=-1)
    num_context = keys.shape[1]
    return attention_mix(weights[..., :num_context], values) + attention_mix(weights[..., num_context:], block_v)


def block_layer(
    layer: Params,
    config: DraftConfig,
    x: Float[Array, "b t d"],
    table: tuple[Array, Array],
    attention: Callable[[Array, Array, Array], Array],
) -> Float[Array, "b t d"]:
    """One drafter layer over block tokens; `attention` gets their q, k, v (rotated) and knows the context."""
    b, t, _ = x.shape
    with jax.named_scope("qkv"):
        normed = rms_norm(x, layer["attn_norm"], config.rms_norm_eps)
        q = linear(normed, layer["q"]).reshape(b, t, config.num_heads, config.head_dim)
        q = rotate(rms_norm(q, layer["q_norm"], config.rms_norm_eps), table)
        block_k, block_v = context_kv(layer, config, normed, table)
    with jax.named_scope("attention"):
        x = x + linear(attention(q, block_k, block_v), layer["o"])
    with jax.named_scope("mlp"):
        return x + swiglu(rms_norm(x, layer["mlp_norm"], config.rms_norm_eps), layer["gate_up"], layer["down"])
