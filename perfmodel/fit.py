"""Fit the step-time law to measured step times, and say what it is worth.

The measured points are first audited: what lies below the speed of light is never fitted. Then every second interior block size
is held out, the law is fitted to the rest, and its error on the held-out points is reported beside the fit: that error, not
the residual of the fit, says what a prediction between measured sizes is worth. Terms beyond the plain law (dearer attention,
a phase off the common curve, time per request) enter only when the data ask for them. A step of one token is often another
kernel; when it lies off the curve of the wider steps it gets a ratio of its own instead of bending the curve.
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import msgspec
import numpy as np

from .audit import audit
from .errors import FitError
from .knobs import EFFICIENCIES, base_knobs, optional_knobs
from .leastsquares import Knob, Problem, Solution, criterion, redraw, solve
from .phases import COMMIT, STEP_PHASES, VERIFY
from .records import Finding, FittedModel, FittedPoint, FittedRange, Hardware, ModelSpec, Parameter, Peak, StepShape, TimingPoint
from .stepmodel import DENSE, ROOFLINE, dense_work, roofline_work, seconds

MAX_DRAWS = 200
"""Bootstrap draws kept with a model: enough for a 95 % interval, small enough to store."""

TERM_GAIN = 2.0
"""Fall of the information criterion that a set of optional terms must bring over the plain law, per term."""

KERNEL_MIN_OFFSET = 0.08
"""A single-token step less than 8 % off the curve is not called another kernel."""

MIN_SIZES = 3
"""A curve with a plateau and a slope needs at least three distinct sizes."""


@dataclass(frozen=True)
class _Sample:
    """The points that may be fitted, as arrays."""

    points: tuple[TimingPoint, ...]
    problem: Problem
    held_out: np.ndarray


def fit(
    points: Sequence[TimingPoint],
    target: ModelSpec | None = None,
    draft: ModelSpec | None = None,
    hardware: Hardware | None = None,
    dtype: str = "bfloat16",
    *,
    num_draws: int = MAX_DRAWS,
    seed: int = 0,
) -> FittedModel:
    """The step-time law fitted to measured times, with errors, draws, held-out error and what could not be seen.

    With a target and a chip the law is the roofline (efficiencies of the chip's peaks); without, the dense soft maximum with free
    constants, for points of one phase. Raises `FitError` when the trustworthy points cannot carry a curve.
    """
    audited = audit(points, target, draft, hardware, dtype)
    timed = [point for point in points if point.samples_s]
    trusted = [point for point, judged in zip(timed, audited.points, strict=True) if judged.verdict != "invalid"]
    usable = [point for point in trusted if _is_fitted(point, target, draft)]
    form = DENSE if target is None or hardware is None else ROOFLINE
    _check(usable, audited.num_invalid, form)
    sample = _sample(usable, target, draft, hardware, dtype, form)
    overhead_bound = any(judged.verdict == "overhead" and judged.phase == VERIFY for judged in audited.points)
    solution = _with_terms(_select(sample.problem, ~sample.held_out), form, _lead(usable), overhead_bound)
    draws = _draws(sample, solution, min(num_draws, MAX_DRAWS), seed)
    values = solution.values
    fitted_points = _fitted_points(sample, values)
    held = [abs(point.error) for point in fitted_points if point.held_out]
    names = list(values)
    raised = {name: value for name, value in solution.values.items() if name in EFFICIENCIES and value > 1.0}
    parameters = {name: _rescaled(_parameter(solution, name), raised.get(name, 1.0)) for name in solution.values}
    return FittedModel(
        form=form,
        hardware=hardware if hardware is None else _with_raised_peaks(hardware, dtype, raised),
        target=target,
        draft=draft,
        dtype=dtype,
        parameters=parameters,
        median_error=statistics.median(abs(point.error) for point in fitted_points if not point.held_out),
        held_out_median_error=statistics.median(held) if held else None,
        fitted_range=_range(sample),
        num_points=len(usable),
        num_rejected=len(points) - len(trusted),
        points=fitted_points,
        draws=tuple(tuple(draw[name] / raised.get(name, 1.0) for name in names) for draw in draws),
        correlations=_correlations(solution, names),
        findings=(*audited.findings, *_findings(solution, held, overhead_bound, raised)),
    )


def _is_fitted(point: TimingPoint, target: ModelSpec | None, draft: ModelSpec | None) -> bool:
    """Whether the law speaks of a point: a phase of the step whose work is known, and not the empty commit of plain decoding."""
    if point.phase not in STEP_PHASES or (point.phase == COMMIT and point.block_size == 1):
        return False
    return point.phase == VERIFY or draft is not None or target is None


def _check(usable: Sequence[TimingPoint], num_invalid: int, form: str) -> None:
    rejected = f" ({num_invalid} were below the speed of light)" if num_invalid else ""
    if not usable:
        raise FitError(
            f"no trustworthy timing to fit{rejected}", "measure with a timer that waits for the device; see `perf check`"
        )
    phases = {point.phase for point in usable}
    if form == DENSE and len(phases) > 1:
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
    form: str,
) -> _Sample:
    shapes = [
        StepShape(phase=point.phase, batch=point.batch, query_tokens=point.block_size, context=point.context) for point in usable
    ]
    work = dense_work(shapes) if form == DENSE or target is None else roofline_work(shapes, target, draft, dtype)
    measured = np.array([point.median_s for point in usable])
    # Standard error of a median from the interquartile range: 1.253 · (IQR / 1.349) / √n.
    scatter = np.array([0.929 * point.spread / np.sqrt(len(point.samples_s)) for point in usable])
    held = _held_out_sizes(usable)
    return _Sample(
        points=tuple(usable),
        problem=Problem(work, measured, scatter, hardware if form == ROOFLINE else None, dtype),
        held_out=np.array([point.block_size in held for point in usable]),
    )


def _held_out_sizes(usable: Sequence[TimingPoint]) -> set[int]:
    """Every second interior block size (K=1 aside), when enough remain to fit."""
    lead = _lead(usable)
    sizes = sorted({point.block_size for point in usable if point.phase == lead and point.block_size > 1})
    return set(sizes[1:-1:2]) if len(sizes) >= MIN_SIZES + 1 else set()


def _select(problem: Problem, mask: np.ndarray) -> Problem:
    return Problem(problem.work.select(mask), problem.measured_s[mask], problem.scatter[mask], problem.hardware, problem.dtype)


def _with_terms(problem: Problem, form: str, lead: str, overhead_bound: bool) -> Solution:
    """The plain law with the set of optional terms that the points support best, by the information criterion.

    Terms of the curve itself are judged on the phase it is about, so that a misfit of the drafter cannot hide them; then
    the other phases choose theirs.
    """
    prefer = "memory_efficiency" if overhead_bound else "overhead_s"
    optional = optional_knobs(problem, form, lead)
    of_others = [knob for knob in optional if knob.name.endswith("_ratio")]
    curve = _select(problem, problem.work.phases == lead)
    chosen = _best_terms(curve, base_knobs(curve, form, lead), [knob for knob in optional if knob not in of_others])
    base = base_knobs(problem, form, lead)
    chosen += _best_terms(problem, (*base, *chosen), of_others)
    solution = solve(problem, [*base, *chosen], prefer)
    if "kernel" in solution.values and not _is_kernel(solution):
        solution = solve(problem, [*base, *(knob for knob in chosen if knob.name != "kernel")], prefer)
    return solution


def _best_terms(problem: Problem, base: Sequence[Knob], optional: Sequence[Knob]) -> tuple[Knob, ...]:
    """The optional constants worth having beside the others, by the information criterion."""
    subsets = [subset for size in range(len(optional) + 1) for subset in combinations(optional, size) if _makes_sense(subset)]
    return min(subsets, key=lambda subset: criterion(problem, [*base, *subset]) + TERM_GAIN * len(subset))


def _makes_sense(subset: Sequence[Knob]) -> bool:
    """Whether no phase gets a price of its own for arithmetic before it has one for all of its work."""
    names = {knob.name for knob in subset}
    return all(name.replace("_compute_ratio", "_ratio") in names for name in names)


def _is_kernel(solution: Solution) -> bool:
    """Whether single-token steps lie off the curve by enough to matter."""
    return bool(abs(np.log(solution.values["kernel"])) > KERNEL_MIN_OFFSET)


def _draws(sample: _Sample, solution: Solution, num_draws: int, seed: int) -> list[dict[str, float]]:
    """Bootstrap draws of all constants: repeats resampled within each point, and the law's own misfit added anew each time."""
    rng = np.random.default_rng(seed)
    train = ~sample.held_out
    problem = _select(sample.problem, train)
    points = [point for point, kept in zip(sample.points, train, strict=True) if kept]
    draws = []
    for _ in range(num_draws):
        times = np.array([_resampled(point, rng) for point in points]) * np.exp(rng.normal(0.0, solution.misfit, len(points)))
        draws.append(redraw(problem, solution, rng, times))
    return draws


def _resampled(point: TimingPoint, rng: np.random.Generator) -> float:
    if len(point.samples_s) == 1:
        return point.samples_s[0]
    return float(np.median(rng.choice(point.samples_s, len(point.samples_s))))


def _fitted_points(sample: _Sample, values: dict[str, float]) -> tuple[FittedPoint, ...]:
    predicted = seconds(values, sample.problem.work, sample.problem.hardware, sample.problem.dtype)
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


def _with_raised_peaks(hardware: Hardware, dtype: str, raised: dict[str, float]) -> Hardware:
    """A micro-benchmarked chip whose step times beat its peaks: the better measurement becomes the peak."""
    if "memory_efficiency" in raised:
        hardware = msgspec.structs.replace(
            hardware, bandwidth_bytes_per_s=_raised_peak(hardware.bandwidth_bytes_per_s, raised["memory_efficiency"])
        )
    if "compute_efficiency" in raised:
        peak = _raised_peak(hardware.flops_per_s[dtype], raised["compute_efficiency"])
        hardware = msgspec.structs.replace(hardware, flops_per_s=hardware.flops_per_s | {dtype: peak})
    return hardware


def _raised_peak(peak: Peak, factor: float) -> Peak:
    return Peak(value=peak.value * factor, source=f"{peak.source}; raised {factor:.2f} times by step times")


def _rescaled(parameter: Parameter, factor: float) -> Parameter:
    """An efficiency in units of a peak raised by `factor`; anything else unchanged (factor 1)."""
    if factor == 1.0:
        return parameter
    stderr = None if parameter.stderr is None else parameter.stderr / factor
    return msgspec.structs.replace(parameter, value=parameter.value / factor, stderr=stderr, high=1.0)


def _parameter(solution: Solution, name: str) -> Parameter:
    knob = next(knob for knob in (*solution.free, *solution.pinned.values()) if knob.name == name)
    value = solution.values[name]
    if knob.name in solution.pinned:
        note = f"not seen by these points; prior from {knob.prior.source}. To fix it: {knob.remedy}"
        return Parameter(
            value=value, stderr=None, unit=knob.unit, identified=False, low=knob.prior.low, high=knob.prior.high, note=note
        )
    at_bound = knob.at_bound(value)
    index = solution.free.index(knob)
    seen = knob.blindness(float(np.sqrt(solution.covariance[index, index])), value) <= 1.0
    identified = seen and knob.name not in solution.one_sided
    note = "" if identified else f"the points bound it loosely or from one side only. To fix it: {knob.remedy}"
    return Parameter(
        value=value,
        stderr=None if at_bound else solution.stderr[knob.name],
        unit=knob.unit,
        identified=identified,
        low=knob.low,
        high=knob.high,
        at_bound=at_bound,
        note=note,
    )


def _correlations(solution: Solution, names: Sequence[str]) -> tuple[tuple[float, ...], ...]:
    """Correlations in the order of the parameters; a pinned constant correlates with nothing."""
    table = np.eye(len(names))
    where = {knob.name: i for i, knob in enumerate(solution.free)}
    deviation = np.sqrt(np.diag(solution.covariance))
    deviation[deviation == 0.0] = np.inf  # held at a bound: correlates with nothing
    for i, one in enumerate(names):
        for j, other in enumerate(names):
            if one != other and one in where and other in where:
                a, b = where[one], where[other]
                table[i, j] = solution.covariance[a, b] / (deviation[a] * deviation[b])
    return tuple(tuple(float(value) for value in row) for row in table)


def _findings(solution: Solution, held: Sequence[float], overhead_bound: bool, raised: dict[str, float]) -> list[Finding]:
    findings = []
    for name, knob in solution.pinned.items():
        findings.append(
            Finding(
                code="not-identified",
                severity="info" if name.endswith("overhead_s") else "warning",
                message=f"{name} is not determined by these points; its prior {solution.values[name]:.3g} {knob.unit} is used",
                hint=knob.remedy,
            )
        )
    kernel = solution.values.get("kernel")
    if kernel is not None:
        findings.append(
            Finding(
                code="kernel-change",
                severity="info",
                message=f"a single-token step takes {kernel:.2f} times the curve of wider steps: it is another kernel",
                hint="K=2 pays the other kernel's price, so compare wider steps with K=2 as well as with K=1",
            )
        )
    if overhead_bound:
        findings.append(
            Finding(
                code="host-bound",
                severity="warning",
                message="verification is launch- or host-bound: these points do not determine the chip's roofline",
                hint="use the compiled loop, larger models or device times from a trace",
            )
        )
    if held and statistics.median(held) > 0.10:
        findings.append(
            Finding(
                code="poor-fit",
                severity="warning",
                message=f"held-out points are missed by {100 * statistics.median(held):.0f} % (median)",
                hint="more repeats, a quieter machine, or more block sizes",
            )
        )
    if not held:
        findings.append(
            Finding(
                code="no-held-out",
                severity="warning",
                message="too few block sizes to hold any out: the fit's own residuals are no test of it",
                hint=f"measure at least {MIN_SIZES + 1} block sizes above 1",
            )
        )
    if raised:
        factors = ", ".join(f"{name.removesuffix('_efficiency')} {factor:.2f} times" for name, factor in raised.items())
        findings.append(
            Finding(
                code="peak-raised",
                severity="info",
                message=f"step times beat the micro-benchmarked peaks, which were raised ({factors})",
                hint="calibrate again on a quiet machine",
            )
        )
    return findings
