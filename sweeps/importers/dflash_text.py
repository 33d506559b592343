"""What the `dflash` 0.1.0 benchmark prints: throughputs, the acceptance length and its histogram in per cent; server mode's figures.

The printed acceptance length is a mean over answers of the answer's mean, while the histogram is over steps: τ comes from the
histogram, entry c being the share of steps that committed c tokens (entry 0 is empty by construction). Shares are rounded to a
tenth of a per cent and the number of steps is not printed. Server mode prints no histogram.
"""

import re

from perfmodel.records import Finding, ImportedRun

from .counting import run_of
from .reader import Likeness, Reader, likeness
from .source import Source

NAME = "dflash-text"
DEFINITION = (
    "histogram of committed tokens per step in per cent, bonus included; printed acceptance length = mean over answers of the answer's"
    " mean"
)

_FIELDS = {
    "Baseline throughput": "plain",
    "DFlash throughput": "speed",
    "Decoding speedup": "speedup",
    "Average Acceptance length": "mean",
    "Concurrency": "batch",
    "Num prompts": "prompts",
    "Output tokens": "tokens",
    "Throughput": "speed",
    "Accept length": "mean",
    "Spec verify ct": "steps",
}
_TEXTS = {"Loading target": "target", "Loading draft": "draft", "Dataset": "task", "Backend": "engine"}
_LINE = re.compile(r"^\s*([A-Z][A-Za-z ]*?):\s+(.*?)\s*$")
_HISTOGRAM = "Acceptance length histogram"
_WHOLE = ("prompts", "tokens", "steps", "batch")


def sniff(source: Source) -> Likeness:
    """Whether the benchmark's own lines stand in the text."""
    text = source.head
    return likeness(
        _HISTOGRAM in text or "DFlash throughput:" in text or ("Spec verify ct:" in text and "Backend:" in text),
        "Average Acceptance length:" in text,
    )


def read(source: Source) -> list[ImportedRun]:
    """One run per benchmark in the text: a new one begins where a figure comes a second time."""
    found: dict[str, str] = {}
    shares: list[float] = []
    runs: list[ImportedRun] = []
    for number, line in source.lines():
        match = _LINE.match(line)
        if match is None:
            continue
        label, text = match[1], match[2]
        if label == _HISTOGRAM:
            shares = _shares(source, number, text)
            continue
        name = _FIELDS.get(label) or _TEXTS.get(label)
        if name is None:
            continue
        if name in found and name not in ("target", "draft"):
            runs.append(_run(source, found, shares, len(runs)))
            found, shares = {key: found[key] for key in ("target", "draft") if key in found}, []
        found[name] = text if label in _TEXTS else _figure(source, number, label, text, name in _WHOLE)
    if set(found) - set(_TEXTS.values()) or shares:
        runs.append(_run(source, found, shares, len(runs)))
    if not runs:
        source.refuse(1, "no figure of the dflash benchmark in it", "give the text the benchmark printed")
    return runs


def _figure(source: Source, number: int, label: str, text: str, whole: bool) -> str:
    if text == "n/a":
        return ""
    match = re.fullmatch(r"(\d[\d,]{0,18}(?:\.\d{1,9})?)(?: tok/s|s)?", text)
    if match is None or (whole and "." in match[1]):
        source.refuse(number, f"{label} is {text[:40]!r}, and a number that is not negative is wanted")
    return match[1].replace(",", "")


def _shares(source: Source, number: int, text: str) -> list[float]:
    parts = [part.strip(" '\"%") for part in text.strip("[]").split(",")]
    if not all(re.fullmatch(r"\d{1,3}(\.\d{1,6})?", part) for part in parts):
        source.refuse(number, f"the histogram is {text[:60]!r}, and a list of per cents is wanted")
    return [float(part) / 100 for part in parts]


def _run(source: Source, found: dict[str, str], shares: list[float], index: int) -> ImportedRun:
    def number(name: str) -> float | None:
        return float(found[name]) if found.get(name) else None

    steps, tokens = number("steps"), number("tokens")
    findings = []
    survival = tau = None
    if shares:
        total = sum(shares)
        if abs(total - 1) > 0.001 * len(shares) or shares[0] > 0:
            text = f"the histogram adds up to {100 * total:.1f} % with {100 * shares[0]:.1f} % at zero tokens"
            findings.append(Finding(code="histogram-incomplete", severity="error", message=text, hint="the line may be cut"))
        survival = [sum(shares[index:]) for index in range(2, len(shares))]
        tau = sum(index * share for index, share in enumerate(shares)) / total if total else None
    elif steps and tokens:
        tau = tokens / steps
    per_answer = number("mean")
    if tau is None and per_answer is not None:
        tau = per_answer
        text = f"{source.path.name}: only the mean over answers is printed ({per_answer:g}); the mean over steps may be lower"
        findings.append(Finding(code="tau-per-answer-only", severity="warning", message=text))
    return run_of(
        name=source.path.stem if index == 0 else f"{source.path.stem} #{index + 1}",
        source=NAME,
        definition=DEFINITION,
        num_steps=None if steps is None else int(steps),
        survival=survival,
        block_size=len(shares) - 1 if shares else None,
        tau=tau,
        tau_per_answer=per_answer,
        num_requests=None if (prompts := number("prompts")) is None else int(prompts),
        num_output_tokens=None if tokens is None else int(tokens),
        batch=number("batch"),
        method="dflash",
        target=found.get("target"),
        draft=found.get("draft"),
        task=found.get("task"),
        engine=found.get("engine") or "dflash",
        plain_tokens_per_s=number("plain"),
        tokens_per_s=number("speed"),
        findings=tuple(findings),
    )


READER = Reader(
    name=NAME,
    description="text printed by the benchmark of the `dflash` package 0.1.0, local and server mode",
    cannot_know="the number of steps in local mode; shares finer than a tenth of a per cent; K in server mode",
    sniff=sniff,
    read=read,
)
