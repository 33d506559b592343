"""The wire format of a compiled program, as captures keep it.

A program (HLO module) is a list of computations, a computation a list of instructions. An instruction names its operation, the
shape of its result, its operands by number, and, as metadata, the path of named scopes in the source that it came from.

Field numbers are those of `hlo.proto` and `xla_data.proto` (openxla/xla).
"""

from functools import cache
from typing import Any

from .protobuf_schema import BYTES, INT, Field, build_messages

_MESSAGES: dict[str, tuple[Field, ...]] = {
    "HloProto": (("module", 1, "Module", False),),
    "Module": (("name", 1, BYTES, False), ("computations", 3, "Computation", True), ("entry_id", 6, INT, False)),
    "Computation": (("instructions", 2, "Instruction", True), ("id", 5, INT, False), ("root_id", 6, INT, False)),
    "Instruction": (
        ("name", 1, BYTES, False),
        ("opcode", 2, BYTES, False),
        ("shape", 3, "Shape", False),
        ("metadata", 7, "Metadata", False),
        ("parameter_number", 9, INT, False),
        ("window", 15, "Window", False),
        ("convolution", 16, "Convolution", False),
        ("custom_call_target", 28, BYTES, False),
        ("dot", 30, "Dot", False),
        ("id", 35, INT, False),
        ("operand_ids", 36, INT, True),
        ("called_ids", 38, INT, True),
        ("backend_config", 43, BYTES, False),
    ),
    "Shape": (("element_type", 2, INT, False), ("dimensions", 3, INT, True), ("tuple_shapes", 4, "Shape", True)),
    "Metadata": (("op_name", 2, BYTES, False),),
    "Dot": (("lhs_contracting", 1, INT, True),),
    "Window": (("dimensions", 1, "WindowDimension", True),),
    "WindowDimension": (("size", 1, INT, False),),
    "Convolution": (("kernel_input_feature", 3, INT, False), ("kernel_output_feature", 4, INT, False)),
}


@cache
def program_types() -> dict[str, Any]:
    """Message classes `HloProto`, `Module`, `Computation`, `Instruction`, … by name."""
    return build_messages("perf.program", _MESSAGES)
