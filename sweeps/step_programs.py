"""The decode loop's programs for a chip that is not there: abstract weights and caches of a model known by its dimensions.

Everything a program's shape depends on is a handful of integers, so no weights are needed to compile it: arrays are replaced by
their shapes. The functions are the loop's own (`decoding.steps`), with the attention kernel of the chip they are compiled for.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import msgspec
from jax.sharding import NamedSharding, PartitionSpec, SingleDeviceSharding

from decoding import drafter, fused, steps
from decoding import target as model
from decoding.attention import kernel_for
from decoding.checkpoint import device_draft, device_target
from decoding.config_shape import draft_of, target_of
from decoding.layout import laid_out
from decoding.parallel import device_mesh, split_params
from decoding.steps import LoopState
from decoding.tpu import compiler_options
from perfmodel.errors import InputError
from perfmodel.phases import COMMIT, DRAFT, VERIFY
from perfmodel.records import ModelSpec
from profiling.compile_program import CompileProgram

FACTORY = "sweeps.step_programs:step_program"
SOURCES = ("decoding", "sweeps.step_programs", "perfmodel.phases")
"""What decides the programs: a change of any of these files compiles anew."""

STEP = "step"
"""Phase name of the whole step as one program."""

LOOP = "loop"
"""Phase name of the loop of steps that never returns to its host; counted per turn."""

PROGRAMS = (DRAFT, VERIFY, COMMIT, STEP, LOOP)

ANSWER_CAPACITY = 256
"""Room for an answer in a compiled loop, tokens."""


def step_program(
    *,
    devices: Sequence[Any],
    phase: str,
    target: dict[str, Any],
    draft: dict[str, Any] | None,
    block_size: int,
    batch: int,
    context: int,
    dtype: str,
) -> CompileProgram:
    """A phase of a step, the whole step, or the loop of steps, with the cache holding `context` tokens and room for the block and no more.

    `target` and `draft` are `ModelSpec`s as dicts. At block size 1 a step decodes plainly, without the drafter. On several devices
    weights and cache are split over them.
    """
    config = target_of(msgspec.convert(target, ModelSpec))
    drafting = draft is not None and block_size > 1
    drafts = draft_of(msgspec.convert(draft, ModelSpec), config) if drafting else None
    mesh = device_mesh(devices) if len(devices) > 1 else None
    kernel = kernel_for("tpu", devices[0].device_kind, mesh=mesh)
    capacity = context + block_size + (ANSWER_CAPACITY if phase == LOOP else 0)
    element = jnp.dtype(dtype)

    params = jax.eval_shape(lambda: device_target(config, 0, element))
    draft_params = None if drafts is None else jax.eval_shape(lambda: device_draft(drafts, 0, element))
    cache: Any = jax.eval_shape(lambda: model.init_cache(config, batch, capacity, element, kernel))
    state = None if drafts is None else jax.eval_shape(lambda: drafter.init_state(drafts, batch, capacity, element))
    kind = devices[0].device_kind
    compiler = compiler_options(kind) if mesh is None else {}  # on several devices the loop is compiled when it is called
    if mesh is None:
        params = laid_out(params, kind, SingleDeviceSharding(devices[0]))
        draft_params = None if draft_params is None else laid_out(draft_params, kind, SingleDeviceSharding(devices[0]))
    else:
        params = split_params(params, config, mesh)
        draft_params = None if draft_params is None else split_params(draft_params, drafts, mesh)
        axis = kernel.split_heads(config.num_kv_heads, element)
        cache.layers = _sharded(cache.layers, NamedSharding(mesh, PartitionSpec(None, None, axis, None)))
    counts: Any = jax.ShapeDtypeStruct((batch,), jnp.int32)
    anchor: Any = jax.ShapeDtypeStruct((batch, 1), jnp.int32)
    block = jax.ShapeDtypeStruct((batch, block_size), jnp.int32)
    shared: dict[str, Any] = {"target_config": config, "draft_config": drafts}
    if phase in (STEP, LOOP):
        loop = LoopState(cache, state, anchor, counts, counts, counts, None)
        options = {**shared, "block_size": block_size, "stop_token_ids": (0,)}
        if phase == STEP:
            return CompileProgram(steps.step, (params, draft_params, loop), options, mesh, compiler)
        limit = jax.ShapeDtypeStruct((), jnp.int32)
        options["answer_capacity"] = ANSWER_CAPACITY
        return CompileProgram(fused.decode, (params, draft_params, loop, limit), options, mesh, compiler)
    if phase == VERIFY:
        return CompileProgram(steps.verify, (params, block, counts, cache), shared, mesh, compiler)
    if phase == DRAFT and drafts is not None:
        options = {**shared, "block_size": block_size}
        return CompileProgram(steps.draft, (params, draft_params, anchor, counts, state), options, mesh, compiler)
    if phase == COMMIT:
        width = 0 if drafts is None else len(drafts.target_layer_ids) * config.hidden_size
        features = None if drafts is None else jax.ShapeDtypeStruct((batch, block_size, width), element)
        arguments = (params, draft_params, block, block, features, counts, counts, counts, state)
        return CompileProgram(steps.commit, arguments, {**shared, "stop_token_ids": (0,)}, mesh, compiler)
    raise InputError(
        f"there is no {phase!r} at block size {block_size}", f"one of {', '.join(PROGRAMS)}; draft from block size 2 on"
    )


def _sharded(tree: Any, sharding: NamedSharding) -> Any:
    return jax.tree_util.tree_map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding), tree)
