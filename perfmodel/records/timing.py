"""Measured times: points of a step-time sweep, and what was read out of a trace."""

import statistics
from typing import Literal

from ..phases import Phase
from .base import Finding, Record

Clock = Literal["device", "host"]
Bound = Literal["host", "device"]
StepSource = Literal["steps", "modules", "annotations"]
Verdict = Literal["valid", "invalid", "overhead", "unstable"]


class TimingPoint(Record):
    """All samples of one phase at one shape, seconds. A point that failed keeps its reason and has no samples."""

    phase: Phase
    block_size: int
    batch: int
    context: int
    samples_s: tuple[float, ...] = ()
    warmup_s: tuple[float, ...] = ()
    lower_s: float | None = None
    compile_s: float | None = None
    clock: Clock = "host"
    failure: str | None = None

    @property
    def tokens(self) -> int:
        """Query tokens in the whole batch."""
        return self.block_size * self.batch

    @property
    def median_s(self) -> float:
        """Median of the samples, s."""
        return statistics.median(self.samples_s)

    @property
    def spread(self) -> float:
        """Relative spread of the samples: interquartile range over median (0 for fewer than four)."""
        if len(self.samples_s) < 4:
            return 0.0
        low, _, high = statistics.quantiles(self.samples_s, n=4)
        return (high - low) / self.median_s

    @property
    def drift(self) -> float:
        """Median of the later half of the samples over that of the earlier half, minus 1 (0 for fewer than six)."""
        half = len(self.samples_s) // 2
        if half < 3:
            return 0.0
        return statistics.median(self.samples_s[-half:]) / statistics.median(self.samples_s[:half]) - 1.0


class StepTimes(Record):
    """Step times of one pair on one device: `timings.json` of a sweep."""

    device_kind: str
    target: str
    draft: str | None
    dtype: str
    points: tuple[TimingPoint, ...]
    findings: tuple[Finding, ...] = ()


class PhaseTimes(Record):
    """What a trace says of one phase: how often it ran, and its times, seconds (None: not in the trace).

    `flops` and `accessed_bytes` are those of one execution on one device, by the compiled program in the capture (None: it holds
    none, or calls a kernel that does not state its work); the rates are these over the median device time.
    """

    count: int
    device_s_median: float | None
    wall_s_median: float | None
    device_s: tuple[float, ...] = ()
    wall_s: tuple[float, ...] = ()
    flops: float | None = None
    accessed_bytes: float | None = None
    flops_per_s: float | None = None
    bytes_per_s: float | None = None


class OperationStatistics(Record):
    """One HLO operation as XProf sees it: how often it ran, its own seconds per device, its rates (None: unknown or none).

    `roofline_share` is the rate achieved over the rate that the roofline allows at its intensity.
    """

    name: str
    category: str
    scope: str
    count: int
    self_s: float
    flops_per_s: float | None
    bytes_per_s: float | None
    bound_by: str
    roofline_share: float | None = None


class TraceTimings(Record):
    """What a trace says: steps, phases, busy share and coverage. `timing` tells whose clock it was.

    `bound` is the side that took more of the time: `device` when it was busy for at least half of it, else `host`. The peaks are
    the chip's (None: neither the trace nor the catalogue knows them). `operations` are XProf's statistics, where asked for.
    """

    device_kind: str
    num_devices: int
    steps: int | None
    step_seconds_median: float | None
    step_source: StepSource | None
    phases: dict[str, PhaseTimes]
    busy_share: float | None
    coverage: float | None
    host_gap_s_median: float | None
    timing: Clock
    step_seconds: tuple[float, ...] = ()
    host_gap_s: tuple[float, ...] = ()
    top_ops: tuple[tuple[str, float], ...] = ()
    file: str = ""
    bound: Bound | None = None
    peak_flops_per_s: float | None = None
    peak_bytes_per_s: float | None = None
    operations: tuple[OperationStatistics, ...] = ()
    findings: tuple[Finding, ...] = ()


class TraceSet(Record):
    """Every trace of a sweep by name (`math-K8`): `traces.json`."""

    traces: dict[str, TraceTimings]


class AuditedPoint(Record):
    """One timing against the speed of light. `floor_s` is None where no model or peak is known."""

    phase: Phase
    block_size: int
    batch: int
    context: int
    seconds: float
    floor_s: float | None
    verdict: Verdict
    cause: str = ""


class Audit(Record):
    """The verdict on every point of a set of timings: the `perf check` document."""

    hardware: str
    points: tuple[AuditedPoint, ...]
    findings: tuple[Finding, ...] = ()

    @property
    def num_invalid(self) -> int:
        """Points below the speed of light."""
        return sum(point.verdict == "invalid" for point in self.points)
