"""Fit the step-time law to measured step times, and say what it is worth.

The measured points are first audited: what lies below the speed of light is never fitted. Then every second interior block size
is held out, the law is fitted to the rest, and its error on the held-out points is reported beside the fit: that error, not
the residual of the fit, says what a prediction between measured sizes is worth. Terms beyond the plain law (dearer attention,
a phase off the common curve, time per request) enter only when the data ask for them. A step of one token is often another
kernel; when it lies off the curve of the wider steps it gets a ratio of its own instead of bending the curve.
"""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from .audit import audit
from .errors import FitError, NothingTrustedError
from .fitrecord import cliff_findings, correlations_of, fit_findings, parameters_of, remedies_of, with_raised_peaks
from .heldout import MIN_SIZES, held_out_sizes, left_out_errors
from .knobs import EFFICIENCIES
from .leastsquares import LAW_ERROR, Problem, Solution, log_errors, redraw
from .phases import COMMIT, STEP_PHASES, VERIFY
from .records import FittedModel, FittedPoint, FittedRange, Hardware, ModelSpec, StepShape, TimingPoint
from .stepmodel import DENSE, EXPERTS, ROOFLINE, dense_work, roofline_work
from .termchoice import best_solution, same_terms, select

MAX_DRAWS = 200
"""Bootstrap draws kept with a model: enough for a 95 % interval, small enough to store."""

MIN_EXPERT_SIZES = 6
"""The form with expert coverage has two constants more than the dense one, so it needs this many fitted sizes."""

Progress = Callable[[str, float], object]
"""Told the stage of a fit and the share of it that is done (0 … 1)."""

FORM_GAIN = 0.75
"""Held-out error of another form over the plain one's, below which it is chosen."""


@dataclass(frozen=True)
class _Sample:
    """The points that may be fitted, as arrays."""

    points: tuple[TimingPoint, ...]
    problem: Problem
    held_out: np.ndarray


@dataclass(frozen=True)
class _Found:
    """A form of the law fitted to a sample, whose problem carries what was chosen rather than fitted."""

    form: str
    sample: _Sample
    solution: Solution

    @cached_property
    def held_out(self) -> float:
        """Median relative error of the held-out points; infinite when there are none."""
        errors = np.expm1(log_errors(select(self.sample.problem, self.sample.held_out), self.solution.values))
        return float(np.median(np.abs(errors))) if errors.size else float("inf")


def fit(
    points: Sequence[TimingPoint],
    target: ModelSpec | None = None,
    draft: ModelSpec | None = None,
    hardware: Hardware | None = None,
    dtype: str = "bfloat16",
    *,
    num_draws: int = MAX_DRAWS,
    seed: int = 0,
    progress: Progress = lambda stage, share: None,
) -> FittedModel:
    """The step-time law fitted to measured times, with errors, draws, held-out error and what could not be seen.

    With a target and a chip the law is the roofline (efficiencies of the chip's peaks); without, a soft maximum with free
    constants for points of one phase, dense or with the coverage of experts, whichever predicts held-out points better. Raises
    `FitError` when the trustworthy points cannot carry a curve.
    """
    audited = audit(points, target, draft, hardware, dtype)
    timed = [point for point in points if point.samples_s]
    trusted = [point for point, judged in zip(timed, audited.points, strict=True) if judged.verdict != "invalid"]
    usable = [point for point in trusted if _is_fitted(point, target, draft)]
    overhead_bound = any(judged.verdict == "overhead" and judged.phase == VERIFY for judged in audited.points)
    priced = target is not None and hardware is not None
    _check(usable, audited.num_invalid, priced)
    sample = _sample(usable, target, draft, hardware, dtype)
    found = _best_form(sample, (ROOFLINE,) if priced else (DENSE, EXPERTS), overhead_bound, progress)
    solution, fixed = found.solution, dict(found.sample.problem.fixed)
    draws = _draws(found.sample, solution, min(num_draws, MAX_DRAWS), seed, progress)
    fitted_points = _fitted_points(found.sample, solution.values)
    problem, lead = found.sample.problem, _lead(usable)
    held = [abs(point.error) for point in fitted_points if point.held_out]
    names = [*solution.values, *fixed]
    raised = {name: value for name, value in solution.values.items() if name in EFFICIENCIES and value > 1.0}
    return FittedModel(
        form=found.form,
        hardware=hardware if hardware is None else with_raised_peaks(hardware, dtype, raised),
        target=target,
        draft=draft,
        dtype=dtype,
        parameters=parameters_of(solution, problem, lead, raised, fixed),
        median_error=statistics.median(abs(point.error) for point in fitted_points if not point.held_out),
        held_out_median_error=statistics.median(held) if held else None,
        held_out=_held_out(found, held, overhead_bound, progress),
        fitted_range=_range(sample),
        num_points=len(usable),
        num_rejected=len(points) - len(trusted),
        points=fitted_points,
        draws=tuple(tuple((draw | fixed)[name] / raised.get(name, 1.0) for name in names) for draw in draws),
        correlations=correlations_of(solution, names),
        findings=(
            *audited.findings,
            *fit_findings(solution, remedies_of(solution, problem, lead), held, overhead_bound, raised, fixed),
            *cliff_findings(fitted_points),
        ),
    )


def _best_form(sample: _Sample, forms: Sequence[str], overhead_bound: bool, progress: Progress) -> _Found:
    """The form of the law with the least held-out error; the first one unless another is clearly better.

    A form with more constants must have enough sizes left to fit them.
    """
    best: _Found | None = None
    for index, form in enumerate(forms):
        lead = _lead(sample.points)
        train = select(sample.problem, ~sample.held_out)
        if best is not None and (
            not sample.held_out.any() or len(np.unique(train.work.tokens)) < MIN_EXPERT_SIZES or best.held_out < LAW_ERROR
        ):
            break
        problem, solution = best_solution(
            train,
            form,
            lead,
            overhead_bound,
            lambda share, done=index: progress("terms", (done + share) / len(forms)),  # type: ignore[misc]
        )
        found = _Found(form, replace(sample, problem=replace(sample.problem, fixed=problem.fixed)), solution)
        if best is None or found.held_out < FORM_GAIN * best.held_out:
            best = found
    if best is None:
        raise ValueError("no form to fit")
    return best


def _held_out(found: _Found, held: Sequence[float], overhead_bound: bool, progress: Progress) -> dict[str, float]:
    """Median error per left-out axis: block sizes, batches, contexts, as far as the points have several."""

    def refit(problem: Problem) -> dict[str, float]:
        return same_terms(problem, found.solution, overhead_bound).values

    by_size = {"block_size": statistics.median(held)} if held else {}
    problem, points = found.sample.problem, found.sample.points
    return by_size | left_out_errors(problem, points, _lead(points), refit, lambda share: progress("left out", share))


def _is_fitted(point: TimingPoint, target: ModelSpec | None, draft: ModelSpec | None) -> bool:
    """Whether the law speaks of a point: a phase of the step whose work is known, and not the empty commit of plain decoding."""
    if point.phase not in STEP_PHASES or (point.phase == COMMIT and point.block_size == 1):
        return False
    return point.phase == VERIFY or draft is not None or target is None


def _check(usable: Sequence[TimingPoint], num_invalid: int, priced: bool) -> None:
    rejected = f" ({num_invalid} were below the speed of light)" if num_invalid else ""
    if not usable and num_invalid:
        raise NothingTrustedError(
            f"no trustworthy timing to fit{rejected}", "measure with a timer that waits for the device; see `perf check`"
        )
    if not usable:
        raise FitError("no timing to fit: no point holds a sample of a priced phase", "measure verify steps, or name --draft")
    phases = {point.phase for point in usable}
    if not priced and len(phases) > 1:
        raise FitError(
            f"points of {', '.join(sorted(phases))} cannot share a curve without a model's dimensions",
            "name --target and --hardware",
        )
    lead = _lead(usable)
    sizes = {(point.tokens, point.batch, point.context) for point in usable if point.phase == lead}
    tokens = {size[0] for size in sizes}
    if len(tokens) < MIN_SIZES:
        raise FitError(
            f"{len(tokens)} distinct {lead} sizes cannot carry a curve{rejected}; {MIN_SIZES} are needed",
            "measure more block sizes, some on the plateau and some beyond the knee",
        )


def _lead(usable: Sequence[TimingPoint]) -> str:
    """The phase the curve is about: verification, or the only one there is."""
    phases = [point.phase for point in usable]
    return VERIFY if VERIFY in phases else phases[0]


def _sample(
    usable: Sequence[TimingPoint],
    target: ModelSpec | None,
    draft: ModelSpec | None,
    hardware: Hardware | None,
    dtype: str,
) -> _Sample:
    shapes = [
        StepShape(phase=point.phase, batch=point.batch, query_tokens=point.block_size, context=point.context) for point in usable
    ]
    priced = target is not None and hardware is not None
    work = roofline_work(shapes, target, draft, dtype, hardware) if target is not None and priced else dense_work(shapes)
    measured = np.array([point.median_s for point in usable])
    # Standard error of a median from the interquartile range: 1.253 · (IQR / 1.349) / √n.
    scatter = np.array([0.929 * point.spread / np.sqrt(len(point.samples_s)) for point in usable])
    lead = _lead(usable)
    held = held_out_sizes([point.block_size for point in usable if point.phase == lead])
    return _Sample(
        points=tuple(usable),
        problem=Problem(work, measured, scatter, hardware if priced else None, dtype),
        held_out=np.array([point.block_size in held for point in usable]),
    )


def _draws(sample: _Sample, solution: Solution, num_draws: int, seed: int, progress: Progress) -> list[dict[str, float]]:
    """Bootstrap draws of all constants: repeats resampled within each point, and the law's own misfit added anew each time."""
    rng = np.random.default_rng(seed)
    train = ~sample.held_out
    problem = select(sample.problem, train)
    points = [point for point, kept in zip(sample.points, train, strict=True) if kept]
    draws = []
    for index in range(num_draws):
        progress("errors", index / num_draws)
        times = np.array([_resampled(point, rng) for point in points]) * np.exp(rng.normal(0.0, solution.misfit, len(points)))
        draws.append(redraw(problem, solution, rng, times))
    return draws


def _resampled(point: TimingPoint, rng: np.random.Generator) -> float:
    if len(point.samples_s) == 1:
        return point.samples_s[0]
    return float(np.median(rng.choice(point.samples_s, len(point.samples_s))))


def _fitted_points(sample: _Sample, values: dict[str, float]) -> tuple[FittedPoint, ...]:
    predicted = sample.problem.predicted_s(values)
    return tuple(
        FittedPoint(
            phase=point.phase,
            block_size=point.block_size,
            batch=point.batch,
            context=point.context,
            measured_s=float(point.median_s),
            predicted_s=float(time),
            error=float(time / point.median_s - 1.0),
            held_out=bool(held),
        )
        for point, time, held in zip(sample.points, predicted, sample.held_out, strict=True)
    )


def _range(sample: _Sample) -> FittedRange:
    lead = _lead(sample.points)
    fitted = [point for point, held in zip(sample.points, sample.held_out, strict=True) if point.phase == lead and not held]
    tokens, batches, contexts = ([getattr(point, name) for point in fitted] for name in ("tokens", "batch", "context"))
    return FittedRange(
        tokens=(min(tokens), max(tokens)), batch=(min(batches), max(batches)), context=(min(contexts), max(contexts))
    )
