"""The page of two sides: two runs, models, chips or drafters head to head, every difference with its uncertainty.

B is held against A. Where two sides were measured on unlike machines the comparison is refused, or made by force and marked so.
"""

import math
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from perfmodel.errors import InputError
from perfmodel.records import Finding, FittedModel, KPrediction, Record
from perfmodel.units import format_ratio, format_seconds

from .answer import capitalized
from .comparison_figures import speedup_ratio_figure, speedups_figure, survival_figure, time_ratio_figure
from .difference import (
    Difference,
    TaskDifference,
    TauDifference,
    TimeDifference,
    task_differences,
    tau_differences,
    time_differences,
)
from .evidence import all_findings, embed, gravest_first, named_records, placed
from .inputs import PageInputs
from .likeness import Fact, facts, likeness_table, refuse_unlike
from .page import Content, subtitle, when
from .pertoken import apart, drift_text, lead, pairing_text, per_token_section
from .pertoken import sentence as per_token
from .section import Section, Table, absent, shape_text
from .validation import in_unit, parameter_text
from .wording import block_size_text, interval_text, number_text, speedup_text


@dataclass(frozen=True)
class Side:
    """One of the two: the name it goes by on the page, and its records."""

    name: str
    inputs: PageInputs


@dataclass(frozen=True)
class Comparison:
    """All differences of B against A, and what was unlike where they were compared by force."""

    a: Side
    b: Side
    facts: tuple[Fact, ...]
    unlike: tuple[str, ...]
    tasks: tuple[TaskDifference, ...]
    taus: tuple[TauDifference, ...]
    times: tuple[TimeDifference, ...]


def compare(a: Side, b: Side, forced: bool = False) -> Comparison:
    """B held against A. Raises `InputError` where the machines are unlike (unless forced), or nothing is known of both."""
    known = facts(a.inputs, b.inputs)
    unlike = refuse_unlike(known, forced)
    tasks = task_differences(a.inputs, b.inputs, one_machine=not unlike)
    taus = tau_differences(a.inputs, b.inputs)
    times = time_differences(a.inputs.step_times, b.inputs.step_times)
    if not (tasks or taus or times):
        raise InputError(
            f"{a.name} and {b.name} have no task, and no step of one shape, in common",
            "compare records of the same tasks or shapes",
        )
    return Comparison(a, b, known, unlike, tasks, taus, times)


def comparison_content(found: Comparison, generated_at: datetime, commands: tuple[str, ...] = ()) -> Content:
    """What the page of a comparison says."""
    notices: tuple[str, ...] = ()
    if found.unlike:
        notices = (f"Compared by force: the two were not measured alike. {'; '.join(found.unlike)}.",)
    a, b = apart(found.tasks) or (found.a.name, found.b.name)
    return Content(
        title=f"{b} against {a}",
        generated_at=when(generated_at),
        subtitle=f"A: {_about(found.a)}. B: {_about(found.b)}. Every ratio is B over A, with its 95 % interval.",
        answer=_answer(found),
        sections=(per_token_section(found.tasks), _speedups(found), _acceptance(found), _times(found), _constants(found)),
        notices=notices,
        findings=_findings(found),
        evidence_tables=(likeness_table(found.facts),) if found.facts else (),
        commands=commands,
        records=embed(_records(found)),
    )


def _about(side: Side) -> str:
    """A side's name, and the pair and machine where its records name them."""
    pair = subtitle(side.inputs)
    return f"{side.name} ({pair})" if pair and pair != side.name else side.name


def _records(found: Comparison) -> list[tuple[str, Record]]:
    return [
        (f"{letter}-{name}", record)
        for letter, side in (("A", found.a), ("B", found.b))
        for name, record in named_records(side.inputs)
    ]


def _findings(found: Comparison) -> tuple[Finding, ...]:
    marked = [
        msgspec.structs.replace(finding, where=f"{letter}: {finding.where}" if finding.where else letter)
        for letter, side in (("A", found.a), ("B", found.b))
        for finding in placed(all_findings(side.inputs), "")
    ]
    return gravest_first(marked)


def sentence(one: TaskDifference) -> str:
    """The answer for one task: both best K, both gains, the ratio, and whether it can be told from 1."""
    if one.a.best.block_size == one.b.best.block_size == 1:
        return f"{one.task}, {shape_text(one.a.batch, one.a.context)}: both are best left at plain decoding"
    a, b = (_best_text(p) for p in (one.a, one.b))
    lead = f"{one.task}, {shape_text(one.a.batch, one.a.context)}: A takes {a}, B takes {b}"
    if one.speedup is None:
        return f"{lead}; the gain of one of them is unknown"
    words = {
        "b": "so B gains more",
        "a": "so A gains more",
        "undecided": "so they cannot be told apart",
        "unknown": "with an unknown error",
    }[one.speedup.verdict(1.0)]
    return f"{lead}: B over A {ratio_text(one.speedup)}, {words}"


def _best_text(prediction: KPrediction) -> str:
    best = prediction.best
    if best.block_size == 1:
        return "plain decoding"
    gain = speedup_text(best.speedup, best.speedup_low, best.speedup_high)
    return f"{block_size_text(best.block_size)} for {gain}"


def gain_text(one: TaskDifference) -> str:
    """B's speedup over A's in a table; a dash where both decode plainly, which is no gain to compare."""
    if one.a.best.block_size == one.b.best.block_size == 1:
        return "–"
    return "unknown" if one.speedup is None else ratio_text(one.speedup)


def ratio_text(difference: Difference) -> str:
    """`1.24× (1.05–1.46)`."""
    return speedup_text(difference.value, difference.low, difference.high)


def _answer(found: Comparison) -> Section:
    if not found.tasks:
        paragraphs = tuple(f"{capitalized(_tau_sentence(one))}." for one in found.taus) or (f"{_times_sentence(found.times)}.",)
        return Section("answer", "The answer", paragraphs=paragraphs)
    first = lead(found.tasks)
    said = [". ".join(capitalized(text) for text in (sentence(one), per_token(one)) if text) for one in found.tasks]
    paragraphs = tuple(f"{text}." for text in (first, *said) if text)
    return Section("answer", "The answer", paragraphs=paragraphs, tables=(_task_table(found),))


def _task_table(found: Comparison) -> Table:
    several = len({(one.a.batch, one.a.context) for one in found.tasks}) > 1
    rows = tuple(
        (
            one.task,
            *((shape_text(one.a.batch, one.a.context),) if several else ()),
            *(f"{p.best.block_size} ({p.best.num_speculative_tokens})" for p in (one.a, one.b)),
            *(speedup_text(p.best.speedup, p.best.speedup_low, p.best.speedup_high) for p in (one.a, one.b)),
            gain_text(one),
            "unknown" if one.predicted is None else ratio_text(one.predicted),
        )
        for one in found.tasks
    )
    headers = ("task", *(("shape",) if several else ()), "best K A", "best K B", "speedup A", "speedup B")
    return Table(
        key="tasks",
        caption="Best K (num_speculative_tokens), gain over each side's own plain decoding, and predicted time per token"
        f"{drift_text(found.tasks) or ', which compares the sides themselves'}. {pairing_text(list(found.tasks))}",
        headers=(*headers, "speedup B/A (95 %)", "time per token B/A (95 %)"),
        rows=rows,
        text_columns=(0, 1) if several else (0,),
    )


def _speedups(found: Comparison) -> Section:
    title = "Speedup against K"
    known = [one for one in found.tasks if one.by_block_size]
    if not known:
        return absent("speedup", title, "no block size of one task has a known speedup on both sides")
    figures = [
        figure for index, one in enumerate(known) for figure in (speedups_figure(one, index), speedup_ratio_figure(one, index))
    ]
    return Section("speedup", title, figures=tuple(figures))


def _tau_sentence(one: TauDifference) -> str:
    words = {
        "b": "B commits more",
        "a": "A commits more",
        "undecided": "they cannot be told apart",
        "unknown": "with an unknown error",
    }
    return (
        f"{one.task}, {block_size_text(one.block_size)}: τ = {number_text(one.tau.a)} for A and {number_text(one.tau.b)} for B, "
        f"a difference of {tau_text(one.tau)}: {words[one.tau.verdict(0.0)]}"
    )


def tau_text(difference: Difference) -> str:
    """A difference of means with its sign and interval, `+0.62 (+0.41 to +0.83)`."""

    def signed(value: float) -> str:
        return f"{'+' if value > 0 else '−' if value < 0 else ''}{number_text(abs(value))}"

    if difference.low is None or difference.high is None:
        return signed(difference.value)
    return f"{signed(difference.value)} ({signed(difference.low)} to {signed(difference.high)})"


def _acceptance(found: Comparison) -> Section:
    title = "Acceptance"
    if not found.taus:
        return absent("acceptance", title, "no task has an acceptance of its own on both sides")
    figures = [survival_figure(one, index) for index, one in enumerate(found.taus) if one.a.survival and one.b.survival]
    rows = tuple(
        (
            one.task, one.a.draft or "unknown", one.b.draft or "unknown", str(one.block_size), number_text(one.tau.a),
            number_text(one.tau.b), tau_text(one.tau), "yes" if one.paired else "no",
        )
        for one in found.taus
    )  # fmt: skip
    table = Table(
        key="taus",
        caption="Mean committed tokens per step, bonus included, at the largest K that both sides measured. Paired: the same prompts on "
        "both sides, and the interval resamples the same answers of both; else as if the prompts were different ones.",
        headers=("task", "drafter A", "drafter B", "K", "τ A", "τ B", "B − A (95 %)", "paired"),
        rows=rows,
        text_columns=(0, 1, 2, 7),
    )
    return Section("acceptance", title, figures=tuple(figures), tables=(table,))


def _times_sentence(times: tuple[TimeDifference, ...]) -> str:
    ratios = sorted(one.ratio.value for one in times)
    slower = sum(one.ratio.verdict(1.0) == "b" for one in times)
    faster = sum(one.ratio.verdict(1.0) == "a" for one in times)
    return (
        f"Of {len(times)} step times B is slower in {slower} and faster in {faster} beyond the error; "
        f"B over A runs from {format_ratio(ratios[0])} to {format_ratio(ratios[-1])}"
    )


def _times(found: Comparison) -> Section:
    title = "Step time"
    if not found.times:
        return absent("steptime", title, "no phase was timed at one shape on both sides")
    rows = tuple(
        (
            one.a.phase, str(one.a.block_size), shape_text(one.a.batch, one.a.context), format_seconds(one.ratio.a),
            format_seconds(one.ratio.b), format_ratio(one.ratio.value), interval_text(one.ratio.low, one.ratio.high) or "unknown",
        )
        for one in found.times
    )  # fmt: skip
    table = Table(
        key="times",
        caption="Medians of every phase and shape that both sides timed.",
        headers=("phase", "K", "shape", "A", "B", "B/A", "95 %"),
        rows=rows,
        text_columns=(0, 2),
        folded=len(rows) > 8,
    )
    return Section("steptime", title, figures=(time_ratio_figure(found.times, _times_sentence(found.times)),), tables=(table,))


def _constants(found: Comparison) -> Section:
    title = "Fitted constants"
    a, b = found.a.inputs.model, found.b.inputs.model
    if a is None or b is None:
        return absent("constants", title, "no model was fitted on both sides")
    common = [name for name in a.parameters if name in b.parameters]
    rows = tuple((name, *(parameter_text(m.parameters[name]) for m in (a, b)), *_told(a, b, name)) for name in common)
    table = Table(
        key="constants",
        caption=f"Constants of the step-time law ({a.form}) that both fits have, ± standard error. A constant that the data of one "
        "side cannot identify is a prior there, and no difference.",
        headers=("constant", "A", "B", "B − A (95 %)", ""),
        rows=rows,
        text_columns=(0, 4),
    )
    return Section("constants", title, tables=(table,))


def _told(a: FittedModel, b: FittedModel, name: str) -> tuple[str, str]:
    """The difference of one constant with its interval, and whether it can be told from none."""
    one, other = a.parameters[name], b.parameters[name]
    if not (one.identified and other.identified) or one.stderr is None or other.stderr is None:
        return "unknown", "not identified on both sides" if not (one.identified and other.identified) else "error unknown"
    value, half = other.value - one.value, 1.96 * math.hypot(one.stderr, other.stderr)
    sign = "+" if value > 0 else "−" if value < 0 else ""
    text = f"{sign}{in_unit(abs(value), one.unit)} ± {in_unit(half, one.unit, 2)}"
    return text, "differs" if abs(value) > half else "cannot be told apart"


def summary_lines(found: Comparison) -> tuple[str, ...]:
    """What the page says on top, a line each, for a terminal."""
    forced = (f"Compared by force, measured unlike: {'; '.join(found.unlike)}.",) if found.unlike else ()
    return (*forced, *_answer(found).paragraphs)


def comparison_document(found: Comparison) -> dict[str, Any]:
    """The body of a `perf.compare` document."""
    return {
        "a": found.a.name,
        "b": found.b.name,
        "unlike": list(found.unlike),
        "tasks": [
            {"task": one.task, "batch": one.a.batch, "context": one.a.context}
            | {letter: _side(p) for letter, p in (("a", one.a), ("b", one.b))}
            | {f"{kind}_{name}": end for kind, ratio in _ratios(one).items() for name, end in _ends("ratio", ratio).items()}
            | {"same_prompts": one.shared.prompts, "same_step_times": one.shared.steps}
            for one in found.tasks
        ],
        "acceptance": [
            {"task": one.task, "block_size": one.block_size, "num_speculative_tokens": one.block_size - 1}
            | {"tau_a": one.tau.a, "tau_b": one.tau.b, **_ends("difference", one.tau), "same_prompts": one.paired}
            for one in found.taus
        ],
        "step_times": [
            {"phase": one.a.phase, "block_size": one.a.block_size, "batch": one.a.batch, "context": one.a.context}
            | {"seconds_a": one.ratio.a, "seconds_b": one.ratio.b, **_ends("ratio", one.ratio)}
            for one in found.times
        ],
        "findings": [msgspec.to_builtins(finding) for finding in _findings(found)],
    }


def _ratios(one: TaskDifference) -> dict[str, Difference | None]:
    """Every ratio of B over A of one task by its name in the document."""
    measured = one.measured
    return {
        "speedup": one.speedup,
        "tpot": one.tpot,
        "predicted_settled_tpot": one.settled,
        "measured_tpot": measured.tpot if measured else None,
        "settled_tpot": measured.settled if measured else None,
        "plain_tpot": measured.plain if measured else None,
    }


def _ends(name: str, difference: Difference | None) -> dict[str, float | None]:
    values = (None, None, None) if difference is None else (difference.value, difference.low, difference.high)
    return dict(zip((name, f"{name}_low", f"{name}_high"), values, strict=True))


def _side(prediction: KPrediction) -> dict[str, Any]:
    best = prediction.best
    return {
        "hardware": prediction.hardware,
        "draft": prediction.draft,
        "block_size": best.block_size,
        "num_speculative_tokens": best.num_speculative_tokens,
        "speedup": best.speedup,
        "speedup_low": best.speedup_low,
        "speedup_high": best.speedup_high,
        "tau": best.tau,
        "tpot_s": best.tpot_s,
    }
