"""The target's key/value cache: a pool of pages, and a table that says which of them hold a request's positions.

Position p of a request lies in page `table[p // page_size]`, at slot `p % page_size`: so a request's slot index is its absolute
position whatever pages it got, rejected rows are overwritten by later ones, and requests of unlike lengths share a pool instead of
each reserving the longest. How pages are laid out is the affair of the kernel that reads them (`attention.Kernel`); writing is one
scatter per layer, because no kernel does it for us.
"""

import functools
from typing import TypeVar

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec
from jaxtyping import Array, Float, Int

from .attention import Kernel, attend_gathered, attend_ragged

T = TypeVar("T")


@functools.partial(jax.tree_util.register_dataclass, data_fields=["layers", "table"], meta_fields=["kernel", "num_kv_heads"])
class PagedCache:
    """Pages per layer, and the page table [b, m] that all layers share.

    A layer is (keys, values), each [p, z, k, h], for the gathering kernel; (interleaved,) [p, z, 2k', h'] for the TPU kernel.
    """

    def __init__(self, layers: tuple[tuple[Array, ...], ...], table: Array, kernel: Kernel, num_kv_heads: int) -> None:
        self.layers = layers
        self.table = table
        self.kernel = kernel
        self.num_kv_heads = num_kv_heads

    @property
    def num_slots(self) -> int:
        """Positions a request may have."""
        return self.table.shape[1] * self.kernel.page_size


def pages_per_request(capacity: int, page_size: int) -> int:
    """Pages that hold `capacity` positions."""
    return -(-capacity // page_size)


def empty_pages(
    num_layers: int,
    batch: int,
    capacity: int,
    num_kv_heads: int,
    head_dim: int,
    dtype: jnp.dtype,
    kernel: Kernel,
    table: Int[Array, "b m"] | None = None,
) -> PagedCache:
    """A pool of zeros with room for `batch` requests of `capacity` positions, and their pages: in order, unless `table` says."""
    per_request = pages_per_request(capacity, kernel.page_size)
    num_pages = batch * per_request
    if table is None:
        table = jnp.arange(num_pages, dtype=jnp.int32).reshape(batch, per_request)
    heads, width = kernel.stored_heads(num_kv_heads, dtype), kernel.stored_head_dim(head_dim)
    ragged = kernel.name == "ragged"
    shape = (num_pages, kernel.page_size, 2 * heads if ragged else heads, width)
    layers = tuple(tuple(jnp.zeros(shape, dtype) for _ in range(1 if ragged else 2)) for _ in range(num_layers))
    return PagedCache(_on_mesh(layers, kernel, num_kv_heads), table, kernel, num_kv_heads)


def write_pages(
    cache: PagedCache, layer: int, keys: Float[Array, "b t k h"], values: Float[Array, "b t k h"], positions: Int[Array, "b t"]
) -> tuple[Array, ...]:
    """The layer's pages with these rows at their positions. Positions behind the last page are dropped."""
    page_size, num_pages = cache.kernel.page_size, cache.layers[layer][0].shape[0]
    page = jnp.take_along_axis(cache.table, positions // page_size, axis=1, mode="fill", fill_value=num_pages)
    slot = positions % page_size
    rows = (keys, values) if cache.kernel.name == "gather" else (_interleave(cache, layer, keys, values),)
    written = tuple(
        pages.at[page, slot].set(new.astype(pages.dtype), mode="drop")
        for pages, new in zip(cache.layers[layer], rows, strict=True)
    )
    return _on_mesh(written, cache.kernel, cache.num_kv_heads)


def _on_mesh(layers: T, kernel: Kernel, num_kv_heads: int) -> T:
    """Pages laid out over the kernel's devices: KV heads split where they divide, else whole on each."""
    if kernel.mesh is None:
        return layers
    axis = kernel.split_heads(num_kv_heads, jax.tree_util.tree_leaves(layers)[0].dtype)
    return jax.lax.with_sharding_constraint(layers, NamedSharding(kernel.mesh, PartitionSpec(None, None, axis, None)))


def _interleave(cache: PagedCache, layer: int, keys: Array, values: Array) -> Float[Array, "b t 2k h"]:
    b, t, k, h = keys.shape
    _, _, stored, width = cache.layers[layer][0].shape
    joined = jnp.stack([keys, values], axis=3).reshape(b, t, 2 * k, h)
    return jnp.pad(joined, ((0, 0), (0, 0), (0, stored - 2 * k), (0, width - h)))


def attend_pages(
    cache: PagedCache, pages: tuple[Array, ...], q: Float[Array, "b t n h"], positions: Int[Array, "b t"]
) -> Float[Array, "b t nh"]:
    """Attention of queries at `positions`, consecutive in each request, over the pages of a layer up to their own position."""
    if cache.kernel.name == "ragged":
        return attend_ragged(cache.kernel, q, pages[0], cache.table, positions, cache.num_kv_heads)
    keys, values = pages
    return attend_gathered(cache.kernel, q, (keys, values), cache.table, positions)
