"""Reading a GPU capture: kernels on streams.

Each GPU has a plane `/device:GPU:n` with one line per stream; streams run side by side, so busy time is a union. A kernel is
joined to its phase by the module it was compiled from, by the source scope of its operation, or by its name; where all are missing, by the
host call that launched it (they share a correlation number) and the annotation around that call. There is no line of programs: an
execution is what one annotation launched, else a run of kernels up to a change of module or the return of the module's first
operation.
"""

import re
from collections import Counter
from dataclasses import dataclass

import numpy as np

from .annotations import Annotations
from .events import StatValue
from .intervals import Intervals, union
from .phase_map import PhaseMap
from .programs import read_programs
from .scopes import Attribution, Attributor, scoped_executions
from .timeline import Cost, DeviceTimeline, Execution, Timeline, grouping, phase_runs, phase_work, top_operations
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
    found: Attribution


@dataclass(frozen=True, slots=True)
class Launches:
    """By correlation number: the annotated phase that encloses the launch, with its occurrence; and the region of a foreign program."""

    phases: dict[StatValue, tuple[str, int]]
    regions: dict[StatValue, int]


def gpu_planes(space: Space) -> tuple[Plane, ...]:
    """Planes of GPUs whose streams recorded something."""
    return tuple(plane for plane in space.planes if _GPU.fullmatch(plane.name) and any(_streams(plane)))


def read_gpu(space: Space, annotations: Annotations, phase_map: PhaseMap) -> Timeline:
    """Time line of a capture with GPU planes."""
    planes = gpu_planes(space)
    launches = _launches(space, annotations)
    attributor = Attributor(phase_map, read_programs(space))
    durations = Counter[str]()
    for plane in planes:
        durations += sum((Counter(line.durations()) for line in _streams(plane)), Counter())
    devices = tuple(_device(plane, launches, attributor, phase_map) for plane in planes)
    return Timeline(_device_kind(planes[0]), "device", devices, annotations, top_operations(durations, len(devices)))


def _streams(plane: Plane) -> list[Line]:
    return [line for line in plane.lines if line.name.startswith("Stream") and len(line)]


def _kernels(line: Line, attributor: Attributor) -> list[Kernel]:
    correlations, modules, operations = line.values("correlation_id"), line.values("hlo_module"), line.values("hlo_op")
    programs, scopes = line.values("program_id"), line.values("tf_op")
    found = []
    for index, (start, end) in enumerate(line.times.tolist()):
        name, module = line.event_name(index), str(modules.get(index, ""))
        operation = str(operations.get(index, name))
        attribution = attributor.find(module, programs.get(index), operation, str(scopes.get(index, "")))
        found.append(Kernel(start, end, name, module, operation, correlations.get(index), attribution))
    return found


def _launches(space: Space, annotations: Annotations) -> Launches:
    launches = Launches({}, {})
    if not annotations.phases and len(annotations.regions) == 0:
        return launches
    for plane in space.matching("/host:"):
        for line in plane.lines:
            for index, correlation in line.values("correlation_id").items():
                instant = int(line.times[index, 0])
                enclosing = next(
                    ((phase, at) for phase, spans in annotations.phases.items() if (at := _within(instant, spans)) is not None),
                    None,
                )
                if enclosing is not None:
                    launches.phases[correlation] = enclosing
                region = _within(instant, annotations.regions)
                if region is not None:
                    launches.regions[correlation] = region
    return launches


def _within(instant: int, spans: Intervals) -> int | None:
    index = int(np.searchsorted(spans[:, 0], instant, side="right")) - 1
    return index if index >= 0 and instant < spans[index, 1] else None


def _device(plane: Plane, launches: Launches, attributor: Attributor, phase_map: PhaseMap) -> DeviceTimeline:
    kernels = sorted(
        (kernel for line in _streams(plane) for kernel in _kernels(line, attributor)), key=lambda kernel: kernel.start
    )
    times: Intervals = np.array([(kernel.start, kernel.end) for kernel in kernels], np.int64)
    found = grouping(_executions(kernels, launches, phase_map))
    runs, attributed = phase_runs(times, found)
    return DeviceTimeline(plane.name, union(times), runs, attributed, work=phase_work(found, _costs(kernels), runs))


def _executions(kernels: list[Kernel], launches: Launches, phase_map: PhaseMap) -> list[Execution]:
    scoped = _scoped(kernels)
    executions: list[Execution] = []
    module, first_operation, number = "", "", 0
    for index, kernel in enumerate(kernels):
        launch = launches.phases.get(kernel.correlation) if kernel.correlation is not None else None
        by_program = None if kernel.found.by_scope else kernel.found.phase
        phase = by_program or phase_map.of_pattern(kernel.name) or (launch[0] if launch else None)
        # A copy without a module may lie inside an execution; it neither ends one nor begins one.
        if kernel.module and (kernel.module != module or kernel.operation == first_operation):
            module, first_operation, number = kernel.module, kernel.operation, number + 1
        region = launches.regions.get(kernel.correlation) if kernel.correlation is not None else None
        if scoped[index] is not None:
            executions.append(scoped[index])
        elif phase is None:
            executions.append(None)
        elif launch:
            executions.append((phase, "launch", launch[1]))
        else:
            executions.append((phase, "run", number, None if kernel.module else region))
    return executions


def _scoped(kernels: list[Kernel]) -> list[Execution]:
    """Executions of programs that hold several phases; all kernels of one program count as one run of it."""
    starts = np.array([kernel.start for kernel in kernels], np.int64)
    phases = [kernel.found.phase if kernel.found.by_scope else None for kernel in kernels]
    return scoped_executions(phases, [kernel.operation for kernel in kernels], [kernel.module for kernel in kernels], starts)


def _costs(kernels: list[Kernel]) -> list[Cost]:
    """Cost of each kernel. An operation of several kernels is counted with the first of them."""
    costs: list[Cost] = []
    before: tuple[str, str] | None = None
    for kernel in kernels:
        known = kernel.found.operation
        if known is None:
            # Copies that belong to no program are no work of a phase's program.
            costs.append((None, None) if kernel.module else (0.0, 0.0))
            continue
        repeated = before == (kernel.module, kernel.operation)
        costs.append((0.0, 0.0) if repeated else (known.flops, known.num_bytes))
        before = (kernel.module, kernel.operation)
    return costs


def _device_kind(plane: Plane) -> str:
    facts = {name: str(value) for name, value in plane.stats.items()}
    named = facts.get("device_type_string") or facts.get("device_name")
    if named:
        return named
    if "device_vendor" not in facts:
        return "GPU"
    capability = f"{facts.get('compute_cap_major', '?')}.{facts.get('compute_cap_minor', '?')}"
    return f"{facts['device_vendor']} GPU (capability {capability}, {facts.get('core_count', '?')} cores)"
