"""How wide verification stays nearly free, and how that moves: the terminal table of flat widths and knees."""

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from perfmodel.records import Flatness

from .terminal import table_of

EXTRAPOLATED, WHAT_IF = "*", "†"


def flat_widths(rows: Sequence[Flatness]) -> Table:
    """One row per batch, context, dtype or weight width: flat widths in K with 95 % intervals, the knee in tokens, the cause."""
    columns = [("batch × context", "right"), ("dtype/bits", "left")]
    columns += [(f"{100 * float(tolerance):.0f} %", "right") for tolerance in rows[0].widths]
    columns += [("knee", "right"), ("cause", "left")]
    title = "Flat width: largest K whose step takes no longer than K=1's by so much"
    table = table_of(title, columns, [_row(row) for row in rows])
    notes = ["In brackets: 95 %. Knee: tokens at which arithmetic takes as long as memory."]
    notes += [f"{EXTRAPOLATED} beyond what was fitted."] if any(row.extrapolated for row in rows) else []
    notes += [f"{WHAT_IF} what if: no step of that kind was measured."] if any(row.what_if for row in rows) else []
    table.caption, table.caption_justify = Text(" ".join(notes), style="dim"), "left"
    return table


def _row(row: Flatness) -> list[str]:
    widths = [_interval(row.widths[key], row.widths_low[key], row.widths_high[key], row.limit) for key in row.widths]
    mark = WHAT_IF if row.what_if else EXTRAPOLATED if row.extrapolated else " "
    bits = "" if row.weight_bits is None else f"/{row.weight_bits:g}"
    knee = _interval(row.knee_tokens, row.knee_low, row.knee_high, row.limit * row.batch)
    return [f"{row.batch} × {row.context}{mark}", f"{row.dtype}{bits}", *widths, knee, row.cause]


def _interval(value: int | None, low: int | None, high: int | None, limit: int) -> str:
    """A width with its interval; one that reaches the limit, or a knee that lies beyond it, means "at least"."""

    def text(number: int | None) -> str:
        return f"≥{limit}" if number is None or number >= limit else str(number)

    return text(value) if low == high else f"{text(value)} ({text(low)}–{text(high)})"
