"""One decode of given prompts, traced or not: what `perf capture` runs.

A trace shows the loop with a profiler in it. What that adds to a step is measured on the spot: the beginning of the same answers,
over again, in turn with and without the profiler.
"""

import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from decoding.loop import Decoder, Generation, generate, no_span, required_capacity
from decoding.pair import Pair
from perfmodel.codec import read_json
from perfmodel.errors import InputError, PerfError
from perfmodel.records import Finding
from profiling.capture import MAX_STEPS, capture
from profiling.extract import extract
from profiling.overhead import MIN_STEPS, Overhead, profiler_overhead

from .answers import WARMUP_STEPS
from .traces import overhead_findings

OVERHEAD_ROUNDS = 4
OVERHEAD_STEPS = 12
OVERHEAD_BUDGET_S = 10.0
"""Rounds, steps of each answer in them, and seconds after which no further round begins."""


def read_prompt_ids(path: Path) -> list[list[int]]:
    """Prompts as token ids: a JSON list of non-empty lists of whole numbers. Raises `InputError`."""
    document = read_json(path)
    if not isinstance(document, list) or not document:
        raise InputError(f"{path} is not a JSON list of token-id lists", "for example [[1, 4093, 198], [1, 520]]")
    for number, prompt in enumerate(document, start=1):
        if (
            not isinstance(prompt, list)
            or not prompt
            or not all(isinstance(token, int) and not isinstance(token, bool) for token in prompt)
        ):
            raise InputError(f"{path}: prompt {number} is not a non-empty list of token ids", "whole numbers only")
    return document


@dataclass(frozen=True)
class Recording:
    """Answers, the trace file if any, and the seconds of each stage: lowering, compiling, warming up and running are four numbers.

    `profiler_s` is what the profiler took to begin and to write its file, none of it inside a step; `overhead` is what it added to
    each step (None: nothing was recorded, or too few steps ran). `findings` say what is wrong with the trace, above all when it does
    not hold the steps that were run.
    """

    answers: tuple[Generation, ...]
    xplane: Path | None
    lower_s: float
    compile_s: float
    warmup_s: float
    profiler_s: float | None
    overhead: Overhead | None = None
    findings: tuple[Finding, ...] = ()

    @property
    def decode_s(self) -> float:
        """Wall time of all steps of all batches, without prefills, s."""
        return sum(answer.decode_s for answer in self.answers)


def _silent(share: float, message: str) -> None:
    """Tells nobody."""


def decode_prompts(
    pair: Pair,
    prompts: Sequence[Sequence[int]],
    block_size: int,
    batch: int,
    max_new_tokens: int,
    trace: tuple[Path, str] | None,
    progress: Callable[[float, str], None] = _silent,
) -> Recording:
    """Answers to the prompts, `batch` at a time, after a warm-up that is not recorded.

    Arguments: `trace` is the log folder and the capture's name; only the first batch is traced, and of it at most
    `profiling.capture.MAX_STEPS` steps. `progress` is told the share done, 0 … 1, and what is going on.
    """
    longest = max(len(prompt) for prompt in prompts)
    progress(0.0, "compiling")
    decoder = Decoder(pair, block_size=block_size, batch=batch, capacity=required_capacity(longest, max_new_tokens, block_size))
    times = decoder.compile(longest)
    begin = time.perf_counter()
    generate(decoder, prompts[:batch], min(WARMUP_STEPS, max_new_tokens), max_steps=WARMUP_STEPS)
    warmup_s = time.perf_counter() - begin
    answers: list[Generation] = []
    xplane, profiler_s = None, None
    for start in range(0, len(prompts), batch):
        progress((1 + start) / (1 + len(prompts)), f"prompt {start + 1} of {len(prompts)}")
        session = capture(*trace) if trace and start == 0 else nullcontext()
        with session as traced:
            span = no_span if traced is None else traced.span
            answers.append(generate(decoder, prompts[start : start + batch], max_new_tokens, span=span))
        if traced is not None:
            xplane, profiler_s = traced.xplane, traced.start_s + traced.stop_s
    overhead: Overhead | None = None
    findings: tuple[Finding, ...] = ()
    if xplane is not None:
        progress(1.0, "the profiler's own cost")
        findings = _problems(xplane, len(answers[0].step_wall_s))
        try:
            overhead = measure_overhead(decoder, prompts[:batch], max_new_tokens)
            findings += overhead_findings(overhead)
        except (PerfError, OSError) as error:  # the capture itself is whole
            findings += (_unmeasured(error),)
    progress(1.0, "")
    return Recording(tuple(answers), xplane, times.lower_s, times.compile_s, warmup_s, profiler_s, overhead, findings)


def _unmeasured(error: Exception) -> Finding:
    return Finding(
        code="profiler-overhead-unknown",
        severity="info",
        message=f"what recording adds to a step was not measured: {error}",
        hint="free some space for temporary files, or name another folder for them in TMPDIR",
        where="decoding",
    )


def measure_overhead(decoder: Decoder, prompts: Sequence[Sequence[int]], max_new_tokens: int) -> Overhead | None:
    """What recording adds to a step, from the first steps of these answers with and without it; None when there are too few.

    The two take turns in going first, so that a machine that slows down or warms up meanwhile slows both.
    """
    recorded_s: list[float] = []
    plain_s: list[float] = []
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        for number in range(OVERHEAD_ROUNDS):
            for is_recorded in (number % 2 == 1, number % 2 == 0):
                session = capture(Path(folder), f"round-{number}") if is_recorded else nullcontext()
                with session as traced:
                    span = no_span if traced is None else traced.span
                    answer = generate(decoder, prompts, max_new_tokens, span=span, max_steps=OVERHEAD_STEPS)
                (recorded_s if is_recorded else plain_s).extend(answer.step_wall_s)
            if time.perf_counter() - begin > OVERHEAD_BUDGET_S:
                break
    return profiler_overhead(recorded_s, plain_s) if len(recorded_s) >= MIN_STEPS else None


def _problems(xplane: Path, num_steps: int) -> tuple[Finding, ...]:
    """What makes a trace unfit for use; nothing is expected of one in which no step ran."""
    if num_steps == 0:
        return ()
    found = extract(xplane, expected_steps=min(num_steps, MAX_STEPS)).findings
    return tuple(finding for finding in found if finding.severity == "error")


def token_dump(answers: Sequence[Generation]) -> list[dict[str, Any]]:
    """One object per prompt: `tokens` (the prefill's and any stop token included), `committed` (tokens kept per step)."""
    return [
        {"tokens": list(tokens), "committed": list(committed)}
        for answer in answers
        for tokens, committed in zip(answer.tokens, answer.committed, strict=True)
    ]
