"""Kernels of the paged cache: both read the same thing, whatever the page order, the head counts and the lengths."""

import functools

import jax
import jax.experimental.pallas.ops.tpu.ragged_paged_attention as ragged
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractDevice, AbstractMesh, use_abstract_mesh

from decoding.attention import CPU, GPU, TPU, Kernel, kernel_for
from decoding.paged import PagedCache, attend_pages, empty_pages, write_pages
from perfmodel.errors import UnsupportedError

RAGGED = Kernel("ragged", pages_per_read=2, queries_per_block=8)


def dense(q, k, v, position):
    """Causal attention of one request in float64: query i sees positions up to `position` + i."""
    group = q.shape[1] // k.shape[1]
    out = []
    for head in range(q.shape[1]):
        scores = q[:, head].astype(np.float64) @ k[:, head // group].T / np.sqrt(q.shape[2])
        ahead = np.arange(k.shape[0]) > position + np.arange(q.shape[0])[:, None]
        weights = np.exp(np.where(ahead, -np.inf, scores))
        out.append(weights / weights.sum(1, keepdims=True) @ v[:, head // group])
    return np.concatenate(out, axis=1)


def attended(kernel, q, k, v, position, table=None, dtype=jnp.float32):
    """What a kernel reads after rows k, v were written from position 0 on, in a pool whose other rows hold rubbish."""
    b, s, num_kv_heads, h = k.shape

    def read(q, k, v, position):
        cache = empty_pages(1, b, s, num_kv_heads, h, dtype, kernel, table)
        rubbish = jax.tree_util.tree_map(lambda pages: pages + 9.0, cache.layers)
        cache = PagedCache(rubbish, cache.table, kernel, num_kv_heads)
        pages = write_pages(cache, 0, k, v, jnp.broadcast_to(jnp.arange(s), (b, s)))
        return attend_pages(cache, pages, q, position[:, None] + jnp.arange(q.shape[1]))

    run = read if kernel.name == "ragged" else jax.jit(read)  # the reference of the TPU kernel loops over its own arguments
    return np.asarray(run(*(jnp.asarray(x, dtype) for x in (q, k, v)), jnp.asarray(position)), np.float32)


def drawn(seed, b, t, s, n, k, h):
    generator = np.random.default_rng(seed)
    return [generator.standard_normal(shape).astype(np.float32) for shape in ((b, t, n, h), (b, s, k, h), (b, s, k, h))]


@pytest.mark.parametrize("kernel", [GPU, CPU], ids=["gather", "in place where in order"])
@pytest.mark.parametrize("is_in_order", [True, False])
@pytest.mark.parametrize("num_queries", [1, 5])
def test_gathered_pages_give_dense_attention_for_unlike_lengths_and_any_page_order(kernel, num_queries, is_in_order):
    q, k, v = drawn(0, b=3, t=num_queries, s=160, n=6, k=2, h=8)
    position = [0, 37, 160 - num_queries]
    order = np.arange(30) if is_in_order else np.random.default_rng(1).permutation(30)
    table = jnp.asarray(order.reshape(3, 10), jnp.int32)
    out = attended(kernel, q, k, v, position, table)
    for row, at in enumerate(position):
        np.testing.assert_allclose(out[row], dense(q[row], k[row], v[row], at), atol=2e-6)


@pytest.fixture
def reference_kernel(monkeypatch):
    """JAX's own plain statement of what its TPU kernel computes, in the kernel's place: Mosaic's interpreters cannot run this one."""

    def read(*args, num_kv_pages_per_block, num_queries_per_block, vmem_limit_bytes, **options):
        return ragged.kernel.ref_ragged_paged_attention(*args, **options)

    monkeypatch.setattr(ragged, "ragged_paged_attention", read)


def test_the_tpu_kernel_with_padded_heads_equals_the_gather(reference_kernel):
    """Heads that exist only as padding change nothing: 3 KV heads of 64 are stored as 4 of 128."""
    num_heads, num_kv_heads, head_dim, stored = 9, 3, 64, (8, 128)
    q, k, v = drawn(2, b=2, t=3, s=40, n=num_heads, k=num_kv_heads, h=head_dim)
    position, table = [0, 36], jnp.asarray([[5, 0, 3], [1, 4, 2]], jnp.int32)
    pages = jax.eval_shape(functools.partial(empty_pages, 1, 2, 40, num_kv_heads, head_dim, jnp.float32, RAGGED)).layers[0][0]
    assert pages.shape == (6, 16, *stored)
    padded = attended(RAGGED, q, k, v, position, table)
    np.testing.assert_allclose(padded, attended(GPU, q, k, v, position, table), atol=1e-5)


def lowered_for_tpu(kernel, num_heads, num_kv_heads, head_dim):
    """The text of an attention layer, lowered for a TPU by a machine that has none."""
    device = AbstractDevice(device_kind="TPU v5", num_cores=1, platform="tpu")
    make = functools.partial(empty_pages, 1, 2, 40, num_kv_heads, head_dim, jnp.bfloat16, kernel)

    def layer(cache, q, k, v, positions):
        return attend_pages(cache, write_pages(cache, 0, k, v, positions), q, positions)

    rows = [jax.ShapeDtypeStruct((2, 3, n, head_dim), jnp.bfloat16) for n in (num_heads, num_kv_heads, num_kv_heads)]
    with use_abstract_mesh(AbstractMesh((1,), ("x",), abstract_device=device)):
        traced = jax.jit(layer).trace(jax.eval_shape(make), *rows, jax.ShapeDtypeStruct((2, 3), jnp.int32))
        return traced.lower(lowering_platforms=("tpu",)).as_text()


@pytest.mark.parametrize(("num_heads", "num_kv_heads", "head_dim"), [(9, 3, 64), (4, 2, 128), (6, 6, 16)])
def test_padded_heads_pass_the_tpu_kernels_own_lowering(num_heads, num_kv_heads, head_dim):
    assert "tpu_custom_call" in lowered_for_tpu(kernel_for("tpu", "TPU v5p"), num_heads, num_kv_heads, head_dim)


def test_without_padding_the_tpu_kernel_refuses_three_kv_heads(monkeypatch):
    monkeypatch.setattr(Kernel, "stored_heads", lambda kernel, num_kv_heads, dtype: num_kv_heads)
    with pytest.raises(ValueError, match="can not be XLA fully tiled"):
        lowered_for_tpu(kernel_for("tpu", "TPU v5p"), 9, 3, 64)


def test_rows_behind_the_last_page_are_dropped():
    cache = empty_pages(1, 1, 16, 1, 2, jnp.float32, GPU)
    rows = jnp.ones((1, 3, 1, 2))
    pages = write_pages(cache, 0, rows, rows, jnp.asarray([[15, 16, 17]]))
    assert float(jnp.sum(pages[0])) == 2
    assert float(jnp.sum(pages[0][0, 15])) == 2


def test_one_place_chooses_the_kernel():
    assert kernel_for("cpu") == CPU
    assert kernel_for("gpu", "NVIDIA H100") == GPU
    assert kernel_for("tpu", "TPU v5p") == kernel_for("tpu", "TPU v5") == TPU["TPU v5"]
    assert kernel_for("tpu", "TPU v4", page_size=32).page_size == 32
    with pytest.raises(UnsupportedError, match="no block sizes are known for 'TPU v3'"):
        kernel_for("tpu", "TPU v3")


@pytest.mark.parametrize(
    ("num_kv_heads", "dtype", "stored"), [(3, "bfloat16", 4), (8, "bfloat16", 8), (1, "bfloat16", 1), (5, "float32", 8)]
)
def test_head_counts_are_padded_to_what_the_kernel_tiles(num_kv_heads, dtype, stored):
    assert RAGGED.stored_heads(num_kv_heads, jnp.dtype(dtype)) == stored
    assert GPU.stored_heads(num_kv_heads, jnp.dtype(dtype)) == num_kv_heads
