"""Message classes from a table of field numbers, for the few fields of a large protobuf format that are read here.

A protobuf reader skips what it does not know, so a table of the fields in use is a whole schema: no generated code, and no
dependency on the package that owns the format. Text is declared as bytes, because proto3 refuses a whole message for one damaged
letter in it.
"""

from collections.abc import Mapping
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_FIELD = descriptor_pb2.FieldDescriptorProto
INT, UINT, DOUBLE, BYTES = _FIELD.TYPE_INT64, _FIELD.TYPE_UINT64, _FIELD.TYPE_DOUBLE, _FIELD.TYPE_BYTES

Field = tuple[str, int, Any, bool]
"""Name, number, type (one of the above, or a message's name), repeated."""


def build_messages(
    package: str, messages: Mapping[str, tuple[Field, ...]], oneofs: Mapping[str, int] | None = None
) -> dict[str, Any]:
    """Message classes by name.

    Arguments: `oneofs`, message → field number above which its fields exclude each other.
    """
    file = descriptor_pb2.FileDescriptorProto(name=f"{package.replace('.', '/')}.proto", package=package, syntax="proto3")
    for message_name, fields in messages.items():
        message = file.message_type.add(name=message_name)
        first_exclusive = (oneofs or {}).get(message_name)
        if first_exclusive is not None:
            message.oneof_decl.add(name="value")
        for name, number, kind, repeated in fields:
            field = message.field.add(
                name=name, number=number, label=_FIELD.LABEL_REPEATED if repeated else _FIELD.LABEL_OPTIONAL
            )
            if isinstance(kind, str):
                field.type, field.type_name = _FIELD.TYPE_MESSAGE, f".{package}.{kind}"
            else:
                field.type = kind
            if first_exclusive is not None and number > first_exclusive:
                field.oneof_index = 0
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}")) for name in messages}
