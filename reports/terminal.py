"""Plain terminal tables from plain text: no markup is read in a record's words, and nothing is wider than it needs to be."""

from collections.abc import Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from perfmodel.records import Finding

SEVERITY_STYLES = {"error": "bold red", "warning": "yellow", "info": "dim"}


def table_of(title: str, columns: Sequence[tuple[str, str]], rows: Sequence[Sequence[str | Text]]) -> Table:
    """A table from plain texts (no markup is read in them); columns are (header, `left` or `right`)."""
    table = Table(
        title=Text(title, style="bold"),
        title_justify="left",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
        show_edge=False,
    )
    for header, justify in columns:
        table.add_column(Text(header), justify="left" if justify == "left" else "right", overflow="fold")
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else Text(cell) for cell in row))
    return table


def lines_of(pairs: Sequence[tuple[str, str]]) -> Table:
    """Name and value, one pair a line."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in pairs:
        grid.add_row(Text(name), Text(value))
    return grid


def findings_list(findings: Sequence[Finding]) -> RenderableType:
    """Findings, one a paragraph, with their hints."""
    return Group(
        *(
            Text.assemble((f"{f.severity}: ", SEVERITY_STYLES[f.severity]), f.message, (f" ({f.hint})" if f.hint else "", "dim"))
            for f in findings
        )
    )
