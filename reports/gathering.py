"""Any mix of records as the inputs of one page: joined where several may stand side by side, refused where they may not.

Acceptance, predictions, traces, compiled tables and imported results may be several. A run, its step times, its audit and its
fitted model are those of one measurement; two of them belong on a page of differences.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from perfmodel.codec import SCHEMAS
from perfmodel.errors import InputError
from perfmodel.flatness import flatness
from perfmodel.imported import imported_profiles
from perfmodel.records import (
    AcceptanceProfile,
    AcceptanceSet,
    Audit,
    CompiledSet,
    FittedModel,
    Imported,
    KPrediction,
    PredictionSet,
    Record,
    Run,
    Served,
    StepTimes,
    TimingPoint,
    TraceSet,
    TraceTimings,
)

from .inputs import PageInputs

Named = Sequence[tuple[str, Record]]

SINGLE: dict[type[Record], str] = {
    Run: "run",
    StepTimes: "step_times",
    Audit: "audit",
    FittedModel: "model",
    Served: "served",
}
"""Record of which a page shows one → its field."""


def gather(named: Named, generated_at: datetime, commands: tuple[str, ...] = ()) -> PageInputs:
    """The inputs of a page from records by file name. Raises `InputError` for two runs, or a record that no page shows."""
    single: dict[str, Any] = {}
    profiles: list[AcceptanceProfile] = []
    here: list[KPrediction] = []
    elsewhere: list[KPrediction] = []
    traces: list[TraceTimings] = []
    compiled: list[CompiledSet] = []
    imported: list[Imported] = []
    for name, record in named:
        match record:
            case TraceSet():
                traces += record.traces.values()
            case TraceTimings():
                traces.append(record)
            case AcceptanceSet():
                profiles += record.profiles
            case AcceptanceProfile():
                profiles.append(record)
            case KPrediction():
                here.append(record)
            case PredictionSet():
                here += record.here
                elsewhere += record.elsewhere
            case CompiledSet():
                compiled.append(record)
            case Imported():
                imported.append(record)
                profiles += usable_profiles(record, name)
            case Run() | StepTimes() | Audit() | FittedModel() | Served():
                field = SINGLE[type(record)]
                if field in single:
                    raise InputError(f"{name} is a second {SCHEMAS[type(record)][0]}", "one page shows one run; see perf compare")
                single[field] = record
            case _:
                raise InputError(f"{name} holds {SCHEMAS[type(record)][0]}, which no page shows", "give the records of a run")
    if "served" in single:  # the step times and audit of such a run are empty: a server's times hold its scheduler
        single = {field: record for field, record in single.items() if field not in ("step_times", "audit")}
    model: FittedModel | None = single.get("model")
    if model is not None and "step_times" not in single:
        single["step_times"] = fitted_times(model)
    shown, others = by_chip(here)
    named_profiles, named_here, named_others = named_apart(profiles, shown, [*others, *elsewhere])
    return PageInputs(
        generated_at=generated_at,
        traces=tuple(traces),
        acceptance=AcceptanceSet(profiles=named_profiles) if profiles else None,
        predictions=PredictionSet(here=named_here, elsewhere=named_others) if here or elsewhere else None,
        flatness=None if model is None else flatness(model, model.fitted_range.batch[0], model.fitted_range.context[0]),
        compiled=CompiledSet(rows=tuple(row for one in compiled for row in one.rows)) if compiled else None,
        imported=tuple(imported),
        commands=commands,
        sources=tuple(named),
        **single,
    )


def usable_profiles(record: Imported, name: str) -> tuple[AcceptanceProfile, ...]:
    """The acceptance an imported record tells; none where it tells none (its runs are listed all the same)."""
    try:
        return imported_profiles(record, name)
    except InputError:
        return ()


def fitted_times(model: FittedModel) -> StepTimes | None:
    """The medians that a model was fitted to, where no step times stand beside it."""
    if not model.points or model.target is None:
        return None
    points = tuple(
        TimingPoint(
            phase=point.phase,  # type: ignore[arg-type]
            block_size=point.block_size,
            batch=point.batch,
            context=point.context,
            samples_s=(point.measured_s,),
        )
        for point in model.points
    )
    kind = model.hardware.display_name if model.hardware else "unknown"
    return StepTimes(
        device_kind=kind,
        target=model.target.name,
        draft=model.draft.name if model.draft else None,
        dtype=model.dtype,
        points=points,
    )


def by_chip(predictions: Sequence[KPrediction]) -> tuple[list[KPrediction], list[KPrediction]]:
    """The predictions of the first chip, and those of the others (for the table of chips)."""
    first = predictions[0].hardware if predictions else ""
    return [p for p in predictions if p.hardware == first], [p for p in predictions if p.hardware != first]


def named_apart(
    profiles: Sequence[AcceptanceProfile], here: Sequence[KPrediction], elsewhere: Sequence[KPrediction]
) -> tuple[tuple[AcceptanceProfile, ...], tuple[KPrediction, ...], tuple[KPrediction, ...]]:
    """The same with the drafter added to the task where several drafters stand side by side, so that no two curves share a name."""
    several = _several(profiles) | _several(here)
    repeated = {profile.task for profile in profiles if sum(other.task == profile.task for other in profiles) > 1}

    def task(one: AcceptanceProfile | KPrediction) -> str:
        if one.task in several and one.draft:
            return f"{one.task} · {one.draft}"
        return one.name if isinstance(one, AcceptanceProfile) and one.task in repeated else one.task

    return (
        tuple(msgspec.structs.replace(one, task=task(one)) for one in profiles),
        tuple(msgspec.structs.replace(one, task=task(one)) for one in here),
        tuple(elsewhere),
    )


def _several(records: Sequence[AcceptanceProfile] | Sequence[KPrediction]) -> set[str]:
    """The tasks for which the records name more than one drafter."""
    drafters: dict[str, set[str]] = {}
    for one in records:
        drafters.setdefault(one.task, set()).add(one.draft)
    return {task for task, names in drafters.items() if len(names) > 1}
