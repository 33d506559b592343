"""The wire format of an XSpace, the file a JAX profile is kept in.

XSpace → planes (a host or a device) → lines (a thread, a stream, a hardware queue) → events (a start and a length in
picoseconds). Names are stored once per plane and referred to by number, so a reader that stays with the numbers touches a
few integers per event. Planes, lines and events are declared here as plain bytes: planes and lines are
parsed one at a time, events in bulk (`wire`). No field holds text that must be valid UTF-8 before anyone looks at it.

Field numbers are those of `xplane.proto` (openxla/xla, xla/tsl/profiler/protobuf).
"""

from functools import cache
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_FIELD = descriptor_pb2.FieldDescriptorProto
_INT, _UINT, _DOUBLE, _BYTES = _FIELD.TYPE_INT64, _FIELD.TYPE_UINT64, _FIELD.TYPE_DOUBLE, _FIELD.TYPE_BYTES
_PACKAGE = "perf.xplane"

_MESSAGES: dict[str, tuple[tuple[str, int, Any, bool], ...]] = {
    "Space": (("planes", 1, _BYTES, True), ("errors", 2, _BYTES, True), ("warnings", 3, _BYTES, True)),
    "Plane": (
        ("name", 2, _BYTES, False),
        ("lines", 3, _BYTES, True),
        ("event_metadata", 4, "EventEntry", True),
        ("stat_metadata", 5, "StatEntry", True),
        ("stats", 6, "Stat", True),
    ),
    "EventEntry": (("key", 1, _INT, False), ("value", 2, "EventMetadata", False)),
    "StatEntry": (("key", 1, _INT, False), ("value", 2, "StatMetadata", False)),
    "EventMetadata": (("name", 2, _BYTES, False), ("stats", 5, "Stat", True)),
    "StatMetadata": (("name", 2, _BYTES, False),),
    "Line": (("name", 2, _BYTES, False), ("timestamp_ns", 3, _INT, False), ("events", 4, _BYTES, True)),
    "Event": (
        ("metadata_id", 1, _INT, False),
        ("offset_ps", 2, _INT, False),
        ("duration_ps", 3, _INT, False),
        ("stats", 4, "Stat", True),
    ),
    "Stat": (
        ("metadata_id", 1, _INT, False),
        ("double_value", 2, _DOUBLE, False),
        ("uint64_value", 3, _UINT, False),
        ("int64_value", 4, _INT, False),
        ("str_value", 5, _BYTES, False),
        ("bytes_value", 6, _BYTES, False),
        ("ref_value", 7, _UINT, False),
    ),
}


@cache
def message_types() -> dict[str, Any]:
    """Message classes `Space`, `Plane`, `Line`, `Event`, `Stat` by name."""
    file = descriptor_pb2.FileDescriptorProto(name="perf/xplane.proto", package=_PACKAGE, syntax="proto3")
    for message_name, fields in _MESSAGES.items():
        message = file.message_type.add(name=message_name)
        if message_name == "Stat":
            message.oneof_decl.add(name="value")
        for name, number, kind, repeated in fields:
            field = message.field.add(
                name=name, number=number, label=_FIELD.LABEL_REPEATED if repeated else _FIELD.LABEL_OPTIONAL
            )
            if isinstance(kind, str):
                field.type, field.type_name = _FIELD.TYPE_MESSAGE, f".{_PACKAGE}.{kind}"
            else:
                field.type = kind
            if message_name == "Stat" and number > 1:
                field.oneof_index = 0
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}")) for name in _MESSAGES}
