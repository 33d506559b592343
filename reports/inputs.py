"""What a page is made from: any mix of records. A missing one leaves its section out and says so."""

from dataclasses import dataclass
from datetime import datetime

from perfmodel.records import (
    AcceptanceSet,
    Audit,
    CompiledSet,
    FittedModel,
    Flatness,
    Imported,
    PredictionSet,
    Record,
    Run,
    Served,
    StepTimes,
    TraceTimings,
)


@dataclass(frozen=True)
class PageInputs:
    """The records of one page, each optional, and when it was made. `commands` reproduce the records, in order.

    `sources` are the records as they were read, by file name, where that is not what the other fields hold (several files joined,
    tasks named apart): the page embeds these. `captures` is the way from the page to the run folder, where its captures lie (empty: the
    page is in it; None: unknown, and nothing is linked).
    """

    generated_at: datetime
    title: str = "How many tokens should a speculative decoder verify?"
    run: Run | None = None
    step_times: StepTimes | None = None
    traces: tuple[TraceTimings, ...] = ()
    audit: Audit | None = None
    model: FittedModel | None = None
    acceptance: AcceptanceSet | None = None
    predictions: PredictionSet | None = None
    flatness: Flatness | None = None
    compiled: CompiledSet | None = None
    imported: tuple[Imported, ...] = ()
    served: Served | None = None
    commands: tuple[str, ...] = ()
    sources: tuple[tuple[str, Record], ...] = ()
    captures: str | None = ""
