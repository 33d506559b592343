"""Terminal table of what the TPU compiler says: cycles and time beside the floor, bytes over the bus, memory needed."""

from collections.abc import Callable

from rich.table import Table
from rich.text import Text

from perfmodel.records import CompiledSet, CompiledStep
from perfmodel.units import format_bytes, format_percent, format_seconds

from .terminal import table_of

Column = tuple[str, str, Callable[[CompiledStep], str | Text]]
"""Header, side, and a row's cell."""


def compiled_table(found: CompiledSet) -> Table:
    """Every compiled program, a row each; K with its speculative tokens. What all rows share stands in the title."""
    names = dict.fromkeys(f"{row.target}{f' + {row.draft}' if row.draft else ''}, {row.dtype}" for row in found.rows)
    title = [f"By the compiler's account, one device a row: {'; '.join(names)}"]
    columns: list[Column] = [
        ("device", "left", _device),
        ("phase", "left", lambda row: row.phase),
        ("K", "right", lambda row: f"{row.block_size} ({row.num_speculative_tokens})"),
    ]
    for name in ("batch", "context"):
        values = {getattr(row, name) for row in found.rows}
        if len(values) == 1:
            title.append(f"{name} {values.pop()}")
        else:
            columns.append((name, "right", lambda row, name=name: str(getattr(row, name))))  # type: ignore[misc]
    columns += [
        ("Mcycles", "right", _cycles),
        ("estimate", "right", lambda row: _known(row, format_seconds(row.estimated_s))),
        ("floor", "right", lambda row: format_seconds(row.floor_s)),
        ("share", "right", lambda row: _known(row, format_percent(row.floor_share, 2))),
    ]
    if any(_narrowest(found, row) not in (None, row) for row in found.rows):
        columns.append(("× narrowest", "right", lambda row: _known(row, _over(found, row))))
    columns += [
        ("bytes", "right", lambda row: _known(row, format_bytes(row.hbm_bytes))),
        ("needs", "right", _memory),
    ]
    cells = [tuple(cell(row) for _, _, cell in columns) for row in found.rows]
    return table_of(", ".join(title), [(header, side) for header, side, _ in columns], cells)


def _device(row: CompiledStep) -> str:
    """The slice as the compiler names it; one chip without its shape."""
    return row.topology.removesuffix(":1x1x1").removesuffix(":1x1")


def _known(row: CompiledStep, text: str) -> str:
    return "–" if row.failure is not None else text


def _cycles(row: CompiledStep) -> str:
    parts = (row.estimated_cycles, row.wait_cycles, row.call_cycles)
    return _known(row, f"{sum(part or 0.0 for part in parts) / 1e6:.2f}")


def _memory(row: CompiledStep) -> Text:
    """Bytes a device must hold; red where it cannot."""
    if row.fits:
        return Text(format_bytes(row.needed_bytes))
    return Text(f"{format_bytes(row.needed_bytes)}: too much" if row.needed_bytes else "fails", style="red")


def _over(found: CompiledSet, row: CompiledStep) -> str:
    narrowest = _narrowest(found, row)
    if narrowest is None or not narrowest.estimated_s or row.estimated_s is None:
        return "–"
    return f"{row.estimated_s / narrowest.estimated_s:.2f}"


def _narrowest(found: CompiledSet, row: CompiledStep) -> CompiledStep | None:
    """The row that flatness is counted from: the narrowest block above K=1 of the same curve."""
    curve = [
        other
        for other in found.rows
        if other.block_size > 1
        and (other.topology, other.phase, other.batch, other.context) == (row.topology, row.phase, row.batch, row.context)
    ]
    return min(curve, key=lambda other: other.block_size, default=None)
