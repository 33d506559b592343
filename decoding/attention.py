"""How a block of queries reads the paged cache: which kernel, chosen in one place, and the two that there are.

The cache is a pool of pages; a request owns some of them, in an order its page table tells. Reading it is what a verify step does
beside its weights, and platforms differ in how it is done well. A TPU has a kernel that streams pages from memory while it
computes, with its own demands on shapes: head counts must fill tiles, so heads that do not exist are added as zeros. Elsewhere
pages are gathered into one contiguous piece and multiplied. On a CPU that copy would cost a tenth of a step at a thousand positions,
so pages that happen to lie in order, as those of a fresh batch do, are read where they lie; a GPU gathers always, since asking
would make its host wait in every layer.

For ahead-of-time compilation nothing here asks for a device: `kernel_for(platform, device_kind)` is a table look-up, its result is
static in every program (it travels in the cache's structure), and so a CPU host lowers the TPU kernel by passing
`kernel_for("tpu", "TPU v5p")` to `paged.empty_pages`, `steps.prefill` or `Decoder`.
"""

import dataclasses
from dataclasses import dataclass
from typing import Literal

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Array, Float, Int

from perfmodel.errors import UnsupportedError

from .layers import attend, attend_all_heads

PAGE_SIZE = 16
"""Positions per page, unless a kernel is asked for with another."""

TILE_LANES = 128
"""Width of a TPU vector register: the TPU kernel wants head_dim in multiples of it."""

FEW_QUERY_HEADS = 36
"""Queries times heads per request up to which a CPU reads all KV heads at once; at 72 and more it costs time."""

MESH_AXIS = "model"
"""The mesh axis that heads and matrix columns are split over."""


@dataclass(frozen=True)
class Kernel:
    """How pages are stored and read; hashable, since it is part of a program's static structure.

    `gather` stores keys and values apart; with `reads_in_place` it copies nothing when the pages of all requests lie in order.
    `ragged` is JAX's Pallas kernel `ragged_paged_attention`: keys and values interleaved, `pages_per_read` pages per block,
    `queries_per_block` queries, both given explicitly because the kernel's own table asks a live device. `mesh` splits heads over
    devices where they divide.
    """

    name: Literal["gather", "ragged"]
    page_size: int = PAGE_SIZE
    reads_in_place: bool = False
    pages_per_read: int = 1
    queries_per_block: int = 1
    vmem_limit_bytes: int | None = None
    mesh: Mesh | None = None

    def stored_heads(self, num_kv_heads: int, dtype: jnp.dtype) -> int:
        """KV heads a page has room for: the real ones, and for the TPU kernel as many more as fill its tiles."""
        if self.name == "gather":
            return num_kv_heads
        packing = 4 // jnp.dtype(dtype).itemsize
        return next(n for n in range(num_kv_heads, 9 * num_kv_heads + 8) if _fills_tiles(2 * n, packing))

    def stored_head_dim(self, head_dim: int) -> int:
        """Values a page stores per head: whole vector registers for the TPU kernel."""
        return head_dim if self.name == "gather" else -(-head_dim // TILE_LANES) * TILE_LANES

    def split_heads(self, num_kv_heads: int, dtype: jnp.dtype) -> str | None:
        """The mesh axis that KV heads are split over; None where there is no mesh, or the heads cannot be shared out (replicate)."""
        if self.mesh is None:
            return None
        heads_each, rest = divmod(num_kv_heads, self.mesh.shape[MESH_AXIS])
        return MESH_AXIS if rest == 0 and self.stored_heads(heads_each, dtype) == heads_each else None


def _fills_tiles(num_combined: int, packing: int) -> bool:
    rows, rest = divmod(num_combined, packing)
    return rest == 0 and (rows in (1, 2, 4, 8) or rows % 8 == 0)


MIB = 1 << 20

CPU = Kernel("gather", reads_in_place=True)
GPU = Kernel("gather")

TPU: dict[str, Kernel] = {
    "TPU v4": Kernel("ragged", pages_per_read=32, queries_per_block=32, vmem_limit_bytes=16 * MIB),
    "TPU v5 lite": Kernel("ragged", pages_per_read=64, queries_per_block=32, vmem_limit_bytes=64 * MIB),
    "TPU v5": Kernel("ragged", pages_per_read=64, queries_per_block=32, vmem_limit_bytes=48 * MIB),
    "TPU v6 lite": Kernel("ragged", pages_per_read=64, queries_per_block=32, vmem_limit_bytes=64 * MIB),
    "TPU7x": Kernel("ragged", pages_per_read=64, queries_per_block=32, vmem_limit_bytes=48 * MIB),
}
"""Block sizes of the TPU kernel by `device_kind`: pages small enough for the chip's VMEM, twice over (one block computes while the
next arrives)."""

_TPU_ALIASES = {
    "TPU v5p": "TPU v5", "TPU v5e": "TPU v5 lite", "TPU v6e": "TPU v6 lite", "TPU v7x": "TPU7x", "TPU v7": "TPU7x", "TPU 7x": "TPU7x",
}  # fmt: skip


def kernel_for(platform: str, device_kind: str = "", page_size: int = PAGE_SIZE, mesh: Mesh | None = None) -> Kernel:
    """The kernel for a platform ("cpu", "gpu", "tpu") and, on a TPU, its `device_kind`. The only place where it is chosen."""
    if platform == "tpu":
        kernel = TPU.get(_TPU_ALIASES.get(device_kind, device_kind))
        if kernel is None:
            raise UnsupportedError(
                f"no block sizes are known for {device_kind!r}", f"known chips: {', '.join(sorted(TPU))}; add a line to the table"
            )
    else:
        kernel = CPU if platform == "cpu" else GPU
    return dataclasses.replace(kernel, page_size=page_size, mesh=mesh)


def default_kernel() -> Kernel:
    """The kernel for the device that programs run on by default."""
    device = jax.devices()[0]
    return kernel_for(device.platform, device.device_kind)


def attend_gathered(
    kernel: Kernel,
    q: Float[Array, "b t n h"],
    pages: tuple[Float[Array, "p z k h"], Float[Array, "p z k h"]],
    table: Int[Array, "b m"],
    positions: Int[Array, "b t"],
) -> Float[Array, "b t nh"]:
    """Causal attention over the pages of each request; heads joined."""
    visible = jnp.arange(table.shape[1] * kernel.page_size) <= positions[..., None]
    read = attend_all_heads if kernel.reads_in_place and q.shape[1] * q.shape[2] <= FEW_QUERY_HEADS else attend

    def gathered(keys: Array, values: Array) -> Array:
        return read(q, _rows(keys.at[table].get(mode="clip"), table), _rows(values.at[table].get(mode="clip"), table), visible)

    def in_place(keys: Array, values: Array) -> Array:
        return read(q, _rows(keys, table), _rows(values, table), visible)

    if not kernel.reads_in_place or table.size != pages[0].shape[0]:
        return gathered(*pages)
    is_in_order = jnp.all(table == jnp.arange(table.size, dtype=table.dtype).reshape(table.shape))
    return jax.lax.cond(is_in_order, in_place, gathered, *pages)


def _rows(pages: Array, table: Int[Array, "b m"]) -> Float[Array, "b s k h"]:
    return pages.reshape(table.shape[0], -1, *pages.shape[-2:])


def attend_ragged(
    kernel: Kernel,
    q: Float[Array, "b t n h"],
    pages: Float[Array, "p z 2k h"],
    table: Int[Array, "b m"],
    positions: Int[Array, "b t"],
    num_kv_heads: int,
) -> Float[Array, "b t nh"]:
    """Causal attention by the Pallas kernel, over pages with interleaved keys and values; heads joined.

    Query heads are padded in step with the stored KV heads, so that each still reads its own.
    """
    b, t, n, h = q.shape
    group = n // num_kv_heads
    axis = kernel.split_heads(num_kv_heads, pages.dtype)
    heads_padding = pages.shape[2] // 2 * group - n
    padded = jnp.pad(q, ((0, 0), (0, 0), (0, heads_padding), (0, pages.shape[3] - h))).reshape(b * t, -1, pages.shape[3])

    def read(q: Array, pages: Array, table: Array, lengths: Array) -> Array:
        # Imported here: Pallas for TPU is a second's worth of imports that no other platform needs.
        from jax.experimental.pallas.ops.tpu.ragged_paged_attention import ragged_paged_attention

        # Mosaic takes its products' precision from this setting.
        with jax.default_matmul_precision("highest" if q.dtype == jnp.float32 else "default"):
            return ragged_paged_attention(
                q, pages, lengths, table, t * jnp.arange(b + 1, dtype=jnp.int32), jnp.array([b], jnp.int32), sm_scale=h**-0.5,
                num_kv_pages_per_block=min(kernel.pages_per_read, table.shape[1]),
                num_queries_per_block=min(kernel.queries_per_block, b * t), vmem_limit_bytes=kernel.vmem_limit_bytes,
            )  # fmt: skip

    if kernel.mesh is not None:
        heads = PartitionSpec(None, axis, None)
        split = PartitionSpec(None, None, axis, None)
        read = jax.shard_map(
            read, mesh=kernel.mesh, in_specs=(heads, split, PartitionSpec(), PartitionSpec()), out_specs=heads, check_vma=False
        )
    # The kernel's queries are the last rows of their request: the length is what the block's last row sees.
    mixed = read(padded, pages, table, positions[:, -1] + 1)
    return mixed.reshape(b, t, -1, pages.shape[3])[:, :, :n, :h].reshape(b, t, n * h)
