"""The one JSON document of a sweep, with the keys that scripts may rely on. Absent knowledge is null."""

from typing import Any

import msgspec

from perfmodel.acceptance import tau_interval, tau_per_answer, tau_pooled
from perfmodel.records import AcceptanceProfile, CheckedK, FittedModel, Flatness, KPrediction, Served

from .intervals import median_interval
from .result import SweepResult


def sweep_document(result: SweepResult) -> dict[str, Any]:
    """The body of `perf.sweep`."""
    spec = result.run.spec
    return {
        "run_dir": str(result.folder),
        "report": str(result.report),
        "device_kind": result.run.environment.device_kind,
        "target": spec.target,
        "draft": spec.draft,
        "synthetic": spec.quick,
        "lossless": result.run.lossless,
        "lossless_compared": result.run.lossless_compared,
        "profiler_overhead": result.run.profiler_overhead,
        "step_times": [*_step_times(result), *_served_times(result.served)],
        "flat": _flat(result.flatness),
        "fit": fit_document(result.model),
        "tasks": [_task(result, prediction) for prediction in _first_here(result)],
        "predictions": [_prediction(one) for one in (*result.predictions.here, *result.predictions.elsewhere)],
        "findings": [msgspec.to_builtins(finding) for finding in result.findings],
    }


def _step_times(result: SweepResult) -> list[dict[str, Any]]:
    verdicts = {(p.phase, p.block_size, p.batch, p.context): p.verdict for p in result.audit.points}
    rows = []
    for point in result.step_times.points:
        known = bool(point.samples_s)
        low, high = median_interval(point.samples_s) if known else (None, None)
        verdict = verdicts.get((point.phase, point.block_size, point.batch, point.context))
        rows.append(
            {
                "phase": point.phase,
                "block_size": point.block_size,
                "batch": point.batch,
                "context": point.context,
                "seconds": point.median_s if known else None,
                "seconds_low": low,
                "seconds_high": high,
                "num_samples": len(point.samples_s),
                "valid": known and verdict != "invalid",
                "verdict": verdict,
                "failure": point.failure,
            }
        )
    return rows


def _served_times(served: Served | None) -> list[dict[str, Any]]:
    """Whole steps of a server: draft, verification and all that its scheduler does in between; plain decoding as `verify`."""
    rows = []
    for point in served.points if served else ():
        if point.block_size is None or point.step_s is None or point.tokens_per_step is None:
            continue
        samples = tuple(tpot_s * point.tokens_per_step for request in point.requests if (tpot_s := request.tpot_s))
        low, high = median_interval(samples) if samples else (None, None)
        rows.append(
            {
                "phase": "verify" if point.block_size == 1 else "step",
                "block_size": point.block_size,
                "batch": point.concurrency,
                "context": point.context,
                "seconds": point.step_s,
                "seconds_low": low,
                "seconds_high": high,
                "num_samples": len(samples),
                "valid": True,
                "verdict": None,
                "failure": None,
                "task": point.task,
            }
        )
    return rows


def _flat(flatness: Flatness | None) -> dict[str, Any]:
    if flatness is None:
        return {"0.05": None, "0.10": None, "0.25": None, "cause": None}
    tokens = {tolerance: width * flatness.batch for tolerance, width in flatness.widths.items()}
    return {**tokens, "cause": flatness.cause}


def fit_document(model: FittedModel | None) -> dict[str, Any]:
    """Parameters and errors of a fit as the documents promise them."""
    if model is None:
        return {"parameters": {}, "median_error": None, "held_out_median_error": None}
    return {
        "parameters": {
            name: {"value": p.value, "stderr": p.stderr, "unit": p.unit, "identified": p.identified, "note": p.note}
            for name, p in model.parameters.items()
        },
        "median_error": model.median_error,
        "held_out_median_error": model.held_out_median_error,
    }


def _first_here(result: SweepResult) -> tuple[KPrediction, ...]:
    """The predictions at the first batch and context, one per task."""
    return result.predictions.here[: len(result.acceptance.profiles)]


def _task(result: SweepResult, prediction: KPrediction) -> dict[str, Any]:
    profile: AcceptanceProfile = next(p for p in result.acceptance.profiles if p.task == prediction.task)
    interval = tau_interval(profile, profile.block_size)
    check = _check(result.run.checks, prediction)
    best = prediction.best
    return {
        "task": prediction.task,
        "num_prompts": profile.num_prompts,
        "num_steps": profile.num_steps,
        "block_size": profile.block_size,
        "tau_pooled": tau_pooled(profile),
        "tau_per_answer": tau_per_answer(profile),
        "tau_low": None if interval is None else interval[0],
        "tau_high": None if interval is None else interval[1],
        "best_block_size": best.block_size,
        "num_speculative_tokens": best.num_speculative_tokens,
        "speedup": best.speedup,
        "speedup_low": best.speedup_low,
        "speedup_high": best.speedup_high,
        "plateau": list(prediction.plateau),
        "measured_speedup": None if check is None else check.measured_speedup,
        "worth_it": prediction.worth_it,
    }


def _check(checks: tuple[CheckedK, ...], prediction: KPrediction) -> CheckedK | None:
    wanted = (prediction.task, prediction.best.block_size, prediction.batch)
    return next((check for check in checks if (check.task, check.block_size, check.batch) == wanted), None)


def _prediction(prediction: KPrediction) -> dict[str, Any]:
    best = prediction.best
    return {
        "hardware": prediction.hardware,
        "target": prediction.target,
        "draft": prediction.draft,
        "task": prediction.task,
        "source": prediction.source,
        "batch": prediction.batch,
        "context": prediction.context,
        "best_block_size": best.block_size,
        "num_speculative_tokens": best.num_speculative_tokens,
        "speedup": best.speedup,
        "speedup_low": best.speedup_low,
        "speedup_high": best.speedup_high,
    }
