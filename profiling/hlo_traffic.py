"""Bytes that one instruction moves across the memory bus.

An operand in main memory is read and a result in main memory is written; what lives in VMEM costs the bus nothing. Two things
make the sizes of the arrays wrong: an instruction that takes a slice, or gathers rows, reads only those, however large the array it is
given, and one that updates a slice in place writes only that. Both hide inside fusions, so a fusion's operands are followed to
where they are used. `bytes accessed` of XLA's own analysis counts on-chip traffic too and cannot be used for this.
"""

import functools
import re
from collections.abc import Callable

from .hlo import Computation, HloModule, Instruction
from .hlo_shapes import HBM, Buffer

FREE = frozenset(
    ("parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", "partition-id", "replica-id", "opt-barrier",
     "add-dependency")
)  # fmt: skip
"""Operations that name or regroup data without touching it."""

SLICING = frozenset(("slice", "dynamic-slice", "gather"))
"""Operations that read of their first operand only what they yield."""

UPDATING = {"dynamic-update-slice": 1, "scatter": 2}
"""Operations that change their first operand in place → which operand holds the new values."""

_SEE_THROUGH = frozenset(("bitcast", "reshape", "get-tuple-element", "opt-barrier"))

_ALIAS = re.compile(r"\{([\d, ]*)\}: \(\d+, \{")


class Traffic:
    """Bytes to and from main memory of a module's instructions."""

    def __init__(self, module: HloModule) -> None:
        self._module = module

    def instruction_bytes(self, where: Computation, instruction: Instruction) -> float:
        """Bytes the instruction itself moves; what runs inside its loops, branches and calls is not included."""
        opcode = instruction.opcode
        if opcode in FREE or opcode in ("while", "conditional", "call") or opcode.endswith(("-done", "-update")):
            return 0.0
        if opcode == "fusion":
            return self._fusion_bytes(where, instruction)
        if opcode == "copy-start":
            return sum(buffer.hbm_bytes for buffer in instruction.buffers[:2])
        if opcode.endswith("-start"):
            return self._start_bytes(where, instruction)
        if opcode in SLICING:
            return self._slice_bytes(where, instruction, instruction.buffers[0].num_elements) + _written(instruction)
        if opcode in UPDATING:
            update = self._operand(where, instruction, UPDATING[opcode])
            target = self._operand(where, instruction, 0)
            moved = update.hbm_bytes if update else 0.0
            return moved + (_part(target, update.num_elements) if target and update else 0.0)
        return self._reads(where, instruction) + self._results(where, instruction)

    def _reads(self, where: Computation, instruction: Instruction) -> float:
        names = dict.fromkeys(instruction.operands)
        return sum(buffer.hbm_bytes for name in names for buffer in _yield_of(where, name))

    def _results(self, where: Computation, instruction: Instruction) -> float:
        """Results written; one that shares its buffer with an operand counts as changed in part, by an unknown amount, so not."""
        shared = _aliased(instruction)
        return sum(buffer.hbm_bytes for place, buffer in enumerate(instruction.buffers) if place not in shared)

    def _start_bytes(self, where: Computation, instruction: Instruction) -> float:
        """An asynchronous operation: its shape is (operands, results, context); slices read only what they yield."""
        inner = self._module.computations.get(instruction.attribute("calls") or instruction.attribute("to_apply") or "")
        if inner is not None:
            return sum(self.instruction_bytes(inner, each) for each in inner.instructions)
        base = instruction.opcode.removesuffix("-start")
        num_operands = sum(len(_yield_of(where, name)) for name in instruction.operands)
        results = instruction.buffers[num_operands:] or instruction.buffers
        if base in SLICING:
            result = results[0]
            return self._slice_bytes(where, instruction, result.num_elements) + result.hbm_bytes
        return self._reads(where, instruction) + sum(buffer.hbm_bytes for buffer in results)

    def _slice_bytes(self, where: Computation, instruction: Instruction, num_elements: int) -> float:
        source = self._operand(where, instruction, 0)
        return _part(source, num_elements) if source else 0.0

    def _operand(self, where: Computation, instruction: Instruction, place: int) -> Buffer | None:
        found = _yield_of(where, instruction.operands[place]) if place < len(instruction.operands) else ()
        return found[0] if found else None

    def _fusion_bytes(self, where: Computation, instruction: Instruction) -> float:
        inner = self._module.computations[instruction.attribute("calls") or ""]
        read = 0.0
        for place, name in enumerate(instruction.operands):
            buffers = _yield_of(where, name)
            if name in instruction.operands[:place] or place not in inner.parameters:
                continue
            full = sum(buffer.hbm_bytes for buffer in buffers)
            if full:
                read += min(full, full * self._share_read(inner, inner.parameters[place].name))
        return read + self._fusion_writes(inner, instruction)

    def _share_read(self, where: Computation, name: str, escape: Callable[[], float] = lambda: 1.0) -> float:
        """Share of an array that its users inside a fusion read: 1 unless all of them slice, gather, or update it in place.

        `escape` is the share that is read once the array leaves this computation as its result.
        """
        total = escape() if where.root.name == name else 0.0
        size = sum(buffer.num_elements for buffer in where.by_name[name].buffers)
        for user, place in where.users.get(name, []):
            if user.opcode in SLICING:
                total += user.buffers[0].num_elements / size if place == 0 else 1.0
            elif user.opcode in UPDATING and place == 0:
                continue
            elif user.opcode in _SEE_THROUGH:
                total += self._share_read(where, user.name, escape)
            elif user.opcode == "fusion":
                inner = self._module.computations[user.attribute("calls") or ""]
                outward = functools.partial(self._share_read, where, user.name, escape)
                total += self._share_read(inner, inner.parameters[place].name, outward)
            else:
                return 1.0
            if total >= 1.0:
                return 1.0
        return total

    def _fusion_writes(self, inner: Computation, instruction: Instruction) -> float:
        roots = [inner.by_name[name] for name in inner.root.operands] if inner.root.opcode == "tuple" else [inner.root]
        if len(roots) != len(instruction.buffers):
            return _written(instruction)
        return sum(self._root_writes(inner, root, buffer) for root, buffer in zip(roots, instruction.buffers, strict=True))

    def _root_writes(self, inner: Computation, root: Instruction, result: Buffer) -> float:
        if result.space != HBM:
            return 0.0
        while root.opcode in _SEE_THROUGH and root.operands[0] in inner.by_name:
            root = inner.by_name[root.operands[0]]
        if root.opcode == "fusion":
            nested = self._module.computations[root.attribute("calls") or ""]
            return self._root_writes(nested, nested.root, result) if nested.root.opcode != "tuple" else result.num_bytes
        if root.opcode in UPDATING:
            update = self._operand(inner, root, UPDATING[root.opcode])
            return _part(result, update.num_elements) if update else result.num_bytes
        return result.num_bytes


def _yield_of(where: Computation, name: str) -> tuple[Buffer, ...]:
    return where.by_name[name].buffers if name in where.by_name else ()


def _written(instruction: Instruction) -> float:
    return sum(buffer.hbm_bytes for buffer in instruction.buffers)


def _part(buffer: Buffer, num_elements: int) -> float:
    """Bytes of so many elements of a buffer in main memory."""
    return buffer.hbm_bytes * min(1.0, num_elements / buffer.num_elements) if buffer.num_elements else 0.0


def _aliased(instruction: Instruction) -> set[int]:
    """Results that share an operand's buffer, by place."""
    return {int(place.split(",")[0] or 0) for place in _ALIAS.findall(instruction.attributes)}
