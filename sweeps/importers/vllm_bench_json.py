"""`vllm bench serve --save-result`: one JSON document, or one a line with `--append-result`.

With speculation on it holds counters read from the server around the run, so K comes from draft tokens over drafts. The acceptance rate
is in per cent and the rates by position are shares of the drafts (steps). A streaming client sees one chunk per step: the
inter-token latency is the time of a step, not of a token.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from perfmodel.errors import InputError
from perfmodel.records import CyclePoint, Finding, ImportedRun

from .counting import run_of
from .fields import Fields
from .reader import Likeness, Reader, likeness
from .source import Source

NAME = "vllm-bench-json"
DEFINITION = (
    "counters of the server around the run: drafts (steps), draft tokens, accepted tokens (bonus excluded); rates by position over"
    " drafts, first draft first; τ = 1 + accepted / drafts"
)

MAX_ROWS = 100_000
_OWN = "spec_decode_num_drafts"
_BENCH = {"total_output_tokens", "output_throughput", "mean_itl_ms"}


def sniff(source: Source) -> Likeness:
    """Whether the document has the benchmark's own keys."""
    found = source.first_row or source.document_or_none
    if not isinstance(found, Mapping):
        return Likeness.NO
    return likeness(
        _OWN in found or (found.keys() >= _BENCH and "endpoint_type" in found),
        found.keys() >= _BENCH and "backend" in found and "accept_length" not in found,
    )


def read(source: Source) -> list[ImportedRun]:
    """One run per document."""
    if source.first_row is None:
        return [_run(Fields.of_document(source, source.document), source.path.stem)]
    runs = []
    for number, (where, row) in enumerate(source.rows(), start=1):
        if number > MAX_ROWS:
            raise InputError(f"{where}: more than {MAX_ROWS:,} results", "import the results of one experiment")
        runs.append(_run(Fields.of_row(where, row), f"{source.path.stem} #{number}"))
    return runs


def _run(fields: Fields, name: str) -> ImportedRun:
    steps = fields.count(_OWN)
    rates = fields.numbers("spec_decode_per_position_acceptance_rates")
    findings: list[Finding] = []
    if steps is None:
        findings.append(
            Finding(
                code="no-speculation",
                severity="info",
                message=f"{name}: no spec_decode fields: plain decoding, or the client could not read /metrics",
                hint="a server with an API key answers the benchmark's scrape with 401; give the client the key",
            )
        )
    failed = fields.count("failed")
    if failed:
        findings.append(
            Finding(
                code="failed-requests",
                severity="warning",
                message=f"{name}: {failed} requests failed",
                hint="see the server's log",
            )
        )
    run = run_of(
        name=name,
        source=NAME,
        definition=DEFINITION,
        num_steps=steps,
        num_draft_tokens=fields.count("spec_decode_draft_tokens"),
        num_accepted=fields.count("spec_decode_accepted_tokens"),
        survival=rates or None,
        tau=fields.number("spec_decode_acceptance_length"),
        findings=tuple(findings),
        **facts(fields),
    )
    return with_cycle(run, fields.number("median_itl_ms", "mean_itl_ms"), plain=steps is None)


def facts(fields: Fields) -> dict[str, Any]:
    """What the benchmark says of its load."""
    completed, inputs, outputs = (fields.count(key) for key in ("completed", "total_input_tokens", "total_output_tokens"))
    context = None
    if completed and inputs is not None and outputs is not None:
        context = round((inputs + outputs / 2) / completed)
    return {
        "num_requests": completed,
        "num_output_tokens": outputs,
        "batch": fields.number("max_concurrency"),
        "context": context,
        "target": fields.text("model_id"),
        "tokens_per_s": fields.number("output_throughput"),
        "engine": "vllm",
    }


def with_cycle(run: ImportedRun, itl_ms: float | None, plain: bool) -> ImportedRun:
    """The run with the time between stream chunks as the time of a step; of a plain step where nothing was drafted."""
    size = 1 if plain else run.block_size
    if not itl_ms or size is None:
        return run
    cycle = CyclePoint(block_size=size, batch=run.batch, context=run.context, seconds=itl_ms / 1e3, num_steps=run.num_steps)
    return msgspec.structs.replace(run, cycles=(*run.cycles, cycle))


READER = Reader(
    name=NAME,
    description="result file of `vllm bench serve --save-result`, with or without --append-result and --save-detailed",
    cannot_know="what each answer did; the drafter; the temperature; warm-up requests, which the counters may contain",
    sniff=sniff,
    read=read,
)
