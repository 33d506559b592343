"""What a sweep says on the terminal when it is done, within 80 columns."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from perfmodel.records import KPrediction
from perfmodel.units import format_ratio

from .acceptance import pooled_text
from .answer import Worth, answer, first_per_task, profile_of, worth
from .evidence import lossless_text
from .flat import flat_sentence
from .inputs import PageInputs
from .terminal import lines_of, table_of
from .validation import error_finding
from .wording import check_at, speedup_text, tau_text

STYLES: dict[Worth, str] = {"yes": "green", "no": "yellow", "undecided": "yellow", "unknown": "dim"}


def sweep_summary(inputs: PageInputs, report: str) -> RenderableType:
    """What a sweep found: per task τ, best K, speedup and its check; flat width and cause; lossless; where the report is."""
    predictions = inputs.predictions.here if inputs.predictions else ()
    parts: list[RenderableType] = []
    if predictions:
        parts.append(answer_table(inputs, first_per_task(predictions)))
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
        check = check_at(checks, p)
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
