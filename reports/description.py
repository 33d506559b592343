"""Any record in readable form, for `perf show`: a table of its own where the record has one, else its fields."""

from collections.abc import Sequence
from functools import singledispatch
from typing import Any

import msgspec
from rich.console import Group, RenderableType
from rich.text import Text

from perfmodel.codec import SCHEMAS
from perfmodel.records import (
    AcceptanceProfile,
    AcceptanceSet,
    Audit,
    Diagnosis,
    FittedModel,
    Imported,
    KPrediction,
    OperationStatistics,
    PredictionSet,
    Record,
    Run,
    Served,
    StepTimes,
    TraceSet,
    TraceTimings,
)
from perfmodel.units import format_bandwidth, format_flop_rate, format_percent, format_ratio, format_seconds

from .acceptance import pooled_text
from .answer import chip_cell
from .evidence import lossless_text
from .imported import diagnosis_content, imported_content
from .section import shape_text
from .served import served_content
from .tables import prediction_table, step_times_table
from .terminal import findings_list, lines_of, table_of
from .validation import error_finding, parameter_text
from .wording import block_size_text, number_text, speedup_text


@singledispatch
def content(record: Record) -> RenderableType:
    """The record's own fields, name and value; long sequences as their length."""
    return lines_of([(name, value_text(getattr(record, name))) for name in record.__struct_fields__ if name != "findings"])


def value_text(value: Any) -> str:
    """A field's value in one line."""
    if value is None:
        return "unknown"
    if isinstance(value, Record):
        return ", ".join(
            f"{name} {value_text(item)}" for name, item in msgspec.structs.asdict(value).items() if item not in (None, "", ())
        )
    if isinstance(value, dict):
        return "; ".join(f"{key}: {value_text(item)}" for key, item in value.items()) or "none"
    if isinstance(value, tuple):
        shown = ", ".join(value_text(item) for item in value[:8])
        return f"{shown}, … ({len(value)} in all)" if len(value) > 8 else shown or "none"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


@content.register
def _(record: StepTimes) -> RenderableType:
    return step_times_table(record)


@content.register
def _(record: KPrediction) -> RenderableType:
    return prediction_table(record)


@content.register
def _(record: PredictionSet) -> RenderableType:
    tables: list[RenderableType] = [prediction_table(p) for p in record.here]
    for pair in dict.fromkeys((p.target, p.draft, p.batch, p.context) for p in record.elsewhere):
        mine = [p for p in record.elsewhere if (p.target, p.draft, p.batch, p.context) == pair]
        title = f"{pair[0]} + {pair[1]}, {shape_text(*pair[2:])}: {mine[0].source} predictions"
        rows = [(p.hardware, p.task, chip_cell(p)) for p in mine]
        tables.append(table_of(title, [("chip", "left"), ("task", "left"), ("speedup at best K (K − 1)", "left")], rows))
    return Group(*tables)


@content.register
def _(record: FittedModel) -> RenderableType:
    rows = [(name, parameter_text(p), "yes" if p.identified else "no: prior", p.note) for name, p in record.parameters.items()]
    columns = [("parameter", "left"), ("value ± error", "right"), ("identified", "left"), ("note", "left")]
    return Group(Text(error_finding(record)), table_of(f"Step-time model ({record.form})", columns, rows))


@content.register
def _(record: Imported) -> RenderableType:
    return imported_content(record)


@content.register
def _(record: Served) -> RenderableType:
    return served_content(record)


@content.register
def _(record: Diagnosis) -> RenderableType:
    return diagnosis_content(record)


@content.register
def _(record: AcceptanceSet) -> RenderableType:
    return Group(*(content(profile) for profile in record.profiles))


@content.register
def _(record: AcceptanceProfile) -> RenderableType:
    survival = ", ".join(format_percent(share, 2) for share in record.survival) or "unknown"
    return lines_of(
        [
            ("acceptance", f"{record.name}: {record.task}, {record.target} + {record.draft}"),
            ("block size", block_size_text(record.block_size)),
            ("τ pooled (95 %)", pooled_text(record)),
            ("τ per answer", number_text(record.tau_per_answer)),
            ("survival", survival),
            ("counted", f"{value_text(record.num_steps)} steps, {value_text(record.num_prompts)} answers"),
            ("source", record.source or "unknown"),
        ]
    )


@content.register
def _(record: Audit) -> RenderableType:
    rows = [
        (
            p.phase,
            str(p.block_size),
            str(p.batch),
            str(p.context),
            format_seconds(p.seconds),
            format_seconds(p.floor_s),
            p.verdict,
            p.cause,
        )
        for p in record.points
    ]
    columns = [
        ("phase", "left"),
        ("K", "right"),
        ("batch", "right"),
        ("context", "right"),
        ("measured", "right"),
        ("floor", "right"),
    ]
    title = f"{record.num_invalid} of {len(record.points)} points are below the speed of light of {record.hardware}"
    return table_of(title, [*columns, ("verdict", "left"), ("cause", "left")], rows)


@content.register
def _(record: TraceTimings) -> RenderableType:
    rows = [
        (
            name,
            f"{times.count:,}",
            format_seconds(times.device_s_median),
            format_seconds(times.wall_s_median),
            format_flop_rate(times.flops_per_s),
            format_bandwidth(times.bytes_per_s),
        )
        for name, times in record.phases.items()
    ]
    steps = f"{record.steps} (from {record.step_source}), median {format_seconds(record.step_seconds_median)}"
    steps = "none found" if record.steps is None else steps
    facts = lines_of(
        [
            ("device", f"{record.num_devices} × {record.device_kind} ({record.timing} clock)"),
            ("steps", steps),
            ("host gap", format_seconds(record.host_gap_s_median)),
            ("busy, coverage", f"{format_percent(record.busy_share)}, {format_percent(record.coverage)}"),
            ("bound", f"{record.bound}-bound" if record.bound else "unknown"),
            ("peaks", f"{format_flop_rate(record.peak_flops_per_s)}, {format_bandwidth(record.peak_bytes_per_s)}"),
            ("file", record.file or "unknown"),
        ]
    )
    phases = [("phase", "left"), ("count", "right"), ("device, median", "right"), ("wall, median", "right")]
    parts: list[RenderableType] = [facts]
    if rows:
        parts.append(table_of("Phases", [*phases, ("FLOP/s", "right"), ("bytes/s", "right")], rows))
    if record.top_ops:
        longest = [(_short(name), format_seconds(spent_s)) for name, spent_s in record.top_ops]
        parts.append(table_of("Longest operations", [("operation", "left"), ("per device", "right")], longest))
    if record.operations:
        parts.append(_operations_table(record.operations))
    return Group(*parts)


def _short(name: str, length: int = 66) -> str:
    """An operation's name in one line; kernels carry whole template signatures in theirs."""
    return name if len(name) <= length else name[: length - 1] + "…"


def _operations_table(operations: Sequence[OperationStatistics]) -> RenderableType:
    rows = [
        (_short(one.name), f"{one.count:,}", format_seconds(one.self_s), format_flop_rate(one.flops_per_s),
         format_bandwidth(one.bytes_per_s), one.bound_by, format_percent(one.roofline_share))
        for one in operations
    ]  # fmt: skip
    columns = [("operation", "left"), ("count", "right"), ("own time", "right"), ("FLOP/s", "right")]
    return table_of(
        "HLO operations, by XProf", [*columns, ("bytes/s", "right"), ("bound by", "left"), ("roofline", "right")], rows
    )


@content.register
def _(record: Run) -> RenderableType:
    environment = record.environment
    facts = [
        ("pair", f"{record.spec.target} + {record.spec.draft}, {record.spec.dtype}"),
        ("tasks", ", ".join(record.spec.tasks)),
        (
            "device",
            f"{environment.num_devices} × {environment.device_kind}, {environment.host_cpu}, {environment.num_cores} cores",
        ),
        ("versions", value_text(environment.versions)),
        ("lossless", lossless_text(record)),
        ("decode runs", str(len(record.decodes))),
        ("wall time", "; ".join(f"{stage} {format_seconds(seconds)}" for stage, seconds in record.wall_s.items()) or "unknown"),
        *(("failure", failure) for failure in record.failures),
    ]
    rows = [
        (
            c.task,
            f"{c.block_size} ({c.block_size - 1})",
            format_ratio(c.predicted_speedup),
            speedup_text(c.measured_speedup, c.measured_low, c.measured_high),
        )
        for c in record.checks
    ]
    if not rows:
        return lines_of(facts)
    columns = [("task", "left"), ("K (K − 1)", "right"), ("predicted", "right"), ("measured (95 %)", "right")]
    return Group(lines_of(facts), table_of("Checks", columns, rows))


@content.register
def _(record: TraceSet) -> RenderableType:
    parts: list[RenderableType] = []
    for name, timings in record.traces.items():
        parts += [Text(name, style="bold"), content(timings)]
    return Group(*parts)


def describe(record: Record) -> RenderableType:
    """Any record, readable: its schema, its content and its findings."""
    schema, version = SCHEMAS.get(type(record), (type(record).__name__, None))
    parts: list[RenderableType] = [Text(f"{schema}, version {version}" if version else schema, style="dim"), content(record)]
    findings = getattr(record, "findings", ())
    if findings:
        parts.append(findings_list(findings))
    return Group(*parts)
