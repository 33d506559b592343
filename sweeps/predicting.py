"""Predictions from what the user holds: a model, chips or a table of cycle times; profiles, a list or mean lengths."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from perfmodel import codec
from perfmodel.acceptance import from_survival, from_tau_points, pool, resolve
from perfmodel.errors import InputError
from perfmodel.footprint import footprint_finding
from perfmodel.landscape import Landscape, landscape
from perfmodel.predict import predict, predict_table
from perfmodel.records import AcceptanceProfile, CompiledSet, Finding, FittedModel, KPrediction
from perfmodel.records.acceptance import Drafting
from perfmodel.stepmodel import checked

from .grid import MAX_BLOCK_SIZE
from .step_sources import StepSource, compiled_sources, datasheet_source, model_source
from .tables import read_cycles

DEFAULT_WIDTH = 16
"""Block sizes range up to this where neither the drafter nor the user says how far."""

MAX_PREDICTIONS = 100
"""Combinations of chip, task, batch and context up to which each gets its intervals; beyond, a grid without them."""


@dataclass(frozen=True)
class Question:
    """What `perf predict` was asked; empty and None are what nobody said."""

    model: Path | None = None
    hardware: tuple[str, ...] = ()
    target: str = "qwen3-4b"
    draft: str | None = None
    step_times: Path | None = None
    acceptance: tuple[str, ...] = ()
    pooled: bool = False
    survival: tuple[float, ...] = ()
    taus: tuple[tuple[int, float], ...] = ()
    block_sizes: tuple[int, ...] | None = None
    batches: tuple[int, ...] = (1,)
    contexts: tuple[int, ...] = (1024,)
    dtype: str = "bfloat16"
    drafting: Drafting | None = None
    pass_s: float | None = None
    usd_per_hour: float | None = None


@dataclass(frozen=True)
class Answer:
    """Predictions, one per chip, task, batch and context; of a large grid the first alone, and the map of all.

    `drafting` is how the drafter works, None where nobody says.
    """

    predictions: tuple[KPrediction, ...]
    profiles: tuple[AcceptanceProfile, ...]
    drafting: Drafting | None = None
    grid: Landscape | None = None


def answer(question: Question) -> Answer:
    """The predictions asked for. Raises `InputError` when the inputs do not add up to one."""
    ways = [bool(question.step_times), question.model is not None or bool(question.hardware)]
    if sum(ways) != 1:
        raise InputError(
            "step times must come from exactly one of --model, --hardware and --step-times, or from --model moved to --hardware",
            "see perf predict --help",
        )
    if question.usd_per_hour is not None and not 0.0 < question.usd_per_hour < math.inf:
        raise InputError(f"{question.usd_per_hour:g} dollars an hour is no price", "give the price per hour, above 0")
    if question.pass_s is not None and not 0.0 <= question.pass_s < math.inf:
        raise InputError(f"a drafter pass of {question.pass_s:g} s is impossible", "give its time, 0 or above")
    _refuse_beyond([*(question.block_sizes or ()), *(size for size, _ in question.taus)])
    if question.step_times is not None:
        return _from_table(question, question.step_times)
    sources = _sources(question)
    profiles = _profiles(question, sources[0].kind, required=True)
    num = len(sources) * len(profiles) * len(question.batches) * len(question.contexts)
    if num > MAX_PREDICTIONS:
        return _from_grid(question, sources, profiles)
    predictions = tuple(
        _one(question, source, profile, batch, context)
        for source in sources
        for profile in profiles
        for batch in question.batches
        for context in question.contexts
    )
    return Answer(predictions, profiles, sources[0].kind)


def _from_table(question: Question, path: Path) -> Answer:
    profiles = _profiles(question, question.drafting, required=False)
    table = read_cycles(path)
    _refuse_beyond([cycle.block_size for cycle in table])
    if question.block_sizes is not None:
        table = tuple(cycle for cycle in table if cycle.block_size in {1, *question.block_sizes})
    if not table:
        raise InputError("none of the block sizes asked for is in the table", "cycle times are never interpolated; measure them")
    if question.pass_s is not None:
        raise InputError("a drafter pass of its own cannot be told from whole cycles", "leave --draft-ms out")
    if len(question.batches) > 1 or len(question.contexts) > 1:
        raise InputError("a table of cycle times belongs to one batch and one context", "give one --batch and one --context")
    predictions = tuple(
        predict_table(
            table,
            profile,
            batch=question.batches[0],
            context=question.contexts[0],
            drafting=question.drafting,
            usd_per_hour=question.usd_per_hour,
        )
        for profile in profiles or (None,)
    )
    return Answer(predictions, profiles, question.drafting)


def _from_grid(question: Question, sources: Sequence[StepSource], profiles: Sequence[AcceptanceProfile]) -> Answer:
    width = max(_trained(sources[0], profile) or DEFAULT_WIDTH for profile in profiles)
    sizes = sorted(set(question.block_sizes or range(1, width + 1)))
    grids = {source.name: source.grid(sizes, question.batches, question.contexts) for source in sources}
    draft = sources[0].draft
    prices = {source.name: price for source in sources if (price := _price(question, source)) is not None}
    found = landscape(grids, profiles, draft.block_size if draft else None, prices)
    first = _one(question, sources[0], profiles[0], question.batches[0], question.contexts[0])
    return Answer((first,), tuple(profiles), sources[0].kind, found)


def _sources(question: Question) -> tuple[StepSource, ...]:
    if question.model is None:
        made = [
            datasheet_source(chip, question.target, question.draft, question.dtype, question.drafting, question.pass_s)
            for chip in question.hardware
        ]
    else:
        path = question.model / "model.json" if question.model.is_dir() else question.model
        record = codec.load_any(path)
        if isinstance(record, CompiledSet):
            return compiled_sources(record, question.hardware, question.drafting)
        fitted = checked(codec.load(path, FittedModel), str(path))
        made = [
            model_source(fitted, chip, question.draft, question.drafting, question.pass_s)
            for chip in question.hardware or (None,)
        ]
    if len({source.name for source in made}) < len(made):
        raise InputError("a chip is named twice", "name each once")
    return tuple(made)


def _refuse_beyond(block_sizes: Sequence[int]) -> None:
    if max(block_sizes, default=1) > MAX_BLOCK_SIZE:
        raise InputError(f"a block size is above {MAX_BLOCK_SIZE}", "drafters are trained for 4 to 32")


def _profiles(question: Question, drafting: Drafting | None, required: bool) -> tuple[AcceptanceProfile, ...]:
    values = {"--acceptance": question.acceptance, "--survival": question.survival, "--tau": question.taus}
    given = [name for name, value in values.items() if value]
    if len(given) > 1:
        raise InputError(f"acceptance is given twice: {' and '.join(given)}", "give one of them")
    if question.acceptance:
        found = tuple(profile for text in question.acceptance for profile in resolve(text))
        task = "+".join(profile.task for profile in found)
        return (pool(found, f"pooled/{task}", task),) if question.pooled and len(found) > 1 else found
    if question.survival:
        return (from_survival(question.survival),)
    if question.taus:
        return (from_tau_points(question.taus, drafting=drafting),)
    if required:
        raise InputError(
            "no acceptance given, and none is assumed", "give --acceptance, --survival or --tau; `perf list acceptance`"
        )
    return ()


def _trained(source: StepSource, profile: AcceptanceProfile) -> int | None:
    """The drafter's own block: what its config says, else its profile, else the block its acceptance was measured at."""
    known = source.draft.block_size if source.draft else None
    return known or profile.trained_block_size or (profile.block_size if profile.survival else None)


def _price(question: Question, source: StepSource) -> float | None:
    """Dollars per hour of all chips that share the model."""
    listed = source.hardware.price_usd_per_hour if source.hardware else None
    price = question.usd_per_hour if question.usd_per_hour is not None else None if listed is None else listed.value
    return None if price is None else price * (source.hardware.num_chips if source.hardware else 1)


def _one(question: Question, source: StepSource, profile: AcceptanceProfile, batch: int, context: int) -> KPrediction:
    trained = _trained(source, profile)
    sizes = question.block_sizes or tuple(range(1, (trained or DEFAULT_WIDTH) + 1))
    steps = source.steps(sizes, batch, context)
    found = predict(
        steps,
        profile,
        hardware=source.name,
        target=source.target.name if source.target else "",
        draft=source.draft.name if source.draft else "",
        batch=batch,
        context=context,
        source=steps.source,
        trained_block_size=trained,
        label=source.label,
        usd_per_hour=_price(question, source),
    )
    sensitivity = found.sensitivity | source.flips(found)
    findings = (*found.findings, *source.findings, *_room(source, batch, context))
    return msgspec.structs.replace(found, sensitivity=sensitivity, findings=findings)


def _room(source: StepSource, batch: int, context: int) -> tuple[Finding, ...]:
    """An error where the pair and its cache do not fit the chip's memory: its step times are about nothing then."""
    if source.hardware is None or source.target is None:
        return ()
    finding = footprint_finding(source.hardware, source.target, source.draft, batch, context, source.dtype)
    return () if finding is None else (finding,)
