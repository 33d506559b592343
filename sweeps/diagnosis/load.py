"""Speedup that falls with the number of requests, and acceptance that falls with the context.

With more requests in flight a step verifies more tokens; once arithmetic sets the pace, extra drafts are no longer nearly free.
Somewhere the speedup crosses 1: beyond it speculation should be off. The crossing is interpolated in the logarithm of the batch.
"""

import math
from collections.abc import Sequence
from itertools import pairwise

from perfmodel.records import Diagnosed

from .finding import diagnosed
from .subject import Subject

CONTEXT_FACTOR, CONTEXT_LOSS = 4.0, 0.15


def falls_with_batch(subjects: Sequence[Subject]) -> list[Diagnosed]:
    """`falls-with-batch`, with the batch at which the speedup crosses 1 where it does."""
    return _falling(_speedups(subjects), None)


def predicted_to_fall(subject: Subject) -> list[Diagnosed]:
    """`falls-with-batch` of one task from what its own sweep predicted, where that was for several batches."""
    return _falling(subject.predicted, subject.name)


def _falling(speedups: Sequence[tuple[float, float]], task: str | None) -> list[Diagnosed]:
    """The finding for (batch, speedup) in rising order; `task` where the speedups are one sweep's predictions for it."""
    if len(speedups) < 2:
        return []
    (first, most), (last, least) = speedups[0], speedups[-1]
    if least >= 0.9 * most:
        return []
    listed = ", ".join(f"{speedup:.2f} at batch {batch:g}" for batch, speedup in speedups)
    crossing = _crossing(speedups)
    where = (
        f"; it crosses 1 near batch {crossing:.0f}"
        if crossing
        else "; it stays above 1"
        if least >= 1
        else "; it is below 1 throughout"
    )
    step = f"off above {math.floor(crossing)} requests" if crossing else f"a smaller K from batch {last:g} on"
    return [
        diagnosed(
            "falls-with-batch",
            "warning" if least < 1 else "info",
            task,
            f"{'predicted ' if task else ''}speedup {listed}{where}",
            "verification leaves the flat part of the roofline, or draft and host work grow with the batch",
            f"set K by batch size ({step}): perf predict --batch {first:g},{last:g} --emit vllm",
        )
    ]


def _speedups(subjects: Sequence[Subject]) -> list[tuple[float, float]]:
    """(batch, speculative over plain rate) where both are known, sorted."""
    plain: dict[float, float] = {}
    for subject in subjects:
        if subject.is_plain and subject.batch and subject.tokens_per_s:
            plain[subject.batch] = subject.tokens_per_s
    found: dict[float, float] = {}
    for subject in subjects:
        if subject.is_plain or not subject.batch or not subject.tokens_per_s:
            continue
        base = subject.plain_tokens_per_s or plain.get(subject.batch)
        if base:
            found[subject.batch] = max(found.get(subject.batch, 0.0), subject.tokens_per_s / base)
    return sorted(found.items())


def _crossing(speedups: Sequence[tuple[float, float]]) -> float | None:
    """The batch at which the speedup falls through 1."""
    for (low, above), (high, below) in pairwise(speedups):
        if above >= 1 > below:
            share = (above - 1) / (above - below)
            return math.exp(math.log(low) + share * (math.log(high) - math.log(low)))
    return None


def falls_with_context(subjects: Sequence[Subject]) -> list[Diagnosed]:
    """`falls-with-context` where τ of one K loses much between contexts that differ much."""
    known = [s for s in subjects if s.tau is not None and s.context and s.block_size is not None]
    for size in dict.fromkeys(s.block_size for s in known):
        group = sorted((s for s in known if s.block_size == size), key=lambda s: s.context or 0)
        short, long = group[0], group[-1]
        if (long.context or 0) < CONTEXT_FACTOR * (short.context or 0) or short.tau is None or long.tau is None:
            continue
        loss = (short.tau - long.tau) / max(short.tau - 1, 1e-9)
        if loss > CONTEXT_LOSS:
            return [
                diagnosed(
                    "falls-with-context",
                    "warning",
                    long.name,
                    f"τ = {short.tau:.2f} at context {short.context:,}, {long.tau:.2f} at {long.context:,}, both at K = {size}",
                    "context length past the drafter's training, or its attention window ignored",
                    "limit the drafter's window, use a smaller K or none beyond that length",
                )
            ]
    return []
