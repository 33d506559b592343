"""What a fit says of itself: parameters with errors and labels, correlations, raised peaks, and findings."""

import statistics
from collections.abc import Sequence
from itertools import pairwise

import msgspec
import numpy as np

from .heldout import MIN_SIZES
from .leastsquares import Problem, Solution
from .phases import VERIFY
from .records import Finding, FittedPoint, Hardware, Parameter, Peak
from .stepmodel import terms
from .units import format_seconds


def parameters_of(
    solution: Solution, problem: Problem, lead: str, raised: dict[str, float], fixed: dict[str, float]
) -> dict[str, Parameter]:
    """Every constant by name; efficiencies in units of peaks raised by the factors `raised`; chosen ones (`fixed`) last.

    One that was not seen carries the prior's label and the point that would fix it.
    """
    examples = remedies_of(solution, problem, lead)
    found = {
        name: _rescaled(_parameter(solution, name, examples.get(name, "")), raised.get(name, 1.0)) for name in solution.values
    }
    note = "chosen among the tile sizes that these points could show"
    return found | {
        name: Parameter(value=value, stderr=None, unit="token", identified=True, note=note) for name, value in fixed.items()
    }


def correlations_of(solution: Solution, names: Sequence[str]) -> tuple[tuple[float, ...], ...]:
    """Correlations in the order of `names`; a pinned or chosen constant correlates with nothing."""
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


def with_raised_peaks(hardware: Hardware, dtype: str, raised: dict[str, float]) -> Hardware:
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


def remedies_of(solution: Solution, problem: Problem, lead: str) -> dict[str, str]:
    """For each constant that was not seen, a point to measure: where its part of the step would be as large as the rest."""
    here = problem.work.phases == lead
    if not here.any():
        return {}
    work = problem.work.select(here)
    parts = terms({**problem.fixed, **solution.values}, work, problem.hardware, problem.dtype)
    widest = int(np.argmax(work.tokens))
    batch, context, tokens = (float(column[widest]) for column in (work.batch, work.context, work.tokens))
    knee = tokens * float(parts.memory_s[widest] / max(parts.compute_s[widest], 1e-12))
    beyond = _power_of_two(max(2.0 * knee, 2.0 * tokens) / batch)
    at = f"for example K={beyond} at batch {batch:.0f}"
    found = dict.fromkeys(("compute_efficiency", "compute_flops_per_s", "token_s"), at)
    found["exponent"] = f"for example K={_power_of_two(knee / batch)} at batch {batch:.0f}"
    rows = float(work.cached[widest]) / (batch * max(context, 1.0))
    if rows > 0 and context > 0 and problem.hardware is not None:
        longer = _power_of_two(float(work.memory[widest]) / (2.0 * rows * batch))
        found |= dict.fromkeys(("overhead_s", "memory_efficiency"), f"for example a context of {longer} at batch {batch:.0f}")
    return found


def _power_of_two(number: float) -> int:
    """The power of two at or above a number."""
    return 1 << max(0, int(np.ceil(np.log2(max(number, 1.0)))))


def _parameter(solution: Solution, name: str, example: str) -> Parameter:
    knob = next(knob for knob in (*solution.free, *solution.pinned.values()) if knob.name == name)
    value = solution.values[name]
    if knob.name in solution.pinned:
        note = f"not seen by these points; prior from {knob.prior.source}. To fix it: {_remedy(knob.remedy, example)}"
        return Parameter(
            value=value, stderr=None, unit=knob.unit, identified=False, low=knob.prior.low, high=knob.prior.high, note=note
        )
    at_bound = knob.at_bound(value)
    index = solution.free.index(knob)
    seen = knob.blindness(float(np.sqrt(solution.covariance[index, index])), value) <= 1.0
    identified = seen and knob.name not in solution.one_sided
    note = "" if identified else f"the points bound it loosely or from one side only. To fix it: {_remedy(knob.remedy, example)}"
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


def _remedy(general: str, example: str) -> str:
    return f"{general}; {example}" if example else general


CLIFF = 1.5
"""No roofline grows faster than the tokens of a step; one that outgrows them by this factor has fallen off something."""


def cliff_findings(points: Sequence[FittedPoint]) -> list[Finding]:
    """A warning for each place where a verify step grows much faster than its tokens from one measured size to the next."""
    curves: dict[tuple[int, int], dict[int, float]] = {}
    for point in points:
        if point.phase == VERIFY:
            curves.setdefault((point.batch, point.context), {})[point.block_size] = point.measured_s
    found = []
    for (batch, context), times in curves.items():
        sizes = sorted(times)
        for low, high in pairwise(sizes):
            # Attention of a block wider than its context grows with the square of K; below that it grows with K as all else does.
            growth = high / low * (context + high) / (context + low)
            if times[high] / times[low] > CLIFF * growth:
                found.append(
                    Finding(
                        code="cliff",
                        severity="warning",
                        message=f"from K={low} to K={high} (batch {batch}, context {context}) a step takes "
                        f"{times[high] / times[low]:.1f} times as long, more than its tokens explain",
                        hint="a captured graph or compiled bucket may end there, or the cache may no longer fit; stay below it",
                    )
                )
    return found


def fit_findings(
    solution: Solution,
    examples: dict[str, str],
    held: Sequence[float],
    overhead_bound: bool,
    raised: dict[str, float],
    fixed: dict[str, float],
) -> list[Finding]:
    """What a reader of the fit should know: what was not seen, what was chosen, and how far to trust it."""
    findings = []
    for name, knob in solution.pinned.items():
        value = solution.values[name]
        prior = format_seconds(value) if knob.unit == "s" else f"{value:.3g} {knob.unit}".strip()
        findings.append(
            Finding(
                code="not-identified",
                severity="info" if name.endswith("overhead_s") else "warning",
                message=f"{name} is not determined by these points; its prior {prior} is used",
                hint=_remedy(knob.remedy, examples.get(name, "")),
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
    if "tile_tokens" in fixed:
        findings.append(
            Finding(
                code="tiles",
                severity="info",
                message=f"times rise in steps of {fixed['tile_tokens']:.0f} tokens: matrix units work in tiles of that many rows",
                hint="choose K times batch a multiple of it, or just below one",
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
