"""Reading a GPU capture: kernels on streams.

Each GPU has a plane `/device:GPU:n` with one line per stream; streams run side by side, so busy time is a union. A kernel is
joined to its phase by the module it was compiled from; where that is missing, by the host call that launched it (they share a
correlation number) and the annotation around that call. There is no line of programs: an execution is what one annotation
launched, else a run of kernels up to a change of module or the return of the module's first operation.
"""

import re
from collections import Counter
from dataclasses import dataclass

import numpy as np

from .annotations import Annotations
from .events import StatValue
from .intervals import Intervals, union
from .phase_map import PhaseMap
from .timeline import DeviceTimeline, Execution, Timeline, phase_runs, top_operations
from .xplane import Line, Plane, Space

_GPU = re.compile(r"/device:GPU:\d+")


@dataclass(frozen=True, slots=True)
class Kernel:
    """One kernel or copy on a stream."""

    start: int
    end: int
    name: str
    module: str
    operation: str
    correlation: StatValue | None


Launches = dict[StatValue, tuple[str, int]]
"""Correlation number → the phase whose annotation encloses the launch, and which occurrence of it."""


def gpu_planes(space: Space) -> tuple[Plane, ...]:
    """Planes of GPUs whose streams recorded something."""
    return tuple(plane for plane in space.planes if _GPU.fullmatch(plane.name) and any(_streams(plane)))


def read_gpu(space: Space, annotations: Annotations, phase_map: PhaseMap) -> Timeline:
    """Time line of a capture with GPU planes."""
    planes = gpu_planes(space)
    launches = _launches(space, annotations)
    durations = Counter[str]()
    for plane in planes:
        durations += sum((Counter(line.durations()) for line in _streams(plane)), Counter())
    devices = tuple(_device(plane, launches, phase_map) for plane in planes)
    return Timeline(_device_kind(planes[0]), "device", devices, annotations, top_operations(durations, len(devices)))


def _streams(plane: Plane) -> list[Line]:
    return [line for line in plane.lines if line.name.startswith("Stream") and len(line)]


def _kernels(line: Line) -> list[Kernel]:
    correlations, modules, operations = line.values("correlation_id"), line.values("hlo_module"), line.values("hlo_op")
    found = []
    for index, (start, end) in enumerate(line.times.tolist()):
        name = line.event_name(index)
        operation = str(operations.get(index, name))
        found.append(Kernel(start, end, name, str(modules.get(index, "")), operation, correlations.get(index)))
    return found


def _launches(space: Space, annotations: Annotations) -> Launches:
    launches: Launches = {}
    if not annotations.phases:
        return launches
    for plane in space.matching("/host:"):
        for line in plane.lines:
            for index, correlation in line.values("correlation_id").items():
                enclosing = _enclosing(int(line.times[index, 0]), annotations)
                if enclosing is not None:
                    launches[correlation] = enclosing
    return launches


def _enclosing(instant: int, annotations: Annotations) -> tuple[str, int] | None:
    for phase, spans in annotations.phases.items():
        index = int(np.searchsorted(spans[:, 0], instant, side="right")) - 1
        if index >= 0 and instant < spans[index, 1]:
            return phase, index
    return None


def _device(plane: Plane, launches: Launches, phase_map: PhaseMap) -> DeviceTimeline:
    kernels = sorted((kernel for line in _streams(plane) for kernel in _kernels(line)), key=lambda kernel: kernel.start)
    times: Intervals = np.array([(kernel.start, kernel.end) for kernel in kernels], np.int64)
    runs, attributed = phase_runs(times, _executions(kernels, launches, phase_map))
    return DeviceTimeline(plane.name, union(times), runs, attributed)


def _executions(kernels: list[Kernel], launches: Launches, phase_map: PhaseMap) -> list[Execution]:
    executions: list[Execution] = []
    module, first_operation, number = "", "", 0
    for kernel in kernels:
        launch = launches.get(kernel.correlation) if kernel.correlation is not None else None
        phase = phase_map.of_module(kernel.module) or phase_map.of_pattern(kernel.name) or (launch[0] if launch else None)
        # A copy without a module may lie inside an execution; it neither ends one nor begins one.
        if kernel.module and (kernel.module != module or kernel.operation == first_operation):
            module, first_operation, number = kernel.module, kernel.operation, number + 1
        executions.append(None if phase is None else (phase, "launch", launch[1]) if launch else (phase, "run", number))
    return executions


def _device_kind(plane: Plane) -> str:
    facts = {name: str(value) for name, value in plane.stats.items()}
    named = facts.get("device_type_string") or facts.get("device_name")
    if named:
        return named
    capability = f"{facts.get('compute_cap_major', '?')}.{facts.get('compute_cap_minor', '?')}"
    return f"{facts.get('device_vendor', 'unknown')} GPU (capability {capability}, {facts.get('core_count', '?')} cores)"
