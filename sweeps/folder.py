"""The documents of a run folder: written at the end of a sweep, read back by the verbs that come after."""

from pathlib import Path

from perfmodel import codec
from perfmodel.errors import InputError
from perfmodel.records import (
    AcceptanceSet,
    Audit,
    FittedModel,
    PredictionSet,
    Record,
    Run,
    Served,
    StepTimes,
    TraceSet,
)

from . import analysis
from .result import SweepResult
from .store import RunStore


def write_result(result: SweepResult, store: RunStore) -> None:
    """Write every record of a finished sweep; `run.json` comes last, so a folder that has it is complete."""
    documents: dict[str, Record | None] = {
        "timings.json": result.step_times,
        "traces.json": result.traces,
        "audit.json": result.audit,
        "model.json": result.model,
        "acceptance.json": result.acceptance,
        "prediction.json": result.predictions,
        "served.json": result.served,
        "run.json": result.run,
    }
    for name, record in documents.items():
        if record is not None:
            store.save(name, record)


def read_result(folder: Path) -> SweepResult:
    """The records of a finished run folder. Raises `InputError` when it is none, or not finished yet."""
    if not (folder / "run.json").is_file():
        unfinished = (folder / "spec.json").is_file()
        message = f"{folder} is an unfinished run" if unfinished else f"{folder} is not a run folder: it has no run.json"
        hint = f"finish it: {RunStore(folder).resume_command}" if unfinished else "give the folder that `perf sweep-k` made"
        raise InputError(message, hint)
    run = codec.load(folder / "run.json", Run)
    model = codec.load(folder / "model.json", FittedModel) if (folder / "model.json").is_file() else None
    return SweepResult(
        folder=folder,
        run=run,
        step_times=codec.load(folder / "timings.json", StepTimes),
        traces=codec.load(folder / "traces.json", TraceSet),
        audit=codec.load(folder / "audit.json", Audit),
        model=model,
        flatness=None if model is None else analysis.flat_widths(model, run.spec.batches[0], run.spec.contexts[0]),
        acceptance=codec.load(folder / "acceptance.json", AcceptanceSet),
        predictions=codec.load(folder / "prediction.json", PredictionSet),
        served=codec.load(folder / "served.json", Served) if (folder / "served.json").is_file() else None,
    )
