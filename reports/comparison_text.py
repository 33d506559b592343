"""What a comparison says on the terminal, within 80 columns."""

from rich.console import Group, RenderableType
from rich.text import Text

from perfmodel.units import format_ratio

from .comparison import Comparison, gain_text, ratio_text, summary_lines
from .terminal import lines_of, table_of


def comparison_summary(found: Comparison, report: str) -> RenderableType:
    """Per task both best K and gains and their ratio; without predictions the sentences; what was forced; where the page is."""
    parts: list[RenderableType] = [lines_of([("A", found.a.name), ("B", found.b.name)])]
    if found.tasks:
        rows = [
            (
                one.task,
                *(
                    f"{p.best.block_size} ({p.best.num_speculative_tokens}): {format_ratio(p.best.speedup)}"
                    for p in (one.a, one.b)
                ),
                gain_text(one),
                "unknown" if one.predicted is None else ratio_text(one.predicted),
            )
            for one in found.tasks
        ]
        columns = [("task", "left"), ("A", "right"), ("B", "right"), ("B over A (95 %)", "right"), ("time per token", "right")]
        parts.append(table_of("Best K (K − 1), speedup over plain decoding; predicted time per token, B over A", columns, rows))
    parts += [Text(line) for line in summary_lines(found)]
    return Group(*parts, lines_of([("report", report)]))
