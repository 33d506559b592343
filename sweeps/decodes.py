"""Which prompts a sweep decodes, at which block sizes, and what follows from comparing them.

Every task is answered at the drafter's block size and plainly, in one batch each; smaller blocks follow while time is left.
Before that one prompt is answered alone, with and without the profiler: the *witness*, whose trace shows the step of a
single stream, its host gap, and what profiling costs.
"""

import time
from dataclasses import dataclass

from perfmodel.records import DecodeRun, Finding

from .answers import Comparison, Decoders, Job, answer, compare
from .progress import Reporter
from .store import RunStore

Prompts = dict[str, tuple[tuple[int, ...], ...]]

WITNESS_TOKENS = 48


@dataclass(frozen=True)
class Decodes:
    """Every decode run of a sweep by key, and the comparison of speculative with plain tokens (None where it proves nothing)."""

    runs: dict[str, DecodeRun]
    comparison: Comparison | None

    def task(self, task: str, block_size: int) -> DecodeRun | None:
        """The batch run of a task at a block size."""
        return self.runs.get(_key(task, block_size))

    def witness(self, block_size: int, traced: bool) -> DecodeRun | None:
        """The single-stream run at a block size, with or without the profiler."""
        return self.runs.get(_witness_key(block_size, traced))


def _key(task: str, block_size: int) -> str:
    return f"decode-{task}-K{block_size}"


def _witness_key(block_size: int, traced: bool) -> str:
    return f"witness-K{block_size}-{'traced' if traced else 'plain'}"


def jobs(prompts: Prompts, block_size: int, max_new_tokens: int) -> tuple[tuple[Job, ...], tuple[Job, ...]]:
    """The jobs a sweep must do, and those it does while time is left."""
    sizes = (block_size, 1) if block_size > 1 else (1,)
    task, first = next(iter(prompts.items()))
    witness = [
        Job(_witness_key(size, traced), task, size, first[:1], WITNESS_TOKENS, f"witness-K{size}" if traced else None)
        for size in sizes
        for traced in (False, True)
    ]
    whole = [
        Job(_key(task, size), task, size, texts, max_new_tokens, f"{task}-K{size}")
        for size in sizes
        for task, texts in prompts.items()
    ]
    smaller = [
        Job(_key(task, size), task, size, texts, max_new_tokens)
        for size in _halves(block_size)
        for task, texts in prompts.items()
    ]
    return (*witness, *whole), tuple(smaller)


def _halves(block_size: int) -> list[int]:
    sizes = []
    while (block_size := block_size // 2) > 1:
        sizes.append(block_size)
    return sizes


def decode(
    prompts: Prompts,
    block_size: int,
    max_new_tokens: int,
    decoders: Decoders,
    store: RunStore,
    budget_s: float,
    report: Reporter,
    exact: bool,
) -> Decodes:
    """All decode runs. `exact` says whether tokens must agree to the last one, as they must in float32."""
    must, may = jobs(prompts, block_size, max_new_tokens)
    runs: dict[str, DecodeRun] = {}
    started = time.perf_counter()
    longest_s = 0.0
    for index, job in enumerate((*must, *may)):
        spent_s = time.perf_counter() - started
        if index >= len(must) and not store.has(job.key) and spent_s + longest_s > budget_s:
            continue
        report(
            "decoding",
            min(1.0, max(index / len(must + may), spent_s / budget_s)),
            f"{job.task} K={job.block_size}, {len(job.prompts)} prompts",
        )
        began = time.perf_counter()
        runs[job.key] = answer(job, decoders, store)
        longest_s = max(longest_s, time.perf_counter() - began)
    comparison = _compare_all(runs, tuple(prompts)) if exact and block_size > 1 else None
    return Decodes(runs, comparison)


def _compare_all(runs: dict[str, DecodeRun], tasks: tuple[str, ...]) -> Comparison:
    num_tokens = 0
    differences: list[tuple[str, int, int, int]] = []
    for task in tasks:
        plain = runs[_key(task, 1)]
        others = [run for key, run in runs.items() if run.task == task and run.block_size > 1 and key.startswith("decode-")]
        found = compare(plain, others)
        num_tokens += found.num_tokens
        differences += found.differences
    return Comparison(num_tokens, tuple(differences))


def loss_findings(comparison: Comparison | None) -> tuple[Finding, ...]:
    """What the comparison has to say when it found a difference."""
    if comparison is None or comparison.equal:
        return ()
    task, size, prompt, token = comparison.differences[0]
    return (
        Finding(
            code="not-lossless",
            severity="error",
            message=f"speculative and plain tokens differ in {len(comparison.differences)} answers, first in {task} at K={size}, "
            f"prompt {prompt + 1}, token {token + 1}",
            hint="in float32 this is a bug of the loop or a near-tie of two logits; nothing below can be trusted",
            where="decoding",
        ),
    )
