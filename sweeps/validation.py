"""A fitted model against timings it was not fitted to."""

import statistics
from collections.abc import Sequence
from typing import Any

import msgspec

from perfmodel.audit import audit
from perfmodel.errors import FitError
from perfmodel.records import Finding, FittedModel, StepShape, TimingPoint
from perfmodel.stepmodel import model_work, seconds, values_of


def validate(model: FittedModel, points: Sequence[TimingPoint]) -> dict[str, Any]:
    """The body of `perf.validation`: measured and predicted seconds of every valid point, relative errors, their summary.

    Raises `FitError` when no point is left to compare with.
    """
    timed = [point for point in points if point.samples_s]
    audited = audit(timed, model.target, model.draft, model.hardware, model.dtype)
    kept = [point for point, verdict in zip(timed, audited.points, strict=True) if verdict.verdict != "invalid"]
    if not kept:
        raise FitError(
            "no trustworthy timing to validate against", "measure with a timer that waits for the device; see `perf check`"
        )
    shapes = [StepShape(phase=p.phase, batch=p.batch, query_tokens=p.block_size, context=p.context) for p in kept]
    predicted_s = seconds(values_of(model), model_work(model, shapes), model.hardware, model.dtype)
    rows = [_row(point, float(predicted)) for point, predicted in zip(kept, predicted_s, strict=True)]
    errors = [abs(row["error"]) for row in rows]
    findings = list(audited.findings)
    if len(kept) < len(timed):
        findings.append(
            Finding(
                code="points-refused",
                severity="warning",
                message=f"{len(timed) - len(kept)} timings below the speed of light were left out",
            )
        )
    return {
        "points": rows,
        "median_error": statistics.median(errors),
        "mean_error": statistics.fmean(errors),
        "max_error": max(errors),
        "num_rejected": len(timed) - len(kept),
        "findings": [msgspec.to_builtins(finding) for finding in findings],
    }


def _row(point: TimingPoint, predicted_s: float) -> dict[str, Any]:
    return {
        "phase": point.phase,
        "block_size": point.block_size,
        "tokens": point.tokens,
        "batch": point.batch,
        "context": point.context,
        "measured_s": point.median_s,
        "predicted_s": predicted_s,
        "error": predicted_s / point.median_s - 1,
    }
