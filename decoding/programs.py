"""One phase of a step, alone and at a chosen shape, to be timed: the very jitted functions that the decode loop runs.

A step-time sweep asks what verifying K tokens costs at a given context, without decoding an answer that long. Weights are the
pair's own; tokens and cache contents are seeded random numbers, because a dense network's time does not depend on its values,
as long as they are ordinary ones (zeros would flatter a chip that saves power on them, and denormals would slow a CPU).
The cache has room for the context and the block, no more, so that what is read is what such a step must read.
"""

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.stages import Compiled, Lowered

from perfmodel.errors import InputError
from perfmodel.phases import DRAFT, STEP_PHASES, VERIFY, Phase

from . import drafter, steps
from . import target as model
from .pair import Pair
from .tpu import compiler_options

SEED = 20260206

CACHE_SCALE = 0.1


@dataclass
class PhaseProgram:
    """A phase compiled at one shape, with inputs on the device. `lower_s` and `compile_s` are what making it took, seconds."""

    phase: Phase
    block_size: int
    batch: int
    context: int
    lower_s: float
    compile_s: float
    compiled: Compiled
    arguments: list[Any] = field(repr=False)
    cache_at: int | None

    def run(self) -> float:
        """Seconds from the call to its results being ready on the device: one execution."""
        started = time.perf_counter()
        result = jax.block_until_ready(self.compiled(*self.arguments))
        seconds = time.perf_counter() - started
        if self.cache_at is not None:
            # The cache was donated; the result holds it with the block written, and the next run writes the same slots again.
            self.arguments[self.cache_at] = result.cache if self.phase == VERIFY else result.draft_state
        return seconds


def phase_program(pair: Pair, phase: Phase, block_size: int, batch: int, context: int) -> PhaseProgram:
    """The phase at K = `block_size` for `batch` requests of `context` cached tokens each, compiled and ready to run.

    Raises `InputError` for a phase that does not exist at this shape: K = 1 drafts nothing, and K > 1 needs a drafter.
    """
    _check(pair, phase, block_size, batch, context)
    short = pair.shortage(batch, context + block_size, block_size)
    if short is not None:
        raise MemoryError(short)
    arguments, options, cache_at = _inputs(pair, phase, block_size, batch, context)
    started = time.perf_counter()
    lowered: Lowered = getattr(steps, phase).lower(*arguments, **options)
    lowered_at = time.perf_counter()
    compiled = lowered.compile(compiler_options(jax.devices()[0].device_kind))
    return PhaseProgram(
        phase=phase,
        block_size=block_size,
        batch=batch,
        context=context,
        lower_s=lowered_at - started,
        compile_s=time.perf_counter() - lowered_at,
        compiled=compiled,
        arguments=arguments,
        cache_at=cache_at,
    )


def _check(pair: Pair, phase: Phase, block_size: int, batch: int, context: int) -> None:
    if phase not in STEP_PHASES:
        raise InputError(f"phase {phase!r} is not part of a step", f"one of {', '.join(STEP_PHASES)}")
    if min(block_size, batch) < 1 or context < 0:
        raise InputError(
            f"block size {block_size}, batch {batch}, context {context} is no step",
            "block size and batch start at 1, context at 0",
        )
    if phase == DRAFT and block_size == 1:
        raise InputError("at block size 1 nothing is drafted", "time draft from block size 2 on")
    if block_size > 1 and pair.draft_config is None:
        raise InputError(f"block size {block_size} needs a drafter, and {pair.name} has none", "give a drafter, or use K = 1")


def _inputs(pair: Pair, phase: Phase, block_size: int, batch: int, context: int) -> tuple[list[Any], dict[str, Any], int | None]:
    """Arguments of the phase's program, its static options, and which argument it donates."""
    generator = np.random.default_rng(SEED)
    draft_config = pair.draft_config if block_size > 1 else None
    draft_params = pair.draft_params if block_size > 1 else None
    configs = {"target_config": pair.target_config, "draft_config": draft_config}
    block = _tokens(generator, (batch, block_size), pair.target_config.vocab_size)
    position, num_context = (jax.device_put(np.full(batch, context, dtype=np.int32)) for _ in range(2))
    capacity = context + block_size
    dtype = pair.target_params["embed"].dtype
    if phase == VERIFY:
        cache = _filled(functools.partial(model.init_cache, pair.target_config, batch, capacity, dtype))
        return [pair.target_params, block, position, cache], configs | {"sampling": None}, 3
    draft_state = None
    if draft_config is not None:
        draft_state = _filled(functools.partial(drafter.init_state, draft_config, batch, capacity, dtype))
    if phase == DRAFT:
        arguments = [pair.target_params, draft_params, block[:, :1], num_context, draft_state, None]
        return arguments, configs | {"block_size": block_size, "sampling": None}, 4
    features = None
    if draft_config is not None:
        width = len(steps.feature_layers(draft_config)) * pair.target_config.hidden_size
        features = jax.device_put(generator.standard_normal((batch, block_size, width), dtype=np.float32).astype(dtype))
    predicted = _tokens(generator, (batch, block_size), pair.target_config.vocab_size)
    remaining = jax.device_put(np.full(batch, block_size, dtype=np.int32))
    return (
        [
            pair.target_params, draft_params, block, predicted, features, position, num_context, remaining, draft_state, None,
            None, None,
        ],
        configs | {"stop_token_ids": pair.stop_token_ids},
        None if draft_config is None else 8,
    )  # fmt: skip


def _tokens(generator: np.random.Generator, shape: tuple[int, ...], vocab_size: int) -> jax.Array:
    return jax.device_put(generator.integers(vocab_size, size=shape, dtype=np.int32))


def _filled(init: Callable[[], Any]) -> Any:
    """A cache of random values. Equal shapes hold equal ones, each in memory of its own: drawing them anew would take long.

    Whole numbers (a page table, lengths) are structure rather than content, and stay what `init` makes them.
    """
    leaves, structure = jax.tree_util.tree_flatten(jax.eval_shape(init))
    structural = iter(jax.jit(lambda: [leaf for leaf in jax.tree_util.tree_leaves(init()) if not _is_content(leaf)])())
    drawn: dict[tuple[int, ...], np.ndarray] = {}

    def fill(leaf: jax.ShapeDtypeStruct) -> jax.Array:
        if not _is_content(leaf):
            return next(structural)
        if leaf.shape not in drawn:
            drawn[leaf.shape] = CACHE_SCALE * np.random.default_rng(SEED).standard_normal(leaf.shape, dtype=np.float32)
        return jnp.array(drawn[leaf.shape], dtype=leaf.dtype)

    return jax.tree_util.tree_unflatten(structure, [fill(leaf) for leaf in leaves])


def _is_content(leaf: jax.Array | jax.ShapeDtypeStruct) -> bool:
    return jnp.issubdtype(leaf.dtype, jnp.floating)
