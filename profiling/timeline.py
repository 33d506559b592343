"""What a platform's reader hands over: per device, when it was busy, with which phase, in which steps.

Readers differ in where they look. What they find has one shape, and everything after it (medians, shares, coverage, checks) is
computed once, in `extract`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from perfmodel.phases import DRAFT, STEP_PHASES, VERIFY
from perfmodel.records import Finding
from perfmodel.records.timing import Clock

from .annotations import Annotations
from .intervals import EMPTY, PS_PER_S, Intervals, Lengths, total_by_group, union

Execution = tuple[Any, ...] | None


@dataclass(frozen=True, slots=True)
class PhaseRuns:
    """Executions of one phase on one device, in time order: where each lies, and how long the device worked on it, ps."""

    spans: Intervals
    busy: Lengths


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


@dataclass(frozen=True, slots=True)
class Timeline:
    """A capture of one host. `clock` tells whose time the phases are in."""

    device_kind: str
    clock: Clock
    devices: tuple[DeviceTimeline, ...]
    annotations: Annotations
    top_ops: tuple[tuple[str, float], ...]
    findings: tuple[Finding, ...] = ()


def phase_runs(times: Intervals, executions: Sequence[Execution]) -> tuple[dict[str, PhaseRuns], Intervals]:
    """Runs by phase, and the union of all of them, from operations and the execution that each belongs to.

    An execution is a tuple that begins with its phase, or None where the operation belongs to no phase.
    """
    numbers: dict[tuple[Any, ...], int] = {}
    groups = np.fromiter(
        (-1 if one is None else numbers.setdefault(one, len(numbers)) for one in executions), np.int64, len(executions)
    )
    mine = groups >= 0
    if not numbers:
        return {}, EMPTY
    spans, busy = total_by_group(times[mine], groups[mine], len(numbers))
    phases = np.array([one[0] for one in numbers])
    runs = {}
    for phase in sorted(set(phases.tolist())):
        chosen = np.flatnonzero(phases == phase)
        chosen = chosen[np.argsort(spans[chosen, 0], kind="stable")]
        runs[phase] = PhaseRuns(spans[chosen], busy[chosen])
    return runs, union(times[mine])


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
