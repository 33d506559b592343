"""A measured server, on the page and on a terminal: one row for each task, K and number of requests in flight."""

import statistics

from rich.console import Group, RenderableType
from rich.text import Text

from perfmodel.records import Served, ServedPoint
from perfmodel.units import format_ratio, format_seconds

from .section import Section, Table
from .terminal import table_of

_COLUMNS = [
    ("task", "left"),
    ("load", "right"),
    ("K (K − 1)", "right"),
    ("TTFT", "right"),
    ("TPOT", "right"),
    ("E2E", "right"),
    ("step", "right"),
    ("τ", "right"),
    ("gain", "right"),
]
"""Load is requests in flight. TTFT and E2E are medians over answers, TPOT and τ (tokens added per step) are pooled."""


def served_content(record: Served) -> RenderableType:
    """Where the server was and what it gave, narrowest K first within a scene."""
    return Group(table_of(record.engine, _COLUMNS, _rows(record)), *(Text(line, style="dim") for line in _about(record)))


def served_section(record: Served) -> Section:
    """The same as a section of the page."""
    table = Table(
        key="served",
        caption="As a client saw the server. Load: requests in flight. TTFT (time to the first text) and E2E (whole answer) are "
        "medians over answers; TPOT (time per token after the first) and τ (tokens a step added) are pooled. Gain: TPOT of plain "
        "decoding over it.",
        headers=tuple(name for name, _ in _COLUMNS),
        rows=tuple(_rows(record)),
    )
    return Section(
        "served", f"At the server ({record.engine})", paragraphs=tuple(f"{line}." for line in _about(record)), tables=(table,)
    )


def _rows(record: Served) -> list[tuple[str, ...]]:
    points = sorted(record.points, key=lambda point: (point.concurrency, point.task, _size(point)))
    plain = {(point.task, point.concurrency): point.tpot_s for point in points if _size(point) == 1}
    return [_row(point, plain.get((point.task, point.concurrency))) for point in points]


def _about(record: Served) -> list[str]:
    """Where the server was, and in which order servers were started."""
    lines = [f"model {record.model or 'unknown'} at {record.base_url}"]
    if record.launched:
        lines.append(f"servers were started for K = {', '.join(map(str, record.launched))}, in this order")
    return lines


def _size(point: ServedPoint) -> int:
    return point.block_size or point.asked or 0


def _row(point: ServedPoint, plain_s: float | None) -> tuple[str, ...]:
    size, tpot_s = _size(point), point.tpot_s
    return (
        point.task,
        str(point.concurrency),
        f"{size} ({size - 1})" if size else "?",
        format_seconds(statistics.median(request.ttft_s for request in point.requests)),
        format_seconds(tpot_s),
        format_seconds(statistics.median(request.e2e_s for request in point.requests)),
        format_seconds(point.step_s),
        "?" if point.tokens_per_step is None else f"{point.tokens_per_step:.2f}",
        format_ratio(plain_s / tpot_s) if plain_s and tpot_s else "unknown",
    )
