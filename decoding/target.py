"""The target: a dense causal language model of the Llama 3 or Qwen3 kind, one implementation for both.

A position of the paged cache is the absolute position of its token, and a query at position p sees the positions up to p. So
rejected drafts need no roll-back (their rows are masked, then overwritten), requests of unlike lengths share a batch without
padding logic, and no count of accepted tokens ever changes a shape.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from .attention import Kernel, default_kernel
from .config import TargetConfig
from .layers import linear, linear_parts, product, rms_norm, rope_table, rotate, swiglu, tied_head
from .paged import PagedCache, attend_pages, empty_pages, write_pages

Params = dict[str, Any]
"""embed [v d] · layers[i] {attn_norm, qkv [d (n+2k)h], o [nh d], mlp_norm, gate_up [d 2f], down [f d], q_norm?, k_norm?} ·
norm · head [d v]. A tied head is stored again as a transposed copy only where that is faster, and matrices may be turned, paired or
apart; see `layout`. Split over devices, qkv and gate_up are tuples of matrices; see `parallel`."""


def init_cache(
    config: TargetConfig,
    batch: int,
    capacity: int,
    dtype: jnp.dtype,
    kernel: Kernel | None = None,
    table: Int[Array, "b m"] | None = None,
) -> PagedCache:
    """An empty cache for `batch` requests of up to `capacity` positions, to be read by `kernel` (None: this machine's)."""
    return empty_pages(
        config.num_layers, batch, capacity, config.num_kv_heads, config.head_dim, dtype, kernel or default_kernel(), table
    )


def forward(
    params: Params,
    config: TargetConfig,
    tokens: Int[Array, "b t"],
    positions: Int[Array, "b t"],
    cache: PagedCache,
    feature_layers: Sequence[int] = (),
) -> tuple[Float[Array, "b t d"], Float[Array, "b t nd"] | None, PagedCache]:
    """Hidden states after the final norm, the features (residual streams after `feature_layers`, joined), and the grown cache.

    Positions are consecutive in each request and lie below the cache's capacity.
    """
    x = embed(params, tokens)
    table = rope_table(positions, config.head_dim, config.rope_theta, config.rope_scaling)
    pages, taps = [], {}
    for i, layer in enumerate(params["layers"]):
        x, written = _layer(layer, config, x, table, positions, cache, i)
        pages.append(written)
        if i in feature_layers:
            taps[i] = x
    hidden = rms_norm(x, params["norm"], config.rms_norm_eps)
    features = jnp.concatenate([taps[i] for i in feature_layers], axis=-1) if feature_layers else None
    return hidden, features, PagedCache(tuple(pages), cache.table, cache.kernel, cache.num_kv_heads)


def embed(params: Params, tokens: Int[Array, "b t"]) -> Float[Array, "b t d"]:
    """The embedding rows of `tokens`."""
    with jax.named_scope("embed"):
        return jnp.take(params["embed"], tokens, axis=0)


def logits(params: Params, config: TargetConfig, hidden: Float[Array, "b t d"]) -> Float[Array, "b t v"]:
    """Next-token logits in float32."""
    with jax.named_scope("head"):
        if "head" not in params:
            return tied_head(hidden, params["embed"])
        return product(hidden, params["head"])


def _layer(
    layer: Params,
    config: TargetConfig,
    x: Float[Array, "b t d"],
    table: tuple[Array, Array],
    positions: Int[Array, "b t"],
    cache: PagedCache,
    index: int,
) -> tuple[Float[Array, "b t d"], tuple[Array, ...]]:
    b, t, _ = x.shape
    n, k, h = config.num_heads, config.num_kv_heads, config.head_dim
    with jax.named_scope("qkv"):
        normed = rms_norm(x, layer["attn_norm"], config.rms_norm_eps)
        q, new_k, new_v = linear_parts(normed, layer["qkv"], [n * h, k * h, k * h])
        q, new_k, new_v = q.reshape(b, t, n, h), new_k.reshape(b, t, k, h), new_v.reshape(b, t, k, h)
        if config.qk_norm:
            q, new_k = rms_norm(q, layer["q_norm"], config.rms_norm_eps), rms_norm(new_k, layer["k_norm"], config.rms_norm_eps)
    with jax.named_scope("rope"):
        q, new_k = rotate(q, table), rotate(new_k, table)
    with jax.named_scope("attention"):
        pages = write_pages(cache, index, new_k, new_v, positions)
        x = x + linear(attend_pages(cache, pages, q, positions), layer["o"])
    with jax.named_scope("mlp"):
        x = x + swiglu(rms_norm(x, layer["mlp_norm"], config.rms_norm_eps), layer["gate_up"], layer["down"])
    return x, pages
