"""What a platform's reader hands over: per device, when it was busy, with which phase, in which steps.

Readers differ in where they look. What they find has one shape, and everything after it (medians, shares, coverage, checks) is
computed once, in `extract`.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float64

from perfmodel.phases import DRAFT, STEP_PHASES, VERIFY
from perfmodel.records import Finding
from perfmodel.records.timing import Clock

from .annotations import Annotations
from .intervals import EMPTY, PS_PER_S, Intervals, Lengths, total_by_group, union

Execution = tuple[Any, ...] | None

Cost = tuple[float | None, float | None]
"""FLOP and bytes of one operation (None: unknown)."""

Costs = Float64[np.ndarray, "_ 2"]
"""The same for many, NaN where unknown."""


@dataclass(frozen=True, slots=True)
class PhaseRuns:
    """Executions of one phase on one device, in time order: where each lies, and how long the device worked on it, ps."""

    spans: Intervals
    busy: Lengths


@dataclass(frozen=True, slots=True)
class Work:
    """What one execution of a phase does on one device, on average: FLOP and bytes (None: the capture does not say)."""

    flops: float | None
    num_bytes: float | None


@dataclass(frozen=True, slots=True)
class DeviceTimeline:
    """One device, in ps.

    `busy` is the union of what its lines show, `attributed` the part of the time line that belongs to a phase. `marked_steps` are
    steps that the device's own line names; `repeated` is the program that recurs, where nothing better marks a step.
    """

    name: str
    busy: Intervals
    runs: dict[str, PhaseRuns]
    attributed: Intervals
    marked_steps: Intervals = field(default_factory=lambda: EMPTY)
    repeated: Intervals = field(default_factory=lambda: EMPTY)
    work: Mapping[str, Work] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Timeline:
    """A capture of one host. `clock` tells whose time the phases are in; the peaks are those the trace itself states."""

    device_kind: str
    clock: Clock
    devices: tuple[DeviceTimeline, ...]
    annotations: Annotations
    top_ops: tuple[tuple[str, float], ...]
    peak_flops_per_s: float | None = None
    peak_bytes_per_s: float | None = None
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True)
class Grouping:
    """Which execution of a phase each operation belongs to: its number (-1: of none), and by number the phase."""

    groups: Lengths
    phases: tuple[str, ...]


def grouping(executions: Sequence[Execution]) -> Grouping:
    """The grouping of operations by execution: a tuple that begins with its phase, or None where there is none."""
    numbers: dict[tuple[Any, ...], int] = {}
    groups = np.fromiter(
        (-1 if one is None else numbers.setdefault(one, len(numbers)) for one in executions), np.int64, len(executions)
    )
    return Grouping(groups, tuple(str(one[0]) for one in numbers))


def phase_runs(times: Intervals, found: Grouping) -> tuple[dict[str, PhaseRuns], Intervals]:
    """Runs by phase, and the union of all of them, from operations and the executions they belong to."""
    mine = found.groups >= 0
    if not found.phases:
        return {}, EMPTY
    spans, busy = total_by_group(times[mine], found.groups[mine], len(found.phases))
    phases = np.array(found.phases)
    runs = {}
    for phase in sorted(set(found.phases)):
        chosen = np.flatnonzero(phases == phase)
        chosen = chosen[np.argsort(spans[chosen, 0], kind="stable")]
        runs[phase] = PhaseRuns(spans[chosen], busy[chosen])
    return runs, union(times[mine])


def phase_work(found: Grouping, costs: Sequence[Cost] | Costs, runs: Mapping[str, PhaseRuns]) -> dict[str, Work]:
    """Work per execution of each phase, from the cost of every operation; an operation of unknown cost makes its phase's unknown."""
    amounts = np.array(costs, np.float64).reshape(-1, 2)  # None becomes NaN, which every sum keeps
    numbers = {phase: number for number, phase in enumerate(runs)}
    phases = np.array([numbers[phase] for phase in found.phases] + [-1], np.int64)[found.groups]
    work = {}
    for phase, number in numbers.items():
        flops, num_bytes = (amounts[phases == number].sum(axis=0) / len(runs[phase].spans)).tolist()
        # No phase moves no byte: such a capture says nothing, of FLOP either.
        silent = num_bytes == 0
        work[phase] = Work(*(None if silent or math.isnan(amount) else amount for amount in (flops, num_bytes)))
    return work


def top_operations(durations_ps: Mapping[str, int], num_devices: int) -> tuple[tuple[str, float], ...]:
    """The ten longest operations by name: seconds per device over the whole capture, what they call included."""
    longest = sorted(durations_ps.items(), key=lambda item: -item[1])[:10]
    return tuple((name, duration / PS_PER_S / max(num_devices, 1)) for name, duration in longest)


def steps_from_runs(runs: dict[str, PhaseRuns]) -> Intervals:
    """Steps as repeated phases, ps: each from its first program's start to its last program's end.

    A step begins with `draft` (with `verify` when nothing was drafted); programs that start before the next step belong to it.
    """
    first = next((phase for phase in (DRAFT, VERIFY) if phase in runs), None)
    if first is None:
        return EMPTY
    starts = runs[first].spans[:, 0]
    spans = np.concatenate([runs[phase].spans for phase in STEP_PHASES if phase in runs])
    owner = np.searchsorted(starts, spans[:, 0], side="right") - 1
    ends = starts.copy()
    np.maximum.at(ends, owner[owner >= 0], spans[owner >= 0, 1])
    return np.stack((starts, ends), axis=1)


def drop_partial(steps: Intervals, phases: dict[str, Intervals]) -> tuple[Intervals, bool]:
    """The steps without a last one that lacks a phase which most steps have; and whether one was dropped."""
    if len(steps) < 3:
        return steps, False
    for phase in STEP_PHASES:
        starts = np.sort(phases[phase][:, 0]) if phase in phases else np.empty(0, np.int64)
        held = np.searchsorted(starts, steps[:, 1], side="left") > np.searchsorted(starts, steps[:, 0], side="left")
        if not held[-1] and 2 * held[:-1].sum() > len(steps) - 1:
            return steps[:-1], True
    return steps, False
