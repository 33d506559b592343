"""How wide verification stays nearly free, and how that moves: the terminal table of flat widths and knees."""

from collections.abc import Sequence

from rich.table import Table

from perfmodel.records import Flatness

from .terminal import table_of


def flat_widths(rows: Sequence[Flatness]) -> Table:
    """One row per batch, context, dtype or weight width: flat widths in K with 95 % intervals, the knee in tokens, the cause."""
    columns = [("batch", "right"), ("context", "right"), ("dtype", "left"), ("weight bits", "right")]
    columns += [(f"flat at {100 * float(tolerance):.0f} %", "right") for tolerance in rows[0].widths]
    columns += [("knee, tokens", "right"), ("cause", "left"), ("", "left")]
    return table_of(
        "Flat width: largest K whose step takes no longer than K=1's by so much", columns, [_row(row) for row in rows]
    )


def _row(row: Flatness) -> list[str]:
    widths = [_interval(row.widths[key], row.widths_low[key], row.widths_high[key], row.limit) for key in row.widths]
    marks = [mark for mark, holds in (("what if", row.what_if), ("extrapolated", row.extrapolated)) if holds]
    bits = "" if row.weight_bits is None else f"{row.weight_bits:g}"
    knee = _interval(row.knee_tokens, row.knee_low, row.knee_high, row.limit * row.batch)
    return [str(row.batch), str(row.context), row.dtype, bits, *widths, knee, row.cause, ", ".join(marks)]


def _interval(value: int | None, low: int | None, high: int | None, limit: int) -> str:
    """A width with its interval; one that reaches the limit, or a knee that lies beyond it, means "at least"."""

    def text(number: int | None) -> str:
        return f"≥{limit}" if number is None or number >= limit else str(number)

    return text(value) if low == high else f"{text(value)} ({text(low)}–{text(high)})"
