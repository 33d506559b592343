"""Timings from anyone's table: a CSV or a JSON list of rows with named columns.

Columns: `tokens` (query tokens per step: block size × batch) or `block_size`; `batch` (1 where absent); `context` (0 where
absent); `seconds` or `ms`; `phase` (verify where absent). Four or more rows of one shape are repeats: samples of one point. Fewer
are separate measurements, each with a verdict of its own.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from perfmodel import codec
from perfmodel.errors import InputError
from perfmodel.phases import STEP_PHASES, VERIFY
from perfmodel.predict import CycleTime
from perfmodel.records import Finding, Imported, Record, Run, StepTimes, TimingPoint

from .table_rows import Row, read_rows, rows_of

MIN_REPEATS = 4
"""Rows of one shape that say something of their spread; fewer are taken one by one."""


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
            return _from_record(codec.load_any(path), path) if rows is None else _from_rows(rows_of(rows, path))
        return _from_rows(rows_of(document, path))
    return _from_rows(read_rows(path))


def read_cycles(path: Path) -> tuple[CycleTime, ...]:
    """Measured times of whole steps, as `perf predict --step-times` takes them: `block_size`, `ms` or `seconds`, perhaps `tau`.

    Raises `InputError` naming the row.
    """
    rows = read_rows(path)
    for name, least in (("batch", 1), ("context", 0)):
        values = {row.count(name, least) for row in rows}
        if len(values) > 1:
            raise InputError(f"{path} holds cycle times of {len(values)} {name} values", f"give the rows of one {name}")
    return tuple(CycleTime(row.block_size(row.count("batch", 1) or 1), row.seconds(), row.number("tau")) for row in rows)


def read_run(folder: Path) -> Run:
    """The run record of a finished run folder. Raises `InputError`."""
    return codec.load(folder / "run.json", Run)


def _from_record(record: Record, path: Path) -> StepTimes:
    """Step times of our own, or the latency tables of an imported result."""
    if isinstance(record, Imported):
        labels = dict.fromkeys(point.label for point in record.cost_points)
        rows = {label: [msgspec.to_builtins(point) for point in record.cost_points if point.label == label] for label in labels}
        tables = [_from_rows(rows_of(part, path)) for part in rows.values()] or [_from_rows(rows_of([], path))]
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


def _from_rows(rows: Sequence[Row]) -> StepTimes:
    samples: dict[tuple[tuple[str, int, int, int], str], list[float]] = {}
    for row in rows:
        seconds = row.seconds()
        samples.setdefault((_shape(row), _device(row)), []).append(seconds)
    points = tuple(
        TimingPoint(phase=phase, block_size=block_size, batch=batch, context=context, samples_s=taken)  # type: ignore[arg-type]
        for ((phase, block_size, batch, context), _), times in samples.items()
        for taken in ([tuple(times)] if len(times) >= MIN_REPEATS else [(one,) for one in times])
    )
    return StepTimes(
        device_kind="unknown", target="unknown", draft=None, dtype="unknown", points=points, findings=_several_devices(rows)
    )


def _shape(row: Row) -> tuple[str, int, int, int]:
    """Phase, block size, batch and context of a row."""
    phase = str(row.values.get("phase") or VERIFY).strip()
    if phase not in STEP_PHASES:
        raise InputError(
            f"{row.where}: phase {phase[:40]!r} is not one of {', '.join(STEP_PHASES)}", "leave the column out for verify steps"
        )
    batch, context = row.count("batch", 1), row.count("context", 0)
    size = row.block_size(1 if batch is None else batch)
    return phase, size, 1 if batch is None else batch, 0 if context is None else context


def _device(row: Row) -> str:
    """The chip that a row names; empty where the table has no such column."""
    return next((str(row.values[name]) for name in ("device", "hardware", "gpu") if row.values.get(name)), "")


def _several_devices(rows: Sequence[Row]) -> tuple[Finding, ...]:
    """A warning where a column says that the rows come from several chips: no one chip explains them."""
    devices = sorted({device for row in rows if (device := _device(row))})
    if len(devices) < 2:
        return ()
    return (
        Finding(
            code="several-devices",
            severity="warning",
            message=f"the rows come from {len(devices)} devices ({', '.join(devices)[:120]}) and are held against one",
            hint="split the table by device",
        ),
    )
