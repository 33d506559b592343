"""A fitted model against timings it was not fitted to, and a table of timings against itself with parts left out."""

import statistics
from collections.abc import Sequence
from typing import Any

import msgspec

from perfmodel.audit import audit
from perfmodel.errors import FitError, NothingTrustedError
from perfmodel.fit import fit
from perfmodel.records import Audit, Finding, FittedModel, Hardware, ModelSpec, StepShape, TimingPoint
from perfmodel.stepmodel import model_work, seconds, values_of

from .progress import Reporter, silent

NUM_FOLDS = 8
"""Block sizes are left out one at a time, or in this many groups where there are more of them."""


def validate(model: FittedModel, points: Sequence[TimingPoint]) -> dict[str, Any]:
    """The body of `perf.validation`: measured and predicted seconds of every valid point, relative errors, their summary.

    Raises `FitError` when there is no point to compare with, `NothingTrustedError` when all are below the speed of light.
    """
    timed = [point for point in points if point.samples_s]
    audited = audit(timed, model.target, model.draft, model.hardware, model.dtype)
    kept = _kept(timed, audited)
    return _document("model", kept, _predicted(model, kept), len(timed) - len(kept), (*model_notes(model), *audited.findings))


def cross_validate(
    points: Sequence[TimingPoint],
    target: ModelSpec | None,
    draft: ModelSpec | None,
    hardware: Hardware | None,
    dtype: str,
    report: Reporter = silent,
) -> dict[str, Any]:
    """The body of `perf.validation` for timings alone: every point predicted by a fit that never saw its block size.

    The narrowest and the widest are left out too, and then predicted from one side only. Raises `FitError` when what remains
    cannot carry a curve.
    """
    timed = [point for point in points if point.samples_s]
    audited = audit(timed, target, draft, hardware, dtype)
    kept = _kept(timed, audited)
    sizes = sorted({point.block_size for point in kept})
    predicted: dict[int, float] = {}
    num_folds = min(NUM_FOLDS, len(sizes))
    for fold in range(num_folds):
        left_out = set(sizes[fold::NUM_FOLDS])
        report("left out", fold / num_folds, f"K = {', '.join(map(str, sorted(left_out)[:6]))}")
        rest = [point for point in kept if point.block_size not in left_out]
        model = fit(rest, target, draft, hardware, dtype, num_draws=0)
        here = [i for i, point in enumerate(kept) if point.block_size in left_out]
        predicted |= dict(zip(here, _predicted(model, [kept[i] for i in here]), strict=True))
    times = [predicted[i] for i in range(len(kept))]
    return _document("left-out block sizes", kept, times, len(timed) - len(kept), audited.findings)


def model_notes(model: FittedModel) -> tuple[Finding, ...]:
    """Findings of a model that a reader of its predictions needs: that it was moved from another chip."""
    return tuple(finding for finding in model.findings if finding.code == "transferred")


def _kept(timed: Sequence[TimingPoint], audited: Audit) -> list[TimingPoint]:
    kept = [point for point, verdict in zip(timed, audited.points, strict=True) if verdict.verdict != "invalid"]
    if not timed:
        raise FitError("no timing to validate against: no point holds a sample", "measure verify steps")
    if not kept:
        raise NothingTrustedError(
            "no trustworthy timing to validate against", "measure with a timer that waits for the device; see `perf check`"
        )
    return kept


def _predicted(model: FittedModel, points: Sequence[TimingPoint]) -> list[float]:
    shapes = [StepShape(phase=p.phase, batch=p.batch, query_tokens=p.block_size, context=p.context) for p in points]
    return [float(time) for time in seconds(values_of(model), model_work(model, shapes), model.hardware, model.dtype)]


def _document(
    method: str, points: Sequence[TimingPoint], predicted_s: Sequence[float], num_rejected: int, findings: Sequence[Finding]
) -> dict[str, Any]:
    rows = [_row(point, predicted) for point, predicted in zip(points, predicted_s, strict=True)]
    errors = [abs(row["error"]) for row in rows]
    noted = list(findings)
    if num_rejected:
        noted.append(
            Finding(
                code="points-refused",
                severity="warning",
                message=f"{num_rejected} timings below the speed of light were left out",
            )
        )
    return {
        "method": method,
        "points": rows,
        "median_error": statistics.median(errors),
        "mean_error": statistics.fmean(errors),
        "max_error": max(errors),
        "num_rejected": num_rejected,
        "findings": [msgspec.to_builtins(finding) for finding in noted],
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
