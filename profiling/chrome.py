"""Reading a Chrome trace (`trace.json`, gzipped or not): JAX's and XProf's, PyTorch's and so vLLM's and SGLang's.

The format is a list of events with a process, a thread, a start and a length in microseconds. JAX's processes are XPlane's planes
and its threads are XPlane's lines. PyTorch says by category what an event is: a kernel on a stream of a device, the runtime call
that launched it (they share a correlation number), or a region that the program named. Both become the planes and lines of
`xplane`, so that one set of readers serves all. The format's viewer holds a million events; exporters stop there in silence.
"""

import gzip
import io
import json
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from perfmodel.errors import InputError
from perfmodel.units import format_bytes

from .annotations import REGION_LINE
from .events import Stats
from .trace_files import MANGLED, read_whole
from .xplane import Line, Names, Plane, Space

MAX_EXPANDED_BYTES = 1 << 30
"""Largest trace after decompression: a full one of a million events has half of it, and reading takes several times its size."""

CHROME_WALL = 1_000_000
"""Number of events at which exporters cut a trace off, because viewers show no more."""

_GZIP = b"\x1f\x8b"
_KEPT = (
    "step_num", "hlo_op", "hlo_module", "program_id", "run_id", "device_ordinal", "correlation_id", "tf_op", "hlo_category",
)  # fmt: skip
_ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
_LAUNCH = ("cuda_runtime", "cuda_driver", "hip_runtime")
_PS_PER_US = 1_000_000
_LONGEST_US = 4e12
"""Span in which picoseconds fit 63 bits: a month and a half."""

Key = tuple[str, str]
"""Plane and line of an event."""


class Event(msgspec.Struct, gc=False):
    """One entry of a trace as it stands in the file; what is not named here is skipped unread."""

    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: Any = 0
    tid: Any = 0
    ts: float = 0.0
    dur: float = 0.0
    args: dict[str, Any] = {}


class Trace(msgspec.Struct):
    """The object around the events."""

    traceEvents: list[Event]
    deviceProperties: list[dict[str, Any]] = []


def is_chrome(path: Path) -> bool:
    """Whether a file is a Chrome trace, by name or by how it begins."""
    if path.name.endswith((".json", ".json.gz")):
        return True
    if path.name.endswith(".pb"):
        return False
    with path.open("rb") as file:
        start = file.read(2)
    return start == _GZIP or start[:1] in (b"{", b"[")


def read_chrome(path: Path) -> Space:
    """The capture in a Chrome trace. Raises `InputError` when it cannot be read, is too large, or is JSON of another format."""
    trace = _decode(_expand(read_whole(path), path), path)
    spans = [event for event in trace.traceEvents if event.ph == "X"]
    if not spans:
        raise InputError(f"{path} holds no event with a start and a length", "it is not a Chrome trace of JAX or PyTorch")
    _check_times(spans, path)
    torch = any(event.cat in _ON_DEVICE or event.cat in _LAUNCH or event.cat == "cpu_op" for event in spans)
    placed = _place_torch if torch else _place_jax(trace.traceEvents)
    planes = _planes(spans, placed, _device_name(trace) if torch else None)
    return Space(str(path), planes, (), chrome_events=_num_events(trace))


def _check_times(spans: list[Event], path: Path) -> None:
    times = np.array([(event.ts, event.ts + event.dur, event.dur) for event in spans])
    if not np.isfinite(times).all() or times[:, 2].min() < 0 or np.ptp(times[:, :2]) > _LONGEST_US:
        raise InputError(f"{path} holds an event whose start or length is no time", "the file is damaged; export it again")


def _num_events(trace: Trace) -> int:
    """Events as the exporter counts them: names of processes and threads are not among them."""
    return sum(event.ph not in ("", "M") for event in trace.traceEvents)


def _expand(data: bytes, path: Path) -> bytes:
    if data[:4] == b"\x1f" + MANGLED:
        raise InputError(f"{path} was re-encoded as text and is damaged beyond repair", "copy it again as a binary file")
    if data[:2] != _GZIP:
        if path.name.endswith(".gz"):
            raise InputError(f"{path} is not gzip", "it is damaged or misnamed; copy it again")
        return data
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
            expanded = file.read(MAX_EXPANDED_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path} is not whole gzip: {error}", "it is truncated or damaged; copy it again") from error
    if len(expanded) > MAX_EXPANDED_BYTES:
        raise InputError(f"{path} expands beyond {format_bytes(MAX_EXPANDED_BYTES)}, the most that is read", "record fewer steps")
    return expanded


def _decode(data: bytes, path: Path) -> Trace:
    hint = "give the .trace.json[.gz] of JAX or PyTorch, or an .xplane.pb"
    kind = list[Event] if data.lstrip()[:1] == b"[" else Trace
    try:
        found = _decode_json(data, kind)
    except msgspec.ValidationError as error:
        raise InputError(f"{path} is JSON, but no Chrome trace: {error}", hint) from error
    except ValueError as error:
        raise InputError(f"{path} is not whole JSON: {error}", "it is truncated or damaged; copy it again") from error
    except RecursionError:
        raise InputError(f"{path} is nested too deeply for a Chrome trace", hint) from None
    return Trace(found) if isinstance(found, list) else found


def _decode_json(data: bytes, kind: Any) -> Any:
    """The value of a type. Raises `ValueError`, as a `msgspec.ValidationError` where it is JSON of another shape."""
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        # PyTorch writes rates that are no numbers as NaN and Infinity, which are no JSON; the standard library reads them.
        return msgspec.convert(json.loads(data), kind, strict=False)


def _device_name(trace: Trace) -> str:
    names = [str(one["name"]) for one in trace.deviceProperties if one.get("name")]
    return names[0] if names else "GPU"


def _place_torch(event: Event) -> tuple[Key, dict[str, Any]] | None:
    args = event.args
    if event.cat in _ON_DEVICE:
        # The device's own number; the process of such an event repeats it.
        stats = {"correlation_id": args["correlation"]} if "correlation" in args else {}
        return (f"/device:GPU:{args.get('device', event.pid)}", f"Stream #{args.get('stream', event.tid)}"), stats
    if event.cat in _LAUNCH and "correlation" in args:
        return ("/host:CPU", f"{event.cat} {event.tid}"), {"correlation_id": args["correlation"]}
    if event.cat == REGION_LINE:
        name, _, number = event.name.partition("#")
        is_step = name == "ProfilerStep" and number.isdigit()
        event.name = name if is_step else event.name
        return ("/host:CPU", f"{REGION_LINE} {event.tid}"), {"step_num": number} if is_step else {}
    return None


def _place_jax(events: Iterable[Event]) -> Callable[[Event], tuple[Key, dict[str, Any]] | None]:
    processes: dict[Any, str] = {}
    threads: dict[tuple[Any, Any], str] = {}
    for event in events:
        if event.ph == "M" and event.name == "process_name":
            processes[event.pid] = str(event.args.get("name", ""))
        elif event.ph == "M" and event.name == "thread_name":
            threads[event.pid, event.tid] = str(event.args.get("name", ""))

    def place(event: Event) -> tuple[Key, dict[str, Any]]:
        # A process without a name is the host: some exporters name the devices only.
        plane = processes.get(event.pid, "").partition(" (pid")[0] or "/host:CPU"
        line = threads.get((event.pid, event.tid), str(event.tid))
        stats = {name: event.args[name] for name in _KEPT if name in event.args}
        # A step's number is part of its name there.
        event.name = event.name.removesuffix(f" {stats['step_num']}") if "step_num" in stats else event.name
        return (plane, line), stats

    return place


def _planes(
    spans: list[Event], place: Callable[[Event], tuple[Key, dict[str, Any]] | None], device_name: str | None
) -> tuple[Plane, ...]:
    origin = min(event.ts for event in spans)
    lines: dict[str, dict[str, list[tuple[Event, dict[str, Any]]]]] = defaultdict(lambda: defaultdict(list))
    for event in spans:
        placed = place(event)
        if placed is not None:
            (plane, line), stats = placed
            lines[plane][line].append((event, stats))
    planes = []
    for plane, found in lines.items():
        facts = {"device_type_string": device_name} if device_name and plane.startswith("/device:") else {}
        names = Names({}, {}, {})
        numbers: dict[str, int] = {}
        read = tuple(_line(name, entries, names, numbers, origin) for name, entries in found.items())
        planes.append(Plane(plane, read, dict(facts), names))
    return tuple(planes)


def _line(name: str, entries: list[tuple[Event, dict[str, Any]]], names: Names, numbers: dict[str, int], origin: float) -> Line:
    ids = np.array([_number(event.name, numbers, names.events) for event, _ in entries], np.int64)
    starts = np.array([event.ts - origin for event, _ in entries])
    lengths = np.array([event.dur for event, _ in entries])
    begin, length = (np.rint(values * _PS_PER_US).astype(np.int64) for values in (starts, lengths))
    return Line(name, ids, np.stack((begin, begin + length), axis=1), _stats(entries, names), names)


def _number(text: str, numbers: dict[str, int], names: dict[int, str]) -> int:
    number = numbers.setdefault(text, len(numbers) + 1)
    names[number] = text
    return number


def _stats(entries: list[tuple[Event, dict[str, Any]]], names: Names) -> Stats:
    """Every value as a reference into the plane's table of stat names, as XPlane keeps repeated text."""
    numbers = {text: number for number, text in names.stats.items()}
    rows = [
        (index, _number(key, numbers, names.stats), _number(str(value), numbers, names.stats))
        for index, (_, stats) in enumerate(entries)
        for key, value in stats.items()
    ]
    owners, ids, values = np.array(rows, np.int64).reshape(-1, 3).T
    return Stats.references(owners, ids, values)
