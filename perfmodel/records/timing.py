"""Measured times: points of a step-time sweep, and what was read out of a trace."""

import statistics
from typing import Literal

from ..phases import Phase
from .base import Finding, Record

Clock = Literal["device", "host"]
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


class StepTimes(Record):
    """Step times of one pair on one device: `timings.json` of a sweep."""

    device_kind: str
    target: str
    draft: str | None
    dtype: str
    points: tuple[TimingPoint, ...]
    findings: tuple[Finding, ...] = ()


class PhaseTimes(Record):
    """What a trace says of one phase: how often it ran, and its times, seconds (None: not in the trace)."""

    count: int
    device_s_median: float | None
    wall_s_median: float | None
    device_s: tuple[float, ...] = ()
    wall_s: tuple[float, ...] = ()


class TraceTimings(Record):
    """What a trace says: steps, phases, busy share and coverage. `timing` tells whose clock it was."""

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
