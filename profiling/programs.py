"""The compiled programs inside a capture: which source scope an operation came from, how many FLOP it does, how many bytes it moves.

A capture with HLO holds every program as the compiler left it. An operation of the trace (a kernel, a thunk) is an instruction
there. Its FLOP are those of the products and arithmetic in it, fused ones included (a dot does 2 · results · contracted length);
its bytes are its operands and its results, once each, for what happens inside a fusion stays on the chip. A slice read from a large
operand counts as the slice, an update in place as what it writes. These are XLA's own conventions (`HloCostAnalysis`). A call of
an opaque kernel whose work the program does not state has no FLOP here, which is not the same as none.
"""

import json
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from google.protobuf.message import DecodeError

from .program_schema import program_types
from .xplane import Space

CONTROL = frozenset({"while", "conditional", "call", "async-start", "async-update", "async-done"})
"""Operations whose work is that of the operations they run, which have events of their own."""

_FREE = CONTROL | {
    "copy-start",
    "parameter",
    "constant",
    "tuple",
    "get-tuple-element",
    "bitcast",
    "after-all",
    "partition-id",
    "replica-id",
}
_ARITHMETIC = frozenset({"add", "subtract", "multiply", "divide", "maximum", "minimum", "negate", "abs"})
_READS_PART = frozenset({"dynamic-slice", "slice", "gather"})
_OPAQUE = re.compile(r"gemm|matmul|dot|conv|attention|fmha|cudnn|cublas|triton|mosaic|tpu_custom_call|onednn", re.IGNORECASE)
_NAME = re.compile(r"(?P<module>.*)\((?P<program>\d+)\)")
_BITS = {
    1: 8, 2: 8, 3: 16, 4: 32, 5: 64, 6: 8, 7: 16, 8: 32, 9: 64, 10: 16, 11: 32, 12: 64, 15: 64, 16: 16, 18: 128, 19: 8, 20: 8,
    21: 4, 22: 4, 23: 8, 24: 8, 25: 8, 26: 2, 27: 2, 28: 8, 29: 8, 30: 1, 31: 1, 32: 4, 33: 8,
}  # fmt: skip
"""Bits per element by XLA's number for a type; types without data (token, opaque) are absent."""
_FLOATS = frozenset({10, 11, 12, 15, 16, 18, 19, 20, 23, 24, 25, 28, 29, 32, 33})


@dataclass(frozen=True, slots=True)
class Operation:
    """One instruction as the trace shows it: its scope path, FLOP (None: not stated) and bytes of one execution."""

    scope: str
    flops: float | None
    num_bytes: float
    is_control: bool


class Programs:
    """The programs of a capture, decoded when first asked for."""

    def __init__(self, encoded: dict[str, bytes]) -> None:
        self._encoded = encoded
        self._by_number: dict[str, str] = {}
        self._by_module: dict[str, list[str]] = {}
        for name in encoded:
            match = _NAME.fullmatch(name)
            self._by_module.setdefault(match["module"] if match else name, []).append(name)
            if match:
                self._by_number[match["program"]] = name
        self._decoded: dict[str, dict[str, Operation]] = {}

    def __len__(self) -> int:
        return len(self._encoded)

    def operations(self, module: object, program: object = None) -> dict[str, Operation]:
        """Operation name → what the program says of it; nothing when the program is not in the capture, or is ambiguous."""
        name = self._by_number.get(str(program))
        if name is None:
            candidates = [str(module)] if str(module) in self._encoded else self._by_module.get(str(module), [])
            name = candidates[0] if len(candidates) == 1 else None
        if name is None:
            return {}
        if name not in self._decoded:
            self._decoded[name] = decode_program(self._encoded[name])
        return self._decoded[name]


def read_programs(space: Space) -> Programs:
    """The programs in the capture's metadata planes; none where it was recorded without HLO."""
    encoded = {}
    for plane in space.planes:
        for key, stats in plane.names.shared.items():
            # Writers have spelled the stat both ways.
            proto = next((value for name, value in stats.items() if name.lower().replace(" ", "_") == "hlo_proto"), None)
            if isinstance(proto, bytes) and proto:
                encoded[plane.names.events.get(key, "")] = proto
    return Programs(encoded)


def decode_program(encoded: bytes) -> dict[str, Operation]:
    """Operations of all computations that run as such (not inside a fusion); nothing for a damaged program."""
    try:
        return _Module(program_types()["HloProto"].FromString(encoded).module).operations()
    except (DecodeError, UnicodeDecodeError, RecursionError):  # an opcode that is no text, a computation that calls itself
        return {}


class _Module:
    """One program under evaluation."""

    def __init__(self, module: Any) -> None:
        self.computations = {computation.id: computation for computation in module.computations}
        instructions = [one for computation in module.computations for one in computation.instructions]
        self.instructions = {one.id: one for one in instructions}
        self._calls = [one for one in instructions if one.called_ids]

    @cached_property
    def inner(self) -> frozenset[int]:
        """Computations that run inside an operation: bodies of fusions, reducers, comparators, and what these call."""
        found: set[int] = set()
        pending = [number for one in self._calls if one.opcode.decode() not in CONTROL for number in one.called_ids]
        while pending:
            number = pending.pop()
            if number in found or number not in self.computations:
                continue
            found.add(number)
            pending += [called for one in self.computations[number].instructions for called in one.called_ids]
        return frozenset(found)

    def operations(self) -> dict[str, Operation]:
        return {
            one.name.decode("utf-8", "replace"): Operation(
                scope=self.scope(one),
                flops=self.flops(one),
                num_bytes=self.num_bytes(one),
                is_control=one.opcode.decode() in CONTROL,
            )
            for number, computation in self.computations.items()
            if number not in self.inner
            for one in computation.instructions
        }

    def scope(self, one: Any) -> str:
        """Scope path of an instruction; a fusion without one has that of what it computes."""
        path = one.metadata.op_name.decode("utf-8", "replace")
        if path or not one.called_ids or one.opcode != b"fusion":
            return path
        root = self.root(one)
        return self.scope(root) if root is not None else ""

    def root(self, one: Any) -> Any:
        computation = self.computations.get(one.called_ids[0])
        return None if computation is None else self.instructions.get(computation.root_id)

    def operands(self, one: Any) -> list[Any]:
        return [self.instructions[number] for number in one.operand_ids if number in self.instructions]

    def flops(self, one: Any) -> float | None:
        """FLOP of one execution, what it fuses included; None when an opaque kernel does not say."""
        opcode = one.opcode.decode()
        if opcode in _FREE:
            return 0.0
        if opcode == "dot":
            return self._dot(one, one.dot.lhs_contracting)
        if opcode == "convolution":
            return self._convolution(one)
        if opcode == "custom-call":
            return self._custom_call(one)
        if opcode == "fusion":
            body = self.computations.get(one.called_ids[0]) if one.called_ids else None
            return None if body is None else _sum(self.flops(inside) for inside in body.instructions)
        if opcode in ("reduce", "reduce-window"):
            return float(max(sum(_elements(operand.shape) for operand in self.operands(one)) - _elements(one.shape), 0))
        if opcode in _ARITHMETIC and one.shape.element_type in _FLOATS:
            return float(_elements(one.shape))
        return 0.0

    def _dot(self, one: Any, contracting: Iterable[int]) -> float | None:
        operands = self.operands(one)
        if not operands:
            return None
        lengths = operands[0].shape.dimensions
        return 2.0 * _elements(_first(one.shape)) * math.prod(lengths[axis] for axis in contracting if axis < len(lengths))

    def _convolution(self, one: Any) -> float | None:
        operands = self.operands(one)
        axis = one.convolution.kernel_output_feature
        if len(operands) < 2 or axis >= len(operands[1].shape.dimensions):
            return None
        kernel = operands[1].shape
        return 2.0 * _elements(_first(one.shape)) * _elements(kernel) / max(kernel.dimensions[axis], 1)

    def _custom_call(self, one: Any) -> float | None:
        target = one.custom_call_target.decode("utf-8", "replace")
        if target.startswith("__cudnn$convForward"):
            return self._convolution(one)
        if target.startswith("__cublas$"):
            contracting = _contracting(one.backend_config)
            return None if contracting is None else self._dot(one, contracting)
        return None if _OPAQUE.search(target) else 0.0

    def num_bytes(self, one: Any) -> float:
        """Bytes of one execution: operands and results, parts where only parts are touched."""
        opcode = one.opcode.decode()
        if opcode in _FREE:
            return 0.0
        operands = self.operands(one)
        if opcode in _READS_PART or opcode == "copy-done":
            return 2.0 * _size(one.shape)
        if opcode == "dynamic-update-slice" and len(operands) > 1:
            return 2.0 * _size(operands[1].shape)
        body = self.computations.get(one.called_ids[0]) if opcode == "fusion" and one.called_ids else None
        if body is None:
            return sum(_size(operand.shape) for operand in operands) + _size(one.shape)
        return self._read(body) + self._written(self.instructions.get(body.root_id), one)

    def _read(self, body: Any) -> float:
        total = 0.0
        for parameter in body.instructions:
            if parameter.opcode != b"parameter":
                continue
            parts = [self._part(user, parameter) for user in body.instructions if parameter.id in user.operand_ids]
            whole = _size(parameter.shape)
            total += min(whole, sum(whole if part is None else part for part in parts))
        return total

    def _part(self, user: Any, parameter: Any) -> float | None:
        """What a user reads of a parameter; None for all of it."""
        first = len(user.operand_ids) and user.operand_ids[0] == parameter.id
        if first and user.opcode.decode() in _READS_PART:
            return _size(user.shape)
        return 0.0 if first and user.opcode == b"dynamic-update-slice" else None

    def _written(self, root: Any, fusion: Any) -> float:
        if root is None:
            return _size(fusion.shape)
        if root.opcode == b"tuple":
            return sum(self._written(part, part) for part in self.operands(root))
        operands = self.operands(root)
        if root.opcode == b"bitcast" and operands:
            return self._written(operands[0], operands[0])
        if root.opcode == b"dynamic-update-slice" and len(operands) > 1:
            return _size(operands[1].shape)
        return _size(root.shape)


def _contracting(backend_config: bytes) -> list[int] | None:
    try:
        config = json.loads(backend_config)["gemm_backend_config"]
        return [int(axis) for axis in config["dot_dimension_numbers"]["lhs_contracting_dimensions"]]
    except (ValueError, KeyError, TypeError):
        return None


def _sum(parts: Iterable[float | None]) -> float | None:
    total = 0.0
    for part in parts:
        if part is None:
            return None
        total += part
    return total


def _first(shape: Any) -> Any:
    return shape.tuple_shapes[0] if shape.tuple_shapes else shape


def _elements(shape: Any) -> int:
    if shape.tuple_shapes:
        return sum(_elements(part) for part in shape.tuple_shapes)
    return math.prod(shape.dimensions) if shape.element_type in _BITS else 0


def _size(shape: Any) -> float:
    if shape.tuple_shapes:
        return sum(_size(part) for part in shape.tuple_shapes)
    return math.prod(shape.dimensions) * _BITS.get(shape.element_type, 0) / 8
