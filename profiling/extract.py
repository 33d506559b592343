"""Trace → timings: steps, phases, busy share, coverage, and what is wrong with them.

Which line shows what differs by platform and is the readers' business. Here the findings of all readers become one record by the
same arithmetic: a step's host gap is its wall time less what was busy in it; the busy share is the length of a union over the
length of the window it lies in; coverage is the share of busy time that belongs to a named phase. A phase's rates are the FLOP and
bytes of its compiled program over its device time: achieved figures, to be read beside the chip's peaks.
"""

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from perfmodel.errors import PerfError
from perfmodel.phases import PHASES
from perfmodel.records import Finding, PhaseTimes, TraceTimings
from perfmodel.records.timing import Bound, StepSource
from perfmodel.units import format_bytes

from .annotations import read_annotations
from .chrome import is_chrome, read_chrome
from .intervals import EMPTY, Intervals, Lengths, clip, covered, extent, merge, seconds
from .phase_map import PhaseMap
from .programs import read_programs
from .timeline import DeviceTimeline, Timeline, drop_partial, steps_from_runs
from .trace_checks import find_problems
from .trace_cpu import read_cpu
from .trace_files import find_trace
from .trace_gpu import gpu_planes, read_gpu
from .trace_tpu import read_tpu, tpu_planes
from .xplane import Space, read_space
from .xprof_stats import MAX_BYTES, hlo_statistics

HOST_BOUND_BELOW = 0.5
"""Busy share below which the host is the slower side: more than half of the time the device waits for it."""

NO_DEVICE = DeviceTimeline("none", EMPTY, {}, EMPTY)
"""Stands in where a capture has annotations only, so that its steps can still be read."""


@dataclass(frozen=True, slots=True)
class DeviceSteps:
    """Steps of one device with where they were read from; `gaps` and `durations` in ps."""

    intervals: Intervals
    source: StepSource | None
    dropped: bool
    gaps: Lengths

    @property
    def durations(self) -> Lengths:
        """Length of each step, ps."""
        return self.intervals[:, 1] - self.intervals[:, 0]


def extract(
    path: Path,
    phase_patterns: Mapping[str, str] | None = None,
    expected_steps: int | None = None,
    with_statistics: bool = False,
    progress: Callable[[str, float], object] = lambda stage, share: None,
) -> TraceTimings:
    """What the trace at a path says, seconds.

    Arguments:
        path: an `.xplane.pb`, a Chrome `trace.json[.gz]`, a run folder, or a parent of exactly one run.
        phase_patterns: phase → regular expression on module, scope, kernel and region names of foreign engines.
        expected_steps: how many were run, where that is known.
        with_statistics: ask XProf for its statistics of operations too (device captures with HLO only; takes a second or more).
        progress: told the stage, and the share of it that is done (0 … 1): of reading, the share of the file's bytes.

    Raises `InputError` when the path holds no single readable trace.
    """
    phase_map = PhaseMap(phase_patterns or {})
    file = find_trace(Path(path))
    space = read_capture(file, lambda share: progress("reading", share))
    progress("phases", 0.0)
    timeline = read_timeline(space, phase_map)
    progress("phases", 0.5)
    timings = summarise(timeline, space, expected_steps)
    progress("phases", 1.0)
    if with_statistics:
        progress("operations", 0.0)
        timings = with_operations(timings, space, file)
    return timings


def with_operations(timings: TraceTimings, space: Space, file: Path) -> TraceTimings:
    """The same timings with XProf's statistics of operations, or with a finding that says why XProf gave none."""
    if timings.timing == "host" or space.chrome_events is not None or not read_programs(space):
        return timings
    if file.stat().st_size > MAX_BYTES:
        message = f"XProf's statistics are left out: it would take too much memory beyond {format_bytes(MAX_BYTES)} of capture"
        finding = Finding(code="xprof-skipped", severity="info", message=message, hint="record fewer steps")
        return msgspec.structs.replace(timings, findings=(*timings.findings, finding))
    try:
        found = hlo_statistics(file, timings.num_devices)
        return msgspec.structs.replace(
            timings,
            operations=found.operations,
            peak_flops_per_s=timings.peak_flops_per_s or found.peak_flops_per_s,
            peak_bytes_per_s=timings.peak_bytes_per_s or found.peak_bytes_per_s,
        )
    except PerfError as error:
        finding = Finding(code="xprof-failed", severity="warning", message=error.message, hint=error.hint)
        return msgspec.structs.replace(timings, findings=(*timings.findings, finding))


def read_capture(file: Path, progress: Callable[[float], object] = lambda share: None) -> Space:
    """The capture in a file of either format; `progress` is told the share of its bytes that is read. Raises `InputError`."""
    progress(0.0)
    return read_chrome(file) if is_chrome(file) else read_space(file, progress)


def read_timeline(space: Space, phase_map: PhaseMap) -> Timeline:
    """The time line by the reader of the capture's platform."""
    annotations = read_annotations(space, phase_map)
    reader = read_tpu if tpu_planes(space) else read_gpu if gpu_planes(space) else read_cpu
    return reader(space, annotations, phase_map)


def summarise(timeline: Timeline, space: Space, expected_steps: int | None = None) -> TraceTimings:
    """The record of a time line. Samples of several devices are kept side by side, never added; `steps` counts those of one."""
    devices = timeline.devices or (NO_DEVICE,)
    steps = [device_steps(timeline, device) for device in devices]
    windows = [extent(found.intervals if found.source else device.busy) for found, device in zip(steps, devices, strict=True)]
    durations = np.concatenate([found.durations for found in steps])
    gaps = np.concatenate([found.gaps for found in steps])
    phases: dict[str, PhaseTimes] = {
        phase: times for phase in PHASES if (times := _phase_times(timeline, devices, phase)) is not None
    }
    num_steps = min((len(found.intervals) for found in steps), default=0)
    coverage = _coverage(timeline, devices, windows)
    busy_share = _busy_share(devices, windows)
    source = next((found.source for found in steps if found.source), None)
    timings = TraceTimings(
        device_kind=timeline.device_kind,
        num_devices=len(timeline.devices),
        steps=num_steps if source else None,
        step_seconds_median=_median(seconds(durations)),
        step_source=source,
        phases=phases,
        busy_share=busy_share,
        coverage=coverage,
        host_gap_s_median=_median(seconds(gaps)),
        timing=timeline.clock,
        step_seconds=seconds(durations),
        host_gap_s=seconds(gaps),
        top_ops=timeline.top_ops,
        file=space.file,
        bound=_bound(busy_share),
        peak_flops_per_s=timeline.peak_flops_per_s,
        peak_bytes_per_s=timeline.peak_bytes_per_s,
    )
    return find_problems(timings, timeline, space, [found.dropped for found in steps], expected_steps)


def device_steps(timeline: Timeline, device: DeviceTimeline) -> DeviceSteps:
    """Complete steps of a device: from its own line of steps, else the host's annotations, else repeated programs."""
    annotated = timeline.annotations.steps
    choices: tuple[tuple[StepSource, Intervals], ...] = (
        ("steps", device.marked_steps),
        ("annotations", annotated),
        ("modules", steps_from_runs(device.runs)),
        ("modules", device.repeated),
    )
    source, steps = next(((source, steps) for source, steps in choices if len(steps)), (None, EMPTY))
    on_host = source == "annotations" and bool(timeline.annotations.phases)
    spans = timeline.annotations.phases if on_host else {phase: runs.spans for phase, runs in device.runs.items()}
    kept, dropped = drop_partial(steps, spans)
    occupied = merge(list(spans.values())) if on_host and timeline.clock == "host" else device.busy
    return DeviceSteps(kept, source, dropped, _gaps(kept, source, occupied))


def _gaps(steps: Intervals, source: StepSource | None, occupied: Intervals) -> Lengths:
    if source == "modules":
        # The programs themselves are the step, so what the host added lies between one step's start and the next one's.
        steps = np.stack((steps[:-1, 0], steps[1:, 0]), axis=1)
    return steps[:, 1] - steps[:, 0] - covered(occupied, steps)


def _phase_times(timeline: Timeline, devices: tuple[DeviceTimeline, ...], phase: str) -> PhaseTimes | None:
    walls = timeline.annotations.phases.get(phase, EMPTY)
    runs = [device.runs[phase].busy for device in devices if phase in device.runs]
    if len(walls) == 0 and not runs:
        return None
    device = np.concatenate(runs) if runs else np.empty(0, np.int64)
    if timeline.clock == "host" and len(walls) and len(device) != len(walls) and timeline.devices:
        device = np.concatenate([covered(one.busy, walls) for one in devices])
    wall_s, device_s = seconds(walls[:, 1] - walls[:, 0]), seconds(device)
    median_s = _median(device_s)
    flops, accessed_bytes = _work(devices, phase)
    return PhaseTimes(
        count=len(walls) or max(len(found) for found in runs),
        device_s_median=median_s,
        wall_s_median=_median(wall_s),
        device_s=device_s,
        wall_s=wall_s,
        flops=flops,
        accessed_bytes=accessed_bytes,
        flops_per_s=flops / median_s if flops is not None and median_s else None,
        bytes_per_s=accessed_bytes / median_s if accessed_bytes is not None and median_s else None,
    )


def _work(devices: tuple[DeviceTimeline, ...], phase: str) -> tuple[float | None, float | None]:
    """FLOP and bytes of one execution, averaged over the devices that ran the phase; None unless every one of them says."""
    found = [device.work.get(phase) for device in devices if phase in device.runs]
    flops = [None if work is None else work.flops for work in found]
    num_bytes = [None if work is None else work.num_bytes for work in found]
    return _mean(flops), _mean(num_bytes)


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None


def _bound(busy_share: float | None) -> Bound | None:
    return None if busy_share is None else "device" if busy_share >= HOST_BOUND_BELOW else "host"


def _busy_share(devices: tuple[DeviceTimeline, ...], windows: list[Intervals]) -> float | None:
    lengths = sum(int((window[:, 1] - window[:, 0]).sum()) for window in windows)
    if lengths == 0 or not any(len(device.busy) for device in devices):
        return None
    return sum(int(covered(device.busy, window).sum()) for device, window in zip(devices, windows, strict=True)) / lengths


def _coverage(timeline: Timeline, devices: tuple[DeviceTimeline, ...], windows: list[Intervals]) -> float | None:
    busy = attributed = 0
    walls = list(timeline.annotations.phases.values()) if timeline.clock == "host" else []
    for device, window in zip(devices, windows, strict=True):
        busy += int(covered(device.busy, window).sum())
        if len(window):
            attributed += int(covered(device.busy, clip(merge([device.attributed, *walls]), *window[0].tolist())).sum())
    return attributed / busy if busy else None


def _median(samples: tuple[float, ...]) -> float | None:
    return statistics.median(samples) if samples else None
