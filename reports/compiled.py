"""Terminal table of what the TPU compiler says: cycles and time beside the floor, bytes over the bus, memory needed."""

from collections.abc import Callable, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from perfmodel.records import CompiledSet, CompiledStep
from perfmodel.units import format_in, format_percent

from .terminal import table_of

Column = tuple[str, str, Callable[[CompiledStep], str | Text]]
"""Header, side, and a row's cell."""


def compiled_table(found: CompiledSet) -> RenderableType:
    """Every compiled program, a row each, K with its speculative tokens: a table per batch and context, narrow enough for a terminal."""
    parts: dict[tuple[int, int], list[CompiledStep]] = {}
    for row in found.rows:
        parts.setdefault((row.batch, row.context), []).append(row)
    tables: list[RenderableType] = []
    for place, (batch, context) in enumerate(parts):
        tables += ([""] if place else []) + [_table(tuple(parts[batch, context]), batch, context)]
    return Group(*tables)


def _table(rows: Sequence[CompiledStep], batch: int, context: int) -> Table:
    names = dict.fromkeys(f"{row.target}{f' + {row.draft}' if row.draft else ''}, {row.dtype}" for row in rows)
    title = f"By the compiler's account, one device a row: {'; '.join(names)}, batch {batch}, context {context}"
    columns: list[Column] = [
        ("device", "left", _device),
        ("phase", "left", lambda row: row.phase),
        ("K", "right", lambda row: f"{row.block_size} ({row.num_speculative_tokens})"),
        ("10⁶\ncycles", "right", _cycles),
        ("time\nms", "right", lambda row: format_in("ms", row.estimated_s)),
        ("floor\nms", "right", lambda row: format_in("ms", row.floor_s)),
        ("share", "right", lambda row: _known(row, format_percent(row.floor_share, 2))),
    ]
    if any(_narrowest(rows, row) not in (None, row) for row in rows):
        title += "; × is the time over that of the narrowest block above K=1"
        columns.append(("×", "right", lambda row: _known(row, _over(rows, row))))
    columns += [("bytes\nGB", "right", lambda row: format_in("GB", row.hbm_bytes)), ("needs\nGB", "right", _memory)]
    if any(row.needed_bytes and not row.fits for row in rows):
        title += "; ! is more than the device holds"
    cells = [tuple(cell(row) for _, _, cell in columns) for row in rows]
    return table_of(title, [(header, side) for header, side, _ in columns], cells)


def _device(row: CompiledStep) -> str:
    """The slice as the compiler names it; one chip without its shape."""
    return row.topology.removesuffix(":1x1x1").removesuffix(":1x1")


def _known(row: CompiledStep, text: str) -> str:
    return "–" if row.failure is not None else text


def _cycles(row: CompiledStep) -> str:
    parts = (row.estimated_cycles, row.wait_cycles, row.call_cycles)
    return _known(row, format_in("Mcycles", sum(part or 0.0 for part in parts)))


def _memory(row: CompiledStep) -> Text:
    """Bytes a device must hold; marked and red where it cannot."""
    if row.fits:
        return Text(format_in("GB", row.needed_bytes))
    return Text(f"!{format_in('GB', row.needed_bytes)}" if row.needed_bytes else "fails", style="red")


def _over(rows: Sequence[CompiledStep], row: CompiledStep) -> str:
    narrowest = _narrowest(rows, row)
    if narrowest is None or not narrowest.estimated_s or row.estimated_s is None:
        return "–"
    return f"{row.estimated_s / narrowest.estimated_s:.2f}"


def _narrowest(rows: Sequence[CompiledStep], row: CompiledStep) -> CompiledStep | None:
    """The row that flatness is counted from: the narrowest block above K=1 of the same curve."""
    curve = [
        other
        for other in rows
        if other.block_size > 1
        and (other.topology, other.phase, other.batch, other.context) == (row.topology, row.phase, row.batch, row.context)
    ]
    return min(curve, key=lambda other: other.block_size, default=None)
