"""A section of the page: paragraphs, tables and figures in reading order, or the one line that says why it is absent."""

from collections.abc import Sequence
from dataclasses import dataclass

from .figure import Figure


@dataclass(frozen=True)
class Table:
    """A table as text. Columns named in `text_columns` (by index) are left-aligned words; all others are numbers."""

    key: str
    caption: str
    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    text_columns: tuple[int, ...] = (0,)
    label: str = ""
    folded: bool = False


@dataclass(frozen=True)
class Section:
    """One section. `missing` says in one line why it has no content; `links` are (text, path beside the page)."""

    key: str
    title: str
    paragraphs: tuple[str, ...] = ()
    figures: tuple[Figure, ...] = ()
    tables: tuple[Table, ...] = ()
    missing: str | None = None
    links: tuple[tuple[str, str], ...] = ()


def absent(key: str, title: str, why: str) -> Section:
    """A section left out, with its reason."""
    return Section(key, title, missing=why)


def shapes(pairs: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """The distinct (batch, context) shapes in order of first appearance."""
    return tuple(dict.fromkeys(pairs))


def shape_text(batch: int, context: int) -> str:
    """A shape in words: `batch 1, context 256 tokens`."""
    return f"batch {batch}, context {context:,} tokens"
