"""Differences with their uncertainty: B against A, for speedups, committed tokens and step times.

The two sides are taken as independent. Speedups come with intervals that lie unevenly around the value, so a ratio's is made on the
logarithm: each side's distance to its ends, added in squares (the propagation that hyperfine uses for relative speeds). Committed
tokens are compared by resampling the answers of both sides, step times by resampling their repeats.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from perfmodel.acceptance import measured_block_size, tau, tau_draws
from perfmodel.records import AcceptanceProfile, KPrediction, KRow, StepTimes, TimingPoint

from .inputs import PageInputs

Verdict = Literal["a", "b", "undecided", "unknown"]

QUANTILES = (2.5, 97.5)
NUM_DRAWS = 2000


@dataclass(frozen=True)
class Difference:
    """One number of A, the same of B, and B over A (or B − A) with its 95 % interval; None where the sampling error is unknown."""

    a: float
    b: float
    value: float
    low: float | None
    high: float | None

    def verdict(self, equal: float) -> Verdict:
        """Which side has the larger number: undecided where the interval holds `equal`, unknown without one."""
        if self.low is None or self.high is None:
            return "unknown"
        return "b" if self.low > equal else "a" if self.high < equal else "undecided"


@dataclass(frozen=True)
class TaskDifference:
    """The best K of both sides for one task at one shape, and how their speedups compare, at the best K and at every common K."""

    task: str
    a: KPrediction
    b: KPrediction
    speedup: Difference | None
    by_block_size: tuple[tuple[int, Difference], ...]


@dataclass(frozen=True)
class TauDifference:
    """Committed tokens per step of both sides for one task at a common K."""

    task: str
    block_size: int
    a: AcceptanceProfile
    b: AcceptanceProfile
    tau: Difference


@dataclass(frozen=True)
class TimeDifference:
    """The time of one phase at one shape on both sides."""

    a: TimingPoint
    b: TimingPoint
    ratio: Difference


def ratio(a: KRow, b: KRow) -> Difference | None:
    """Speedup of B over that of A; None where either has no speedup."""
    if not a.speedup or not b.speedup:
        return None
    value = b.speedup / a.speedup
    ends = (a.speedup_low, a.speedup_high, b.speedup_low, b.speedup_high)
    if any(end is None or end <= 0 for end in ends):
        return Difference(a.speedup, b.speedup, value, None, None)
    a_low, a_high, b_low, b_high = (end or 0.0 for end in ends)
    down = math.hypot(math.log(b.speedup / b_low), math.log(a_high / a.speedup))
    up = math.hypot(math.log(b_high / b.speedup), math.log(a.speedup / a_low))
    return Difference(a.speedup, b.speedup, value, value * math.exp(-down), value * math.exp(up))


def task_differences(a: PageInputs, b: PageInputs) -> tuple[TaskDifference, ...]:
    """Every task, batch and context that both sides predict, in A's order."""
    found = []
    for one, other in _pairs(_predictions(a), _predictions(b)):
        rows = {row.block_size: row for row in other.rows}
        common = [(row.block_size, ratio(row, rows[row.block_size])) for row in one.rows if row.block_size in rows]
        known = tuple((size, difference) for size, difference in common if difference is not None)
        found.append(TaskDifference(one.task, one, other, ratio(one.best, other.best), known))
    return tuple(found)


def _predictions(inputs: PageInputs) -> tuple[KPrediction, ...]:
    known = inputs.predictions
    return (known.here or known.elsewhere) if known else ()


def _pairs(a: Sequence[KPrediction], b: Sequence[KPrediction]) -> Iterator[tuple[KPrediction, KPrediction]]:
    others: dict[tuple[str, int, int], KPrediction] = {}
    for prediction in b:
        others.setdefault((prediction.task, prediction.batch, prediction.context), prediction)
    seen = set()
    for prediction in a:
        key = (prediction.task, prediction.batch, prediction.context)
        if key in others and key not in seen:
            seen.add(key)
            yield prediction, others[key]


def tau_differences(a: PageInputs, b: PageInputs) -> tuple[TauDifference, ...]:
    """τ of every task that both sides measured, at the largest K that both did; one and the same acceptance is no difference."""
    others = {profile.task: profile for profile in (b.acceptance.profiles if b.acceptance else ())}
    found = []
    for profile in a.acceptance.profiles if a.acceptance else ():
        other = others.get(profile.task)
        if other is not None and other != profile:
            size = min(measured_block_size(profile), measured_block_size(other))
            found.append(TauDifference(profile.task, size, profile, other, tau_difference(profile, other, size)))
    return tuple(found)


def tau_difference(a: AcceptanceProfile, b: AcceptanceProfile, block_size: int) -> Difference:
    """τ(K) of B minus that of A; the interval resamples the answers of both, as if they were not the same prompts."""
    of_a, of_b = tau(a, block_size), tau(b, block_size)
    draws_a = tau_draws(a, block_size, NUM_DRAWS, seed=0)
    draws_b = tau_draws(b, block_size, NUM_DRAWS, seed=1)
    if draws_a is None or draws_b is None:
        return Difference(of_a, of_b, of_b - of_a, None, None)
    low, high = np.percentile(draws_b[:, -1] - draws_a[:, -1], QUANTILES)
    return Difference(of_a, of_b, of_b - of_a, float(low), float(high))


def time_differences(a: StepTimes | None, b: StepTimes | None) -> tuple[TimeDifference, ...]:
    """Every phase and shape that both sides timed, in A's order."""
    others = {(p.phase, p.block_size, p.batch, p.context): p for p in (b.points if b else ()) if p.samples_s}
    found = []
    for point in a.points if a else ():
        other = others.get((point.phase, point.block_size, point.batch, point.context))
        if other is not None and point.samples_s:
            found.append(TimeDifference(point, other, time_ratio(point, other)))
    return tuple(found)


def time_ratio(a: TimingPoint, b: TimingPoint) -> Difference:
    """Median of B over median of A; the interval resamples the repeats of both, and is None where either has fewer than five."""
    value = b.median_s / a.median_s
    if min(len(a.samples_s), len(b.samples_s)) < 5:
        return Difference(a.median_s, b.median_s, value, None, None)
    rng = np.random.default_rng(0)
    medians = [
        np.median(rng.choice(np.array(point.samples_s), size=(NUM_DRAWS, len(point.samples_s))), axis=1) for point in (a, b)
    ]
    low, high = np.percentile(medians[1] / medians[0], QUANTILES)
    return Difference(a.median_s, b.median_s, value, float(low), float(high))
