"""Reading a TPU capture: modules for phases, operations for busy time.

Each chip has a plane `/device:TPU:n`. Its line `XLA Modules` has one event per execution of a compiled program, `XLA Ops` the
operations inside, and `Async XLA Ops` the copies that run beside them; the last overlap the operations that wait for
them, so busy time is a union. A `Steps` line exists only in some captures; else a step is a repeated program.
"""

import re
from collections import Counter

import numpy as np

from perfmodel.records import Finding

from .annotations import Annotations
from .intervals import EMPTY, Intervals, merge
from .phase_map import PhaseMap, module_name
from .timeline import DeviceTimeline, Timeline, phase_runs, top_operations
from .xplane import Line, Plane, Space

_CHIP = re.compile(r"/device:TPU:\d+")
_OPERATION_LINES = ("XLA Ops", "Async XLA Ops")


def tpu_planes(space: Space) -> tuple[Plane, ...]:
    """Planes of TPU chips that recorded something."""
    return tuple(plane for plane in space.planes if _CHIP.fullmatch(plane.name) and plane.num_events)


def read_tpu(space: Space, annotations: Annotations, phase_map: PhaseMap) -> Timeline:
    """Time line of a capture with TPU planes."""
    planes = tpu_planes(space)
    durations = sum(map(_durations, planes), Counter())
    repeated = _repeated_module(planes)
    devices = tuple(_device(plane, phase_map, repeated) for plane in planes)
    kind = str(planes[0].stats.get("device_type_string", "TPU"))
    return Timeline(
        kind, "device", devices, annotations, top_operations(durations, len(devices)), _repeated_finding(devices, repeated)
    )


def _device(plane: Plane, phase_map: PhaseMap, repeated: str | None) -> DeviceTimeline:
    modules, steps = plane.line("XLA Modules"), plane.line("Steps")
    times = modules.times if modules else EMPTY
    names = [modules.event_name(index) for index in range(len(modules))] if modules else []
    phases = [phase_map.of_module(name) for name in names]
    runs, attributed = phase_runs(times, [None if phase is None else (phase, index) for index, phase in enumerate(phases)])
    lines = [line.times for line in map(plane.line, _OPERATION_LINES) if line is not None]
    return DeviceTimeline(
        name=plane.name,
        busy=merge(lines or [times]),
        runs=runs,
        attributed=attributed,
        marked_steps=_sorted(steps.times) if steps else EMPTY,
        repeated=_sorted(times[[module_name(name) == repeated for name in names]]) if names else EMPTY,
    )


def _repeated_module(planes: tuple[Plane, ...]) -> str | None:
    """The program that takes most device time among those that ran at least twice on every chip that ran it."""
    spent: Counter[str] = Counter()
    fewest: dict[str, int] = {}
    for plane in planes:
        modules = plane.line("XLA Modules")
        if modules is None:
            continue
        counts: Counter[str] = Counter()
        for index in range(len(modules)):
            counts[module_name(modules.event_name(index))] += 1
        for name, length in modules.durations().items():
            spent[module_name(name)] += length
        fewest |= {name: min(count, fewest.get(name, count)) for name, count in counts.items()}
    return next((name for name, _ in spent.most_common() if fewest[name] >= 2), None)


def _repeated_finding(devices: tuple[DeviceTimeline, ...], repeated: str | None) -> tuple[Finding, ...]:
    if repeated is None or any(device.runs or len(device.marked_steps) for device in devices):
        return ()
    message = f"there is no line of steps; a step is an execution of {repeated}, the program that takes most device time"
    return (
        Finding(
            code="steps-from-repeated-module", severity="info", message=message, hint=f"map it with --phase verify='{repeated}'"
        ),
    )


def _durations(plane: Plane) -> Counter[str]:
    line: Line | None = plane.line("XLA Ops") or plane.line("XLA Modules")
    spent: Counter[str] = Counter()
    for name, length in line.durations().items() if line else ():
        # An operation's name is its whole HLO text: `%copy-done.3 = f32[…] copy-done(…)`.
        spent[name.split(" = ", 1)[0].lstrip("%")] += length
    return spent


def _sorted(times: Intervals) -> Intervals:
    return times[np.argsort(times[:, 0], kind="stable")]
