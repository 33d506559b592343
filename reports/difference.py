"""Differences with their uncertainty: B against A, for speedups, committed tokens and step times.

Where both sides answered the same prompts they are paired: every draw takes the same answers of both, so that easy and hard
prompts, which are easy and hard for both, leave the difference. Speedups and times per token are compared by such draws where the
records give them (`reports.draws`). Elsewhere the sides are taken as independent: a ratio's interval is then made on the logarithm,
each side's distance to its ends added in squares (the propagation that hyperfine uses for relative speeds). Step times are
compared by resampling their repeats.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from perfmodel.acceptance import measured_block_size, tau, tau_draws
from perfmodel.records import AcceptanceProfile, CheckedK, KPrediction, KRow, StepTimes, TimingPoint
from perfmodel.survival import Array

from .draws import NUM_DRAWS, Draws, Shared, interval, paired_draws, same_prompts
from .inputs import PageInputs
from .wording import check_at

Verdict = Literal["a", "b", "undecided", "unknown"]


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
class Measured:
    """Time per token of both sides as the loop took it, and of plain decoding of the same answers beside it.

    `settled` is the first over the second: on one machine plain decoding of one target should take both sides equally long, so
    what it differs by is the machine's drift between the runs, and is taken out. It is None where the sides are not of one machine
    and target, whose difference is real. `num_answers` is how many answers of a side were compared (0: not recorded one by one).
    """

    tpot: Difference
    plain: Difference | None
    settled: Difference | None
    num_answers: int


@dataclass(frozen=True)
class TaskDifference:
    """The best K of both sides for one task at one shape; how speedups compare, at the best K and at every common K; and time per token.

    `tpot` is predicted, `settled` the same over each side's plain decoding where both were measured on one machine with one target
    (what differs between two fits of one plain step is the machine's drift); `measured` is what the check of both best K took (None: not
    run on both sides).
    """

    task: str
    a: KPrediction
    b: KPrediction
    speedup: Difference | None
    by_block_size: tuple[tuple[int, Difference], ...]
    shared: Shared
    tpot: Difference | None
    settled: Difference | None
    measured: Measured | None

    @property
    def predicted(self) -> Difference | None:
        """Time per token of B over A by prediction, without the machine's drift where that is known."""
        return self.settled or self.tpot


@dataclass(frozen=True)
class TauDifference:
    """Committed tokens per step of both sides for one task at a common K; `paired`: on the same prompts."""

    task: str
    block_size: int
    a: AcceptanceProfile
    b: AcceptanceProfile
    tau: Difference
    paired: bool = False


@dataclass(frozen=True)
class TimeDifference:
    """The time of one phase at one shape on both sides."""

    a: TimingPoint
    b: TimingPoint
    ratio: Difference


def ratio(a: KRow, b: KRow) -> Difference | None:
    """Speedup of B over that of A; None where either has none, or one that cannot be."""
    if a.speedup is None or b.speedup is None or min(a.speedup, b.speedup) <= 0:
        return None
    value = b.speedup / a.speedup
    ends = (a.speedup_low, a.speedup_high, b.speedup_low, b.speedup_high)
    if any(end is None or end <= 0 for end in ends):
        return Difference(a.speedup, b.speedup, value, None, None)
    a_low, a_high, b_low, b_high = (end or 0.0 for end in ends)
    down = math.hypot(math.log(b.speedup / b_low), math.log(a_high / a.speedup))
    up = math.hypot(math.log(b_high / b.speedup), math.log(a.speedup / a_low))
    return Difference(a.speedup, b.speedup, value, value * math.exp(-down), value * math.exp(up))


def task_differences(a: PageInputs, b: PageInputs, one_machine: bool) -> tuple[TaskDifference, ...]:
    """Every task, batch and context that both sides predict, in A's order; `one_machine`: both were measured alike."""
    return tuple(_task_difference(a, b, one, other, one_machine) for one, other in _pairs(_predictions(a), _predictions(b)))


def _task_difference(a: PageInputs, b: PageInputs, one: KPrediction, other: KPrediction, one_machine: bool) -> TaskDifference:
    drawn_a, drawn_b, shared = paired_draws((a, one), (b, other))
    rows = {row.block_size: row for row in other.rows}
    common = [
        (row.block_size, _speedup(row, rows[row.block_size], drawn_a, drawn_b)) for row in one.rows if row.block_size in rows
    ]
    alike = one_machine and one.target == other.target and one.source == other.source == "measured"
    speedup = _speedup(one.best, other.best, drawn_a, drawn_b)
    return TaskDifference(
        task=one.task,
        a=one,
        b=other,
        speedup=speedup,
        by_block_size=tuple((size, difference) for size, difference in common if difference is not None),
        shared=shared,
        tpot=_tpot(one.best, other.best, drawn_a, drawn_b),
        settled=inverse(speedup) if alike and speedup is not None else None,
        measured=_measured(a, b, one, other, shared.prompts, alike),
    )


def inverse(gain: Difference) -> Difference:
    """Time per token, each over plain decoding, from the ratio of two speedups."""
    low, high = (None if end is None else 1.0 / end for end in (gain.high, gain.low))
    return Difference(1.0 / gain.a, 1.0 / gain.b, 1.0 / gain.value, low, high)


def _speedup(a: KRow, b: KRow, drawn_a: Draws | None, drawn_b: Draws | None) -> Difference | None:
    """The ratio of speedups, by paired draws where there are some."""
    plain = ratio(a, b)
    if plain is None or drawn_a is None or drawn_b is None or not (drawn_a.speedup and drawn_b.speedup):
        return plain
    ends = interval(drawn_b.speedup[b.block_size] / drawn_a.speedup[a.block_size])
    return Difference(plain.a, plain.b, plain.value, *ends)


def _tpot(a: KRow, b: KRow, drawn_a: Draws | None, drawn_b: Draws | None) -> Difference | None:
    """The ratio of predicted times per token; without draws its error is unknown."""
    if not a.tpot_s or not b.tpot_s:
        return None
    ends: tuple[float | None, float | None] = (None, None)
    if drawn_a is not None and drawn_b is not None:
        ends = interval(drawn_b.tpot_s[b.block_size] / drawn_a.tpot_s[a.block_size])
    return Difference(a.tpot_s, b.tpot_s, b.tpot_s / a.tpot_s, *ends)


def _measured(a: PageInputs, b: PageInputs, one: KPrediction, other: KPrediction, paired: bool, alike: bool) -> Measured | None:
    checks = [inputs.run.checks if inputs.run else () for inputs in (a, b)]
    best = [check_at(known, prediction) for known, prediction in zip(checks, (one, other), strict=True)]
    if best[0] is None or best[1] is None:
        return None
    found = answer_time_ratio(best[0], best[1], paired)
    if found is None:
        return None
    plain = [next((c for c in known if (c.task, c.block_size) == (one.task, 1)), None) for known in checks]
    beside = answer_time_ratio(plain[0], plain[1], paired) if plain[0] and plain[1] else None
    settled = settled_ratio((best[0], plain[0]), (best[1], plain[1]), paired) if plain[0] and plain[1] and alike else None
    return Measured(found, beside, settled, min(len(best[0].answer_s), len(best[1].answer_s)))


def answer_time_ratio(a: CheckedK, b: CheckedK, paired: bool) -> Difference | None:
    """Seconds per token of B over A as the loop took them; the interval resamples answers, the same of both sides where `paired`.

    Paired, only the prompts that both sides came to are compared. The interval is None where single answers were not recorded, or
    only one was; the whole is None without a time.
    """
    if not a.answer_s or not b.answer_s:
        of_a, of_b = a.measured_tpot_s, b.measured_tpot_s
        return Difference(of_a, of_b, of_b / of_a, None, None) if of_a and of_b else None
    (time_a, drawn_a), (time_b, drawn_b) = (
        _answer_times(check, other, paired, i) for i, (check, other) in enumerate(((a, b), (b, a)))
    )
    ends = (None, None) if drawn_a is None or drawn_b is None else interval(drawn_b / drawn_a)
    return Difference(time_a, time_b, time_b / time_a, *ends)


def settled_ratio(a: tuple[CheckedK, CheckedK], b: tuple[CheckedK, CheckedK], paired: bool) -> Difference | None:
    """Seconds per token of B over A, each over plain decoding of the same answers (the second check of each side).

    None where single answers were not recorded.
    """
    times, drawn = [], []
    for i, (check, plain, other) in enumerate(((*a, b[0]), (*b, a[0]))):
        if not check.answer_s or len(check.answer_s) != len(plain.answer_s) or not other.answer_s:
            return None
        (time, draws), (beside, beside_draws) = (_answer_times(one, other, paired, i) for one in (check, plain))
        times.append(time / beside)
        drawn.append(None if draws is None or beside_draws is None else draws / beside_draws)
    ends = (None, None) if drawn[0] is None or drawn[1] is None else interval(drawn[1] / drawn[0])
    return Difference(times[0], times[1], times[1] / times[0], *ends)


def _answer_times(check: CheckedK, other: CheckedK, paired: bool, seed: int) -> tuple[float, Array | None]:
    """Seconds per token of the answers that count, and draws of it; none of a single answer.

    Each draw takes one answer fewer than there are, which makes the variance of a mean exactly s²/n (Rao and Wu, 1988).
    """
    num = min(len(check.answer_s), len(other.answer_s)) if paired else len(check.answer_s)
    seconds, tokens = np.array(check.answer_s[:num]), np.array(check.answer_tokens[:num])
    weights = np.random.default_rng(0 if paired else seed).multinomial(num - 1, np.full(num, 1 / num), size=NUM_DRAWS)
    return float(seconds.sum() / tokens.sum()), None if num < 2 else (weights @ seconds) / (weights @ tokens)


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
            paired = same_prompts(a, b, profile, other)
            difference = tau_difference(profile, other, size, paired)
            found.append(TauDifference(profile.task, size, profile, other, difference, paired))
    return tuple(found)


def tau_difference(a: AcceptanceProfile, b: AcceptanceProfile, block_size: int, paired: bool = False) -> Difference:
    """τ(K) of B minus that of A; the interval resamples the answers of both: the same answers in each draw where `paired`.

    One seed takes the same answers of both, because draws of answers depend on their number alone.
    """
    of_a, of_b = tau(a, block_size), tau(b, block_size)
    draws_a = tau_draws(a, block_size, NUM_DRAWS, seed=0)
    draws_b = tau_draws(b, block_size, NUM_DRAWS, seed=0 if paired else 1)
    if draws_a is None or draws_b is None:
        return Difference(of_a, of_b, of_b - of_a, None, None)
    return Difference(of_a, of_b, of_b - of_a, *interval(draws_b[:, -1] - draws_a[:, -1]))


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
    return Difference(a.median_s, b.median_s, value, *interval(medians[1] / medians[0]))
