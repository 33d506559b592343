"""The draft / verify / commit loop on a batch of prompts: plain decoding is its case of block size 1, without a drafter.

A step has a fixed shape and a variable yield: the target always verifies K tokens per request, and commits between 1 and K of
them. The host learns how many by reading the committed tokens once per step; that read is the step's only synchronisation, and
the time it leaves the device idle is part of what the tool measures. Everything is compiled before the first token, so that no
step's time contains a compilation.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Protocol, TypeVar

import jax
import numpy as np
from jax.stages import Compiled, Lowered

from perfmodel.errors import InputError, UnsupportedError
from perfmodel.phases import COMMIT, DRAFT, PREFILL, STEP_ANNOTATION, VERIFY

from . import steps
from .pair import Pair
from .steps import Committed, LoopState

T = TypeVar("T")


class Span(Protocol):
    """Opens a named region of a trace. With `blocking` true, the loop waits for a phase's result inside its region.

    A host clock attributes time rightly only if the wait happens where the work was asked for; a device clock needs no wait,
    and waiting would take away the overlap of host and device. So the one who traces decides.
    """

    def __call__(self, name: str, step_num: int | None = None) -> AbstractContextManager[object]:
        """The context manager of the region `name`; `step_num` numbers a step's region."""


@contextmanager
def no_span(name: str, step_num: int | None = None) -> Iterator[None]:
    """A span that records nothing."""
    yield


@dataclass(frozen=True)
class CompileTimes:
    """Seconds spent on tracing and lowering, and in the compiler, summed over a decoder's programs."""

    lower_s: float
    compile_s: float


@dataclass(frozen=True)
class Generation:
    """Answers to a batch of prompts and how they came about; times in seconds.

    `tokens` begin with the prefill's token and include a stop token; `committed` lists what each step added to the answer, so
    `len(tokens) == 1 + sum(committed)` for each request. `step_wall_s` has one entry per step of the batch, the host's read
    included. `beyond_trained_block` marks a drafter run with more slots than it was trained for.
    """

    tokens: tuple[tuple[int, ...], ...]
    committed: tuple[tuple[int, ...], ...]
    ttft_s: float
    step_wall_s: tuple[float, ...]
    block_size: int
    beyond_trained_block: bool

    @property
    def decode_s(self) -> float:
        """Wall time of all steps, without the prefill, s."""
        return sum(self.step_wall_s)

    @property
    def num_committed(self) -> int:
        """Tokens that steps added, over all requests."""
        return sum(sum(counts) for counts in self.committed)


def required_capacity(prompt_tokens: int, max_new_tokens: int, block_size: int) -> int:
    """Cache slots an answer may touch: the last step begins at the last token but one and verifies a whole block."""
    return prompt_tokens + max_new_tokens + block_size - 1


class Decoder:
    """A pair made ready to decode at one block size, batch and cache capacity. K = 1 decodes plainly, without the drafter."""

    def __init__(self, pair: Pair, block_size: int, batch: int, capacity: int) -> None:
        if min(block_size, batch, capacity) < 1:
            raise InputError(
                f"block size {block_size}, batch {batch} and capacity {capacity} must all be at least 1",
                "block size 1 is plain decoding",
            )
        if block_size > 1 and pair.draft_config is None:
            raise InputError(f"block size {block_size} needs a drafter, and {pair.name} has none", "give a drafter, or use K = 1")
        self.pair = pair
        self.block_size = block_size
        self.batch = batch
        self.capacity = capacity
        self.prompt_capacity = 0
        self.draft_config = pair.draft_config if block_size > 1 else None
        self.draft_params = pair.draft_params if block_size > 1 else None
        self._programs: dict[str, Compiled] = {}

    @property
    def beyond_trained_block(self) -> bool:
        """Whether the drafter is asked for more drafts than its training block had."""
        trained = self.pair.trained_block_size
        return self.block_size > 1 and trained is not None and self.block_size > trained

    def compile(self, prompt_capacity: int) -> CompileTimes:
        """Compile all programs for prompts of up to `prompt_capacity` tokens; returns the seconds it took."""
        if not 1 <= prompt_capacity <= self.capacity:
            raise InputError(
                f"a prompt capacity of {prompt_capacity} tokens does not fit a cache of {self.capacity}",
                "give the decoder a larger capacity",
            )
        short = self.pair.shortage(self.batch, self.capacity, max(prompt_capacity, self.block_size))
        if short is not None:
            raise UnsupportedError(short, "ask for fewer tokens, shorter prompts or a smaller batch")
        started = time.perf_counter()
        lowered = self._lower(prompt_capacity)
        lowered_at = time.perf_counter()
        self._programs = {name: program.compile() for name, program in lowered.items()}
        self.prompt_capacity = prompt_capacity
        return CompileTimes(lowered_at - started, time.perf_counter() - lowered_at)

    def _lower(self, prompt_capacity: int) -> dict[str, Lowered]:
        target_params, target_config = self.pair.target_params, self.pair.target_config
        draft_params, draft_config = self.draft_params, self.draft_config
        stops = self.pair.stop_token_ids
        per_request = jax.ShapeDtypeStruct((self.batch,), np.int32)
        prompts = jax.ShapeDtypeStruct((self.batch, prompt_capacity), np.int32)
        lowered: dict[str, Lowered] = {}
        lowered[PREFILL] = steps.prefill.lower(
            target_params, draft_params, prompts, per_request, per_request, target_config=target_config,
            draft_config=draft_config, capacity=self.capacity, stop_token_ids=stops,
        )  # fmt: skip
        state = lowered[PREFILL].out_info
        block = state.anchor
        if draft_config is not None:
            lowered[DRAFT] = steps.draft.lower(
                target_params, draft_params, state.anchor, state.position, state.draft_cache, target_config=target_config,
                draft_config=draft_config, block_size=self.block_size,
            )  # fmt: skip
            block = lowered[DRAFT].out_info
        lowered[VERIFY] = steps.verify.lower(
            target_params, block, state.position, state.target_cache, target_config=target_config, draft_config=draft_config
        )
        verified = lowered[VERIFY].out_info
        lowered[COMMIT] = steps.commit.lower(
            draft_params, block, verified.predicted, verified.features, state.position, state.remaining, state.draft_cache,
            draft_config=draft_config, stop_token_ids=stops,
        )  # fmt: skip
        return lowered

    def prefill(self, prompts: Sequence[Sequence[int]], max_new_tokens: int) -> LoopState:
        """The state after the prompts; places of the batch without a prompt are finished from the start."""
        tokens = np.zeros((self.batch, self.prompt_capacity), dtype=np.int32)
        lengths = np.ones(self.batch, dtype=np.int32)
        budget = np.zeros(self.batch, dtype=np.int32)
        for row, prompt in enumerate(prompts):
            tokens[row, : len(prompt)] = prompt
            lengths[row] = len(prompt)
            budget[row] = max_new_tokens
        return self._programs[PREFILL](self.pair.target_params, self.draft_params, tokens, lengths, budget)

    def step(self, state: LoopState, span: Span = no_span) -> tuple[LoopState, Committed]:
        """The next state and what the step committed, still on the device. The caches of `state` are consumed."""
        wait = jax.block_until_ready if getattr(span, "blocking", False) else _no_wait
        block = state.anchor
        if self.draft_config is not None:
            with span(DRAFT):
                block = wait(self._programs[DRAFT](
                    self.pair.target_params, self.draft_params, state.anchor, state.position, state.draft_cache
                ))  # fmt: skip
        with span(VERIFY):
            verified = wait(self._programs[VERIFY](self.pair.target_params, block, state.position, state.target_cache))
        with span(COMMIT):
            done = wait(self._programs[COMMIT](
                self.draft_params, block, verified.predicted, verified.features, state.position, state.remaining,
                state.draft_cache,
            ))  # fmt: skip
        return LoopState(verified.cache, done.draft_cache, done.anchor, done.position, done.remaining), done

    def check(self, prompts: Sequence[Sequence[int]], max_new_tokens: int) -> None:
        """Refuse what this decoder's shapes cannot hold."""
        longest = max((len(prompt) for prompt in prompts), default=0)
        if max_new_tokens < 1 or any(not prompt for prompt in prompts) or not prompts:
            raise InputError("nothing to decode: no prompt, an empty one, or no new tokens asked for", "give at least one token")
        vocab_size = self.pair.target_config.vocab_size
        if any(not 0 <= token < vocab_size for prompt in prompts for token in prompt):
            raise InputError(f"a prompt holds a token id outside 0…{vocab_size - 1}", "use the target's own tokenizer")
        if len(prompts) > self.batch:
            raise InputError(f"{len(prompts)} prompts for a decoder of batch {self.batch}", "split them or use a larger batch")
        if self.prompt_capacity and longest > self.prompt_capacity:
            raise InputError(
                f"a prompt of {longest} tokens, and the decoder was compiled for {self.prompt_capacity}",
                "compile it with a larger prompt_capacity",
            )
        needed = required_capacity(longest, max_new_tokens, self.block_size)
        if needed > self.capacity:
            raise InputError(
                f"{longest} prompt tokens and {max_new_tokens} new ones at block size {self.block_size} need a cache of {needed} "
                f"positions; this decoder has {self.capacity}",
                "ask for fewer tokens, or build the decoder with a larger capacity",
            )


def _no_wait(result: T) -> T:
    return result


def generate(
    decoder: Decoder,
    prompts: Sequence[Sequence[int]],
    max_new_tokens: int,
    span: Span = no_span,
    max_steps: int | None = None,
) -> Generation:
    """Greedy answers of up to `max_new_tokens` tokens each (stop token included), decoded as one batch.

    Arguments:
        decoder: compiled by its `compile`; an uncompiled one is compiled first, for the longest of these prompts.
        prompts: token ids, at most one prompt per place of the batch; lengths may differ.
        max_new_tokens: limit per answer; the prefill's token counts.
        span: opens the regions of a trace: one per phase, and one per step around its phases.
        max_steps: stop after so many steps of the batch, finished or not.
    """
    decoder.check(prompts, max_new_tokens)
    if not decoder.prompt_capacity:
        decoder.compile(max(len(prompt) for prompt in prompts))
    started = time.perf_counter()
    with span(PREFILL):
        state = decoder.prefill(prompts, max_new_tokens)
        first, remaining = jax.device_get((state.anchor, state.remaining))
    ttft_s = time.perf_counter() - started

    answers = [[int(token)] for token in first[: len(prompts), 0]]
    committed: list[list[int]] = [[] for _ in prompts]
    step_wall_s: list[float] = []
    while remaining.any() and (max_steps is None or len(step_wall_s) < max_steps):
        started = time.perf_counter()
        with span(STEP_ANNOTATION, step_num=len(step_wall_s)):
            state, done = decoder.step(state, span)
            tokens, counts, remaining = jax.device_get((done.tokens, done.num_committed, done.remaining))
        step_wall_s.append(time.perf_counter() - started)
        for row, answer in enumerate(answers):
            if count := int(counts[row]):
                answer.extend(tokens[row, :count].tolist())
                committed[row].append(count)
    return Generation(
        tokens=tuple(map(tuple, answers)),
        committed=tuple(map(tuple, committed)),
        ttft_s=ttft_s,
        step_wall_s=tuple(step_wall_s),
        block_size=decoder.block_size,
        beyond_trained_block=decoder.beyond_trained_block,
    )
