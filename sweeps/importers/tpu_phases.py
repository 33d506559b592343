"""The TPU harness's phase profile and its fused-step comparison: host time of each phase of a step, and τ.

The phases are cut by a host clock around asynchronous calls: a phase that only launches work looks short, and the next one that needs a
value waits for all of it. So the wait for verification shows up under acceptance. The whole step is trustworthy, its parts are not.
"""

from collections.abc import Mapping
from typing import Any

from perfmodel.records import CyclePoint, Finding, ImportedRun

from .counting import run_of
from .fields import Fields
from .reader import Likeness, Reader, likeness
from .source import Source

NAME = "tpu-phases"
DEFINITION = "τ over all steps (bonus included); host time per phase of a step, without waiting for the device between phases"


def sniff(source: Source) -> Likeness:
    """Whether phases per step, or a fused and an unfused half, stand in the document."""
    found = source.document_or_none
    if not isinstance(found, Mapping):
        return Likeness.NO
    return likeness(
        "per_step_timings" in found or (isinstance(found.get("fused"), Mapping) and isinstance(found.get("unfused"), Mapping))
    )


def read(source: Source) -> list[ImportedRun]:
    """One run, or one per half of a fused comparison."""
    fields = Fields.of_document(source, source.document)
    if "per_step_timings" in fields.values:
        return [_profile(source, fields)]
    return [_half(fields.need(fields.section(name), name), f"{source.path.stem}, {name}") for name in ("unfused", "fused")]


def _profile(source: Source, fields: Fields) -> ImportedRun:
    config, summary = fields.section("config"), fields.need(fields.section("summary"), "summary")
    steps = fields.sections("per_step_timings")
    phases = {name: seconds for name, _ in summary.items() if (seconds := _median_s(summary, name)) is not None}
    size = config.count("block_size") if config else None
    num_steps = fields.count("total_steps")
    whole = phases.pop("step_total", None)
    tau = fields.number("tau")
    findings = [*_artefact(source, phases)]
    if num_steps is not None and steps and len(steps) != num_steps:
        text = f"{source.path.name}: {len(steps)} steps are listed and {num_steps} counted"
        findings.append(Finding(code="steps-disagree", severity="warning", message=text))
    return run_of(
        name=source.path.stem,
        source=NAME,
        definition=DEFINITION,
        num_steps=num_steps,
        num_draft_tokens=num_steps * (size - 1) if num_steps and size else None,
        num_accepted=_whole_accepted(tau, num_steps),
        block_size=size,
        tau=tau,
        num_requests=config.count("measured_samples") if config else None,
        num_warmup=(config.count("warmup") or 0) if config else 0,
        batch=1.0,
        method="dflash",
        target=config.text("target_model") if config else None,
        draft=config.text("draft_model") if config else None,
        task=config.text("dataset") if config else None,
        engine="tpu-standalone",
        phases_s=phases,
        cycles=(CyclePoint(block_size=size, batch=1.0, context=None, seconds=whole, num_steps=num_steps),)
        if whole and size
        else (),
        findings=tuple(findings),
    )


def _median_s(summary: Fields, name: str) -> float | None:
    section = summary.values[name]
    if not isinstance(section, Mapping):
        return None
    ms = Fields(section, summary.where).number("median_ms", "mean_ms")
    return None if ms is None else ms / 1e3


def _whole_accepted(tau: float | None, num_steps: int | None) -> int | None:
    """Accepted drafts where τ times steps is a whole number of committed tokens."""
    if tau is None or not num_steps:
        return None
    committed = tau * num_steps
    return round(committed) - num_steps if abs(committed - round(committed)) < 1e-6 * num_steps else None


def _artefact(source: Source, phases: dict[str, float]) -> list[Finding]:
    verify, accept = phases.get("verify_forward"), phases.get("acceptance")
    if verify is None or accept is None or accept <= verify:
        return []
    text = (
        f"{source.path.name}: comparing token ids takes {accept * 1e3:.1f} ms and the verify pass {verify * 1e3:.1f} ms: the clock did not"
        " wait for the device, and the wait for verification is booked under acceptance"
    )
    hint = "trust the whole step only; verify and acceptance together bound the pass from above"
    return [Finding(code="async-phases", severity="warning", message=text, hint=hint)]


def _half(fields: Fields, name: str) -> ImportedRun:
    ms: Any = fields.number("median_step_ms", "avg_step_ms")
    tau, steps = fields.number("tau"), fields.count("total_steps")
    return run_of(
        name=name,
        source=NAME,
        definition=DEFINITION,
        num_steps=steps,
        num_accepted=_whole_accepted(tau, steps),
        tau=tau,
        batch=1.0,
        phases_s={"step": ms / 1e3} if ms else {},
        engine="tpu-standalone",
    )


READER = Reader(
    name=NAME,
    description="phase profile and fused-step comparison of the TPU harness",
    cannot_know="device time of a phase; survival by position",
    sniff=sniff,
    read=read,
)
