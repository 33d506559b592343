"""The HTML page of a run folder, shared by the verbs that write one."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any


def page_inputs(result: Any) -> Any:
    """What the page of a sweep is made from."""
    from reports.inputs import PageInputs

    return PageInputs(
        generated_at=datetime.now(UTC),
        run=result.run,
        step_times=result.step_times,
        traces=tuple(result.traces.traces.values()),
        audit=result.audit,
        model=result.model,
        acceptance=result.acceptance,
        predictions=result.predictions,
        flatness=result.flatness,
        commands=(command_line(result.run.spec), f"perf view {result.folder}", f"perf report {result.folder}"),
    )


def command_line(spec: Any) -> str:
    """The `perf sweep-k` command that asks for this spec."""
    parts = ["perf sweep-k"]
    if spec.quick:
        parts.append("--quick")
    else:
        parts += [f"--target {spec.target}", f"--draft {spec.draft}"]
    parts += [
        f"--points {','.join(map(str, spec.block_sizes))}",
        f"--task {','.join(spec.tasks)}",
        f"--batch {','.join(map(str, spec.batches))}",
        f"--context {','.join(map(str, spec.contexts))}",
        f"--dtype {spec.dtype}",
        f"--repeats {spec.repeats}",
        f"--hardware {','.join(spec.hardware)}",
    ]
    if spec.prompts_file is not None:
        parts.append(f"--prompts {spec.prompts_file}")
    return " ".join(parts)


def write_page(inputs: Any, path: Path) -> None:
    """Render the page and write it whole or not at all."""
    from perfmodel.codec import write_atomic
    from reports.page import render

    write_atomic(path, render(inputs).encode())


def records_inputs(paths: tuple[Path, ...]) -> Any:
    """What a page is made from when single records are given. Raises `InputError` for two of one kind."""
    from perfmodel.codec import SCHEMAS, load_any
    from perfmodel.errors import InputError
    from perfmodel.records import (
        AcceptanceSet,
        Audit,
        FittedModel,
        KPrediction,
        PredictionSet,
        Run,
        StepTimes,
        TraceSet,
        TraceTimings,
    )
    from reports.inputs import PageInputs

    fields = {
        Run: "run",
        StepTimes: "step_times",
        Audit: "audit",
        FittedModel: "model",
        AcceptanceSet: "acceptance",
        PredictionSet: "predictions",
    }
    found: dict[str, Any] = {}
    traces: list[Any] = []
    for path in paths:
        record = load_any(path)
        if isinstance(record, TraceSet):
            traces += record.traces.values()
            continue
        if isinstance(record, TraceTimings):
            traces.append(record)
            continue
        if isinstance(record, KPrediction):
            record = PredictionSet(here=(record,))
        field = fields.get(type(record))
        if field is None:
            raise InputError(f"{path} holds {SCHEMAS[type(record)][0]}, which no page shows", "give the records of a run")
        if field in found:
            raise InputError(f"{path} is a second {SCHEMAS[type(record)][0]}", "one page shows one run")
        found[field] = record
    return PageInputs(
        generated_at=datetime.now(UTC), traces=tuple(traces), commands=(f"perf report {' '.join(map(str, paths))}",), **found
    )
