"""DFlash on Apple silicon (MLX): repeated runs of one prompt, with cycles, tokens per cycle and the share of output from drafts.

`acceptance_ratio` is the share of the *output* that came from drafts, 1 − cycles / output tokens: it is not accepted over drafted, and
says nothing of how many were proposed. Cycles are steps, tokens per cycle is τ with the bonus. The block is as it was set.
"""

from collections.abc import Mapping
from typing import Any

from perfmodel.records import CyclePoint, Finding, ImportedRun

from .counting import run_of
from .fields import Fields
from .reader import Likeness, Reader, likeness
from .source import Source

NAME = "dflash-mlx"
DEFINITION = (
    "cycles (steps) and tokens per cycle (bonus included); acceptance_ratio = share of the output that came from drafts, not of the"
    " drafts that were accepted"
)


def sniff(source: Source) -> Likeness:
    """Whether runs with a baseline and a dflash half stand in the document."""
    found = source.document_or_none
    runs = found.get("runs") if isinstance(found, Mapping) else None
    first = runs[0] if isinstance(runs, list) and runs else None
    return likeness(isinstance(first, Mapping) and isinstance(first.get("dflash"), Mapping))


def read(source: Source) -> list[ImportedRun]:
    """One run per repeat."""
    fields = Fields.of_document(source, source.document)
    config, hardware = fields.section("config"), fields.section("hardware")
    chip = hardware.text("chip") if hardware else None
    return [_run(source, run, config, chip, index) for index, run in enumerate(fields.sections("runs"), start=1)]


def _run(source: Source, run: Fields, config: Fields | None, chip: str | None, index: int) -> ImportedRun:
    half = run.need(run.section("dflash"), "dflash")
    plain = run.section("baseline")
    cycles, tau, ratio = half.count("cycles"), half.number("tokens_per_cycle"), half.number("acceptance_ratio")
    speed, plain_speed = half.number("generation_tps"), plain.number("generation_tps") if plain else None
    size = config.count("block_tokens", "block_size") if config else None
    tokens = round(tau * cycles) if tau is not None and cycles and abs(tau * cycles - round(tau * cycles)) < 1e-3 else None
    return run_of(
        name=f"{source.path.stem}, run {run.count('run') or index}",
        source=NAME,
        definition=DEFINITION,
        num_steps=cycles,
        num_accepted=None if tokens is None or cycles is None else tokens - cycles,
        block_size=size,
        tau=tau,
        num_requests=1,
        num_output_tokens=tokens,
        batch=1.0,
        context=_context(config, tokens),
        method="dflash",
        target=config.text("target_model") if config else None,
        draft=config.text("draft_model") if config else None,
        engine="mlx" if chip is None else f"mlx, {chip}",
        plain_tokens_per_s=plain_speed,
        tokens_per_s=speed,
        cycles=_cycles(size, tau, speed, plain_speed, cycles, _context(config, tokens)),
        findings=_ratio(ratio, cycles, tokens),
    )


def _context(config: Fields | None, tokens: int | None) -> int | None:
    prompt = config.count("prompt_tokens") if config else None
    return None if prompt is None or tokens is None else prompt + tokens // 2


def _cycles(
    size: int | None, tau: float | None, speed: float | None, plain: float | None, cycles: int | None, context: int | None
) -> tuple[CyclePoint, ...]:
    found: list[Any] = []
    if plain:
        found.append(CyclePoint(block_size=1, batch=1.0, context=context, seconds=1 / plain))
    if speed and tau and size:
        found.append(CyclePoint(block_size=size, batch=1.0, context=context, seconds=tau / speed, num_steps=cycles))
    return tuple(found)


def _ratio(ratio: float | None, cycles: int | None, tokens: int | None) -> tuple[Finding, ...]:
    if ratio is None:
        return ()
    text = f"acceptance ratio {ratio:.4g} is the share of the output that came from drafts, not accepted over drafted"
    if cycles and tokens and abs(ratio - (1 - cycles / tokens)) > 0.002:
        text = f"acceptance ratio {ratio:.4g} is neither 1 − cycles / tokens ({1 - cycles / tokens:.4g}) nor explained otherwise"
        return (Finding(code="ratio-unexplained", severity="warning", message=text, hint="it is not used"),)
    return (Finding(code="ratio-of-output", severity="info", message=text, hint="K and the drafts proposed are not in it"),)


READER = Reader(
    name=NAME,
    description="benchmark JSON of DFlash on Apple silicon (MLX)",
    cannot_know="drafts proposed, survival by position, more than one prompt",
    sniff=sniff,
    read=read,
)
