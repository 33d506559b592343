"""What a reader of a format is: a name, what it reads, how it recognises a file, and what the format cannot tell."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum

from perfmodel.records import ImportedRun

from .source import Source


class Likeness(IntEnum):
    """How sure a reader is that a file is its own."""

    NO = 0
    PERHAPS = 1
    """The shape fits, as it would fit other things: a generic reader."""
    LIKELY = 2
    CERTAIN = 3
    """A name stands in it that only this format has."""


def likeness(certain: bool, likely: bool = False) -> Likeness:
    """`CERTAIN`, `LIKELY` or `NO`."""
    return Likeness.CERTAIN if certain else Likeness.LIKELY if likely else Likeness.NO


@dataclass(frozen=True)
class Reader:
    """A format. `read` gives the runs of one file; `join`, where there is one, those of several files of one experiment."""

    name: str
    description: str
    cannot_know: str
    sniff: Callable[[Source], Likeness]
    read: Callable[[Source], list[ImportedRun]]
    join: Callable[[Sequence[Source]], list[ImportedRun]] | None = None
