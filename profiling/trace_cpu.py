"""Reading a CPU capture: host annotations for steps and phases, XLA's own operations for what the cores did.

There is no device plane. XLA's thunk executor records each operation on the thread that ran it, with its module; the loop's
annotations lie on the Python thread. Everything is the host's clock, and is labelled so.
"""

from collections import Counter
from dataclasses import dataclass

import numpy as np

from perfmodel.errors import InputError

from .annotations import Annotations
from .intervals import EMPTY, Intervals, Lengths, union
from .phase_map import PhaseMap
from .timeline import DeviceTimeline, Execution, Timeline, phase_runs, top_operations
from .xplane import Line, Space


@dataclass(frozen=True, slots=True)
class Operations:
    """Columns of XLA's operations on host threads: when, on which device, in which execution of a phase's program."""

    times: Intervals
    ordinals: Lengths
    executions: tuple[Execution, ...]
    durations: Counter[str]


def read_cpu(space: Space, annotations: Annotations, phase_map: PhaseMap) -> Timeline:
    """Time line of a capture without device planes.

    Raises `InputError` when it has neither annotations nor operations of XLA.
    """
    operations = _join([_operations(line, phase_map) for plane in space.matching("/host:") for line in plane.lines])
    if len(operations.times) == 0 and not annotations.phases and len(annotations.steps) == 0:
        raise InputError(
            f"{space.file} holds neither a device, nor an operation of XLA, nor a step or phase annotation",
            "record with `perf capture`, or with a host tracer level of at least 1",
        )
    devices = tuple(_device(ordinal, operations) for ordinal in np.unique(operations.ordinals).tolist())
    return Timeline("cpu", "host", devices, annotations, top_operations(operations.durations, len(devices)))


def _operations(line: Line, phase_map: PhaseMap) -> Operations:
    indices = line.carrying("hlo_op")
    modules, runs, ordinals = line.values("hlo_module"), line.values("run_id"), line.values("device_ordinal")
    phase_of = {module: phase_map.of_module(str(module)) for module in set(modules.values())}
    executions: list[Execution] = []
    for index in indices:
        module = modules.get(index)
        phase = phase_of.get(module) if module is not None else None
        executions.append(None if phase is None else (phase, module, runs.get(index), ordinals.get(index, 0)))
    return Operations(
        times=line.times[indices],
        ordinals=np.array([ordinals.get(index, 0) for index in indices], np.int64),
        executions=tuple(executions),
        durations=Counter(line.durations(indices)),
    )


def _join(parts: list[Operations]) -> Operations:
    return Operations(
        times=np.concatenate([EMPTY, *(part.times for part in parts)]),
        ordinals=np.concatenate([np.empty(0, np.int64), *(part.ordinals for part in parts)]),
        executions=tuple(execution for part in parts for execution in part.executions),
        durations=sum((part.durations for part in parts), Counter()),
    )


def _device(ordinal: int, operations: Operations) -> DeviceTimeline:
    mine = np.flatnonzero(operations.ordinals == ordinal)
    times = operations.times[mine]
    runs, attributed = phase_runs(times, [operations.executions[index] for index in mine.tolist()])
    return DeviceTimeline(f"cpu:{ordinal}", union(times), runs, attributed)
