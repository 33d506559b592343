"""Small programs for the TPU compiler, each countable by hand; made in the compiling process by name."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from profiling.compile_program import CompileProgram


def _bf16(*shape):
    return jax.ShapeDtypeStruct(shape, jnp.bfloat16)


def matmul(devices, rows, inner, columns):
    return CompileProgram(jax.jit(lambda x, w: x @ w), (_bf16(rows, inner), _bf16(inner, columns)))


def scanned(devices, rows, width, num_layers):
    def program(x, weights):
        return jax.lax.scan(lambda x, w: (jnp.tanh(x @ w), None), x, weights)[0]

    return CompileProgram(jax.jit(program), (_bf16(rows, width), _bf16(num_layers, width, width)))


def kernel(devices, rows, columns):
    """Doubles a matrix that stays in main memory, block by block."""

    def double(x, out):
        out[...] = x[...] * 2

    block = pl.BlockSpec((256, columns), lambda i: (i, 0))
    call = pl.pallas_call(
        double,
        out_shape=jax.ShapeDtypeStruct(
            (rows, columns),
            jnp.bfloat16,
        ),
        grid=(rows // 256,),
        in_specs=[block],
        out_specs=block,
        name="double",
        compiler_params=pltpu.CompilerParams(dimension_semantics=("arbitrary",)),
    )
    return CompileProgram(jax.jit(lambda x: call(x)), (_bf16(rows, columns),))


def phases(devices, width):
    """Two named phases with a part each, to roll cycles up by."""

    def program(x, draft, verify):
        with jax.named_scope("draft"), jax.named_scope("mlp"):
            x = jnp.tanh(x @ draft)
        with jax.named_scope("verify"), jax.named_scope("head"):
            return jnp.tanh(x @ verify)

    return CompileProgram(jax.jit(program), (_bf16(16, width), _bf16(width, width), _bf16(width, width)))


def too_large(devices, gigabytes):
    rows = gigabytes * 1_000_000_000 // (2 * 4096)
    return CompileProgram(jax.jit(lambda x: x + 1), (_bf16(rows, 4096),))
