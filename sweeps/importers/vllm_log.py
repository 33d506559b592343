"""vLLM's metrics line in the server's log, in every generation, streamed.

From version 1 on each line covers one interval, so counts are summed over lines and rates are never averaged; the number of steps
is not printed and is recovered from the mean and the rates where they leave one answer. The oldest line ("Speculative metrics")
holds totals since the start, of which the last counts; its "accepted" counts every draft that would pass its own test, even
after a rejected one, so it is an upper bound and τ comes from the emitted tokens. Lines that a terminal or a log collector wrapped are
put together again. Lines of one process with one list length are one run.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from perfmodel.records import Finding, ImportedRun

from .counting import WIDEST, run_of
from .reader import Likeness, Reader, likeness
from .rounding import counts_behind, steps_behind
from .source import Source

NAME = "vllm-log"

_MARK = re.compile(r"(SpecDecoding|Speculative) metrics:")
_TAG = re.compile(r"^\s*(\[[^\]\s]{1,64}\]|\([^()]{1,64} pid=\d+\))\s*")
_NEW_RECORD = re.compile(r"^\s*(INFO|WARNING|ERROR|DEBUG|CRITICAL|Traceback|\[?\d{4}-\d\d-\d\d|\d\d:\d\d:\d\d)")
_MOST_FRAGMENTS = 40
_MOST_RUNS = 1000

_FIGURE = r"(-?[\w.]+)"
_PATTERNS = {
    "accepted": re.compile(r"(?:[:,]Accepted|Numberofacceptedtokens):(-?[\d.]+|\w+?)(?:tokens)?(?:,|$)"),
    "drafted": re.compile(r"(?:,Drafted|Numberofdrafttokens):(-?[\d.]+|\w+?)(?:tokens)?\.?(?:,|$)"),
    "k": re.compile(rf"Numberofspeculativetokens:{_FIGURE},"),
    "emitted": re.compile(r"Numberofemittedtokens:(-?\w+)\.?$"),
    "mean": re.compile(rf"Meanacceptancelength:{_FIGURE}(?:,|$)"),
    "rates": re.compile(r"Per-positionacceptancerate:((?:-?[\d.]+|nan)(?:,-?[\d.]+|,nan)*)(?:,AvgDraft|,?$)"),
}
_ANNOUNCED = {"mean": "Meanacceptance", "rates": "Per-position"}
_DEFINITION = (
    "interval counters of the log, summed: accepted and drafted tokens (bonus excluded); rates by position over steps, first draft"
    " first; τ = 1 + accepted / steps"
)
_OLD_DEFINITION = (
    "totals since start; accepted counts drafts that pass their own test, after a rejected one too (an upper bound);"
    " τ = emitted tokens / steps, bonus included"
)


@dataclass
class _Group:
    """Sums of one run's lines; None in `steps` or `accepted_at` once a line left them open."""

    accepted: int = 0
    drafted: int = 0
    steps: int | None = 0
    accepted_at: list[int] | None = field(default_factory=list)
    emitted: int | None = None
    lines: int = 0
    without_bonus: int = 0
    open_lines: int = 0


def sniff(source: Source) -> Likeness:
    """Whether a metrics line stands in the head, or engine lines of vLLM's logger do."""
    return likeness(
        "SpecDecoding metrics:" in source.head or "Speculative metrics:" in source.head, "[loggers.py:" in source.head
    )


def read(source: Source) -> list[ImportedRun]:
    """One run per process, generation and list length."""
    groups: dict[tuple[str, str], _Group] = {}
    cut: list[Finding] = []
    for number, tag, fragments, is_last in _records(source):
        if not _MARK.search(" ".join(fragments)) and "metrics:" not in "".join(fragments):
            continue
        parsed = next((found for end in range(len(fragments), 0, -1) if (found := _parse(fragments[:end]))), None)
        if parsed is None:
            if is_last:
                cut.append(
                    Finding(
                        code="line-cut",
                        severity="warning",
                        message=f"{source}, line {number}: the last metrics line is cut off and was left out",
                        hint="let the interval end before copying the log",
                    )
                )
                continue
            source.refuse(number, "a metrics line of no known form", "it may be cut off, or of a newer vLLM")
        _add(groups, tag, parsed, source, number)
    if not groups:
        return [_no_line(source, cut)]
    return [_run(key, group, cut) for key, group in groups.items()]


def _records(source: Source) -> Iterator[tuple[int, str, list[str], bool]]:
    """(line number, tag, fragments, whether the file ended in it) of every metrics line."""
    pending: tuple[int, str, list[str]] | None = None
    for number, line in source.lines():
        found = _MARK.search(line)
        tag = _TAG.match(line)
        body = line[tag.end() :] if tag else line
        start = found.start() if found else _cut_mark(line)
        if found or (start is not None and pending is None):
            if pending:
                yield (*pending, False)
            pending = (number, tag[1] if tag else "", [line[start:]])
        elif pending:
            fragments = pending[2]
            if not body.strip() or _NEW_RECORD.match(body) or len(fragments) >= _MOST_FRAGMENTS or _is_whole(fragments):
                yield (*pending, False)
                pending = None
            else:
                fragments.append(body)
    if pending:
        yield (*pending, True)


def _cut_mark(line: str) -> int | None:
    """Where a line ends within the mark, None where it does not: a line may be wrapped there too."""
    if "S" not in line[-21:]:
        return None
    for mark in ("SpecDecoding metrics:", "Speculative metrics:"):
        for length in range(len(mark) - 1, 0, -1):
            start = len(line) - length
            if line.endswith(mark[:length]) and (start == 0 or line[start - 1] in " ]"):
                return start
    return None


def _is_whole(fragments: list[str]) -> bool:
    return fragments[-1].rstrip().endswith(("%", "emitted tokens.")) or fragments[-1].rstrip().endswith("%.")


def _parse(fragments: list[str]) -> dict[str, str] | None:
    """The fields, None where one is missing. Blanks are dropped first, so that it does not matter where a line was cut."""
    text = re.sub(r"\s+", "", "".join(fragments))
    found = {name: match[1] for name, pattern in _PATTERNS.items() if (match := pattern.search(text))}
    old = text.startswith("Speculativemetrics")
    wanted = {"accepted", "drafted", *(("k", "emitted") if old else ())}
    wanted |= {name for name, words in _ANNOUNCED.items() if words in text}
    if not wanted <= found.keys() or ("mean" in found and "rates" not in found):
        return None
    if "AvgDraft" in text and not text.rstrip(".").endswith("%"):
        return None
    return {**found, "old": "1"} if old else found


def _count(source: Source, number: int, name: str, text: str) -> int:
    if not re.fullmatch(r"\d{1,15}", text):
        source.refuse(number, f"{name} is {text[:40]!r}, and a whole number that is not negative is wanted")
    return int(text)


def _numbers(source: Source, number: int, text: str) -> list[float]:
    values = []
    for part in text.split(","):
        if not re.fullmatch(r"\s*\d{1,9}(\.\d{1,9})?\s*", part):
            source.refuse(number, f"a figure is {part.strip()[:40]!r}, and a number that is not negative is wanted")
        values.append(float(part))
    return values


def _add(groups: dict[tuple[str, str], _Group], tag: str, found: dict[str, str], source: Source, number: int) -> None:
    accepted = _count(source, number, "accepted", found["accepted"])
    drafted = _count(source, number, "drafted", found["drafted"])
    if "old" in found:
        _add_old(groups, tag, accepted, drafted, found, source, number)
        return
    length = found["rates"].count(",") + 1 if "rates" in found else 0
    if length > WIDEST:
        source.refuse(number, f"{length:,} positions are listed", f"blocks have at most {WIDEST:,}")
    rates = _numbers(source, number, found["rates"]) if length and drafted else []
    group = groups.setdefault((tag, str(length) if length else ""), _Group())
    if len(groups) > _MOST_RUNS:
        source.refuse(number, f"more than {_MOST_RUNS} processes or list lengths in one log", "split the log by server")
    group.lines += 1
    group.accepted += accepted
    group.drafted += drafted
    _add_steps(group, accepted, drafted, found, rates, source, number)


def _add_steps(
    group: _Group, accepted: int, drafted: int, found: dict[str, str], rates: list[float], source: Source, number: int
) -> None:
    if drafted == 0 and accepted == 0:
        return
    if "mean" not in found or found["mean"] == "nan":
        group.steps = group.accepted_at = None
        return
    solved = steps_behind(accepted, drafted, _numbers(source, number, found["mean"])[0], rates)
    counts = counts_behind(solved.num_steps, accepted, rates) if solved else None
    if solved is None or group.steps is None:
        group.steps = None
        group.open_lines += solved is None
    else:
        group.steps += solved.num_steps
        group.without_bonus += not solved.bonus
    if counts is None or group.accepted_at is None:
        group.accepted_at = None
    else:
        group.accepted_at = [a + b for a, b in zip(group.accepted_at or [0] * len(counts), counts, strict=True)]


def _add_old(
    groups: dict[tuple[str, str], _Group],
    tag: str,
    accepted: int,
    drafted: int,
    found: dict[str, str],
    source: Source,
    number: int,
) -> None:
    """Totals since start: the newest line replaces the one before; a fall is a new server."""
    width, emitted = _count(source, number, "speculative tokens", found["k"]), _count(source, number, "emitted", found["emitted"])
    starts = [key for key in groups if key[0] == tag and key[1].startswith(f"total {width} ")]
    key = starts[-1] if starts else (tag, f"total {width} 1")
    if key in groups and drafted < groups[key].drafted:
        key = (tag, f"total {width} {len(starts) + 1}")
    steps = drafted // width if width and drafted % width == 0 else None
    groups[key] = _Group(accepted, drafted, steps, None, emitted, groups[key].lines + 1 if key in groups else 1)


def _run(key: tuple[str, str], group: _Group, cut: list[Finding]) -> ImportedRun:
    tag, shape = key
    findings = list(cut)
    name = tag.strip("[]()") or "log"
    if group.emitted is not None:
        return run_of(
            name=f"{name} (totals, K={int(shape.split()[1]) + 1})",
            source=NAME,
            definition=_OLD_DEFINITION,
            num_steps=group.steps,
            num_draft_tokens=group.drafted,
            num_accepted=group.accepted,
            num_committed=group.emitted,
            findings=(*findings, *_upper_bound(name, group)),
        )
    if group.open_lines:
        text = f"{name}: {group.open_lines} of {group.lines} lines do not tell the number of steps"
        findings.append(
            Finding(
                code="steps-unknown", severity="warning", message=text, hint="scrape /metrics before and after for exact counts"
            )
        )
    definition = _DEFINITION
    if group.without_bonus:
        definition += "; the printed mean leaves the bonus out"
    return run_of(
        name=f"{name} ({shape} positions)" if shape else name,
        source=NAME,
        definition=definition,
        num_steps=group.steps,
        num_draft_tokens=group.drafted,
        num_accepted=group.accepted,
        accepted_at=group.accepted_at or None,
        findings=tuple(findings),
    )


def _upper_bound(name: str, group: _Group) -> list[Finding]:
    if not group.steps or group.emitted is None or group.accepted <= group.emitted - group.steps:
        return []
    text = (
        f"{name}: {group.accepted:,} accepted is an upper bound: only {group.emitted - group.steps:,} of them led to a token,"
        " the others passed their own test after a rejected draft"
    )
    return [Finding(code="accepted-upper-bound", severity="info", message=text, hint="τ is read from the emitted tokens")]


def _no_line(source: Source, cut: list[Finding]) -> ImportedRun:
    finding = Finding(
        code="no-speculation",
        severity="warning",
        message=f"{source}: a vLLM log without a whole SpecDecoding line",
        hint="speculation was off, no request came, or the interval (VLLM_LOG_STATS_INTERVAL) was longer than the run",
    )
    return ImportedRun(name="log", source=NAME, definition=_DEFINITION, findings=(finding, *cut))


READER = Reader(
    name=NAME,
    description="vLLM server log: SpecDecoding metrics lines of every generation",
    cannot_know="survival where the rates leave several counts open; prompts; the first and last, incomplete interval",
    sniff=sniff,
    read=read,
)
