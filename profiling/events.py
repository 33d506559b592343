"""Events of a line as columns: name id, start, length, and the stats that each carries."""

from dataclasses import dataclass

import numpy as np

from .intervals import Lengths
from .wire import Bytes, Words, buffer, read_fields

StatValue = int | float | str | bytes

_ID, _OFFSET, _DURATION, _STATS = 1, 2, 3, 4
_DOUBLE, _UINT, _INT, _STRING, _BYTES, _REFERENCE = 2, 3, 4, 5, 6, 7


@dataclass(frozen=True, slots=True)
class Stats:
    """One entry per stat of an event, in order: the index of its event, which stat, the kind of value, and the value.

    For text the value is a length and `starts` the place in `data`; for a double it is the bits; a reference is a stat id.
    """

    owners: Lengths
    ids: Lengths
    kinds: Lengths
    values: Words
    starts: Lengths
    data: Bytes

    @classmethod
    def references(cls, owners: Lengths, ids: Lengths, values: Lengths) -> "Stats":
        """Stats whose values are all references to stat names."""
        kinds = np.full(len(owners), _REFERENCE, np.int64)
        return cls(owners, ids, kinds, values.astype(np.uint64), np.zeros(len(owners), np.int64), buffer(()))

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
    """Columns over the events of a line: name id, offset and duration in ps; and their stats."""

    ids: Lengths
    offsets: Lengths
    durations: Lengths
    stats: Stats


def read_events(messages: list[bytes]) -> Events:
    """The events in these encoded messages, which are let go. Raises `ValueError` when one is cut off."""
    num_events = len(messages)
    ends = np.cumsum(np.fromiter(map(len, messages), np.int64, num_events))
    data = buffer(messages)
    messages.clear()
    starts = np.concatenate(([0], ends[:-1])) if num_events else ends
    columns = {number: np.zeros(num_events, np.int64) for number in (_ID, _OFFSET, _DURATION)}
    found: list[tuple[Lengths, Lengths, Lengths]] = []
    for fields in read_fields(data, starts, ends):
        for number, column in columns.items():
            chosen = fields.numbers == number
            column[fields.messages[chosen]] = fields.values[chosen].view(np.int64)
        chosen = fields.numbers == _STATS
        begin = fields.starts[chosen]
        found.append((fields.messages[chosen], begin, begin + fields.values[chosen].view(np.int64)))
    none = np.empty(0, np.int64)
    owners, begins, finishes = (np.concatenate([none, *parts]) for parts in (zip(*found, strict=True) if found else [()] * 3))
    order = np.argsort(begins, kind="stable")
    return Events(
        columns[_ID], columns[_OFFSET], columns[_DURATION], _read_stats(data, owners[order], begins[order], finishes[order])
    )


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
    return Stats(owners, ids, kinds, values, starts, data)
