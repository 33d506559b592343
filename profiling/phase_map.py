"""Which phase a name in a trace stands for.

Our own programs are jitted functions named after their phase, so their modules are called `jit_draft`, `jit_verify`, … . In the
fused loop one program holds all phases, and each operation says by its path of scopes which it belongs to. Another engine's trace has
names of its own; patterns map those.
"""

import re
from collections.abc import Mapping

from perfmodel.errors import InputError
from perfmodel.phases import PHASES

_MODULE = re.compile(r"^(?:pjit_|jit_)?(?P<function>.*?)(?:\(\d+\))?$")


class PhaseMap:
    """Names → phases: the given regular expressions first, in their order, then our own names.

    Raises `InputError` for an unknown phase or an expression that does not compile.
    """

    def __init__(self, patterns: Mapping[str, str]) -> None:
        compiled = []
        for phase, pattern in patterns.items():
            if phase not in PHASES:
                raise InputError(f"{phase!r} is not a phase", f"the phases are {', '.join(PHASES)}")
            try:
                compiled.append((phase, re.compile(pattern)))
            except re.error as error:
                message = f"the pattern for {phase}, {pattern!r}, is not a regular expression: {error}"
                raise InputError(message, "write \\( for a bracket") from error
        self._patterns = tuple(compiled)

    def of_module(self, module: str) -> str | None:
        """Phase of a compiled module, as `jit_verify(1234)`; None when it is none of ours."""
        match = _MODULE.match(module)
        function = match["function"] if match else module
        return self.of_pattern(module) or (function if function in PHASES else None)

    def of_scope(self, path: str) -> str | None:
        """Phase of an operation by the path of source scopes it came from, as `jit(loop)/while/body/verify/dot_general`."""
        return self.of_pattern(path) or next((name for part in path.split("/") if (name := _unwrapped(part)) in PHASES), None)

    def of_pattern(self, name: str) -> str | None:
        """Phase by the given expressions alone, as for kernel names."""
        return next((phase for phase, pattern in self._patterns if pattern.search(name)), None)


def _unwrapped(part: str) -> str:
    """The function's name inside what JAX wraps around it: `jit(verify)` → `verify`."""
    return part.rpartition("(")[2].rstrip(")")


def module_name(module: str) -> str:
    """The module without the fingerprint that some devices add: `jit_f(12)` → `jit_f`."""
    return re.sub(r"\(\d+\)$", "", module)
