"""Trace → timings: steps, phases, busy share, coverage, and what is wrong with them.

Which line shows what differs by platform and is the readers' business. Here the findings of all readers become one record by the
same arithmetic: a step's host gap is its wall time less what was busy in it; the busy share is the length of a union over the
length of the window it lies in; coverage is the share of busy time that belongs to a named phase.
"""

import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from perfmodel.phases import PHASES
from perfmodel.records import PhaseTimes, TraceTimings
from perfmodel.records.timing import StepSource

from .annotations import read_annotations
from .intervals import EMPTY, Intervals, Lengths, clip, covered, extent, merge, seconds
from .phase_map import PhaseMap
from .timeline import DeviceTimeline, Timeline, drop_partial, steps_from_runs
from .trace_checks import find_problems
from .trace_cpu import read_cpu
from .trace_files import find_xplane
from .trace_gpu import gpu_planes, read_gpu
from .trace_tpu import read_tpu, tpu_planes
from .xplane import Space, read_space

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


def extract(path: Path, phase_patterns: Mapping[str, str] | None = None, expected_steps: int | None = None) -> TraceTimings:
    """What the trace at a path says, seconds.

    Arguments: `path`, an `.xplane.pb`, a run folder, or a parent of exactly one run; `phase_patterns`, phase → regular
    expression on module and kernel names of foreign engines; `expected_steps`, how many were run, where that is known.
    Raises `InputError` when the path holds no single readable trace.
    """
    phase_map = PhaseMap(phase_patterns or {})
    file = find_xplane(Path(path))
    space = read_space(file)
    timeline = read_timeline(space, phase_map)
    return summarise(timeline, space, expected_steps)


def read_timeline(space: Space, phase_map: PhaseMap) -> Timeline:
    """The time line by the reader of the capture's platform."""
    annotations = read_annotations(space)
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
    source = next((found.source for found in steps if found.source), None)
    timings = TraceTimings(
        device_kind=timeline.device_kind,
        num_devices=len(timeline.devices),
        steps=num_steps if source else None,
        step_seconds_median=_median(seconds(durations)),
        step_source=source,
        phases=phases,
        busy_share=_busy_share(devices, windows),
        coverage=coverage,
        host_gap_s_median=_median(seconds(gaps)),
        timing=timeline.clock,
        step_seconds=seconds(durations),
        host_gap_s=seconds(gaps),
        top_ops=timeline.top_ops,
        file=space.file,
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
    count = len(walls) or max(len(found) for found in runs)
    return PhaseTimes(
        count=count, device_s_median=_median(device_s), wall_s_median=_median(wall_s), device_s=device_s, wall_s=wall_s
    )


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
