"""The wire format of an XSpace, the file a JAX profile is kept in.

XSpace → planes (a host or a device) → lines (a thread, a stream, a hardware queue) → events (a start and a length in
picoseconds). Names are stored once per plane and referred to by number, so a reader that stays with the numbers touches a
few integers per event. Planes, lines and events are declared here as plain bytes: planes and lines are
parsed one at a time, events in bulk (`wire`). No field holds text that must be valid UTF-8 before anyone looks at it.

Field numbers are those of `xplane.proto` (openxla/xla, xla/tsl/profiler/protobuf).
"""

from functools import cache
from typing import Any

from .protobuf_schema import BYTES as _BYTES
from .protobuf_schema import DOUBLE as _DOUBLE
from .protobuf_schema import INT as _INT
from .protobuf_schema import UINT as _UINT
from .protobuf_schema import Field, build_messages

_MESSAGES: dict[str, tuple[Field, ...]] = {
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
    return build_messages("perf.xplane", _MESSAGES, oneofs={"Stat": 1})
