"""Hand-made captures: XSpace bytes written event by event, so that a test states exactly what a trace holds."""

from dataclasses import dataclass, field
from pathlib import Path

from profiling.xplane_schema import message_types

PS_PER_US = 1_000_000


@dataclass
class SpacePlane:
    """A plane under construction; times are given in microseconds."""

    name: str
    stats: dict[str, int | float | str] = field(default_factory=dict)
    lines: list[tuple[str, list[tuple[str, float, float, dict[str, int | str]]]]] = field(default_factory=list)
    shared: dict[str, dict[str, int | str | bytes]] = field(default_factory=dict)
    """Stats that all events of a name share, as devices store what does not change from one execution to the next."""

    def line(self, name: str, *events: tuple) -> "SpacePlane":
        """Add a line of events (name, start, length[, stats])."""
        self.lines.append((name, [(event[0], event[1], event[2], event[3] if len(event) > 3 else {}) for event in events]))
        return self


def space_bytes(*planes: SpacePlane, timestamp_ns: int = 1_700_000_000_000_000_000) -> bytes:
    """The capture as a file holds it, with absolute times as real hosts write them."""
    types = message_types()
    space = types["Space"]()
    for plane in planes:
        message = types["Plane"](name=plane.name.encode())
        event_ids: dict[str, int] = {}
        stat_ids: dict[str, int] = {}

        def stat(key: str, value: int | float | str | bytes, stat_ids: dict[str, int] = stat_ids) -> object:
            number = stat_ids.setdefault(key, len(stat_ids) + 1)
            if isinstance(value, str):
                # Hosts store repeated text as a reference into the table of stat names.
                return types["Stat"](metadata_id=number, ref_value=stat_ids.setdefault(value, len(stat_ids) + 1))
            if isinstance(value, bytes):
                return types["Stat"](metadata_id=number, bytes_value=value)
            kind = "double_value" if isinstance(value, float) else "int64_value"
            return types["Stat"](metadata_id=number, **{kind: value})

        message.stats.extend(stat(key, value) for key, value in plane.stats.items())
        for name, events in plane.lines:
            line = types["Line"](name=name.encode(), timestamp_ns=timestamp_ns)
            for event_name, start, length, stats in events:
                event = types["Event"](
                    metadata_id=event_ids.setdefault(event_name, len(event_ids) + 1),
                    offset_ps=round(start * PS_PER_US),
                    duration_ps=round(length * PS_PER_US),
                    stats=[stat(key, value) for key, value in stats.items()],
                )
                line.events.append(event.SerializeToString())
            message.lines.append(line.SerializeToString())
        for name in plane.shared:
            event_ids.setdefault(name, len(event_ids) + 1)
        for name, number in event_ids.items():
            entry = message.event_metadata.add(key=number)
            entry.value.name = name.encode()
            entry.value.stats.extend(stat(key, value) for key, value in plane.shared.get(name, {}).items())
        for name, number in stat_ids.items():
            stat_entry = message.stat_metadata.add(key=number)
            stat_entry.value.name = name.encode()
        space.planes.append(message.SerializeToString())
    return space.SerializeToString()


def write_space(folder: Path, *planes: SpacePlane, run: str = "run", host: str = "host") -> Path:
    """A file in the layout that TensorBoard reads; returns the file."""
    path = folder / "plugins" / "profile" / run / f"{host}.xplane.pb"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(space_bytes(*planes))
    return path
