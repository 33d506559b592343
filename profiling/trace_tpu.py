"""Reading a TPU capture: modules for phases, operations for busy time, and for phases where one program holds several.

Each chip has a plane `/device:TPU:n`. Its line `XLA Modules` has one event per execution of a compiled program, `XLA Ops` the
operations inside, and `Async XLA Ops` the copies that run beside them; the last overlap the operations that wait for
them, so busy time is a union. A `Steps` line exists only in some captures; else a step is a repeated program.
"""

import re
from collections import Counter
from dataclasses import dataclass

import numpy as np

from perfmodel.records import Finding

from .annotations import Annotations
from .intervals import EMPTY, Intervals, merge
from .phase_map import PhaseMap, module_name
from .programs import CONTROL
from .scopes import scoped_executions
from .timeline import Cost, DeviceTimeline, Execution, Timeline, grouping, phase_runs, phase_work, top_operations
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
    facts = planes[0].stats
    return Timeline(
        str(facts.get("device_type_string", "TPU")),
        "device",
        devices,
        annotations,
        top_operations(durations, len(devices)),
        peak_flops_per_s=_scaled(facts.get("peak_teraflops_per_second"), 1e12),
        peak_bytes_per_s=_scaled(facts.get("peak_hbm_bw_gigabytes_per_second"), 1e9),
        findings=_repeated_finding(devices, repeated),
    )


def _scaled(value: object, factor: float) -> float | None:
    return value * factor if isinstance(value, int | float) and value > 0 else None


def _device(plane: Plane, phase_map: PhaseMap, repeated: str | None) -> DeviceTimeline:
    modules, steps = plane.line("XLA Modules"), plane.line("Steps")
    order = np.argsort(modules.times[:, 0], kind="stable").tolist() if modules else []
    times = modules.times[order] if modules else EMPTY
    names = [modules.event_name(index) for index in order] if modules else []
    programs: list[Execution] = [
        None if (phase := phase_map.of_module(name)) is None else (phase, index) for index, name in enumerate(names)
    ]
    operations = _operations(plane, times, programs, phase_map)
    scoped = [one is not None and one[1] == "scope" for one in operations.executions]
    inner = [one for one, chosen in zip(operations.executions, scoped, strict=True) if chosen]
    runs, attributed = phase_runs(np.concatenate([times, operations.times[scoped]]), grouping([*programs, *inner]))
    lines = [line.times for line in map(plane.line, _OPERATION_LINES) if line is not None]
    return DeviceTimeline(
        name=plane.name,
        busy=merge(lines or [times]),
        runs=runs,
        attributed=attributed,
        marked_steps=_sorted(steps.times) if steps else EMPTY,
        repeated=times[[module_name(name) == repeated for name in names]] if names else EMPTY,
        work=phase_work(grouping(operations.executions), operations.costs, runs),
    )


@dataclass(frozen=True, slots=True)
class Operations:
    """Columns over a chip's operations that run no others: when, in which execution of a phase, at what cost."""

    times: Intervals
    executions: list[Execution]
    costs: list[Cost]


def _operations(plane: Plane, modules: Intervals, programs: list[Execution], phase_map: PhaseMap) -> Operations:
    """Operations of programs that are a phase, and of those whose operations name theirs by scope."""
    line = plane.line("XLA Ops")
    if line is None:
        return Operations(EMPTY, [], [])
    shared = {stat: line.names.sharing(stat) for stat in ("tf_op", "hlo_category", "flops", "bytes_accessed")}
    # A loop's event encloses its body's events on the same line, and its cost repeats theirs.
    chosen = np.array([shared["hlo_category"].get(key) not in CONTROL for key in line.ids.tolist()], bool)
    times, ids = line.times[chosen], line.ids[chosen].tolist()
    owners = (np.searchsorted(modules[:, 0], times[:, 0], side="right") - 1).tolist()
    inside = [owner if owner >= 0 and start < modules[owner, 1] else -1 for owner, start in zip(owners, times[:, 0], strict=True)]
    by_program = [programs[owner] if owner >= 0 else None for owner in inside]
    scopes = {key: phase_map.of_scope(str(shared["tf_op"].get(key, "")).rstrip(":")) for key in set(ids)}
    phases = [scopes[key] if program is None else None for key, program in zip(ids, by_program, strict=True)]
    by_scope = scoped_executions(phases, ids, inside, times[:, 0])
    executions = [program if program is not None else scope for program, scope in zip(by_program, by_scope, strict=True)]
    return Operations(
        times, executions, [(_amount(shared["flops"].get(key)), _amount(shared["bytes_accessed"].get(key))) for key in ids]
    )


def _amount(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None


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
