"""The TPU standalone harness's JSON: committed tokens of every step of every sample, with warm-up samples among them.

Its histogram is indexed by committed tokens and its rates by position count the anchor, so entry 0 is always 1 and is dropped. The
harness verifies a whole block at each step and cuts the answer afterwards: K − 1 drafts per step, and τ over all steps of the
measured samples. A baseline's time per token is the time of a plain step.
"""

from collections.abc import Mapping
from statistics import median

from perfmodel.records import CyclePoint, Finding, ImportedRun

from .counting import WIDEST, run_of
from .fields import Fields
from .reader import Likeness, Reader, likeness
from .source import Source

NAME = "tpu-standalone"
DEFINITION = (
    "committed tokens of each step (bonus included) per sample, warm-ups left out; entry 0 of the rates by position is the anchor and"
    " is dropped; every step drafts K − 1 tokens; τ over all steps"
)


def sniff(source: Source) -> Likeness:
    """Whether the document has the harness's parts."""
    found = source.document_or_none
    if not isinstance(found, Mapping):
        return Likeness.NO
    rows = found.get("per_sample")
    return likeness(
        isinstance(rows, list) and isinstance(found.get("config"), Mapping) and isinstance(found.get("summary"), Mapping)
    )


def read(source: Source) -> list[ImportedRun]:
    """One run: the measured samples, or the summary where the samples hold no steps."""
    fields = Fields.of_document(source, source.document)
    config, summary = fields.need(fields.section("config"), "config"), fields.need(fields.section("summary"), "summary")
    samples = fields.sections("per_sample")
    measured = [sample for sample in samples if not sample.flag("is_warmup", "warmup")]
    for sample in measured:
        _check_steps(source, sample)
    committed = [steps for sample in measured if (steps := sample.counts("acceptance_lengths"))]
    stated = config.count("block_size")
    num_steps = sum(len(steps) for steps in committed) or summary.count("total_drafts")
    rates = summary.numbers("acceptance_rate_per_pos")
    size = len(rates) if rates else stated
    num_warmup = len(samples) - len(measured)
    run = run_of(
        name=source.path.stem,
        source=NAME,
        definition=DEFINITION,
        num_steps=num_steps,
        num_draft_tokens=num_steps * (size - 1) if num_steps and size else None,
        committed=committed,
        survival=_without_anchor(source, rates) if rates and not committed else None,
        block_size=size,
        tau=summary.number("tau"),
        tau_per_answer=sum(sum(steps) / len(steps) for steps in committed) / len(committed) if committed else None,
        num_requests=len(measured),
        num_warmup=num_warmup,
        num_output_tokens=sum(sample.count("dflash_num_output_tokens") or 0 for sample in measured),
        batch=1.0,
        context=_context(measured),
        method="dflash",
        target=config.text("target_model"),
        draft=config.text("draft_model"),
        task=config.text("dataset"),
        temperature=config.number("temperature"),
        plain_tokens_per_s=summary.number("baseline_tps"),
        tokens_per_s=summary.number("dflash_tps"),
        cycles=_cycles(measured, size),
        engine="tpu-standalone",
        findings=(*_warmups(source, num_warmup), *_size(source, size, stated)),
    )
    return [run]


def _check_steps(source: Source, sample: Fields) -> None:
    steps = sample.counts("acceptance_lengths")
    line = source.line_of("acceptance_lengths")
    if steps and max(steps) > WIDEST:
        source.refuse(line, f"a step committed {max(steps):,} tokens", f"blocks have at most {WIDEST:,}")
    if steps is not None and any(count < 1 for count in steps):
        source.refuse(
            line, "a step committed 0 tokens, and every step commits its bonus at least", "the counts may leave the bonus out"
        )


def _without_anchor(source: Source, rates: list[float]) -> list[float]:
    if rates[0] != 1.0:
        source.refuse(source.line_of("acceptance_rate_per_pos"), f"entry 0 is {rates[0]:g}, and the anchor's share is always 1")
    return rates[1:]


def _size(source: Source, size: int | None, stated: int | None) -> tuple[Finding, ...]:
    """Rates by position are one per slot of the block, so they tell K; the configuration is what was asked for."""
    if size is None or stated is None or size == stated:
        return ()
    text = f"{source.path.name}: rates for {size} slots, but block_size is {stated} in its configuration"
    return (Finding(code="block-size-differs", severity="warning", message=text, hint="K is read from the rates"),)


def _warmups(source: Source, num_warmup: int) -> tuple[Finding, ...]:
    if not num_warmup:
        return ()
    text = f"{source.path.name}: {num_warmup} warm-up sample{'s' if num_warmup > 1 else ''} left out of the counts"
    return (Finding(code="rows-left-out", severity="info", message=text),)


def _context(measured: list[Fields]) -> int | None:
    """Cached tokens halfway through an answer, median over samples."""
    known = [(sample.count("num_input_tokens"), sample.count("dflash_num_output_tokens")) for sample in measured]
    lengths = [inputs + outputs / 2 for inputs, outputs in known if inputs is not None and outputs is not None]
    return round(median(lengths)) if lengths else None


def _cycles(measured: list[Fields], size: int | None) -> tuple[CyclePoint, ...]:
    """Time of a plain and of a speculative step in every sample."""
    found = []
    for sample in measured:
        context = _context([sample])
        plain, ms = sample.number("baseline_tpot_ms"), sample.number("dflash_tpot_ms")
        outputs, steps = sample.count("dflash_num_output_tokens"), sample.count("num_drafts")
        if plain:
            found.append(CyclePoint(block_size=1, batch=1.0, context=context, seconds=plain / 1e3))
        if ms and outputs and steps and size:
            seconds = ms * outputs / steps / 1e3
            found.append(CyclePoint(block_size=size, batch=1.0, context=context, seconds=seconds, num_steps=steps))
    return tuple(found)


READER = Reader(
    name=NAME,
    description="result of the TPU standalone DFlash harness (config, summary, per_sample)",
    cannot_know="device time: its clock is the host's; whether a step of the last block was shortened",
    sniff=sniff,
    read=read,
)
