"""What other tools measured: the runs of imported files with the definitions they were read under, and their step times."""

from collections.abc import Sequence

from perfmodel.records import CostPoint, Imported, ImportedRun
from perfmodel.units import format_percent, format_seconds

from .figure import Figure, Trace, axis, block_size_axis, color, escaped, hover_line, seconds_ticks, symbol
from .inputs import PageInputs
from .section import Section, Table, absent
from .wording import number_text


def othertools_section(inputs: PageInputs) -> Section:
    """Imported runs in a table, and their step times against tokens where there are any."""
    title = "Other tools"
    if not inputs.imported:
        return absent("imported", title, "nothing was imported: `perf import` reads logs, scrapes and tables")
    points = [point for record in inputs.imported for point in record.cost_points]
    figures = (cost_figure(points),) if points else ()
    return Section("imported", title, figures=figures, tables=tuple(run_rows(r, i) for i, r in enumerate(inputs.imported)))


def cost_figure(points: Sequence[CostPoint]) -> Figure:
    """Step time against query tokens: one line per label, batch and context."""
    traces: list[Trace] = []
    groups = dict.fromkeys((point.label, point.phase, point.batch, point.context) for point in points)
    for number, (label, phase, batch, context) in enumerate(groups):
        mine = sorted(
            (p for p in points if (p.label, p.phase, p.batch, p.context) == (label, phase, batch, context)),
            key=lambda p: p.tokens,
        )
        known = "unknown context" if context is None else f"context {context:,}"
        name = ", ".join(part for part in (label, phase, f"batch {batch}", known) if part)
        text = [f"<b>{escaped(name)}</b><br>{p.tokens} query tokens: {format_seconds(p.seconds)}" for p in mine]
        marker = {"symbol": symbol(number), "size": 8}
        x, y = [p.tokens for p in mine], [p.seconds for p in mine]
        traces.append(hover_line(x, y, text, name, color(number), mode="lines+markers", marker=marker))
    fastest, slowest = min(points, key=lambda p: p.seconds), max(points, key=lambda p: p.seconds)
    finding = (
        f"Imported step times run from {format_seconds(fastest.seconds)} at {fastest.tokens:,} tokens "
        f"to {format_seconds(slowest.seconds)} at {slowest.tokens:,}"
    )
    return Figure(
        key="imported-times",
        title=finding,
        reading="As the source states them: neither checked against a floor nor fitted here. `perf check` and `perf fit` do that.",
        alt=f"Log-log chart of imported step times against query tokens. {finding}",
        data=tuple(traces),
        layout={
            "xaxis": block_size_axis([p.tokens for p in points], "query tokens per step (K × batch)"),
            "yaxis": axis("time per step", **seconds_ticks([p.seconds for p in points])),
        },
        height=400,
    )


def run_rows(record: Imported, index: int) -> Table:
    """A row per imported run; what the file did not hold is `unknown`."""
    definitions = " ".join(dict.fromkeys(f"{run.definition.rstrip('.')}." for run in record.records if run.definition))
    return Table(
        key=f"imported-{index}",
        caption=f"Read as {record.source}. {definitions}".strip(),
        headers=("run", "drafter", "K", "num_speculative_tokens", "steps", "drafted", "accepted", "τ", "survival"),
        rows=tuple(run_row(run) for run in record.records),
        text_columns=(0, 1, 8),
        folded=len(record.records) > 12,
    )


def run_row(run: ImportedRun) -> tuple[str, ...]:
    """One imported run."""
    counts = (run.num_steps, run.num_draft_tokens, run.num_accepted)
    return (
        run.name,
        run.draft or run.method or "unknown",
        "unknown" if run.block_size is None else str(run.block_size),
        "unknown" if run.block_size is None else str(run.block_size - 1),
        *("unknown" if count is None else f"{count:,}" for count in counts),
        number_text(run.tau),
        ", ".join(format_percent(share, 2) for share in run.survival) if run.survival else "unknown",
    )
