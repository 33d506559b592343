"""Imported results and diagnoses on a terminal: one row a run, then what was read, then the findings."""

from rich.console import Group, RenderableType
from rich.text import Text

from perfmodel.records import Diagnosis, Imported, ImportedRun
from perfmodel.units import format_percent

from .terminal import SEVERITY_STYLES, table_of

_COLUMNS = [
    ("run", "left"),
    ("K (K − 1)", "right"),
    ("steps", "right"),
    ("drafted", "right"),
    ("accepted", "right"),
    ("τ", "right"),
    ("survival", "left"),
]
_TIMES = ("step times", "right")
_SHOWN = 40


def imported_content(record: Imported) -> RenderableType:
    """The runs as a table, the definitions they were read under, and how many step times there are."""
    rows = [_row(run) for run in record.records[:_SHOWN]]
    total = [record.num_steps, record.num_draft_tokens, record.num_accepted]
    if len(record.records) > 1 and record.tau is not None:
        rows.append(("together", _size(record.block_size), *map(_count, total), _tau(record.tau), _survival(record.survival), ""))
    lines = [Text(f"definition: {text}", style="dim") for text in dict.fromkeys(run.definition for run in record.records)]
    if len(record.records) > _SHOWN:
        lines.append(Text(f"and {len(record.records) - _SHOWN:,} runs more", style="dim"))
    if record.cost_points:
        lines.append(Text(f"{len(record.cost_points):,} step times: perf check and perf fit take the saved record"))
    columns = [*_COLUMNS, _TIMES] if record.cost_points else _COLUMNS
    return Group(table_of(record.source, columns, [row[: len(columns)] for row in rows]), *lines)


def diagnosis_content(record: Diagnosis) -> RenderableType:
    """Findings, each in its three parts; what was looked at; what could not be."""
    parts: list[RenderableType] = []
    for found in record.findings:
        head = Text.assemble((f"{found.severity}: ", SEVERITY_STYLES[found.severity]), (found.code, "bold"))
        if found.where:
            head.append(f"  {found.where}", style="dim")
        body = [Text(f"  {label}: {text}") for label, text in _parts(found.evidence, found.cause, found.next_step) if text]
        parts += [head, *(body or [Text(f"  {found.message}")])]
    if not record.findings:
        parts.append(Text("nothing wrong was found"))
    if record.checked:
        parts.append(Text(f"looked at: {', '.join(record.checked)}", style="dim"))
    parts += [Text(f"not looked at: {name}, because {why}", style="dim") for name, why in record.not_checked.items()]
    return Group(*parts)


def _parts(evidence: str, cause: str, next_step: str) -> tuple[tuple[str, str], ...]:
    return (("seen", evidence), ("likely cause", cause), ("next", next_step))


def _row(run: ImportedRun) -> tuple[str, ...]:
    counts = (run.num_steps, run.num_draft_tokens, run.num_accepted)
    times = f"{len(run.cost_points):,}" if run.cost_points else ""
    return (run.name, _size(run.block_size), *map(_count, counts), _tau(run.tau), _survival(run.survival), times)


def _size(block_size: int | None) -> str:
    return "?" if block_size is None else f"{block_size} ({block_size - 1})"


def _count(value: int | None) -> str:
    return "?" if value is None else f"{value:,}"


def _tau(value: float | None) -> str:
    return "?" if value is None else f"{value:.3f}"


def _survival(values: tuple[float, ...] | None) -> str:
    if not values:
        return "?"
    return ", ".join(format_percent(value, 2) for value in values[:8]) + (", …" if len(values) > 8 else "")
