"""Building blocks that target and drafter share: RMSNorm, RoPE, grouped attention, SwiGLU.

All are pure functions of arrays. Norms, softmax and rotation are computed in float32 whatever the weights are; matrix products
accumulate in float32, and float32 weights ask for full precision, since an accelerator's default would round them to bfloat16.
Weights are stored [in, out].
"""

import functools
import itertools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from .config_rope import RopeScaling, plain_frequencies

MASKED = -1e30
"""Score of a key that a query must not see; finite, so that an all-masked row stays a number."""


def settled(x: Float[Array, "... i"]) -> Float[Array, "... i"]:
    """x as an array of its own before it meets a matrix, on a TPU; elsewhere x as it is.

    XLA's TPU compiler would fuse the norm in front into the product and work it out again for every tile of weights, which costs 8 %
    of a layer of Qwen3-4B on a v5p by its own estimate. A block's activations are small: writing them once costs next to nothing.
    """
    return jax.lax.platform_dependent(x, tpu=jax.lax.optimization_barrier, default=lambda x: x)


def linear(x: Float[Array, "... i"], weight: Float[Array, "i o"]) -> Float[Array, "... o"]:
    """x · weight in x's type, accumulated in float32."""
    x = settled(x)
    precision = jax.lax.Precision.HIGHEST if x.dtype == jnp.float32 else None
    return jnp.matmul(x, weight, precision=precision, preferred_element_type=jnp.float32).astype(x.dtype)


def linear_parts(
    x: Float[Array, "... i"], weight: Float[Array, "i o"] | tuple[Float[Array, "i _"], ...], widths: Sequence[int]
) -> list[Array]:
    """x times matrices that stand side by side, cut into `widths`.

    Side by side they are one large product. A tuple of matrices is multiplied one by one: split over devices, each keeps whole
    heads together only when it is split by itself.
    """
    if isinstance(weight, tuple):
        return [linear(x, part) for part in weight]
    return jnp.split(linear(x, weight), list(itertools.accumulate(widths[:-1])), axis=-1)


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
    """Radians per position of each rotated pair."""
    frequencies = plain_frequencies(head_dim, theta) if scaling is None else scaling.frequencies(head_dim, theta)
    return jnp.asarray(frequencies, dtype=jnp.float32)


def rope_table(
    positions: Int[Array, "b t"], head_dim: int, theta: float, scaling: RopeScaling | None
) -> tuple[Float[Array, "b t 1 h_half"], Float[Array, "b t 1 h_half"]]:
    """Cosines and sines for `rotate`, one per position and pair."""
    angles = positions[..., None, None].astype(jnp.float32) * rope_frequencies(head_dim, theta, scaling)
    amplitude = 1.0 if scaling is None else scaling.amplitude
    return amplitude * jnp.cos(angles), amplitude * jnp.sin(angles)


def rotate(x: Float[Array, "b t n h"], table: tuple[Array, Array]) -> Float[Array, "b t n h"]:
    """x with each pair (i, i + h/2) turned by its position's angle (half-split RoPE)."""
    cos, sin = table
    first, second = jnp.split(x.astype(jnp.float32), 2, axis=-1)
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1).astype(x.dtype)


def write_rows(
    cache: Float[Array, "b s k h"],
    rows: Float[Array, "b t k h"],
    positions: Int[Array, "b t"],
    num_new: Int[Array, " b"] | None = None,
    is_ring: bool = False,
) -> Float[Array, "b s k h"]:
    """The cache with `rows` at the slots of `positions`, which are consecutive in each request.

    With `is_ring`, position p has slot p mod s, and only the first `num_new` rows of a request are written (of those the last s):
    what a row too many would overwrite is still needed. Otherwise slot = position, and rows too many hide behind the anchor.
    """
    index = jnp.arange(cache.shape[0])[:, None]
    num_slots = cache.shape[1]
    if is_ring:
        row = jnp.arange(rows.shape[1])
        end = jnp.asarray(rows.shape[1] if num_new is None else num_new).reshape(-1, 1)
        slots = jnp.where((row < end) & (row >= end - num_slots), positions % num_slots, num_slots)
        return cache.at[index, slots].set(rows.astype(cache.dtype), mode="drop")
    if cache.shape[0] == 1:
        return jax.lax.dynamic_update_slice(cache, rows.astype(cache.dtype), (0, positions[0, 0], 0, 0))
    return cache.at[index, positions].set(rows.astype(cache.dtype), mode="drop")


def slot_positions(num_slots: int, position: Int[Array, " b"]) -> Int[Array, "b s"]:
    """The position whose row each slot holds when all before `position` were written; negative where there is none yet.

    Slot j holds the latest p < `position` with p mod s = j: for a cache that is large enough p = j, for a ring the last s positions.
    """
    last = position[:, None] - 1
    return last - (last - jnp.arange(num_slots)) % num_slots


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


def swiglu(
    x: Float[Array, "... d"], gate_up: Float[Array, "d f2"] | tuple[Float[Array, "d f"], ...], down: Float[Array, "f d"]
) -> Float[Array, "... d"]:
    """down(silu(gate(x)) · up(x)), gate and up being one matrix side by side, or two."""
    gate, up = linear_parts(x, gate_up, [down.shape[0]] * 2)
    return linear(jax.nn.silu(gate.astype(jnp.float32)).astype(x.dtype) * up, down)


@functools.partial(jax.tree_util.register_dataclass, data_fields=["k", "v"], meta_fields=["capacity"])
class KVCache:
    """Keys and values per layer, each [b, s, k, h], for requests of up to `capacity` positions.

    A layer with a slot per position keeps position p in slot p; one with fewer slots is a ring: p is in slot p mod s, and only
    the latest s positions are there. A layer that looks back no further than a window needs no more.
    """

    def __init__(self, k: tuple[Array, ...], v: tuple[Array, ...], capacity: int = 0) -> None:
        self.k = k
        self.v = v
        self.capacity = capacity

    def is_ring(self, layer: int) -> bool:
        """Whether the layer keeps only its latest positions."""
        return self.k[layer].shape[1] < self.capacity


def empty_cache(
    num_layers: int,
    batch: int,
    capacity: int,
    num_kv_heads: int,
    head_dim: int,
    dtype: jnp.dtype,
    windows: Sequence[int | None] | None = None,
) -> KVCache:
    """A cache of zeros, layers with a window being no larger than it. Who reads it must look only at slots that were written."""
    slots = [capacity if window is None else min(window, capacity) for window in windows or [None] * num_layers]
    shapes = [(batch, num_slots, num_kv_heads, head_dim) for num_slots in slots]
    return KVCache(
        k=tuple(jnp.zeros(shape, dtype) for shape in shapes),
        v=tuple(jnp.zeros(shape, dtype) for shape in shapes),
        capacity=capacity,
    )
