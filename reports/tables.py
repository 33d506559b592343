"""Terminal tables of step times and of a prediction, one row per block size."""

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from perfmodel.records import Audit, KPrediction, KRow, StepTimes, TimingPoint
from perfmodel.units import format_seconds

from .answer import answer
from .steptime import spread_text, verdict_at
from .terminal import table_of
from .wording import number_text, speedup_text, step_ratio


def step_times_table(step_times: StepTimes, audit: Audit | None = None) -> Table:
    """Median, spread and verdict of every point of a step-time sweep."""
    rows = [step_time_row(point, audit) for point in step_times.points]
    title = f"Step times of {' + '.join(name for name in (step_times.target, step_times.draft) if name)}, {step_times.dtype}"
    columns = [
        ("phase", "left"),
        ("K", "right"),
        ("batch", "right"),
        ("context", "right"),
        ("median", "right"),
        ("spread", "right"),
        ("verdict", "left"),
    ]
    return table_of(title, columns, rows)


def step_time_row(point: TimingPoint, audit: Audit | None) -> tuple[str | Text, ...]:
    """One point; a failed one shows its reason."""
    shape = (point.phase, str(point.block_size), str(point.batch), str(point.context))
    if point.failure is not None:
        return (*shape, "–", "–", Text(f"failed: {point.failure}", style="red"))
    verdict = verdict_at(audit, point)
    word = "" if verdict is None else verdict.verdict
    return (
        *shape,
        format_seconds(point.median_s),
        spread_text(point),
        Text(word, style="" if word in ("", "valid") else "red"),
    )


def step_s(row: KRow) -> float | None:
    """Time of one step, s: its time per token times the tokens it commits, which holds where its parts are unknown too."""
    return None if row.tpot_s is None else row.tpot_s * row.tau


def prediction_table(prediction: KPrediction) -> RenderableType:
    """Every block size of one prediction, the best marked."""
    rows = []
    for row in prediction.rows:
        is_best = row.block_size == prediction.best.block_size
        flags = "".join(("*" if row.extrapolated else "", "†" if not row.in_training else ""))
        cells = (
            f"{'▸' if is_best else ' '} {row.block_size} ({row.num_speculative_tokens}){flags}",
            number_text(row.tau),
            format_seconds(step_s(row)),
            number_text(step_ratio(row)),
            row_speedup_text(row),
            row.bound or "–",
        )
        rows.append(tuple(Text(cell, style="bold green" if is_best else "") for cell in cells))
    columns = [
        ("K (K − 1)", "left"),
        ("τ", "right"),
        ("step", "right"),
        ("ratio", "right"),
        ("speedup (95 %)", "right"),
        ("bound", "left"),
    ]
    place = f" on {prediction.hardware}" if prediction.hardware else ""
    title = f"{prediction.task}{place}: {prediction.source} prediction"
    note = "▸ best, * extrapolated, † beyond the drafter's block. K − 1: num_speculative_tokens"
    return Group(Text(answer(prediction, None, "").sentence), table_of(title, columns, rows), Text(note, style="dim"))


def row_speedup_text(row: KRow) -> str:
    """The row's speedup with its interval; plain decoding has none."""
    return speedup_text(row.speedup, *((row.speedup_low, row.speedup_high) if row.block_size > 1 else (None, None)))
