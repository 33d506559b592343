"""Decoding the tasks' prompts under capture: tokens, committed counts per step, and the proof that nothing was lost.

Greedy speculative decoding must give the very tokens of plain decoding. In float32 that is demanded token for token on every
prompt of every sweep; in bfloat16 near-ties may flip, so there the comparison says nothing and is left out.
"""

import shutil
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass

from decoding.loop import Decoder, generate, no_span
from decoding.pair import Pair
from perfmodel.records import DecodeRun
from profiling.capture import PROFILE_FOLDER, capture

from .store import RunStore

MAX_TRACED_STEPS = 50


@dataclass(frozen=True)
class Job:
    """Prompts of one task to be decoded in one batch at one block size; `trace` names the capture, if any."""

    key: str
    task: str
    block_size: int
    prompts: tuple[tuple[int, ...], ...]
    max_new_tokens: int
    trace: str | None = None
    max_steps: int | None = None


WARMUP_STEPS = 2


@dataclass(frozen=True)
class Ready:
    """A decoder that has run once, and the seconds that lowering, compiling and that first run took."""

    decoder: Decoder
    lower_s: float
    compile_s: float
    warmup_s: float


class Decoders:
    """Decoders by block size and batch, compiled and warmed up on first use and shared by all tasks."""

    def __init__(self, pair: Pair, prompt_capacity: int, capacity: int) -> None:
        self.pair = pair
        self.prompt_capacity = prompt_capacity
        self.capacity = capacity
        self._ready: dict[tuple[int, int], Ready] = {}

    def get(self, block_size: int, prompts: Sequence[Sequence[int]]) -> Ready:
        """The decoder for so many prompts; a new one answers the beginning of these first, for what only a first run pays."""
        key = (block_size, len(prompts))
        if key not in self._ready:
            decoder = Decoder(self.pair, block_size=block_size, batch=len(prompts), capacity=self.capacity)
            times = decoder.compile(self.prompt_capacity)
            begin = time.perf_counter()
            generate(decoder, prompts, WARMUP_STEPS, max_steps=WARMUP_STEPS)
            self._ready[key] = Ready(decoder, times.lower_s, times.compile_s, time.perf_counter() - begin)
        return self._ready[key]


def answer(job: Job, decoders: Decoders, store: RunStore) -> DecodeRun:
    """The job's decode run, read back when it was finished before and its capture is still there."""
    found = store.get(job.key, DecodeRun)
    if found is not None and (found.trace is None or (store.folder / found.trace).is_file()):
        return found
    if job.trace:
        # A sweep that was stopped in mid-answer left a capture of half of it.
        shutil.rmtree(store.trace_folder / PROFILE_FOLDER / job.trace, ignore_errors=True)
    ready = decoders.get(job.block_size, job.prompts)
    session = capture(store.trace_folder, job.trace, max_steps=MAX_TRACED_STEPS) if job.trace else nullcontext()
    with session as traced:
        span = traced.span if traced is not None else no_span
        result = generate(ready.decoder, job.prompts, job.max_new_tokens, span=span, max_steps=job.max_steps)
    run = DecodeRun(
        task=job.task,
        block_size=job.block_size,
        batch=len(job.prompts),
        prompt_tokens=tuple(len(prompt) for prompt in job.prompts),
        tokens=result.tokens,
        committed=result.committed,
        ttft_s=result.ttft_s,
        lower_s=ready.lower_s,
        compile_s=ready.compile_s,
        warmup_s=ready.warmup_s,
        decode_s=result.decode_s,
        step_wall_s=result.step_wall_s,
        trace=str(traced.xplane.relative_to(store.folder)) if traced is not None else None,
    )
    store.put(job.key, run)
    return run


@dataclass(frozen=True)
class Comparison:
    """Speculative against plain tokens: how many were compared, and (task, K, prompt, token) of every first difference."""

    num_tokens: int
    differences: tuple[tuple[str, int, int, int], ...]

    @property
    def equal(self) -> bool:
        """Whether every token agreed."""
        return not self.differences


def compare(plain: DecodeRun, speculative: Sequence[DecodeRun]) -> Comparison:
    """The comparison of runs of one task with its plain run; a run that was stopped early is compared as far as it went."""
    num_tokens = 0
    differences: list[tuple[str, int, int, int]] = []
    for run in speculative:
        for prompt, (ours, theirs) in enumerate(zip(run.tokens, plain.tokens, strict=True)):
            num_tokens += min(len(ours), len(theirs))
            first = next((i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), None)
            if first is None and len(ours) != len(theirs):
                first = min(len(ours), len(theirs))
            if first is not None:
                differences.append((run.task, run.block_size, prompt, first))
    return Comparison(num_tokens, tuple(differences))
