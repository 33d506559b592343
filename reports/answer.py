"""The answer in words, per task: which K, what it gains, how sure that is, and what limits it.

With speedup = τ / r (r: time of a speculative step over a plain one), two losses multiply: K/τ is what perfect drafts would
add, r is what a step as cheap as a plain one would add. The larger of the two is named as the limit.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from perfmodel.drafting import drafting_of
from perfmodel.modelspec import load_model, names
from perfmodel.records import AcceptanceProfile, CheckedK, KPrediction, Run
from perfmodel.settings import EngineSetting, Method
from perfmodel.units import format_ratio

from .acceptance import pooled_text
from .inputs import PageInputs
from .pasting import pasted_settings
from .section import Section, Table, absent, shape_text
from .wording import (
    BOUND_WORDS,
    block_size_text,
    check_at,
    list_text,
    number_text,
    place_text,
    range_text,
    speedup_text,
    step_ratio,
    tau_text,
)

Worth = Literal["yes", "no", "undecided", "unknown"]


@dataclass(frozen=True)
class Answer:
    """The answer for one task: a headline, the sentence that carries it, and what a card shows."""

    task: str
    worth: Worth
    block_size: int
    headline: str
    speedup: str
    sentence: str
    flat: str
    limit: str


def worth(prediction: KPrediction) -> Worth:
    """Whether speculation pays: `yes`, `no`, `undecided` where the interval reaches 1, `unknown` without a plain step."""
    best = prediction.best
    if best.speedup is None or prediction.worth_it is None:
        return "unknown"
    if not prediction.worth_it:
        return "no"
    return "undecided" if best.speedup_low is not None and best.speedup_low <= 1.0 else "yes"


def limit_text(prediction: KPrediction) -> str:
    """What limits the gain at the best K, with the two losses in numbers; empty for plain decoding."""
    best = prediction.best
    ratio = step_ratio(best)
    if ratio is None or best.block_size == 1:
        return ""
    acceptance_loss = best.block_size / best.tau
    trained = prediction.trained_block_size
    edge = f"; the drafter's block ends at K = {trained}" if trained == best.block_size else ""
    if acceptance_loss >= ratio:
        return (
            f"the limit is acceptance: τ = {number_text(best.tau)} of {best.block_size} possible tokens, "
            f"perfect drafts would gain another {format_ratio(acceptance_loss, 2)}{edge}"
        )
    why = f" ({BOUND_WORDS[best.bound]})" if best.bound else ""
    return f"the limit is the cost of a step: {format_ratio(ratio, 2)} a plain one{why}, with τ = {number_text(best.tau)}{edge}"


def refusal_text(prediction: KPrediction) -> str:
    """Why not to speculate: the best that was found and the τ that would have been needed."""
    tried = [row for row in prediction.rows if row.block_size > 1 and row.speedup and row.in_training]
    if not tried:
        return "no block size above 1 within the drafter's block has a known speedup"
    best = max(tried, key=lambda row: row.speedup or 0.0)
    ratio = step_ratio(best) or 0.0
    doubt = "; its interval reaches above 1, so this is not certain" if (best.speedup_high or 0.0) > 1.0 else ""
    return (
        f"the best block size, {block_size_text(best.block_size)}, would give "
        f"{speedup_text(best.speedup, best.speedup_low, best.speedup_high)}: a step costs {format_ratio(ratio)} a plain one, so "
        f"break-even needs τ = {number_text(ratio)}, and τ is {tau_text(best)}{doubt}"
    )


def answer(prediction: KPrediction, run: Run | None, flat: str) -> Answer:
    """The answer of one prediction. `flat` is the sentence part on flatness, empty when unknown."""
    best, verdict = prediction.best, worth(prediction)
    pair = " + ".join(name for name in (prediction.target, prediction.draft) if name)
    where = ", ".join(part for part in (place_text(prediction, run), pair, prediction.task) if part)
    gain = speedup_text(best.speedup, best.speedup_low, best.speedup_high)
    speculates = verdict in ("yes", "undecided") and best.block_size > 1
    if speculates:
        headline = f"verify {block_size_text(best.block_size)}"
        parts = [f"{where}: {headline}: {gain} over plain decoding", measured_text(prediction, run)]
        if verdict == "undecided":
            parts[0] += ", but the interval reaches 1, so the gain is not certain"
        parts.append(f"as good, within 2 % or the error: {range_text(*prediction.plateau)}")
    else:
        headline = "do not speculate here"
        parts = [f"{where}: {headline}: {refusal_text(prediction)}"]
    limit = limit_text(prediction) if speculates else ""
    sentence = ". ".join(capitalized(part) for part in [*parts, flat, limit] if part) + "."
    return Answer(
        task=prediction.task,
        worth=verdict,
        block_size=best.block_size if speculates else 1,
        headline=headline,
        speedup=gain if speculates else "plain decoding is fastest",
        sentence=sentence,
        flat=flat,
        limit=limit,
    )


def measured_text(prediction: KPrediction, run: Run | None) -> str:
    """The measured check at the best K in words; empty when there was none."""
    check = check_at(run.checks, prediction) if run else None
    return f"measured: {checked_text(check)}" if check and prediction.source == "measured" else ""


def checked_text(check: CheckedK | None) -> str:
    """The measured speedup with its interval; `not measured` without a check."""
    if check is None:
        return "not measured"
    return speedup_text(check.measured_speedup, check.measured_low, check.measured_high)


def capitalized(text: str) -> str:
    """The text with its first letter raised, the rest untouched."""
    return text[:1].upper() + text[1:]


def first_per_task(predictions: Sequence[KPrediction]) -> tuple[KPrediction, ...]:
    """The first prediction of each task: the shape the sweep asked for first."""
    return tuple({p.task: p for p in reversed(predictions)}[task] for task in dict.fromkeys(p.task for p in predictions))


def profile_of(inputs: PageInputs, prediction: KPrediction) -> AcceptanceProfile | None:
    """The acceptance measured for the prediction's task and drafter."""
    profiles = inputs.acceptance.profiles if inputs.acceptance else ()
    return next((p for p in profiles if p.task == prediction.task and p.draft == prediction.draft), None)


WORTH_WORDS: dict[Worth, str] = {"yes": "yes", "no": "no", "undecided": "undecided", "unknown": "unknown"}


def task_table(inputs: PageInputs) -> Table:
    """Task × best K on this machine."""
    predictions = inputs.predictions.here if inputs.predictions else ()
    several = len({(p.batch, p.context) for p in predictions}) > 1
    shape_header = ("shape",) if several else ()
    headers = ("task", *shape_header, "τ pooled (95 %)", "τ per answer", "best K", "num_speculative_tokens", "as good: K")
    return Table(
        key="answers",
        caption="Best block size per task. τ: tokens committed per step of the whole block, bonus included; pooled over steps "
        "(which sets throughput) or averaged over answers. Break-even: the τ at which speculation starts to pay.",
        headers=(*headers, "speedup, predicted (95 %)", "speedup, measured (95 %)", "break-even τ", "worth it"),
        rows=tuple(task_row(inputs, p, several) for p in predictions),
        text_columns=(0, *((1,) if several else ()), len(headers) + 3),
    )


def task_row(inputs: PageInputs, prediction: KPrediction, several: bool) -> tuple[str, ...]:
    """One row of the task table."""
    best, profile = prediction.best, profile_of(inputs, prediction)
    check = check_at(inputs.run.checks if inputs.run else (), prediction)
    speculates = best.block_size > 1
    low, high = prediction.plateau
    return (
        prediction.task,
        *((shape_text(prediction.batch, prediction.context),) if several else ()),
        pooled_text(profile) if profile else tau_text(best),
        number_text(profile.tau_per_answer) if profile else "unknown",
        str(best.block_size),
        str(best.num_speculative_tokens) if speculates else "off",
        str(low) if low == high else f"{low}–{high}",
        speedup_text(best.speedup, best.speedup_low, best.speedup_high) if speculates else "plain decoding",
        checked_text(check) if speculates else "–",
        number_text(prediction.break_even_tau),
        WORTH_WORDS[worth(prediction)],
    )


def chip_tables(inputs: PageInputs) -> tuple[Table, ...]:
    """Chip × task by datasheet, one table per target and drafter."""
    predictions = inputs.predictions.elsewhere if inputs.predictions else ()
    pairs = tuple(dict.fromkeys((p.target, p.draft, p.batch, p.context) for p in predictions))
    return tuple(chip_table(index, pair, predictions) for index, pair in enumerate(pairs))


def chip_table(index: int, pair: tuple[str, str, int, int], predictions: Sequence[KPrediction]) -> Table:
    """Chip × task for one pair and shape; a cell holds best K and speedup."""
    target, draft, batch, context = pair
    mine = [p for p in predictions if (p.target, p.draft, p.batch, p.context) == pair]
    tasks = tuple(dict.fromkeys(p.task for p in mine))
    cells = {(p.hardware, p.task): p for p in mine}
    sources = tuple(dict.fromkeys(f"{p.source} prediction" for p in mine))
    notes = tuple(dict.fromkeys(p.label for p in mine if p.label and p.label not in sources))
    return Table(
        key=f"chips-{index}",
        caption=f"{target} + {draft}, {shape_text(batch, context)}. "
        "Speedup over plain decoding at the best K (num_speculative_tokens); uncertain where the interval reaches 1. "
        + " ".join(f"{note.rstrip('.')}." for note in notes),
        headers=("chip", *tasks),
        text_columns=tuple(range(len(tasks) + 1)),
        rows=tuple(
            (chip, *(chip_cell(cells.get((chip, task))) for task in tasks)) for chip in dict.fromkeys(p.hardware for p in mine)
        ),
        label=", ".join(sources),
    )


def chip_cell(prediction: KPrediction | None) -> str:
    """Speedup at the best K (num_speculative_tokens) of one chip and task."""
    if prediction is None:
        return "–"
    best = prediction.best
    if worth(prediction) == "no" or best.block_size == 1:
        return "do not speculate"
    flags = ("uncertain" if worth(prediction) == "undecided" else "", "extrapolated" if best.extrapolated else "")
    gain = speedup_text(best.speedup, best.speedup_low, best.speedup_high)
    return f"{gain} at K = {best.block_size} ({best.num_speculative_tokens})" + "".join(f", {flag}" for flag in flags if flag)


def answers(inputs: PageInputs, flat: str) -> tuple[Answer, ...]:
    """The answers of this machine, one per task; of the first chip elsewhere when nothing was measured here."""
    predictions = inputs.predictions
    if predictions is None:
        return ()
    chosen = predictions.here or predictions.elsewhere
    return tuple(answer(p, inputs.run, flat if p.source == "measured" else "") for p in first_per_task(chosen))


@dataclass(frozen=True)
class Settings:
    """Engine settings of one block size, with the tasks they are for."""

    key: int
    title: str
    engines: tuple[EngineSetting, ...]


def paste_settings(inputs: PageInputs) -> tuple[Settings, ...]:
    """What to paste per engine, once per block size that some task wants."""
    if inputs.run is not None and inputs.run.spec.engine is not None and inputs.run.draft is None:
        return ()  # what kind of drafter the server runs, nobody said
    if inputs.run is not None and inputs.run.spec.quick:
        return ()  # the tiny pair exists here only
    predictions = first_per_task(inputs.predictions.here or inputs.predictions.elsewhere) if inputs.predictions else ()
    tasks: dict[tuple[int, str, str, Method], list[str]] = {}
    for p in predictions:
        tasks.setdefault((p.best.block_size, p.target, p.draft, method_of(inputs, p)), []).append(p.task)
    return tuple(
        Settings(
            index,
            f"{list_text(shown)}: {block_size_text(size) if size > 1 else 'plain decoding'}",
            pasted_settings(size, target, draft, method),
        )
        for index, ((size, target, draft, method), shown) in enumerate(tasks.items())
    )


def method_of(inputs: PageInputs, prediction: KPrediction) -> Method:
    """How engines call the drafter's kind: as a record of the page or the catalogue knows it, else the block kind."""
    known = (inputs.model.draft if inputs.model else None, inputs.run.draft if inputs.run else None)
    spec = next((spec for spec in known if spec is not None and spec.name == prediction.draft), None)
    if spec is None and prediction.draft in names("draft"):
        spec = load_model(prediction.draft)
    profile = profile_of(inputs, prediction)
    chained = profile is not None and profile.drafting == "sequential" if spec is None else drafting_of(spec) == "sequential"
    return "eagle3" if chained else "dflash"


def answer_section(inputs: PageInputs, flat: str) -> tuple[Section, tuple[Answer, ...]]:
    """The top section and its answer cards."""
    if inputs.predictions is None:
        return absent("answer", "The answer", "there is no prediction: run `perf predict` or `perf sweep-k`"), ()
    tables = (*((task_table(inputs),) if inputs.predictions.here else ()), *chip_tables(inputs))
    return Section("answer", "The answer", tables=tables), answers(inputs, flat)
