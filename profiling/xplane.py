"""Reading an `.xplane.pb`: planes, lines and events as columns of integers.

Times are picoseconds since the earliest line of the file, because an absolute start in picoseconds since 1970 does not fit
64 bits. The file is only read: nothing is ever written beside it.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError

from perfmodel.errors import InputError

from .events import MAX_PS, Stats, StatValue, read_events
from .intervals import Intervals, Lengths
from .trace_files import MANGLED, read_whole
from .wire import Bytes, buffer, split
from .xplane_schema import message_types

_PLANES, _LINES, _EVENTS = 1, 3, 4
"""Numbers of the fields that hold nearly all of a file: a space's planes, their lines, their events."""

EVENT_WALLS = (2_097_152, 2_097_153)
"""Event counts at which a profiler's buffer is full and the rest was dropped silently (2**21, and one more)."""


@dataclass(frozen=True, slots=True)
class Names:
    """The tables of one plane: event id → name, stat id → name, event id → the stats that all such events share."""

    events: dict[int, str]
    stats: dict[int, str]
    shared: dict[int, dict[str, StatValue]]

    def sharing(self, stat: str) -> dict[int, StatValue]:
        """Event id → value of this stat, for the events that share it."""
        return {key: stats[stat] for key, stats in self.shared.items() if stat in stats}

    def decode(self, stats: Iterable[Any]) -> dict[str, StatValue]:
        """Stat messages as name → value."""
        return {self.stats.get(stat.metadata_id, str(stat.metadata_id)): self._value(stat) for stat in stats}

    def _value(self, stat: Any) -> StatValue:
        kind = stat.WhichOneof("value")
        if kind is None:
            return 0
        value = getattr(stat, kind)
        if kind == "str_value":
            return str(value, "utf-8", "replace")
        return self.stats.get(value, "") if kind == "ref_value" else value


@dataclass(frozen=True, slots=True)
class Line:
    """One thread, stream or queue. Columns have one entry per event: name id, start and end in ps."""

    name: str
    ids: Lengths
    times: Intervals
    stats: Stats
    names: Names

    def __len__(self) -> int:
        return len(self.ids)

    def event_name(self, index: int) -> str:
        """Name of one event."""
        return self.names.events.get(int(self.ids[index]), "")

    def named(self, wanted_ids: Iterable[int]) -> list[int]:
        """Indices of the events whose name id is among those given."""
        return np.flatnonzero(np.isin(self.ids, np.fromiter(wanted_ids, np.int64))).tolist()

    def carrying(self, stat: str) -> Lengths:
        """Indices of the events that carry this stat themselves, in order."""
        owners = self.stats.owners[self._positions(stat)].astype(np.int64)
        return owners[np.diff(owners, prepend=-1) > 0]  # stats lie in the order of their events

    def values(self, stat: str) -> dict[int, StatValue]:
        """Event index → value of this stat, for the events that carry it or share it with their name."""
        found: dict[int, StatValue] = {}
        shared = self.names.sharing(stat)
        for index in self.named(shared):
            found[index] = shared[int(self.ids[index])]
        positions = self._positions(stat)
        for owner, position in zip(self.stats.owners[positions].tolist(), positions.tolist(), strict=True):
            found[owner] = self.stats.decode(position, self.names.stats)
        return found

    def column(self, stat: str) -> tuple[Lengths, list[StatValue]]:
        """For every event the number of its value of this stat in a table (-1: it carries none), and the table."""
        codes = np.full(len(self), -1, np.int64)
        shared = self.names.sharing(stat)
        table = list(shared.values())
        for number, key in enumerate(shared):
            codes[self.ids == key] = number
        positions = self._positions(stat)
        numbers, firsts = self.stats.distinct(positions)
        codes[self.stats.owners[positions]] = numbers + len(table)
        return codes, table + [self.stats.decode(first, self.names.stats) for first in positions[firsts].tolist()]

    def _positions(self, stat: str) -> Lengths:
        wanted = [key for key, name in self.names.stats.items() if name == stat]
        return np.flatnonzero(np.isin(self.stats.ids, wanted))

    def durations(self, indices: Lengths | None = None) -> dict[str, int]:
        """Name → summed length of its events (of those at `indices`), ps; what an event encloses is included."""
        chosen = slice(None) if indices is None else indices
        unique, inverse = np.unique(self.ids[chosen], return_inverse=True)
        sums = np.zeros(len(unique), np.int64)
        np.add.at(sums, inverse, self.times[chosen, 1] - self.times[chosen, 0])
        return {self.names.events.get(key, ""): length for key, length in zip(unique.tolist(), sums.tolist(), strict=True)}


@dataclass(frozen=True, slots=True)
class Plane:
    """A host or a device: its lines, its own facts, its names."""

    name: str
    lines: tuple[Line, ...]
    stats: dict[str, StatValue]
    names: Names

    @property
    def num_events(self) -> int:
        """Events on all lines."""
        return sum(len(line) for line in self.lines)

    def line(self, name: str) -> Line | None:
        """The line of that name that holds events, if any."""
        return next((line for line in self.lines if line.name == name and len(line)), None)


@dataclass(frozen=True, slots=True)
class Space:
    """A whole capture of one host. `chrome_events` counts the events of a Chrome trace, kept or not; None for an XPlane file."""

    file: str
    planes: tuple[Plane, ...]
    warnings: tuple[str, ...]
    chrome_events: int | None = None

    def matching(self, prefix: str) -> tuple[Plane, ...]:
        """Planes whose name starts so."""
        return tuple(plane for plane in self.planes if plane.name.startswith(prefix))


def read_space(path: Path, progress: Callable[[float], object] = lambda share: None) -> Space:
    """The capture in a file; `progress` is told the share of its bytes that is read.

    Raises `InputError` when the file is missing, empty, cut off, re-encoded as text, or not an XSpace.
    """
    return parse_space(_read_binary(path), str(path), progress)


def _read_binary(path: Path) -> bytes:
    data = read_whole(path)
    if data.count(MANGLED, 0, 65_536) > 8:
        raise InputError(
            f"{path} was re-encoded as text (it is full of EF BF BD): its bytes are lost", "copy it again in binary mode"
        )
    return data


def parse_space(data: bytes, file: str, progress: Callable[[float], object] = lambda share: None) -> Space:
    """The capture in these bytes; `file` names them in errors. Raises `InputError`."""
    num_bytes = len(data)
    padded = buffer([data])
    del data
    try:
        planes, rest = split(padded, 0, num_bytes, _PLANES)
        space = message_types()["Space"].FromString(rest)
        opened = [_plane(padded, start, end, lambda at: progress(at / num_bytes)) for start, end in planes.tolist()]
    except (DecodeError, ValueError) as error:
        hint = "it is truncated or of another kind; copy it again, or give the .xplane.pb"
        raise InputError(f"{file} is not a whole XSpace profile", hint) from error
    if not any(plane.name for plane, _ in opened):
        raise InputError(f"{file} holds no profile plane", "it is not an .xplane.pb of JAX, XLA or TensorFlow")
    origin_ns = min(
        (start for plane, starts in opened for line, start in zip(plane.lines, starts, strict=True) if len(line)), default=0
    )
    for plane, starts in opened:
        for line, start in zip(plane.lines, starts, strict=True):
            if len(line):
                _put(line, (start - origin_ns) * 1_000, file)
    warnings = tuple(_text(message) for message in (*space.errors, *space.warnings))
    return Space(file, tuple(plane for plane, _ in opened), warnings)


def _put(line: Line, after_origin_ps: int, file: str) -> None:
    """Set a line's times on the clock of the capture."""
    if not -MAX_PS < int(line.times.min()) + after_origin_ps <= int(line.times.max()) + after_origin_ps < MAX_PS:
        message = f"{file}: line {line.name[:80]!r} begins months away from the others: it is damaged, or on another clock"
        raise InputError(message, "copy the file again; if that does not help, record anew")
    line.times[:] += after_origin_ps


def _plane(data: Bytes, start: int, end: int, progress: Callable[[int], object]) -> tuple[Plane, list[int]]:
    """A plane with its lines in times of their own, and when each line starts, ns."""
    lines, rest = split(data, start, end, _LINES)
    plane = message_types()["Plane"].FromString(rest)
    stat_names = {entry.key: _text(entry.value.name) for entry in plane.stat_metadata}
    names = Names({entry.key: _text(entry.value.name) for entry in plane.event_metadata}, stat_names, {})
    for entry in plane.event_metadata:
        if entry.value.stats:
            names.shared[entry.key] = names.decode(entry.value.stats)
    opened = [_line(data, first, last, names, progress) for first, last in lines.tolist()]
    found = Plane(_text(plane.name), tuple(line for line, _ in opened), names.decode(plane.stats), names)
    return found, [start for _, start in opened]


def _line(data: Bytes, start: int, end: int, names: Names, progress: Callable[[int], object]) -> tuple[Line, int]:
    extents, rest = split(data, start, end, _EVENTS)
    line = message_types()["Line"].FromString(rest)
    events = read_events(data, extents, progress)
    return Line(_text(line.name), events.ids, events.times, events.stats, names), line.timestamp_ns


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")
