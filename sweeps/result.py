"""What a sweep ends with: its records, gathered."""

from dataclasses import dataclass
from pathlib import Path

from perfmodel.records import (
    AcceptanceSet,
    Audit,
    Finding,
    FittedModel,
    Flatness,
    PredictionSet,
    Run,
    Served,
    StepTimes,
    TraceSet,
)


@dataclass(frozen=True)
class SweepResult:
    """The records of a finished sweep and its folder.

    `model` is None when nothing could be fitted; `served` is what was measured at a server, from whose times no model is fitted.
    """

    folder: Path
    run: Run
    step_times: StepTimes
    traces: TraceSet
    audit: Audit
    model: FittedModel | None
    flatness: Flatness | None
    acceptance: AcceptanceSet
    predictions: PredictionSet
    served: Served | None = None

    @property
    def report(self) -> Path:
        """Where the page of this sweep belongs."""
        return self.folder / "report.html"

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All findings, in the order of work, each once."""
        parts = (
            self.run,
            self.step_times,
            *self.traces.traces.values(),
            self.audit,
            self.model,
            self.acceptance,
            self.predictions,
            self.served,
        )
        found = [finding for part in parts if part is not None for finding in part.findings]
        found += [finding for prediction in self.predictions.here for finding in prediction.findings]
        found += [finding for point in (self.served.points if self.served else ()) for finding in point.findings]
        return tuple(dict.fromkeys(found))

    @property
    def untrusted(self) -> bool:
        """Whether the sweep must not be believed: tokens were lost, a timing is impossible, or there is no answer."""
        unfounded = self.model is None if self.served is None else not self.predictions.here
        return self.run.lossless is False or self.audit.num_invalid > 0 or unfounded
