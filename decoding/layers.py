"""Building blocks that target and drafter share: RMSNorm, RoPE, grouped attention, SwiGLU.

All are pure functions of arrays. Norms, softmax and rotation are computed in float32 whatever the weights are; matrix products
accumulate in float32, and float32 weights ask for full precision, since an accelerator's default would round them to bfloat16.
Weights are stored [in, out], or as `Turned` where a machine reads them faster the other way round; see `layout`.
"""

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from .config_rope import RopeScaling, plain_frequencies

COLUMNS_AT_ONCE, UNFILLED_COLUMNS = 8, 4
"""Columns that the CPU library's kernels take at a time, and how many are quicker left alone."""

MASKED = -1e30
"""Score of a key that a query must not see; finite, so that an all-masked row stays a number."""


@functools.partial(jax.tree_util.register_dataclass, data_fields=["matrix"], meta_fields=[])
@dataclass(frozen=True)
class Turned:
    """A weight kept [out, in]: what it stands for is the transpose of `matrix`."""

    matrix: Float[Array, "o i"]

    @property
    def shape(self) -> tuple[int, ...]:
        """[in, out], as of any other weight."""
        return self.matrix.shape[::-1]

    @property
    def as_built(self) -> Float[Array, "i o"]:
        """The weight as an array, [in, out]."""
        return self.matrix.T


@functools.partial(jax.tree_util.register_dataclass, data_fields=["matrix"], meta_fields=[])
@dataclass(frozen=True)
class Paired:
    """A weight kept [in, out] that wants to meet two rows of activations at least: a single one is put there twice."""

    matrix: Float[Array, "i o"]

    @property
    def shape(self) -> tuple[int, ...]:
        """[in, out]."""
        return self.matrix.shape

    @property
    def as_built(self) -> Float[Array, "i o"]:
        """The weight as an array, [in, out]."""
        return self.matrix


Weight = Array | Turned | Paired
"""A matrix that activations are multiplied by, in whatever form."""


def linear(x: Float[Array, "... i"], weight: Weight) -> Float[Array, "... o"]:
    """x · weight in x's type, accumulated in float32."""
    return product(x, weight).astype(x.dtype)


def product(x: Float[Array, "... i"], weight: Weight) -> Float[Array, "... o"]:
    """x · weight in float32, in the way that the weight's form asks for."""
    if isinstance(weight, Turned):
        return turned_product(x, weight.matrix)
    if isinstance(weight, Paired):
        return paired_product(x, weight.matrix)
    precision = jax.lax.Precision.HIGHEST if x.dtype == jnp.float32 else None
    return jnp.matmul(x, weight, precision=precision, preferred_element_type=jnp.float32)


def linear_parts(x: Float[Array, "... i"], weight: Weight | tuple[Array, ...], widths: Sequence[int]) -> list[Array]:
    """x times matrices that stand side by side, cut into `widths`.

    Side by side they are one large product. A tuple of matrices is multiplied one by one: split over devices, each keeps whole
    heads together only when it is split by itself.
    """
    if isinstance(weight, tuple):
        return [linear(x, part) for part in weight]
    return jnp.split(linear(x, weight), list(itertools.accumulate(widths[:-1])), axis=-1)


def turned_product(x: Float[Array, "... i"], matrix: Float[Array, "o i"]) -> Float[Array, "... o"]:
    """x · matrixᵀ in float32, worked out as (matrix · xᵀ)ᵀ.

    XLA's CPU library reads its left-hand operand row by row as it lies, while the right-hand one is repacked, or read in narrow strips
    at the stride of a whole row. So the large one goes left. The barriers keep XLA from folding the transposes back into the plain
    product, which took 14 to 56 % more core time on the embedded target's head, for 2 to 64 rows. Its kernels are for 8 columns at a
    time: 5 cost a fifth more than 8, 28 a third more than 32. So columns of zeros fill the last eight.
    """
    precision = jax.lax.Precision.HIGHEST if x.dtype == jnp.float32 else None
    rows = x.reshape(-1, x.shape[-1])
    spare = 0 if rows.shape[0] <= UNFILLED_COLUMNS else -rows.shape[0] % COLUMNS_AT_ONCE
    columns = jax.lax.optimization_barrier(jnp.pad(rows, ((0, spare), (0, 0))).T)
    swapped = jnp.matmul(matrix, columns, precision=precision, preferred_element_type=jnp.float32)
    return jax.lax.optimization_barrier(swapped).T[: rows.shape[0]].reshape(*x.shape[:-1], matrix.shape[0])


def paired_product(x: Float[Array, "... i"], matrix: Float[Array, "i o"]) -> Float[Array, "... o"]:
    """x · matrix in float32, a single row counting twice.

    For two rows and more XLA's CPU library multiplies bfloat16 as it is; for one row the whole matrix is first widened to float32,
    at every call, which takes five times as long.
    """
    if math.prod(x.shape[:-1]) > 1:
        return jnp.matmul(x, matrix, preferred_element_type=jnp.float32)
    row = x.reshape(1, -1)
    rows = jax.lax.optimization_barrier(jnp.concatenate([row, row]))
    both = jax.lax.optimization_barrier(jnp.matmul(rows, matrix, preferred_element_type=jnp.float32))
    return both[:1].reshape(*x.shape[:-1], matrix.shape[1])


def tied_head(x: Float[Array, "b t d"], embed: Float[Array, "v d"]) -> Float[Array, "b t v"]:
    """x · embedᵀ in float32, for the embedding matrix as it is stored, [out, in]; on a CPU by `turned_product`."""
    precision = jax.lax.Precision.HIGHEST if x.dtype == jnp.float32 else None

    def plain(x: Array, embed: Array) -> Array:
        return jnp.einsum("btd,vd->btv", x, embed, precision=precision, preferred_element_type=jnp.float32)

    return jax.lax.platform_dependent(x, embed, cpu=turned_product, default=plain)


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


def attend_all_heads(
    q: Float[Array, "b t n h"], keys: Float[Array, "b s k h"], values: Float[Array, "b s k h"], visible: Bool[Array, "b t s"]
) -> Float[Array, "b t nh"]:
    """What `attend` gives, by multiplying each query with all KV heads as they lie: zeros stand for those that are not its own.

    k times the arithmetic, and no copy of keys and values with their heads in front, which a CPU makes for a product per head.
    """
    b, t, n, h = q.shape
    s, k = keys.shape[1:3]
    own = jnp.eye(k, dtype=q.dtype)[:, None, :, None]
    spread = (q.reshape(b, t, k, n // k, 1, h) * own).reshape(b, t * n, k * h)
    precision = jax.lax.Precision.HIGHEST if q.dtype == jnp.float32 else None
    product = functools.partial(jnp.einsum, precision=precision, preferred_element_type=jnp.float32)
    scores = product("bqd,bsd->bqs", spread, keys.reshape(b, s, k * h)) * (h**-0.5)
    weights = jax.nn.softmax(jnp.where(jnp.repeat(visible, n, axis=1), scores, MASKED), axis=-1)
    mixed = product("bqs,bsd->bqd", weights.astype(values.dtype), values.reshape(b, s, k * h)).astype(values.dtype)
    by_head = mixed.reshape(b, t, k, n // k, k, h)
    return jnp.stack([by_head[:, :, i, :, i] for i in range(k)], axis=2).reshape(b, t, n * h)


def swiglu(x: Float[Array, "... d"], gate_up: Weight | tuple[Array, ...], down: Weight) -> Float[Array, "... d"]:
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
