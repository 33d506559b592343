"""The speed-of-light gate: every timing, own or imported, against what the chip can physically do.

A timing below max(bytes/β, FLOP/π) cannot be the time of that work. Either the timer did not wait for the device, or the
work was spread over more chips, or the data never left on-chip memory, or the data sheet is the wrong one. Such points are
`invalid` and never fitted. A curve that is flat in K and far above the floor is flat because of launches or the host
(`overhead`), which says nothing about the chip. A point whose repeats scatter too much is `unstable`.
"""

import statistics
from collections import defaultdict
from collections.abc import Sequence

from .cost import step_cost
from .errors import InputError
from .records import Audit, AuditedPoint, Finding, Hardware, ModelSpec, StepShape, TimingPoint, Verdict
from .roofline import Floor, cached_bytes, floor, peak_flops_per_s

MEASURED_PEAK_TOLERANCE = 0.15
"""A micro-benchmark under-reads a peak by up to this share: it runs for seconds, and clocks and neighbours vary.
A data sheet's peak is a promise no program exceeds and gets no such allowance."""

OVERHEAD_RATIO = 3.0
"""Good programs run a step within about twice its floor; three times is host- or launch-bound when the curve is flat too."""

FLAT_RISE = 1.25
"""A curve whose slowest point is within this factor of its fastest is flat."""

FLAT_SPAN = 2.0
"""Flatness needs points this far apart in tokens to mean anything."""

UNSTABLE_SPREAD = 0.25
"""Interquartile range over median above which a point's repeats do not agree."""

DRIFT = 0.15
"""Later repeats slower than earlier ones by more than this share: clocks fall with heat or a power limit, or memory fills."""

NEAR_FLOOR = 0.75
"""A time above this share of the floor is more likely a wrong peak than a timer that did not wait."""


def audit(
    points: Sequence[TimingPoint], target: ModelSpec | None, draft: ModelSpec | None, hardware: Hardware | None, dtype: str
) -> Audit:
    """The verdict on every point that has samples, in order, with its floor (s) and, where it is not plainly valid, the cause.

    Without a target or a chip no floor is known: only the spread is judged, and a finding says so. Failed points are left out.
    """
    timed = [point for point in points if point.samples_s]
    for point in timed:
        if not all(0 < sample < float("inf") for sample in point.samples_s):
            raise InputError(f"{point.phase} at K={point.block_size} has a time that is no positive number", "check the table")
    floors = [_floor(point, target, draft, hardware, dtype) for point in timed]
    overhead = _overhead_points(timed, floors)
    verdicts = [_judge(i, timed, floors, overhead, hardware) for i in range(len(timed))]
    name = "unknown" if hardware is None else hardware.label
    return Audit(hardware=name, points=tuple(verdicts), findings=_findings(verdicts, target, hardware, dtype))


def _floor(
    point: TimingPoint, target: ModelSpec | None, draft: ModelSpec | None, hardware: Hardware | None, dtype: str
) -> Floor | None:
    if target is None or hardware is None or (point.phase == "draft" and draft is None):
        return None
    shape = StepShape(phase=point.phase, batch=point.batch, query_tokens=point.block_size, context=point.context)
    return floor(step_cost(target, draft, shape, dtype, hardware.num_chips), hardware, dtype)


def _curves(timed: Sequence[TimingPoint]) -> dict[tuple[str, int, int], list[int]]:
    """Indices of the points that differ only in K."""
    curves: dict[tuple[str, int, int], list[int]] = defaultdict(list)
    for i, point in enumerate(timed):
        curves[point.phase, point.batch, point.context].append(i)
    return curves


def _is_flat(indices: Sequence[int], timed: Sequence[TimingPoint]) -> bool:
    tokens = [timed[i].tokens for i in indices]
    times = [timed[i].median_s for i in indices]
    return max(tokens) >= FLAT_SPAN * min(tokens) and max(times) <= FLAT_RISE * min(times)


def _overhead_points(timed: Sequence[TimingPoint], floors: Sequence[Floor | None]) -> set[int]:
    """Indices on curves that are flat in K and everywhere far above their floor."""
    found: set[int] = set()
    for indices in _curves(timed).values():
        above = [
            timed[i].median_s >= OVERHEAD_RATIO * known.seconds for i in indices if (known := floors[i]) and known.seconds > 0
        ]
        if len(above) == len(indices) and all(above) and _is_flat(indices, timed):
            found.update(indices)
    return found


def _judge(
    i: int, timed: Sequence[TimingPoint], floors: Sequence[Floor | None], overhead: set[int], hardware: Hardware | None
) -> AuditedPoint:
    point, known = timed[i], floors[i]
    verdict: Verdict = "valid"
    cause = ""
    if known is not None and hardware is not None and point.median_s < known.seconds * (1.0 - _tolerance(hardware)):
        verdict, cause = "invalid", _invalid_cause(i, timed, floors, hardware)
    elif point.spread > UNSTABLE_SPREAD:
        verdict, cause = "unstable", f"repeats scatter by {100 * point.spread:.0f} % (interquartile range over median)"
    elif point.drift > DRIFT:
        verdict = "unstable"
        cause = f"later repeats take {100 * point.drift:.0f} % longer than earlier ones: clocks fall with heat or a power limit"
    elif i in overhead and known is not None:
        ratio = point.median_s / known.seconds
        verdict, cause = "overhead", f"flat in K and {ratio:.1f} times the floor: launches or the host set the pace, not the chip"
    return AuditedPoint(
        phase=point.phase,
        block_size=point.block_size,
        batch=point.batch,
        context=point.context,
        seconds=point.median_s,
        floor_s=None if known is None else known.seconds,
        verdict=verdict,
        cause=cause,
    )


def _tolerance(hardware: Hardware) -> float:
    return MEASURED_PEAK_TOLERANCE if hardware.source == "measured" else 0.0


def _invalid_cause(i: int, timed: Sequence[TimingPoint], floors: Sequence[Floor | None], hardware: Hardware) -> str:
    """The likeliest reason for a time below the floor, from how far below it lies and how its curve behaves."""
    point, known = timed[i], floors[i]
    if known is None:
        raise ValueError("a point without a floor cannot be below it")
    ratio = point.median_s / known.seconds
    curve = next(indices for indices in _curves(timed).values() if i in indices)
    bytes_moved = known.memory_s * hardware.bandwidth_bytes_per_s.value + cached_bytes(hardware)
    memory_set = known.compute_s is None or known.memory_s >= known.compute_s
    below = f"{100 * ratio:.0f} % of the floor: "
    if memory_set and hardware.on_chip_bytes is not None and bytes_moved <= hardware.on_chip_bytes.value:
        return below + "weights and cache fit in on-chip memory and must have stayed there between repeats"
    if ratio < NEAR_FLOOR and len(curve) > 1 and _is_flat(curve, timed):
        return below + "the time does not move with K, so the timer most likely did not wait for the device"
    if ratio >= NEAR_FLOOR:
        return below + "close enough that the peak may be wrong (another variant of the chip), or part of the data stayed on chip"
    chips = -(-known.seconds // point.median_s) * hardware.num_chips
    return (
        below + f"the timer did not wait for the device, or the work ran on at least {chips:.0f} chips, or this is another chip"
    )


def _findings(
    verdicts: Sequence[AuditedPoint], target: ModelSpec | None, hardware: Hardware | None, dtype: str
) -> tuple[Finding, ...]:
    findings = []
    if hardware is None or target is None:
        missing = "the chip" if hardware is None else "the target's dimensions"
        findings.append(
            Finding(
                code="not-audited",
                severity="warning",
                message=f"without {missing} no floor is known, so no timing was checked against the speed of light",
                hint="name --hardware and --target",
            )
        )
    elif peak_flops_per_s(hardware, dtype) is None:
        findings.append(
            Finding(
                code="no-peak",
                severity="info",
                message=f"{hardware.name} has no known {dtype} peak: timings were checked against bandwidth only",
                hint="a point that is too fast for the arithmetic would pass",
            )
        )
    invalid = [point for point in verdicts if point.verdict == "invalid"]
    if invalid:
        typical = statistics.median(point.seconds / point.floor_s for point in invalid if point.floor_s)
        findings.append(
            Finding(
                code="below-floor",
                severity="error",
                message=f"{len(invalid)} of {len(verdicts)} timings are below the speed of light (median {100 * typical:.0f} %)",
                hint="wait for the result (block_until_ready) inside the timed region, and check chip, dtype and chip count",
            )
        )
    if any(point.verdict == "overhead" for point in verdicts):
        findings.append(
            Finding(
                code="overhead-bound",
                severity="warning",
                message="some curves are flat far above their floor: launches or the host set the pace",
                hint="they say nothing about how wide this chip can verify for free",
            )
        )
    return tuple(findings)
