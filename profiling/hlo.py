"""Compiled HLO text as instructions: what runs, in the order it was scheduled, in which computation.

XLA prints the program it will run: one entry computation and the bodies of its loops, branches and fusions. `is_scheduled=true`
means that the order of the lines is the order of execution, so asynchronous copies can be followed from start to done. Only what
the accounting needs is kept of each line: name, shape, operation, operands and the attributes' text.
"""

import re
from dataclasses import dataclass, field
from functools import cached_property

from perfmodel.errors import InputError

from .hlo_shapes import Buffer, parse_buffers

_COMMENT = re.compile(r"/\*.*?\*/")
_HEAD = re.compile(r"^(?:ENTRY )?%?(?P<name>[^\s(]+) \(.*\) -> .* \{$")
_LINE = re.compile(r"^\s+(?P<root>ROOT )?%(?P<name>[^\s=]+) = (?P<rest>.*)$")
_CYCLES = re.compile(r'"estimated_cycles":"?(\d+)')
_OP_NAME = re.compile(r'op_name="([^"]*)"')
_BODY = re.compile(r'"body":"[^"]*"')

NO_ESTIMATE = 1 << 60
"""The compiler writes the largest integer where its cost model gives up; anything near it is no estimate."""


@dataclass(frozen=True)
class Instruction:
    """One line of a computation."""

    name: str
    shape: str
    opcode: str
    operands: tuple[str, ...]
    literal: str
    attributes: str
    is_root: bool = False

    @cached_property
    def buffers(self) -> tuple[Buffer, ...]:
        """The arrays it yields."""
        return parse_buffers(self.shape)

    @cached_property
    def cycles(self) -> int | None:
        """The compiler's estimate, cycles; None where it makes none."""
        found = _CYCLES.search(self.attributes)
        return None if found is None or int(found[1]) >= NO_ESTIMATE else int(found[1])

    @cached_property
    def op_name(self) -> str:
        """Where it came from: the path of function names, scopes and the primitive; empty where the compiler added it."""
        found = _OP_NAME.search(self.attributes)
        return found[1] if found else ""

    def attribute(self, name: str) -> str | None:
        """An attribute that names another computation or a plain word, as `calls=%fused`; None where it has none."""
        found = re.search(rf'(?:^|[ ,]){name}="?%?([^\s,"}}]+)', self.attributes)
        return found[1] if found else None

    def names(self, attribute: str) -> tuple[str, ...]:
        """The computations in a list attribute, as `branch_computations={%a, %b}`."""
        found = re.search(rf"(?:^|[ ,]){attribute}=\{{([^}}]*)\}}", self.attributes)
        return tuple(part.strip().lstrip("%") for part in found[1].split(",")) if found else ()


@dataclass(frozen=True)
class Computation:
    """Instructions in scheduled order, by name too."""

    name: str
    instructions: tuple[Instruction, ...]
    by_name: dict[str, Instruction] = field(repr=False)

    @cached_property
    def users(self) -> dict[str, list[tuple[Instruction, int]]]:
        """Instruction name → who reads it, and as which operand."""
        found: dict[str, list[tuple[Instruction, int]]] = {}
        for instruction in self.instructions:
            for place, operand in enumerate(instruction.operands):
                found.setdefault(operand, []).append((instruction, place))
        return found

    @cached_property
    def parameters(self) -> dict[int, Instruction]:
        """Parameter number → its instruction."""
        return {int(each.literal): each for each in self.instructions if each.opcode == "parameter"}

    @property
    def root(self) -> Instruction:
        """What it yields."""
        return next((each for each in self.instructions if each.is_root), self.instructions[-1])


@dataclass(frozen=True)
class HloModule:
    """A compiled program: its computations and which one runs first."""

    computations: dict[str, Computation]
    entry: str


def parse_module(text: str) -> HloModule:
    """The program in the text of `compiled.as_text()`. Raises `InputError` when it is none, or is not scheduled."""
    if "is_scheduled=true" not in text[:4000]:
        raise InputError("this HLO is not scheduled, so its order says nothing", "give the text of a compiled program")
    computations: dict[str, Computation] = {}
    entry, name = "", ""
    lines: list[str] = []
    for line in text.splitlines():
        head = _HEAD.match(line)
        if head:
            name, lines = head["name"], []
            entry = name if line.startswith("ENTRY ") else entry
        elif line.startswith("}") and name:
            computations[name] = _computation(name, lines)
            name = ""
        elif name:
            lines.append(line)
    if not entry:
        raise InputError("this HLO has no entry computation", "give the text of a compiled program")
    return HloModule(computations, entry)


def without_kernels(text: str) -> str:
    """The text without the binary bodies of its kernels, which can be most of it."""
    return _BODY.sub('"body":""', text)


def _computation(name: str, lines: list[str]) -> Computation:
    instructions = tuple(found for found in map(_instruction, lines) if found is not None)
    return Computation(name, instructions, {each.name: each for each in instructions})


def _instruction(line: str) -> Instruction | None:
    match = _LINE.match(_COMMENT.sub("", line))
    if match is None:
        return None
    rest = match["rest"]
    end = _closing(rest, 0) + 1 if rest.startswith("(") else rest.index(" ")
    shape, rest = rest[:end], rest[end:].lstrip()
    opens = rest.index("(")
    closes = _closing(rest, opens)
    inner = rest[opens + 1 : closes]
    operands = tuple(part.strip().split(" ")[-1].lstrip("%") for part in _split(inner) if "%" in part)
    return Instruction(
        name=match["name"],
        shape=shape,
        opcode=rest[:opens],
        operands=operands,
        literal=inner,
        attributes=rest[closes + 1 :],
        is_root=match["root"] is not None,
    )


def _closing(text: str, opens: int) -> int:
    """Where the bracket that opens at `opens` closes."""
    depth = 0
    for place in range(opens, len(text)):
        if text[place] == "(":
            depth += 1
        elif text[place] == ")":
            depth -= 1
            if depth == 0:
                return place
    raise InputError(f"an unclosed bracket in HLO: {text[:80]!r}", "the text may be cut off")


def _split(text: str) -> list[str]:
    """The parts between commas that are not inside brackets."""
    parts, depth, start = [], 0, 0
    for place, character in enumerate(text):
        if character in "([{":
            depth += 1
        elif character in ")]}":
            depth -= 1
        elif character == "," and depth == 0:
            parts.append(text[start:place])
            start = place + 1
    return [*parts, text[start:]] if text.strip() else []
