"""SGLang's "Decode batch" lines in the server's log, streamed.

With speculation a line gives the mean accept length (bonus included) and, in newer versions, the accept rate: accepted over proposed
drafts, so K − 1 = (length − 1) / rate. No counts are printed. A line covers a fixed number of forward passes, so lines weigh as
many steps as requests were running; the pooled τ is such a weighted mean and is said to be estimated. Running requests × accept
length ÷ throughput is the time of a whole step.
"""

import re
import statistics
from collections.abc import Iterator
from dataclasses import dataclass, field

from perfmodel.records import CyclePoint, Finding, ImportedRun

from .counting import run_of
from .reader import Likeness, Reader, likeness
from .source import Source

NAME = "sglang-log"
DEFINITION = (
    "accept len of decode lines = committed tokens per step, bonus included; accept rate = accepted / proposed drafts; lines weighted by"
    " running requests (an estimate, no counts are printed)"
)

_FIELD = re.compile(r"([A-Za-z#][A-Za-z# /()-]*?): ([^,\s]+)")
_MOST_SAMPLES = 256
_MOST_BATCHES = 2048


@dataclass
class _Sums:
    lines: int = 0
    weight: float = 0.0
    committed: float = 0.0
    widths: dict[int, int] = field(default_factory=dict)
    shortest: float = float("inf")
    longest: float = 0.0
    seconds: dict[int, list[float]] = field(default_factory=dict)
    contexts: dict[int, list[float]] = field(default_factory=dict)

    def time(self, batch: int, seconds: float, context: float | None) -> None:
        """Keep a step time, up to a number per batch."""
        if batch not in self.seconds and len(self.seconds) >= _MOST_BATCHES:
            return
        samples = self.seconds.setdefault(batch, [])
        if len(samples) < _MOST_SAMPLES:
            samples.append(seconds)
            if context is not None:
                self.contexts.setdefault(batch, []).append(context)


def sniff(source: Source) -> Likeness:
    """Whether decode lines stand in the head."""
    return likeness("Decode batch" in source.head and "#running-req" in source.head, "Prefill batch" in source.head)


def read(source: Source) -> list[ImportedRun]:
    """Speculative lines and plain lines as one run each."""
    speculative, plain = _Sums(), _Sums()
    for number, found in _lines(source):
        batch = int(_number(source, number, "#running-req", found.get("#running-req", "0"), whole=True))
        rate = _number(source, number, "gen throughput", found.get("gen throughput (token/s)", "0"))
        length = _number(source, number, "accept len", found["accept len"]) if "accept len" in found else None
        sums = plain if length is None else speculative
        sums.lines += 1
        if batch and rate:
            tokens = found.get("#token", found.get("#full token"))
            context = None if tokens is None else _number(source, number, "#token", tokens) / batch
            sums.time(batch, batch * (length or 1.0) / rate, context)
        if length is not None and batch:
            sums.weight += batch
            sums.committed += batch * length
            sums.shortest, sums.longest = min(sums.shortest, length), max(sums.longest, length)
            width = _width(length, found.get("accept rate"), source, number)
            if width is not None:
                sums.widths[width] = sums.widths.get(width, 0) + 1
    return [
        run for sums, name in ((speculative, "speculative"), (plain, "plain")) if sums.lines for run in [_run(sums, name, source)]
    ]


def _lines(source: Source) -> Iterator[tuple[int, dict[str, str]]]:
    for number, line in source.lines():
        start = line.find("Decode batch")
        if start >= 0:
            rest = line[line.find(",", start) + 1 :] if "," in line[start : start + 24] else line[start + 12 :]
            yield number, {name.strip(): value for name, value in _FIELD.findall(rest)}


def _number(source: Source, number: int, name: str, text: str, whole: bool = False) -> float:
    if not re.fullmatch(r"\d{1,15}" if whole else r"\d{1,15}(\.\d{1,12})?", text):
        source.refuse(number, f"{name} is {text[:40]!r}, and a number that is not negative is wanted", "the log may be damaged")
    return float(text)


def _width(length: float, rate_text: str | None, source: Source, number: int) -> int | None:
    """Drafts per step that explain a length and a rate, both rounded to hundredths; None where several do."""
    if rate_text is None:
        return None
    rate = _number(source, number, "accept rate", rate_text)
    accepted = length - 1
    if rate <= 0.005 or accepted <= 0.005:
        return None
    low, high = (accepted - 0.005) / (rate + 0.005), (accepted + 0.005) / (rate - 0.005)
    fitting = [width for width in range(1, 257) if low <= width <= high]
    return fitting[0] if len(fitting) == 1 else None


def _run(sums: _Sums, name: str, source: Source) -> ImportedRun:
    is_plain = name == "plain"
    width = max(sums.widths, key=lambda key: sums.widths[key]) if sums.widths else None
    size = 1 if is_plain else None if width is None else width + 1
    tau = sums.committed / sums.weight if sums.weight else None
    findings = []
    if tau is not None and sums.longest > sums.shortest:
        text = (
            f"{source.path.name}: τ = {tau:.3f} is estimated from {sums.lines:,} lines between {sums.shortest:g} and {sums.longest:g},"
            " weighted by running requests; the log holds no counts"
        )
        findings.append(
            Finding(code="tau-estimated", severity="info", message=text, hint="save the replies' meta_info for exact counts")
        )
    cycles = tuple(
        CyclePoint(
            block_size=size,
            batch=float(batch),
            context=round(statistics.median(sums.contexts[batch])) if batch in sums.contexts else None,
            seconds=statistics.median(samples),
        )
        for batch, samples in sorted(sums.seconds.items())
        if size is not None
    )
    return run_of(
        name=name,
        source=NAME,
        definition="decode lines without speculation: one token per request and step" if is_plain else DEFINITION,
        tau=tau,
        block_size=None if is_plain else size,
        num_plain=sums.lines if is_plain else 0,
        engine="sglang",
        cycles=cycles,
        findings=tuple(findings),
    )


READER = Reader(
    name=NAME,
    description="SGLang server log: decode lines with accept len, accept rate and throughput",
    cannot_know="counts of any kind, survival by position; K where no accept rate is printed",
    sniff=sniff,
    read=read,
)
