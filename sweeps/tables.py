"""Timings from anyone's table: a CSV or a JSON list of rows with named columns.

Columns: `tokens` (query tokens per step: block size × batch) or `block_size`; `batch` (1 where absent); `context` (0 where
absent); `seconds` or `ms`; `phase` (verify where absent). Four or more rows of one shape are repeats: samples of one point. Fewer
are separate measurements, each with a verdict of its own.
"""

import csv
import io
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from perfmodel import codec
from perfmodel.errors import InputError
from perfmodel.phases import STEP_PHASES, VERIFY
from perfmodel.records import Imported, Record, Run, StepTimes, TimingPoint

ALIASES = {
    "num_tokens": "tokens",
    "k": "block_size",
    "num_reqs": "batch",
    "context_len": "context",
    "median_ms": "ms",
    "mean_ms": "ms",
    "reported_mean_ms": "ms",
    "latency_ms": "ms",
}
"""Column names that other tools use → ours; case does not matter."""

MIN_REPEATS = 4
"""Rows of one shape that say something of their spread; fewer are taken one by one."""

NUMBERS = ("tokens", "block_size", "batch", "context", "seconds", "ms")


def read_timings(path: Path) -> StepTimes:
    """The timings in a run folder, a `perf.step_times` record, or a table. Raises `InputError` naming the row."""
    if path.is_dir():
        timings = path / "timings.json"
        if not timings.is_file():
            raise InputError(f"{path} holds no timings.json", "give a run folder of `perf sweep-k`, or a table")
        return codec.load(timings, StepTimes)
    if path.suffix.lower() == ".json":
        document = codec.read_json(path)
        if isinstance(document, dict):
            rows = _printed_rows(document)
            return _from_record(codec.load_any(path), path) if rows is None else _from_rows(_json_rows(rows, path), path)
        return _from_rows(_json_rows(document, path), path)
    return _from_rows(_csv_rows(path), path)


def _from_record(record: Record, path: Path) -> StepTimes:
    """Step times of our own, or the latency tables of an imported result."""
    if isinstance(record, Imported):
        labels = dict.fromkeys(point.label for point in record.cost_points)
        rows = {label: [msgspec.to_builtins(point) for point in record.cost_points if point.label == label] for label in labels}
        tables = [_from_rows(_json_rows(part, path), path) for part in rows.values()] or [_from_rows((), path)]
        return msgspec.structs.replace(tables[0], points=tuple(point for table in tables for point in table.points))
    if isinstance(record, StepTimes):
        return record
    raise InputError(f"{path} holds no step times", "give timings.json of a sweep, an imported latency table, or a table")


def _printed_rows(document: Mapping[str, Any]) -> list[Any] | None:
    """The measured rows of what `perf sweep-k --json` or `perf import --json` printed; None for any other document."""
    rows = document.get("step_times", document.get("cost_points"))
    if "perf_version" not in document or not isinstance(rows, list):
        return None
    return [row for row in rows if not (isinstance(row, dict) and row.get("seconds", 0) is None)]


def read_run(folder: Path) -> Run:
    """The run record of a finished run folder. Raises `InputError`."""
    return codec.load(folder / "run.json", Run)


def _csv_rows(path: Path) -> Iterable[tuple[int, Mapping[str, Any]]]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise InputError(f"{path} does not exist", "check the path") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read as text: {error}", "a CSV with a header line is wanted") from error
    try:
        yield from enumerate(csv.DictReader(io.StringIO(text), strict=True), start=2)
    except csv.Error as error:
        raise InputError(f"{path} is not a CSV: {error}", "a header line, then one row per measurement") from error


def _json_rows(document: Any, path: Path) -> Iterable[tuple[int, Mapping[str, Any]]]:
    if not isinstance(document, list):
        raise InputError(f"{path} holds neither a record nor a list of rows", "a JSON list of objects, one per measurement")
    for number, row in enumerate(document, start=1):
        if not isinstance(row, dict):
            raise InputError(f"{path}, row {number} is not an object", "a JSON list of objects, one per measurement")
        yield number, row


def _from_rows(rows: Iterable[tuple[int, Mapping[str, Any]]], path: Path) -> StepTimes:
    samples: dict[tuple[str, int, int, int], list[float]] = {}
    for number, row in rows:
        shape, seconds = _row(row, f"{path}, row {number}")
        samples.setdefault(shape, []).append(seconds)
    if not samples:
        raise InputError(f"{path} holds no rows", "a header line, then one row per measurement")
    points = tuple(
        TimingPoint(phase=phase, block_size=block_size, batch=batch, context=context, samples_s=taken)  # type: ignore[arg-type]
        for (phase, block_size, batch, context), seconds in samples.items()
        for taken in ([tuple(seconds)] if len(seconds) >= MIN_REPEATS else [(one,) for one in seconds])
    )
    return StepTimes(device_kind="unknown", target="unknown", draft=None, dtype="unknown", points=points)


def _row(row: Mapping[str, Any], where: str) -> tuple[tuple[str, int, int, int], float]:
    named = {ALIASES.get(str(key).strip().lower(), str(key).strip().lower()): value for key, value in row.items()}
    numbers = {key: _number(named[key], key, where) for key in NUMBERS if named.get(key) not in (None, "")}
    phase = str(named.get("phase") or VERIFY).strip()
    if phase not in STEP_PHASES:
        raise InputError(
            f"{where}: phase {phase!r} is not one of {', '.join(STEP_PHASES)}", "leave the column out for verify steps"
        )
    seconds = numbers.get("seconds", numbers["ms"] / 1e3 if "ms" in numbers else None)
    if seconds is None:
        raise InputError(f"{where} has no time: columns are {', '.join(named)}", "name one column `seconds` or `ms`")
    if not seconds > 0:
        raise InputError(f"{where}: a step of {seconds} s is not a measurement", "times must be above zero")
    batch, context = _count(numbers, "batch", 1, 1, where), _count(numbers, "context", 0, 0, where)
    if "block_size" in numbers:
        block_size = _count(numbers, "block_size", 1, 1, where)
    elif "tokens" in numbers:
        tokens = _count(numbers, "tokens", 1, 1, where)
        if tokens % batch:
            raise InputError(f"{where}: {tokens} tokens do not divide over a batch of {batch}", "tokens = block size × batch")
        block_size = tokens // batch
    else:
        raise InputError(f"{where} has no size: columns are {', '.join(named)}", "name one column `tokens` or `block_size`")
    return (phase, block_size, batch, context), seconds


def _number(value: Any, name: str, where: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise InputError(f"{where}: {name} is {value!r}, not a number", "decimal point, no unit") from None
    if not math.isfinite(number) or isinstance(value, bool):
        raise InputError(f"{where}: {name} is {value!r}, not a finite number", "leave out rows that were not measured")
    return number


def _count(numbers: Mapping[str, float], name: str, default: int, least: int, where: str) -> int:
    value = numbers.get(name, default)
    if value != int(value) or value < least:
        raise InputError(f"{where}: {name} is {value:g}, not a whole number of at least {least}", "check the column")
    return int(value)
