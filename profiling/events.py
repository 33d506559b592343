"""Events of a line as columns: name id, start, length, and the stats that each carries."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Int32, UInt8

from .intervals import Intervals, Lengths
from .wire import DELIMITED, Bytes, Extents, Words, buffer, read_fields

Numbers = Int32[np.ndarray, " _"]
Kinds = UInt8[np.ndarray, " _"]

CHUNK_EVENTS = 1 << 15
"""Events decoded together."""

MAX_PS = 1 << 62
"""No capture lasts as long (53 days), and the sum of two such times still fits its column."""

StatValue = int | float | str | bytes

_ID, _OFFSET, _DURATION, _STATS = 1, 2, 3, 4
_DOUBLE, _UINT, _INT, _STRING, _BYTES, _REFERENCE = 2, 3, 4, 5, 6, 7


@dataclass(frozen=True, slots=True)
class Stats:
    """One entry per stat of an event, in order: the index of its event, which stat, the kind of value, and the value.

    For text the value is a length and `starts` the place in `data`; for a double it is the bits; a reference is a stat id.
    """

    owners: Numbers
    ids: Numbers
    kinds: Kinds
    values: Words
    starts: Numbers
    data: Bytes

    COLUMNS: ClassVar = ("owners", "ids", "kinds", "values", "starts")

    @classmethod
    def of(cls, owners: Lengths, ids: Lengths, kinds: Lengths, values: Words, starts: Lengths, data: Bytes) -> "Stats":
        """Stats in compact columns: a capture has several for every event. Raises `ValueError` for a number beyond 31 bits."""
        return cls(_numbers(owners), _numbers(ids), kinds.astype(np.uint8), values, _numbers(starts), data)

    @classmethod
    def references(cls, owners: Lengths, ids: Lengths, values: Lengths) -> "Stats":
        """Stats whose values are all references to stat names."""
        kinds = np.full(len(owners), _REFERENCE, np.int64)
        return cls.of(owners, ids, kinds, values.astype(np.uint64), np.zeros(len(owners), np.int64), buffer(()))

    def distinct(self, positions: Lengths) -> tuple[Lengths, Lengths]:
        """Numbers of the values at these positions, equal for equal values, and where among them each first stands."""
        kinds, values = self.kinds[positions], self.values[positions]
        text = (kinds == _STRING) | (kinds == _BYTES)
        if text.any():
            # The column holds lengths of text, not the text.
            known: dict[object, int] = {}
            numbers = [known.setdefault((int(self.kinds[at]), self.decode(at, {})), len(known)) for at in positions.tolist()]
            values = np.array(numbers, np.uint64)
        elif len(kinds) and (kinds != kinds[0]).any():
            values = np.unique(np.stack((kinds.astype(np.uint64), values), axis=1), axis=0, return_inverse=True)[1].ravel()
        _, firsts, inverse = np.unique(values, return_index=True, return_inverse=True)
        return inverse.astype(np.int64), firsts

    def decode(self, position: int, names: dict[int, str]) -> StatValue:
        """Value of one stat."""
        kind, value = int(self.kinds[position]), self.values[position]
        if kind in (_STRING, _BYTES):
            start = int(self.starts[position])
            raw = self.data[start : start + int(value)].tobytes()
            return raw if kind == _BYTES else raw.decode("utf-8", "replace")
        if kind == _REFERENCE:
            return names.get(int(value), "")
        if kind == _DOUBLE:
            return float(value.view(np.float64))
        return int(value.view(np.int64)) if kind == _INT else int(value)


@dataclass(frozen=True, slots=True)
class Events:
    """Columns over the events of a line: name id, start and end in ps; and their stats."""

    ids: Lengths
    times: Intervals
    stats: Stats


def read_events(data: Bytes, extents: Extents, progress: Callable[[int], object] = lambda at: None) -> Events:
    """The events at these places of a buffer; `progress` is told how far. Raises `ValueError` when one is cut off."""
    num_events = len(extents)
    ids, times = np.zeros(num_events, np.int64), np.zeros((num_events, 2), np.int64)
    parts = [Stats.references(*[np.empty(0, np.int64)] * 3)]
    # What decoding needs beside its result stays as small as a chunk, and near the processor.
    for first in range(0, num_events, CHUNK_EVENTS):
        chunk = slice(first, first + CHUNK_EVENTS)
        parts.append(_read_chunk(data, extents[chunk], first, ids[chunk], times[chunk]))
        progress(int(extents[chunk][-1, 1]))
    columns = {name: np.concatenate([getattr(part, name) for part in parts]) for name in Stats.COLUMNS}
    return Events(ids, times, Stats(**columns, data=data))


def _read_chunk(data: Bytes, extents: Extents, first: int, ids: Lengths, times: Intervals) -> Stats:
    """Fills the columns of some events, the first of which is number `first`, and returns their stats."""
    columns = {_ID: ids, _OFFSET: times[:, 0], _DURATION: times[:, 1]}
    owners, begins, finishes = ([np.empty(0, np.int64)] for _ in range(3))
    for fields in read_fields(data, extents[:, 0], extents[:, 1]):
        for number, column in columns.items():
            chosen = fields.numbers == number
            column[fields.messages[chosen]] = fields.values[chosen].view(np.int64)
        chosen = (fields.numbers == _STATS) & (fields.wire_types == DELIMITED)
        owners.append(fields.messages[chosen])
        begins.append(fields.starts[chosen])
        finishes.append(begins[-1] + fields.values[chosen].view(np.int64))
    if len(times) and not -MAX_PS < times.min() <= times.max() < MAX_PS:
        raise ValueError("a time does not fit 62 bits")
    times[:, 1] += times[:, 0]
    begin = np.concatenate(begins)
    order = np.argsort(begin, kind="stable")
    return _read_stats(data, np.concatenate(owners)[order] + first, begin[order], np.concatenate(finishes)[order])


def _read_stats(data: Bytes, owners: Lengths, begins: Lengths, finishes: Lengths) -> Stats:
    ids, kinds, starts = (np.zeros(len(owners), np.int64) for _ in range(3))
    values = np.zeros(len(owners), np.uint64)
    for fields in read_fields(data, begins, finishes):
        chosen = fields.numbers == _ID
        ids[fields.messages[chosen]] = fields.values[chosen].view(np.int64)
        chosen = ~chosen & (fields.numbers <= _REFERENCE)
        kinds[fields.messages[chosen]] = fields.numbers[chosen]
        values[fields.messages[chosen]] = fields.values[chosen]
        starts[fields.messages[chosen]] = fields.starts[chosen]
    return Stats.of(owners, ids, kinds, values, starts, data)


def _numbers(values: Lengths) -> Numbers:
    if len(values) and not 0 <= values.min() <= values.max() < 1 << 31:
        raise ValueError("a number in a stat does not fit 31 bits")
    return values.astype(np.int32)
