"""Reading a CPU capture: host annotations for steps and phases, XLA's own operations for what the cores did.

There is no device plane. XLA's thunk executor records each operation on the thread that ran it, with its module; the loop's
annotations lie on the Python thread. Loops and calls are operations too, but what they enclose has events of its own, so they
are left out. Everything is the host's clock, and is labelled so. A long capture holds millions of operations but few different
ones, so what they are called is kept as numbers and looked up once per distinct name.
"""

from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from perfmodel.errors import InputError

from .annotations import Annotations
from .events import StatValue
from .intervals import EMPTY, Intervals, Lengths, union
from .phase_map import PhaseMap
from .programs import read_programs
from .scopes import NOTHING, Attribution, Attributor, scoped_executions
from .timeline import Costs, DeviceTimeline, Grouping, Timeline, phase_runs, phase_work, top_operations
from .xplane import Line, Space

_STATS = ("hlo_op", "hlo_module", "program_id", "run_id", "device_ordinal")
_NAME, _MODULE, _PROGRAM, _RUN, _DEVICE = range(len(_STATS))


@dataclass
class Vocabulary:
    """Values by number, shared by all threads."""

    numbers: dict[StatValue | None, int] = field(default_factory=dict)

    def encode(self, codes: Lengths, table: list[StatValue]) -> Lengths:
        """A thread's own numbers as shared ones; an absent value has a number too."""
        shared = [self.numbers.setdefault(value, len(self.numbers)) for value in (*table, None)]
        return np.array(shared, np.int64)[codes]

    def values(self) -> list[StatValue | None]:
        """The values in the order of their numbers."""
        return list(self.numbers)


@dataclass(frozen=True, slots=True)
class Operations:
    """XLA's operations on host threads: when each ran; and one column of numbers per stat, with what they stand for."""

    times: Intervals
    columns: Lengths
    values: tuple[list[StatValue | None], ...]
    durations: Counter[str]


def read_cpu(space: Space, annotations: Annotations, phase_map: PhaseMap) -> Timeline:
    """Time line of a capture without device planes.

    Raises `InputError` when it has neither annotations nor operations of XLA.
    """
    operations = _operations([line for plane in space.matching("/host:") for line in plane.lines])
    if len(operations.times) == 0 and not annotations.phases and len(annotations.steps) == 0:
        raise InputError(
            f"{space.file} holds neither a device, nor an operation of XLA, nor a step or phase annotation",
            "record with `perf capture`, or with a host tracer level of at least 1",
        )
    attributor = Attributor(phase_map, read_programs(space))
    devices = tuple(
        _device(value, operations, operations.columns[_DEVICE] == number, attributor)
        for number, value in enumerate(operations.values[_DEVICE])
        if (operations.columns[_DEVICE] == number).any()
    )
    return Timeline("cpu", "host", devices, annotations, top_operations(operations.durations, len(devices)))


def _operations(lines: list[Line]) -> Operations:
    vocabularies = [Vocabulary() for _ in _STATS]
    times, columns, durations = [EMPTY], [np.empty((len(_STATS), 0), np.int64)], Counter[str]()
    for line in lines:
        indices = line.carrying("hlo_op")
        if len(indices) == 0:
            continue
        times.append(line.times[indices])
        found = [line.column(stat) for stat in _STATS]
        columns.append(np.stack([
            vocabulary.encode(codes[indices], table) for vocabulary, (codes, table) in zip(vocabularies, found, strict=True)
        ]))  # fmt: skip
        durations += Counter(line.durations(indices))
    return Operations(
        np.concatenate(times), np.concatenate(columns, axis=1), tuple(one.values() for one in vocabularies), durations
    )


def _device(ordinal: StatValue | None, operations: Operations, mine: Lengths, attributor: Attributor) -> DeviceTimeline:
    times, columns = operations.times[mine], operations.columns[:, mine]
    kinds, which = _distinct(columns[[_NAME, _MODULE, _PROGRAM]])
    found = [_attribution(kind, operations, attributor) for kind in kinds.T.tolist()]
    # A loop's event encloses its body's, and on a busy machine also the time in which none of them ran.
    works = ~np.array([one.operation is not None and one.operation.is_control for one in found], bool)[which]
    times, columns, which = times[works], columns[:, works], which[works]
    groups = _group(times, columns, operations, found, which)
    runs, attributed = phase_runs(times, groups)
    costs: Costs = np.array([_cost(one) for one in found], np.float64).reshape(-1, 2)[which]
    return DeviceTimeline(
        f"cpu:{ordinal!s}" if ordinal else "cpu:0", union(times), runs, attributed, work=phase_work(groups, costs, runs)
    )


def _attribution(kind: list[int], operations: Operations, attributor: Attributor) -> Attribution:
    name, module, program = (operations.values[column][number] for column, number in enumerate(kind))
    return NOTHING if module is None else attributor.find(module, program, str(name))


def _cost(one: Attribution) -> tuple[float | None, float | None]:
    return (None, None) if one.operation is None else (one.operation.flops, one.operation.num_bytes)


def _group(times: Intervals, columns: Lengths, operations: Operations, found: list[Attribution], which: Lengths) -> Grouping:
    """Executions: a run of a program that is a phase; in one that holds several, each iteration of each phase."""
    groups = np.full(len(times), -1, np.int64)
    phases: list[str] = []
    whole = np.flatnonzero(np.array([one.phase is not None and not one.by_scope for one in found], bool)[which])
    if len(whole):
        # A module is one phase, so its runs are the phase's.
        runs, groups[whole] = _distinct(columns[[_MODULE, _RUN]][:, whole])
        phase_of = dict(zip(columns[_MODULE, whole].tolist(), (found[kind].phase for kind in which[whole].tolist()), strict=True))
        phases += [str(phase_of[module]) for module in runs[0].tolist()]
    parts = np.flatnonzero(np.array([one.by_scope for one in found], bool)[which])
    programs = list(zip(columns[_MODULE, parts].tolist(), columns[_RUN, parts].tolist(), strict=True))
    scoped = scoped_executions(
        [found[kind].phase for kind in which[parts].tolist()], columns[_NAME, parts].tolist(), programs, times[parts, 0]
    )
    numbers: dict[object, int] = {}
    for index, execution in zip(parts.tolist(), scoped, strict=True):
        if execution is not None:
            groups[index] = len(phases) + numbers.setdefault(execution, len(numbers))
    return Grouping(groups, (*phases, *(str(execution[0]) for execution in numbers)))  # type: ignore[index]


def _distinct(columns: Lengths) -> tuple[Lengths, Lengths]:
    """The distinct columns of an array of numbers, and for each column which of them it is."""
    weights = np.cumprod([1, *(int(row.max(initial=0)) + 1 for row in columns[:-1])])
    _, firsts, inverse = np.unique((columns * weights[:, None]).sum(axis=0), return_index=True, return_inverse=True)
    return columns[:, firsts], inverse
