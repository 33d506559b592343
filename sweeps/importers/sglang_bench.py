"""Result rows of SGLang's benchmark scripts, one JSON object a line.

`accept_length` is completion tokens over verify steps, bonus included. Neither the number of steps nor K stands in a row, and the
drafter is known only to the person who ran it: each row is a run of its own, with τ and nothing more.
"""

from collections.abc import Mapping
from typing import Any

from perfmodel.errors import InputError
from perfmodel.records import Finding, ImportedRun

from .counting import run_of
from .fields import Fields
from .reader import Likeness, Reader, likeness
from .source import Source

NAME = "sglang-bench"
DEFINITION = (
    "accept_length = completion tokens / verify steps, bonus included; draft tokens of the server's option count the root"
)
MAX_ROWS = 100_000

_OTHER = {"latency", "throughput", "task", "backend", "output_throughput", "num_requests", "completed"}


def sniff(source: Source) -> Likeness:
    """Whether the first row has an accept length beside a benchmark's figures."""
    document = source.document_or_none
    row = source.first_row or (document[0] if isinstance(document, list) and document else document)
    return likeness(isinstance(row, Mapping) and "accept_length" in row and bool(row.keys() & _OTHER))


def read(source: Source) -> list[ImportedRun]:
    """One run per row."""
    runs = []
    for number, (where, row) in enumerate(source.rows(), start=1):
        if number > MAX_ROWS:
            raise InputError(f"{where}: more than {MAX_ROWS:,} rows", "import the rows of one experiment")
        runs.append(_run(Fields.of_row(where, row), number))
    return runs


def _run(fields: Fields, number: int) -> ImportedRun:
    task = fields.text("task", "dataset_name")
    tau = fields.number("accept_length")
    load = _load(fields)
    findings = []
    if tau is None:
        text = f"row {number} has no accept length: plain decoding, or a client that cannot see it"
        findings.append(Finding(code="no-speculation", severity="info", message=text))
    return run_of(
        name=f"{task or 'row'} #{number}",
        source=NAME,
        definition=DEFINITION,
        tau=tau,
        task=task,
        num_requests=fields.count("num_requests", "completed"),
        num_output_tokens=fields.count("total_output_tokens"),
        batch=load,
        tokens_per_s=fields.number("throughput", "output_throughput"),
        engine="sglang",
        findings=tuple(findings),
    )


def _load(fields: Fields) -> Any:
    other = fields.section("other")
    return fields.number("max_concurrency") or (other.number("parallel") if other else None)


READER = Reader(
    name=NAME,
    description="result rows of SGLang's benchmarks (accept_length, latency, throughput)",
    cannot_know="K, the number of steps, the drafter, survival by position",
    sniff=sniff,
    read=read,
)
