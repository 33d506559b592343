"""The text report that `vllm bench serve` prints: the same counters as its JSON, rates rounded to hundredths of a per cent."""

import re
from collections.abc import Iterator

from perfmodel.errors import InputError
from perfmodel.records import Finding, ImportedRun

from .counting import run_of
from .reader import Likeness, Reader, likeness
from .source import Source
from .vllm_bench_json import DEFINITION, with_cycle

NAME = "vllm-bench-text"

_TITLE = "Serving Benchmark Result"
_LINE = re.compile(r"^\s*([A-Z][A-Za-z0-9 ()./%-]*?):\s+(\S+)\s*$")
_POSITION = re.compile(r"^Position (\d{1,4})$")

_WHOLE = {
    "Drafts": "num_steps",
    "Draft tokens": "num_draft_tokens",
    "Accepted tokens": "num_accepted",
    "Successful requests": "num_requests",
    "Failed requests": "failed",
    "Total generated tokens": "num_output_tokens",
    "Total input tokens": "inputs",
}
_REAL = {
    "Acceptance length": "tau",
    "Maximum request concurrency": "batch",
    "Output token throughput (tok/s)": "tokens_per_s",
    "Median ITL (ms)": "itl_ms",
    "Acceptance rate (%)": "rate",
}


def sniff(source: Source) -> Likeness:
    """Whether the report's title stands near the beginning."""
    return likeness(_TITLE in source.head)


def read(source: Source) -> list[ImportedRun]:
    """One run per report in the file."""
    reports = [
        _run(found, rates, f"{source.path.stem}{f' #{n}' if n > 1 else ''}")
        for n, (found, rates) in enumerate(_reports(source), 1)
    ]
    if not reports:
        raise InputError(f"{source}, line 1: no whole benchmark report in it", "the text may be cut off")
    return reports


def _reports(source: Source) -> Iterator[tuple[dict[str, float], list[float]]]:
    found: dict[str, float] = {}
    rates: list[float] = []
    inside = False
    for number, line in source.lines():
        if _TITLE in line:
            if inside:
                source.refuse(number, "a report begins before the last one ended", "the text may be cut off")
            inside, found, rates = True, {}, []
        elif inside and line.strip() and set(line.strip()) == {"="}:
            inside = False
            yield found, rates
        elif inside:
            _take(source, number, line, found, rates)
    if inside:
        source.refuse(number, "the report ends without its last line", "the text may be cut off")


def _take(source: Source, number: int, line: str, found: dict[str, float], rates: list[float]) -> None:
    match = _LINE.match(line)
    if match is None:
        return
    label, text = match[1], match[2]
    position = _POSITION.match(label)
    if position is None and label not in _WHOLE and label not in _REAL:
        return
    if not re.fullmatch(r"\d{1,15}(\.\d{1,9})?", text) or (label in _WHOLE and "." in text):
        source.refuse(number, f"{label} is {text[:40]!r}, and a number that is not negative is wanted")
    if position is None:
        found[{**_WHOLE, **_REAL}[label]] = float(text)
        return
    if int(position[1]) != len(rates):
        source.refuse(number, f"position {position[1]} follows position {len(rates) - 1}", "a line may be missing")
    rates.append(float(text) / 100)


def _run(found: dict[str, float], rates: list[float], name: str) -> ImportedRun:
    whole = {key: int(found[key]) for key in _WHOLE.values() if key in found}
    findings: list[Finding] = []
    plain = "num_steps" not in whole
    if plain:
        text = f"{name}: no part on speculative decoding: plain decoding, or the client could not read /metrics"
        findings.append(Finding(code="no-speculation", severity="info", message=text))
    if whole.get("failed"):
        findings.append(Finding(code="failed-requests", severity="warning", message=f"{name}: {whole['failed']} requests failed"))
    requests, outputs = whole.get("num_requests"), whole.get("num_output_tokens")
    context = (
        round((whole["inputs"] + outputs / 2) / requests) if requests and outputs is not None and "inputs" in whole else None
    )
    run = run_of(
        name=name,
        source=NAME,
        definition=DEFINITION,
        num_steps=whole.get("num_steps"),
        num_draft_tokens=whole.get("num_draft_tokens"),
        num_accepted=whole.get("num_accepted"),
        survival=rates or None,
        tau=found.get("tau"),
        num_requests=requests,
        num_output_tokens=outputs,
        batch=found.get("batch"),
        context=context,
        tokens_per_s=found.get("tokens_per_s"),
        engine="vllm",
        findings=tuple(findings),
    )
    return with_cycle(run, found.get("itl_ms"), plain)


READER = Reader(
    name=NAME,
    description="text report printed by `vllm bench serve`",
    cannot_know="what each answer did; the models; the temperature; rates by position beyond a hundredth of a per cent",
    sniff=sniff,
    read=read,
)
