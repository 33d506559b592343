"""The loop that stays on the device: after the prefill, one program runs steps until every answer is done.

The stepwise loop hands control to its host after every step, to read how many tokens were committed; a host that is slow, or far from
its device, adds that to every step. Nothing in the algorithm needs it: the accept rule, the stop rule and the growth of the answer are
arithmetic of fixed shape, so the whole loop is a `lax.while_loop` over the same `steps.step`, with the answer and the counts of every
step written into buffers. Both loops give the same tokens; what differs is the host's gap, which here is zero by construction, and
what a trace shows: one program, its phases told apart by their named scopes.
"""

import functools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from perfmodel.errors import InputError
from perfmodel.phases import PREFILL

from .accept import NO_TOKEN
from .config import TargetConfig
from .drafter import AnyDraftConfig
from .loop import CompileTimes, Decoder, Generation, Span, no_span
from .sampling import Sampling
from .steps import LoopState, step
from .target import Params
from .tpu import compiler_options


class Answers(NamedTuple):
    """What a run of the loop leaves: answers (`NO_TOKEN` behind their end), tokens per step and request, steps, and the state.

    `tokens` begin with the prefill's token. A step in which a request was finished already has count 0 for it.
    """

    tokens: Int[Array, "b c"]
    committed: Int[Array, "b c"]
    num_steps: Int[Array, ""]
    state: LoopState


@functools.partial(
    jax.jit,
    static_argnames=("target_config", "draft_config", "block_size", "stop_token_ids", "answer_capacity", "sampling"),
    donate_argnames=("state",),
)
def decode(
    target_params: Params,
    draft_params: Params | None,
    state: LoopState,
    max_steps: Int[Array, ""],
    *,
    target_config: TargetConfig,
    draft_config: AnyDraftConfig | None,
    block_size: int,
    stop_token_ids: tuple[int, ...],
    answer_capacity: int,
    sampling: Sampling | None = None,
) -> Answers:
    """The answers that begin with the state's anchors, grown until all are done or `max_steps` steps were made.

    `answer_capacity` bounds an answer's tokens, the prefill's included; the state's `remaining` must be below it.
    """
    batch = state.anchor.shape[0]
    rows = jnp.arange(batch)[:, None]
    slots = jnp.arange(block_size)
    tokens = jnp.full((batch, answer_capacity), NO_TOKEN, dtype=state.anchor.dtype).at[:, :1].set(state.anchor)
    committed = jnp.zeros((batch, answer_capacity), dtype=jnp.int32)

    def is_going(carry: tuple[LoopState, Array, Array, Array, Array]) -> Array:
        state, _, _, _, num_steps = carry
        return jnp.any(state.remaining > 0) & (num_steps < max_steps)

    def grow(carry: tuple[LoopState, Array, Array, Array, Array]) -> tuple[LoopState, Array, Array, Array, Array]:
        state, tokens, lengths, committed, num_steps = carry
        state, outcome = step(
            target_params, draft_params, state, target_config=target_config, draft_config=draft_config, block_size=block_size,
            stop_token_ids=stop_token_ids, sampling=sampling,
        )  # fmt: skip
        counts = outcome.num_committed
        places = jnp.where(slots < counts[:, None], lengths[:, None] + slots, answer_capacity)
        tokens = tokens.at[rows, places].set(outcome.tokens.astype(tokens.dtype), mode="drop")
        return state, tokens, lengths + counts, committed.at[:, num_steps].set(counts, mode="drop"), num_steps + 1

    begin = (state, tokens, jnp.ones(batch, dtype=jnp.int32), committed, jnp.zeros((), dtype=jnp.int32))
    state, tokens, _, committed, num_steps = jax.lax.while_loop(is_going, grow, begin)
    return Answers(tokens, committed, num_steps, state)


@dataclass(frozen=True)
class FusedLoop:
    """A decoder whose steps run as one program, for answers of up to `answer_capacity` tokens."""

    decoder: Decoder
    answer_capacity: int
    times: CompileTimes
    program: Callable[..., Answers]


def compile_fused(decoder: Decoder, prompt_capacity: int, answer_capacity: int) -> FusedLoop:
    """The fused loop over a decoder's steps. The decoder is compiled first where it was not: the prefill is its own."""
    if answer_capacity < 1:
        raise InputError(f"an answer of {answer_capacity} tokens is none", "give room for at least one token")
    prefill = CompileTimes(0.0, 0.0) if decoder.prompt_capacity else decoder.compile(prompt_capacity, phases=(PREFILL,))
    options = {
        "target_config": decoder.pair.target_config, "draft_config": decoder.draft_config, "block_size": decoder.block_size,
        "stop_token_ids": decoder.pair.stop_token_ids, "answer_capacity": answer_capacity, "sampling": decoder.sampling,
    }  # fmt: skip
    if decoder.prefilled_state is None:  # on several devices, see `Decoder.compile`
        return FusedLoop(decoder, answer_capacity, prefill, functools.partial(decode, **options))
    started = time.perf_counter()
    lowered = decode.lower(
        decoder.pair.target_params, decoder.draft_params, decoder.prefilled_state, jax.ShapeDtypeStruct((), np.int32), **options
    )
    lowered_at = time.perf_counter()
    program = lowered.compile(compiler_options(jax.devices()[0].device_kind))
    times = CompileTimes(prefill.lower_s + lowered_at - started, prefill.compile_s + time.perf_counter() - lowered_at)
    return FusedLoop(decoder, answer_capacity, times, program)


def generate_fused(
    loop: FusedLoop,
    prompts: Sequence[Sequence[int]],
    max_new_tokens: int,
    span: Span = no_span,
    max_steps: int | None = None,
    seed: int = 0,
    request_ids: Sequence[int] | None = None,
) -> Generation:
    """What `loop.generate` gives, token for token, from one program after the prefill; no step has a wall time of its own."""
    decoder = loop.decoder
    decoder.check(prompts, max_new_tokens)
    if max_new_tokens > loop.answer_capacity:
        raise InputError(
            f"answers of {max_new_tokens} tokens, and the loop was compiled for {loop.answer_capacity}",
            "compile it with a larger answer_capacity",
        )
    started = time.perf_counter()
    with span(PREFILL):
        state = jax.block_until_ready(decoder.prefill(prompts, max_new_tokens, seed, request_ids))
    ttft_s = time.perf_counter() - started
    started = time.perf_counter()
    limit = np.int32(loop.answer_capacity if max_steps is None else max_steps)
    answers = loop.program(decoder.pair.target_params, decoder.draft_params, state, limit)
    tokens, committed, num_steps = jax.device_get((answers.tokens, answers.committed, answers.num_steps))
    decode_s = time.perf_counter() - started
    counts = committed[: len(prompts), :num_steps]
    return Generation(
        tokens=tuple(tuple(row[: 1 + made].tolist()) for row, made in zip(tokens, counts.sum(axis=1), strict=False)),
        committed=tuple(tuple(row[row > 0].tolist()) for row in counts),
        ttft_s=ttft_s,
        step_wall_s=(),
        decode_s=decode_s,
        block_size=decoder.block_size,
        beyond_trained_block=decoder.beyond_trained_block,
    )
