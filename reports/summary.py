"""What a verb says on the terminal, within 80 columns, as rich renderables: nothing is printed here."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from perfmodel.records import KPrediction
from perfmodel.units import format_bandwidth, format_flop_rate, format_percent, format_ratio, format_seconds

from .acceptance import pooled_text
from .answer import Worth, answer, first_per_task, profile_of, worth
from .description import describe
from .evidence import lossless_text
from .flat import flat_sentence
from .inputs import PageInputs
from .tables import prediction_table, step_times_table
from .terminal import SEVERITY_STYLES, lines_of, table_of
from .validation import error_finding
from .wording import check_at, signed_percent, speedup_text, tau_text

__all__ = ["describe", "doctor_table", "prediction_table", "step_times_table", "sweep_summary", "validation_table"]

STYLES: dict[Worth, str] = {"yes": "green", "no": "yellow", "undecided": "yellow", "unknown": "dim"}


def sweep_summary(inputs: PageInputs, report: str) -> RenderableType:
    """What a sweep found: per task τ, best K, speedup and its check; flat width and cause; lossless; where the report is."""
    predictions = inputs.predictions.here if inputs.predictions else ()
    parts: list[RenderableType] = []
    if predictions:
        parts.append(answer_table(inputs, predictions))
    facts = [("verify", flat_sentence(inputs) or "flat width unknown")]
    if inputs.run is not None:
        facts.append(("lossless", lossless_text(inputs.run)))
    if inputs.model is not None:
        facts.append(("model", error_finding(inputs.model)))
    facts.append(("report", report))
    parts.append(lines_of(facts))
    refusals = [answer(p, inputs.run, "").sentence for p in first_per_task(predictions) if worth(p) == "no"]
    parts += [Text(sentence, style="yellow") for sentence in refusals]
    return Group(*parts)


def answer_table(inputs: PageInputs, predictions: Sequence[KPrediction]) -> Table:
    """Task × τ, best K with `num_speculative_tokens`, predicted and measured speedup."""
    checks = inputs.run.checks if inputs.run else ()
    rows = []
    for p in predictions:
        profile, best = profile_of(inputs, p), p.best
        check = check_at(checks, p.task, best.block_size)
        speculates = best.block_size > 1
        rows.append(
            (
                p.task,
                pooled_text(profile) if profile else tau_text(best),
                f"{best.block_size} ({best.num_speculative_tokens})" if speculates else "1 (off)",
                speedup_text(best.speedup, best.speedup_low, best.speedup_high) if speculates else "plain decoding",
                format_ratio(check.measured_speedup) if check and speculates else "–",
                Text(worth(p), style=STYLES[worth(p)]),
            )
        )
    title = "Best K per task (in brackets: num_speculative_tokens)"
    columns = [
        ("task", "left"),
        ("τ (95 %)", "right"),
        ("best K", "right"),
        ("speedup (95 %)", "right"),
        ("measured", "right"),
        ("pays", "left"),
    ]
    return table_of(title, columns, rows)


def validation_table(document: Mapping[str, Any]) -> RenderableType:
    """The `perf.validation` document: every point predicted against measured, and the errors in one line."""
    rows = [
        (
            point["phase"],
            str(point["block_size"]),
            str(point["batch"]),
            str(point["context"]),
            format_seconds(point["measured_s"]),
            format_seconds(point["predicted_s"]),
            signed_percent(point["error"]),
        )
        for point in document["points"]
    ]
    columns = [("phase", "left"), ("K", "right"), ("batch", "right"), ("context", "right")]
    times = [("measured", "right"), ("predicted", "right"), ("error", "right")]
    errors = ", ".join(f"{name} {format_percent(document[f'{name}_error'], 2)}" for name in ("median", "mean", "max"))
    return Group(
        table_of("Predicted against measured", [*columns, *times], rows), Text(f"Error: {errors}"), findings_text(document)
    )


def doctor_table(document: Mapping[str, Any]) -> RenderableType:
    """The `perf.doctor` document: device, versions, and measured limits where they are known."""
    rates = document["flops_per_s"] or {}
    uncalibrated = "not measured yet: run `perf doctor --calibrate`"
    bandwidth = document["bandwidth_bytes_per_s"]
    facts = [
        ("device", f"{document['num_devices']} × {document['device_kind']} ({document['platform']})"),
        ("host", f"{document['host_cpu']}, {document['num_cores']} cores"),
        ("program", document["program"]),
        ("versions", ", ".join(f"{name} {version}" for name, version in document["versions"].items())),
        ("flags", ", ".join(f"{name}={value}" for name, value in document["flags"].items()) or "none"),
        ("bandwidth", uncalibrated if bandwidth is None else format_bandwidth(bandwidth)),
        ("matmul rate", ", ".join(f"{dtype} {format_flop_rate(rate)}" for dtype, rate in rates.items()) or uncalibrated),
        ("dispatch", uncalibrated if document["dispatch_s"] is None else format_seconds(document["dispatch_s"])),
    ]
    return Group(lines_of(facts), findings_text(document))


def findings_text(document: Mapping[str, Any]) -> RenderableType:
    """The findings of a document, one a paragraph."""
    return Group(
        *(
            Text.assemble(
                (f"{finding['severity']}: ", SEVERITY_STYLES[finding["severity"]]),
                finding["message"],
                (f" ({finding['hint']})" if finding["hint"] else "", "dim"),
            )
            for finding in document["findings"]
        )
    )
