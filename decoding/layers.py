"""Building blocks that target and drafter share: RMSNorm, RoPE, grouped attention, SwiGLU.

All are pure functions of arrays. Norms, softmax and rotation are computed in float32 whatever the weights are; matrix products
accumulate in float32, and float32 weights ask for full precision, since an accelerator's default would round them to bfloat16.
Weights are stored [in, out].
"""

import functools

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from .config import RopeScaling

MASKED = -1e30
"""Score of a key that a query must not see; finite, so that an all-masked row stays a number."""


def linear(x: Float[Array, "... i"], weight: Float[Array, "i o"]) -> Float[Array, "... o"]:
    """x · weight in x's type, accumulated in float32."""
    precision = jax.lax.Precision.HIGHEST if x.dtype == jnp.float32 else None
    return jnp.matmul(x, weight, precision=precision, preferred_element_type=jnp.float32).astype(x.dtype)


def tied_head(x: Float[Array, "b t d"], embed: Float[Array, "v d"]) -> Float[Array, "b t v"]:
    """x · embedᵀ in float32, for the embedding matrix as it is stored, [out, in].

    XLA's CPU library repacks its right-hand operand at every call, so on a CPU the small one goes there: (embed · xᵀ)ᵀ. The
    barriers keep XLA from folding the transposes back into the plain product, which took 14 to 56 % more core time for 2 to 64 rows.
    """
    precision = jax.lax.Precision.HIGHEST if x.dtype == jnp.float32 else None

    def plain(x: Array, embed: Array) -> Array:
        return jnp.einsum("btd,vd->btv", x, embed, precision=precision, preferred_element_type=jnp.float32)

    def swapped(x: Array, embed: Array) -> Array:
        columns = jax.lax.optimization_barrier(x.reshape(-1, x.shape[-1]).T)
        product = jnp.matmul(embed, columns, precision=precision, preferred_element_type=jnp.float32)
        return jax.lax.optimization_barrier(product).T.reshape(*x.shape[:-1], embed.shape[0])

    return jax.lax.platform_dependent(x, embed, cpu=swapped, default=plain)


def rms_norm(x: Float[Array, "... d"], weight: Float[Array, " d"], eps: float) -> Float[Array, "... d"]:
    """x divided by its root mean square over the last axis, times `weight`."""
    wide = x.astype(jnp.float32)
    scale = jax.lax.rsqrt(jnp.mean(wide * wide, axis=-1, keepdims=True) + eps)
    return (wide * scale).astype(x.dtype) * weight


def rope_frequencies(head_dim: int, theta: float, scaling: RopeScaling | None) -> Float[Array, " h_half"]:
    """Radians per position of each rotated pair; Llama 3's rule when `scaling` is given."""
    frequencies = 1.0 / theta ** (jnp.arange(0, head_dim, 2, dtype=jnp.float32) / head_dim)
    if scaling is None:
        return frequencies
    wavelengths = 2 * jnp.pi / frequencies
    ratio = scaling.original_max_position_embeddings / wavelengths
    ramp = jnp.clip((ratio - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor), 0.0, 1.0)
    return (1 - ramp) * frequencies / scaling.factor + ramp * frequencies


def rope_table(
    positions: Int[Array, "b t"], head_dim: int, theta: float, scaling: RopeScaling | None
) -> tuple[Float[Array, "b t 1 h_half"], Float[Array, "b t 1 h_half"]]:
    """Cosines and sines for `rotate`, one per position and pair."""
    angles = positions[..., None, None].astype(jnp.float32) * rope_frequencies(head_dim, theta, scaling)
    return jnp.cos(angles), jnp.sin(angles)


def rotate(x: Float[Array, "b t n h"], table: tuple[Array, Array]) -> Float[Array, "b t n h"]:
    """x with each pair (i, i + h/2) turned by its position's angle (half-split RoPE)."""
    cos, sin = table
    first, second = jnp.split(x.astype(jnp.float32), 2, axis=-1)
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1).astype(x.dtype)


def write_rows(
    cache: Float[Array, "b s k h"], rows: Float[Array, "b t k h"], positions: Int[Array, "b t"]
) -> Float[Array, "b s k h"]:
    """The cache with `rows` at the slots `positions`, which are consecutive in each request."""
    if cache.shape[0] == 1:
        return jax.lax.dynamic_update_slice(cache, rows.astype(cache.dtype), (0, positions[0, 0], 0, 0))
    index = jnp.arange(cache.shape[0])[:, None]
    return cache.at[index, positions].set(rows.astype(cache.dtype), mode="drop")


def attention_scores(q: Float[Array, "b t n h"], keys: Float[Array, "b s k h"]) -> Float[Array, "b k g t s"]:
    """Scaled scores in float32; query head n reads KV head n // (n / k)."""
    b, t, n, h = q.shape
    k = keys.shape[2]
    grouped = q.reshape(b, t, k, n // k, h)
    precision = jax.lax.Precision.HIGHEST if q.dtype == jnp.float32 else None
    scores = jnp.einsum("btkgh,bskh->bkgts", grouped, keys, precision=precision, preferred_element_type=jnp.float32)
    return scores * (h**-0.5)


def attention_mix(weights: Float[Array, "b k g t s"], values: Float[Array, "b s k h"]) -> Float[Array, "b t nh"]:
    """Values averaged by `weights`, heads joined."""
    b, k, g, t, _ = weights.shape
    precision = jax.lax.Precision.HIGHEST if values.dtype == jnp.float32 else None
    mixed = jnp.einsum(
        "bkgts,bskh->btkgh", weights.astype(values.dtype), values, precision=precision, preferred_element_type=jnp.float32
    )
    return mixed.astype(values.dtype).reshape(b, t, k * g * values.shape[-1])


def attend(
    q: Float[Array, "b t n h"], keys: Float[Array, "b s k h"], values: Float[Array, "b s k h"], visible: Bool[Array, "b t s"]
) -> Float[Array, "b t nh"]:
    """Grouped-query attention of `q` over the visible keys, heads joined."""
    scores = jnp.where(visible[:, None, None], attention_scores(q, keys), MASKED)
    return attention_mix(jax.nn.softmax(scores, axis=-1), values)


def swiglu(x: Float[Array, "... d"], gate_up: Float[Array, "d f2"], down: Float[Array, "f d"]) -> Float[Array, "... d"]:
    """down(silu(gate(x)) · up(x)), gate and up being one matrix side by side."""
    gate, up = jnp.split(linear(x, gate_up), 2, axis=-1)
    return linear(jax.nn.silu(gate.astype(jnp.float32)).astype(x.dtype) * up, down)


@functools.partial(jax.tree_util.register_dataclass, data_fields=["k", "v"], meta_fields=[])
class KVCache:
    """Keys and values per layer, each [b, s, k, h]; slot index = absolute position."""

    def __init__(self, k: tuple[Array, ...], v: tuple[Array, ...]) -> None:
        self.k = k
        self.v = v


def empty_cache(num_layers: int, batch: int, capacity: int, num_kv_heads: int, head_dim: int, dtype: jnp.dtype) -> KVCache:
    """A cache of zeros. Unwritten slots are never read: a query sees only slots up to its own position."""
    shape = (batch, capacity, num_kv_heads, head_dim)
    return KVCache(
        k=tuple(jnp.zeros(shape, dtype) for _ in range(num_layers)), v=tuple(jnp.zeros(shape, dtype) for _ in range(num_layers))
    )
