"""Benchmark summaries by condition (plain, DFlash, …): decode rates of each, and acceptance where it is given.

Such summaries compare end-to-end rates. A rate is no acceptance and no step time: it gives the measured speed of each condition, so the
runs carry that and leave steps, drafts and τ unknown unless the summary states them.
"""

from collections.abc import Mapping

from perfmodel.errors import InputError
from perfmodel.records import Finding, ImportedRun

from .counting import run_of
from .fields import Fields
from .reader import Likeness, Reader, likeness
from .source import Source

NAME = "benchmark-conditions"
DEFINITION = "decode rate per condition, tokens per second, mean over measured rows; acceptance only where the summary states it"


def sniff(source: Source) -> Likeness:
    """Whether conditions with decode rates stand in the document."""
    found = source.document_or_none
    conditions = found.get("conditions") if isinstance(found, Mapping) else None
    if not isinstance(conditions, Mapping):
        return Likeness.NO
    rows = [item for item in conditions.values() if isinstance(item, Mapping)]
    return likeness(any("decode_tok_s" in row for row in rows))


def read(source: Source) -> list[ImportedRun]:
    """One run per condition."""
    fields = Fields.of_document(source, source.document)
    conditions = fields.need(fields.section("conditions"), "conditions")
    runs = [
        _run(Fields(row, fields.where), name, fields.text("dataset"))
        for name, row in conditions.items()
        if isinstance(row, Mapping)
    ]
    if not runs:
        raise InputError(f"{source}, line {source.line_of('conditions')}: no condition in it", "the file may be cut off")
    return runs


def _run(fields: Fields, name: str, task: str | None) -> ImportedRun:
    rate = fields.section("decode_tok_s")
    tau = fields.number("mean_acceptance_length", "acceptance_length", "tau")
    findings = []
    if tau is None:
        text = f"{name}: decode rates only; neither steps nor accepted drafts are in it, so acceptance stays unknown"
        hint = "give the engine's metrics of the same run for acceptance"
        findings.append(Finding(code="no-acceptance", severity="warning", message=text, hint=hint))
    return run_of(
        name=name,
        source=NAME,
        definition=DEFINITION,
        num_steps=fields.count("num_spec_steps", "num_drafts"),
        num_draft_tokens=fields.count("num_draft_tokens"),
        num_accepted=fields.count("num_accepted_draft_tokens", "num_accepted_tokens"),
        tau=tau,
        task=task,
        num_requests=fields.count("measured_rows"),
        num_warmup=fields.count("warmup_rows") or 0,
        tokens_per_s=rate.number("mean", "median") if rate else None,
        findings=tuple(findings),
    )


READER = Reader(
    name=NAME,
    description="benchmark summary by condition with decode rates",
    cannot_know="acceptance, K, steps; what a condition's letter stands for",
    sniff=sniff,
    read=read,
)
