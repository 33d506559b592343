"""Protobuf messages decoded in bulk: a few million small messages as columns instead of as objects.

A trace of 100 MB holds millions of events of some thirty bytes. Making an object of each costs more than everything done with
them afterwards. Here all messages of one kind advance together, one field per round, with NumPy doing the arithmetic: the number
of rounds is the number of fields of the longest message, not the number of messages.

Wire format: protobuf's encoding guide (a field is a tag, `number << 3 | wire type`, and a value; integers are base-128 varints).
"""

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int64, UInt8, UInt64

Bytes = UInt8[np.ndarray, " _"]
Indices = Int64[np.ndarray, " _"]
Words = UInt64[np.ndarray, " _"]
Extents = Int64[np.ndarray, "_ 2"]
"""Begin and end of messages in a buffer."""

VARINT, FIXED64, DELIMITED, FIXED32 = 0, 1, 2, 5
_PADDING = 32
"""Bytes after the last message, so that looking ahead from a damaged one stays inside the buffer."""


@dataclass(frozen=True, slots=True)
class Fields:
    """One field of each of some messages: which message, field number, wire type, and the value.

    `values` holds an integer, the bits of a fixed-width number, or the length of a delimited field that begins at `starts`.
    """

    messages: Indices
    numbers: Indices
    wire_types: Indices
    values: Words
    starts: Indices


def buffer(messages: Sequence[bytes]) -> Bytes:
    """Messages, one after the other, ready to be decoded."""
    return np.frombuffer(b"".join((*messages, bytes(_PADDING))), np.uint8)


def split(data: Bytes, start: int, end: int, number: int) -> tuple[Extents, bytes]:
    """Where the contents of one message's delimited fields of this number (below 16) lie, and the message without these fields.

    Nothing is copied but the remainder, so taking a large message apart takes no second large piece of memory. Raises `ValueError`
    when the message is cut off or not a message.
    """
    view, tag = data.data, number << 3 | DELIMITED
    begins, ends, rest = array("q"), array("q"), bytearray()
    at = start
    while at < end:
        if view[at] == tag:
            length, at = view[at + 1], at + 2
            if length >= 0x80:
                length, at = _varint(view, at - 1)
                if length > end:  # before it overflows a column
                    raise ValueError("a field is longer than its message")
            begins.append(at)
            at += length
            ends.append(at)
        else:
            after = _after_field(view, at)
            rest += view[at:after]
            at = after
    if at > end:
        raise ValueError("a message is cut off")
    return np.stack((np.array(begins, np.int64), np.array(ends, np.int64)), axis=1), bytes(rest)


def _after_field(view: memoryview, at: int) -> int:
    tag, at = _varint(view, at)
    wire_type = tag & 7
    if wire_type == DELIMITED:
        length, at = _varint(view, at)
        return at + length
    if wire_type == VARINT:
        return _varint(view, at)[1]
    if wire_type not in (FIXED64, FIXED32):
        raise ValueError("a field has a wire type that no longer exists")
    return at + (8 if wire_type == FIXED64 else 4)


def _varint(view: memoryview, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = view[at]
        value, at = value | (byte & 0x7F) << shift, at + 1
        if byte < 0x80:
            return value, at
    raise ValueError("a varint does not end")


def read_fields(data: Bytes, starts: Indices, ends: Indices) -> Iterator[Fields]:
    """The fields of the messages that lie at `[start, end)`, one per message and round, in the order they are stored.

    Raises `ValueError` for a message that is cut off or not a message.
    """
    messages = np.flatnonzero(starts < ends)
    at = starts[messages]
    while len(messages):
        tags, at = read_varints(data, at)
        wire_types = (tags & np.uint64(7)).astype(np.int64)
        values, after = _read_values(data, at, wire_types)
        if (values[wire_types == DELIMITED] > len(data)).any():
            raise ValueError("a field is longer than its message")
        yield Fields(messages, (tags >> np.uint64(3)).astype(np.int64), wire_types, values, after)
        at = np.where(wire_types == DELIMITED, after + values.astype(np.int64), after)
        limits = ends[messages]
        if (at > limits).any():
            raise ValueError("a message is cut off")
        more = at < limits
        messages, at = messages[more], at[more]


def read_varints(data: Bytes, at: Indices) -> tuple[Words, Indices]:
    """The varint at each position, and the position after it. Raises `ValueError` for one longer than ten bytes."""
    first = data[at]
    values = (first & 0x7F).astype(np.uint64)
    after = at + 1
    pending = np.flatnonzero(first >= 0x80)
    for shift in range(7, 70, 7):
        if len(pending) == 0:
            return values, after
        byte = data[after[pending]]
        values[pending] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
        after[pending] += 1
        pending = pending[byte >= 0x80]
    if len(pending):
        raise ValueError("a varint does not end")
    return values, after


def _read_values(data: Bytes, at: Indices, wire_types: Indices) -> tuple[Words, Indices]:
    integers = (wire_types == VARINT) | (wire_types == DELIMITED)
    if integers.all():
        return read_varints(data, at)
    values, after = np.zeros(len(at), np.uint64), at.copy()
    values[integers], after[integers] = read_varints(data, at[integers])
    for wire_type, width in ((FIXED64, 8), (FIXED32, 4)):
        chosen = wire_types == wire_type
        octets = data[at[chosen, None] + np.arange(width)]
        values[chosen] = octets.copy().view(f"<u{width}")[:, 0]
        after[chosen] += width
        integers = integers | chosen
    if not integers.all():
        raise ValueError("a field has a wire type that no longer exists")
    return values, after
