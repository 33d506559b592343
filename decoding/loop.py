"""The draft / verify / commit loop on a batch of prompts: plain decoding is its case of block size 1, without a drafter.

A step has a fixed shape and a variable yield: the target always verifies K tokens per request, and commits between 1 and K of
them. The host learns how many by reading the committed tokens once per step; that read is the step's only synchronisation, and
the time it leaves the device idle is part of what the tool measures. Everything is compiled before the first token, so that no
step's time contains a compilation.
"""

import functools
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import jax
import numpy as np
from jax.stages import Lowered
from jaxtyping import Int

from perfmodel.errors import InputError, UnsupportedError
from perfmodel.phases import COMMIT, DRAFT, PHASES, PREFILL, STEP_ANNOTATION, VERIFY, Phase

from . import steps
from .attention import Kernel, default_kernel
from .paged import pages_per_request
from .pair import Pair
from .sampling import Sampling, request_keys
from .steps import Committed, Drafted, LoopState
from .tpu import compiler_options

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
    included; the fused loop, whose steps no host sees, leaves it empty. `decode_s` is the wall time of all steps, without the
    prefill. `beyond_trained_block` marks a drafter run with more slots than it was trained for.
    """

    tokens: tuple[tuple[int, ...], ...]
    committed: tuple[tuple[int, ...], ...]
    ttft_s: float
    step_wall_s: tuple[float, ...]
    decode_s: float
    block_size: int
    beyond_trained_block: bool

    @property
    def num_committed(self) -> int:
        """Tokens that steps added, over all requests."""
        return sum(sum(counts) for counts in self.committed)


def required_capacity(prompt_tokens: int, max_new_tokens: int, block_size: int) -> int:
    """Cache slots an answer may touch: the last step begins at the last token but one and verifies a whole block."""
    return prompt_tokens + max_new_tokens + block_size - 1


SMALLEST_PADDING = 16


def padded_length(num_tokens: int, capacity: int) -> int:
    """The length that prompts of up to `num_tokens` are padded to: a power of two from 16 on, so that few shapes are compiled for."""
    return min(max(SMALLEST_PADDING, 1 << (num_tokens - 1).bit_length()), capacity)


class Decoder:
    """A pair made ready to decode at one block size, batch and cache capacity. K = 1 decodes plainly, without the drafter."""

    def __init__(
        self,
        pair: Pair,
        block_size: int,
        batch: int,
        capacity: int,
        sampling: Sampling | None = None,
        kernel: Kernel | None = None,
    ) -> None:
        """A decoder, not yet compiled.

        Arguments:
            pair: target and drafter; their weights decide which devices run (see `parallel`).
            block_size: K, tokens per verify step, anchor included.
            batch: places for requests.
            capacity: positions per request, see `required_capacity`.
            sampling: how tokens are drawn; None is greedy.
            kernel: how the cache is laid out and read; None is this machine's.
        """
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
        self.sampling = sampling
        self.kernel = kernel or default_kernel()
        self.prompt_capacity = 0
        self.draft_config = pair.draft_config if block_size > 1 else None
        self.draft_params = pair.draft_params if block_size > 1 else None
        self.prefilled_state: LoopState | None = None
        self._programs: dict[str, Callable[..., Any]] = {}

    @functools.cached_property
    def page_table(self) -> Int[np.ndarray, "b m"]:
        """Which page holds each stretch of each request: its own pages, in order. Made when it is needed, behind the memory check."""
        per_request = pages_per_request(self.capacity, self.kernel.page_size)
        return np.arange(self.batch * per_request, dtype=np.int32).reshape(self.batch, per_request)

    @property
    def beyond_trained_block(self) -> bool:
        """Whether the drafter is asked for more drafts than its training block had."""
        trained = self.pair.trained_block_size
        return self.block_size > 1 and trained is not None and self.block_size > trained

    def compile(self, prompt_capacity: int, phases: Sequence[Phase] = PHASES) -> CompileTimes:
        """Compile the programs (of these `phases`) for prompts of up to `prompt_capacity` tokens; returns the seconds it took."""
        if not 1 <= prompt_capacity <= self.capacity:
            raise InputError(
                f"a prompt capacity of {prompt_capacity} tokens does not fit a cache of {self.capacity}",
                "give the decoder a larger capacity",
            )
        short = self.pair.shortage(self.batch, self.capacity, max(prompt_capacity, self.block_size))
        if short is not None:
            raise UnsupportedError(short, "ask for fewer tokens, shorter prompts or a smaller batch")
        started = time.perf_counter()
        self.prompt_capacity = prompt_capacity
        if self.kernel.mesh is not None:
            # Where a result lies on several devices is the compiler's choice, so each program is compiled when it meets its arguments.
            self._programs = {phase: functools.partial(getattr(steps, phase), **self._options(phase)) for phase in phases}
            return CompileTimes(0.0, 0.0)
        lowered = self._lower(prompt_capacity)
        lowered_at = time.perf_counter()
        self.prefilled_state = lowered[PREFILL].out_info
        options = compiler_options(jax.devices()[0].device_kind)
        self._programs = {name: program.compile(options) for name, program in lowered.items() if name in phases}
        return CompileTimes(lowered_at - started, time.perf_counter() - lowered_at)

    def _options(self, phase: Phase) -> dict[str, Any]:
        """The static arguments of a phase's program."""
        options: dict[str, Any] = {"target_config": self.pair.target_config, "draft_config": self.draft_config}
        if phase != COMMIT:
            options["sampling"] = self.sampling
        if phase == DRAFT:
            options["block_size"] = self.block_size
        if phase == PREFILL:
            options |= {"capacity": self.capacity, "kernel": self.kernel}
        if phase in (PREFILL, COMMIT):
            options["stop_token_ids"] = self.pair.stop_token_ids
        return options

    def _lower(self, prompt_capacity: int) -> dict[str, Lowered]:
        target_params, draft_params = self.pair.target_params, self.draft_params
        per_request = jax.ShapeDtypeStruct((self.batch,), np.int32)
        prompts = jax.ShapeDtypeStruct((self.batch, padded_length(prompt_capacity, self.capacity)), np.int32)
        lowered: dict[str, Lowered] = {}
        lowered[PREFILL] = steps.prefill.lower(
            target_params, draft_params, prompts, per_request, per_request, self.request_keys(0, range(self.batch)),
            self.page_table, **self._options(PREFILL),
        )  # fmt: skip
        state = lowered[PREFILL].out_info
        drafted = Drafted(state.anchor, None, state.draft_state)
        if self.draft_config is not None:
            lowered[DRAFT] = steps.draft.lower(
                target_params,
                draft_params,
                state.anchor,
                state.num_context,
                state.draft_state,
                state.keys,
                **self._options(DRAFT),
            )
            drafted = lowered[DRAFT].out_info
        lowered[VERIFY] = steps.verify.lower(
            target_params, drafted.block, state.position, state.target_cache, **self._options(VERIFY)
        )
        verified = lowered[VERIFY].out_info
        lowered[COMMIT] = steps.commit.lower(
            target_params, draft_params, drafted.block, verified.predicted, verified.features, state.position,
            state.num_context, state.remaining, drafted.draft_state, state.keys, verified.probabilities, drafted.probabilities,
            **self._options(COMMIT),
        )  # fmt: skip
        return lowered

    def request_keys(self, seed: int, request_ids: Sequence[int]) -> jax.Array | None:
        """A random key per place of the batch; None for greedy decoding. Places without a request share that of request 0."""
        if self.sampling is None:
            return None
        ids = [*request_ids, *[0] * (self.batch - len(request_ids))]
        return request_keys(seed, ids)

    def prefill(
        self, prompts: Sequence[Sequence[int]], max_new_tokens: int, seed: int = 0, request_ids: Sequence[int] | None = None
    ) -> LoopState:
        """The state after the prompts; places of the batch without a prompt are finished from the start."""
        tokens = np.zeros((self.batch, padded_length(self.prompt_capacity, self.capacity)), dtype=np.int32)
        lengths = np.ones(self.batch, dtype=np.int32)
        budget = np.zeros(self.batch, dtype=np.int32)
        limit = self.pair.target_config.max_position_embeddings
        for row, prompt in enumerate(prompts):
            tokens[row, : len(prompt)] = prompt
            lengths[row] = len(prompt)
            budget[row] = max_new_tokens if limit is None else min(max_new_tokens, limit - len(prompt))
        keys = self.request_keys(seed, range(len(prompts)) if request_ids is None else request_ids)
        return self._programs[PREFILL](self.pair.target_params, self.draft_params, tokens, lengths, budget, keys, self.page_table)

    def step(self, state: LoopState, span: Span = no_span) -> tuple[LoopState, Committed]:
        """The next state and what the step committed, still on the device. The caches of `state` are consumed."""
        wait = jax.block_until_ready if getattr(span, "blocking", False) else _no_wait
        target_params, draft_params = self.pair.target_params, self.draft_params
        drafted = Drafted(state.anchor, None, state.draft_state)
        if self.draft_config is not None:
            with span(DRAFT):
                drafted = wait(self._programs[DRAFT](
                    target_params, draft_params, state.anchor, state.num_context, state.draft_state, state.keys
                ))  # fmt: skip
        with span(VERIFY):
            verified = wait(self._programs[VERIFY](target_params, drafted.block, state.position, state.target_cache))
        with span(COMMIT):
            done = wait(self._programs[COMMIT](
                target_params, draft_params, drafted.block, verified.predicted, verified.features, state.position,
                state.num_context, state.remaining, drafted.draft_state, state.keys, verified.probabilities,
                drafted.probabilities,
            ))  # fmt: skip
        after = LoopState(
            verified.cache, done.draft_state, done.anchor, done.position, done.num_context, done.remaining, state.keys
        )
        return after, done

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
        limit = self.pair.target_config.max_position_embeddings
        if limit is not None and longest >= limit:
            raise InputError(
                f"a prompt of {longest} tokens leaves no room for an answer: the target has {limit} positions",
                "shorten the prompt (max_position_embeddings in the target's config.json)",
            )
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
    seed: int = 0,
    request_ids: Sequence[int] | None = None,
) -> Generation:
    """Answers of up to `max_new_tokens` tokens each (stop token included), decoded as one batch.

    Arguments:
        decoder: compiled by its `compile`; an uncompiled one is compiled first, for the longest of these prompts.
        prompts: token ids, at most one prompt per place of the batch; lengths may differ.
        max_new_tokens: limit per answer; the prefill's token counts.
        span: opens the regions of a trace: one per phase, and one per step around its phases.
        max_steps: stop after so many steps of the batch, finished or not.
        seed: of all randomness; nothing is random in greedy decoding.
        request_ids: a number per prompt, so that a request draws the same in whatever batch it runs (None: its place).
    """
    decoder.check(prompts, max_new_tokens)
    if not decoder.prompt_capacity:
        decoder.compile(max(len(prompt) for prompt in prompts))
    started = time.perf_counter()
    with span(PREFILL):
        state = decoder.prefill(prompts, max_new_tokens, seed, request_ids)
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
        decode_s=sum(step_wall_s),
        block_size=decoder.block_size,
        beyond_trained_block=decoder.beyond_trained_block,
    )
