"""Phases of operations, by the program they belong to or, in a program that holds several phases, by their own source scope.

In the step-by-step loop every phase is a program of its own. The fused loop is one program: a `while` whose body drafts, verifies
and commits. There the operations carry the phase in their scope path, and the iterations have to be told apart by
the operations themselves: the body's operations recur once per iteration, so that one of them marks where an iteration begins.
"""

from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from perfmodel.phases import DRAFT, PREFILL, VERIFY

from .intervals import Lengths
from .phase_map import PhaseMap
from .programs import Operation, Programs
from .timeline import Execution


@dataclass(frozen=True, slots=True)
class Attribution:
    """The phase of an operation, and whether it comes from the operation's own scope (its program then holds several)."""

    phase: str | None
    by_scope: bool
    operation: Operation | None


NOTHING = Attribution(None, False, None)


class Attributor:
    """Looks up operations in the capture's programs; each (program, operation) once."""

    def __init__(self, phase_map: PhaseMap, programs: Programs) -> None:
        self._phase_map = phase_map
        self._programs = programs
        self._found: dict[tuple[object, object, str, str], Attribution] = {}

    def find(self, module: object, program: object, operation: str, scope: str = "") -> Attribution:
        """What is known of an operation. `scope` is its path where the trace itself carries one."""
        key = (module, program, operation, scope)
        if key not in self._found:
            self._found[key] = self._look_up(module, program, operation, scope)
        return self._found[key]

    def _look_up(self, module: object, program: object, operation: str, scope: str) -> Attribution:
        known = self._programs.operations(module, program).get(operation)
        phase = self._phase_map.of_module(str(module)) if module else None
        if phase is not None:
            return Attribution(phase, False, known)
        if known is not None and known.is_control:
            # Its events enclose those of the operations it runs, which may belong to several phases.
            return Attribution(None, False, known)
        phase = self._phase_map.of_scope(scope) or (self._phase_map.of_scope(known.scope) if known else None)
        return Attribution(phase, phase is not None, known)


def scoped_executions(
    phases: Sequence[str | None], names: Sequence[Hashable], runs: Sequence[Hashable], starts: Lengths
) -> list[Execution]:
    """The execution of a phase that each operation belongs to, for programs that hold several phases.

    Arguments: per operation its phase (None: of none), its name, the run of the program it belongs to, and its start, ps.
    """
    members: dict[Hashable, list[int]] = defaultdict(list)
    for index, phase in enumerate(phases):
        if phase is not None:
            members[runs[index]].append(index)
    executions: list[Execution] = [None] * len(phases)
    for run, indices in members.items():
        marks = _iteration_starts(indices, phases, names, starts)
        iterations = np.maximum(np.searchsorted(marks, starts[indices], side="right") - 1, 0).tolist()
        for index, iteration in zip(indices, iterations, strict=True):
            executions[index] = (phases[index], "scope", run, 0 if phases[index] == PREFILL else iteration)
    return executions


def _iteration_starts(indices: list[int], phases: Sequence[str | None], names: Sequence[Hashable], starts: Lengths) -> Lengths:
    """Starts of the operation that marks an iteration, in order.

    Among the first phase's operations those that ran least often ran once per iteration (others lie in inner loops); the
    earliest of these marks it.
    """
    present = {phases[index] for index in indices}
    first = next((phase for phase in (DRAFT, VERIFY) if phase in present), None)
    candidates = [index for index in indices if first is None or phases[index] == first]
    counts = Counter(names[index] for index in candidates)
    fewest = min(counts.values())
    marker = names[min((index for index in candidates if counts[names[index]] == fewest), key=lambda index: int(starts[index]))]
    return np.sort(starts[[index for index in candidates if names[index] == marker]])
