"""Steps and phases as the host marked them.

A step annotation is an event with a `step_num`; a phase is an event named after it. Both lie on the thread that ran the loop, and
their times are the host's clock: they say when work was asked for, and only with a blocking loop also when it was done.
"""

from collections import Counter, defaultdict
from dataclasses import dataclass, field

import numpy as np

from perfmodel.phases import PHASES, STEP_ANNOTATION
from perfmodel.records import Finding

from .intervals import EMPTY, Intervals, outermost
from .phase_map import PhaseMap
from .xplane import Line, Space


@dataclass(frozen=True, slots=True)
class Annotations:
    """Host intervals in ps, in time order: decode steps, each phase's occurrences, and the regions of other programs."""

    steps: Intervals
    phases: dict[str, Intervals]
    findings: tuple[Finding, ...]
    regions: Intervals = field(default_factory=lambda: EMPTY)


REGION_LINE = "user_annotation"
"""How the lines begin that hold what a foreign program named; patterns for phases apply to these as well."""


def read_annotations(space: Space, phase_map: PhaseMap) -> Annotations:
    """Step and phase annotations of every host thread of a capture."""
    steps: dict[str, list[tuple[int, int]]] = defaultdict(list)
    phases: dict[str, list[tuple[int, int]]] = defaultdict(list)
    regions = [EMPTY]
    for plane in space.matching("/host:"):
        ours = {key: name for key, name in plane.names.events.items() if name in PHASES}
        mapped = {key: phase for key, name in plane.names.events.items() if (phase := phase_map.of_pattern(name)) is not None}
        for line in plane.lines:
            wanted: dict[int, str] = {**ours}
            if line.name.startswith(REGION_LINE):
                wanted |= mapped
                regions.append(line.times)
            for index in line.carrying("step_num").tolist():
                steps[line.event_name(index)].append(_times(line, index))
            # XLA may name an operation after a phase; an operation says which module it belongs to, an annotation does not.
            named = line.named(wanted)
            operations = set(line.carrying("hlo_op").tolist()) if named else set()
            for index in named:
                if index not in operations:
                    phases[wanted[int(line.ids[index])]].append(_times(line, index))
    step_name, findings = _choose_step_name({name: len(found) for name, found in steps.items()})
    return Annotations(
        steps=_sorted(steps[step_name]) if step_name else EMPTY,
        phases={phase: _sorted(found) for phase, found in phases.items()},
        findings=findings,
        regions=outermost(np.concatenate(regions)),
    )


def _choose_step_name(counts: dict[str, int]) -> tuple[str | None, tuple[Finding, ...]]:
    if STEP_ANNOTATION in counts or not counts:
        return (STEP_ANNOTATION if counts else None), ()
    name, _ = Counter(counts).most_common(1)[0]
    message = f"steps are the annotations named {name!r}; ours ({STEP_ANNOTATION!r}) are not in this trace"
    return name, (
        Finding(code="foreign-steps", severity="info", message=message, hint="check that one of them is one decode step"),
    )


def _times(line: Line, index: int) -> tuple[int, int]:
    return int(line.times[index, 0]), int(line.times[index, 1])


def _sorted(found: list[tuple[int, int]]) -> Intervals:
    return np.array(sorted(found), np.int64) if found else EMPTY
