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
    StepTimes,
    TraceSet,
)


@dataclass(frozen=True)
class SweepResult:
    """The records of a finished sweep and its folder. `model` is None when nothing could be fitted."""

    folder: Path
    run: Run
    step_times: StepTimes
    traces: TraceSet
    audit: Audit
    model: FittedModel | None
    flatness: Flatness | None
    acceptance: AcceptanceSet
    predictions: PredictionSet

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
        )
        found = [finding for part in parts if part is not None for finding in part.findings]
        found += [finding for prediction in self.predictions.here for finding in prediction.findings]
        return tuple(dict.fromkeys(found))

    @property
    def untrusted(self) -> bool:
        """Whether the sweep must not be believed: tokens were lost, a timing is impossible, or nothing could be fitted."""
        return self.run.lossless is False or self.audit.num_invalid > 0 or self.model is None
