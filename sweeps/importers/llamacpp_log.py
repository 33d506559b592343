"""llama.cpp's draft acceptance lines in every generation, streamed, with the timing lines around them.

Each line sums one request: accepted and generated drafts; newer ones add the mean length (bonus included) and the rates by
position, from which the number of steps is recovered where one answer fits. The drafters' own `statistics` lines are totals since the
start, per drafter, of the same tokens: they confirm and are never added. A drafter that proposed nothing is listed. Lines of one
process and one form are one run.
"""

import re
from dataclasses import dataclass, field

from perfmodel.records import CyclePoint, Finding, ImportedRun

from .counting import WIDEST, run_of, usual_block_size
from .reader import Likeness, Reader, likeness
from .rounding import counts_behind, steps_behind
from .source import Source

NAME = "llamacpp-log"
DEFINITION = "per request: accepted and generated drafts (bonus excluded), summed; mean length with the bonus; rates by position over steps"

_LINE = re.compile(r"draft acceptance(?: rate)? = (\S+) \(\s*(\S+) accepted /\s*(\S+) generated\)(.*)$")
_MEAN = re.compile(r"mean (?:acceptance length|len) =\s*(\S+?)(?:,|$)")
_RATES = re.compile(r"acceptance rate per position = \(([^)]*)\)")
_STATISTICS = re.compile(r"statistics\s+(\S+?):(.*)$")
_PAIR = re.compile(r"#(gen drafts|acc drafts|gen tokens|acc tokens|mean acc len) =\s*([^,\s]+)")
_EVAL = re.compile(r"(?<!prompt )\beval time =\s*([\d.]+) ms /\s*(\d+) tokens")
_PROMPT = re.compile(r"prompt eval time =\s*[\d.]+ ms /\s*(\d+) tokens")
_TAG = re.compile(r"^\s*\[(\w{1,32})\]")
_MOST_RUNS = 1000
_MOST_CYCLES = 256


@dataclass
class _Group:
    accepted: int = 0
    drafted: int = 0
    steps: int | None = 0
    accepted_at: list[int] | None = field(default_factory=list)
    requests: int = 0
    bonus: bool = True
    cycles: list[CyclePoint] = field(default_factory=list)


@dataclass
class _Drafter:
    """A drafter's totals since the start: calls that proposed, tokens proposed and accepted."""

    drafts: int = 0
    drafted: int = 0
    accepted: int = 0


def sniff(source: Source) -> Likeness:
    """Whether an acceptance line or a timing line stands in the head."""
    text = source.head
    return likeness("draft acceptance" in text and "generated)" in text, "#gen drafts" in text or "slot print_timing" in text)


def read(source: Source) -> list[ImportedRun]:
    """One run per process and form of the line; drafters' totals where no request line is there."""
    groups: dict[tuple[str, str], _Group] = {}
    drafters: dict[tuple[str, str], _Drafter] = {}
    prompt = evaluated = None
    for number, line in source.lines():
        if match := _PROMPT.search(line):
            prompt = int(match[1])
        elif match := _EVAL.search(line):
            evaluated = (float(match[1]) / 1e3, int(match[2]))
        tag = _TAG.match(line)
        if match := _LINE.search(line):
            _add(groups, tag[1] if tag else "", match, source, number, evaluated, prompt)
            prompt = evaluated = None
        elif "draft acceptance" in line and "accepted" in line:
            source.refuse(number, "an acceptance line of no known form", "it may be cut off")
        elif match := _STATISTICS.search(line):
            _statistics(drafters, tag[1] if tag else "", match, source, number)
    findings = _listed(drafters)
    if groups:
        return [_run(key, group, findings if index == 0 else []) for index, (key, group) in enumerate(groups.items())]
    if any(drafter.drafts for drafter in drafters.values()):
        return [_drafter_run(name, drafter, findings) for (_, name), drafter in drafters.items() if drafter.drafts]
    finding = Finding(
        code="no-speculation",
        severity="warning",
        message=f"{source}: timings without an acceptance line: nothing was drafted",
        hint="give llama-server a drafter (-md, --spec-type)",
    )
    return [ImportedRun(name=source.path.stem, source=NAME, definition=DEFINITION, findings=(finding, *findings))]


def _whole(source: Source, number: int, name: str, text: str) -> int:
    if not re.fullmatch(r"\d{1,15}", text):
        source.refuse(number, f"{name} is {text[:40]!r}, and a whole number that is not negative is wanted")
    return int(text)


def _real(source: Source, number: int, name: str, text: str) -> float:
    if not re.fullmatch(r"\d{1,12}(\.\d{1,12})?", text):
        source.refuse(number, f"{name} is {text[:40]!r}, and a number that is not negative is wanted")
    return float(text)


def _add(
    groups: dict[tuple[str, str], _Group],
    tag: str,
    match: re.Match[str],
    source: Source,
    number: int,
    evaluated: tuple[float, int] | None,
    prompt: int | None,
) -> None:
    accepted, drafted = _whole(source, number, "accepted", match[2]), _whole(source, number, "generated", match[3])
    mean_text, rates_text = _MEAN.search(match[4]), _RATES.search(match[4])
    rates = [_real(source, number, "a rate", part.strip()) for part in rates_text[1].split(",")] if rates_text else []
    if len(rates) > WIDEST:
        source.refuse(number, f"{len(rates):,} positions are listed", f"blocks have at most {WIDEST:,}")
    form = f"{len(rates)} positions" if rates else "mean length" if mean_text else "totals"
    solved = None
    if mean_text:
        solved = steps_behind(accepted, drafted, _real(source, number, "mean length", mean_text[1]), rates)
    size = usual_block_size(solved.num_steps, drafted) if solved else None
    group = groups.setdefault((tag, f"{form}, K={size}" if size and not rates else form), _Group())
    if len(groups) > _MOST_RUNS:
        source.refuse(number, f"more than {_MOST_RUNS} processes or forms in one log", "split the log by server")
    group.requests += 1
    group.accepted += accepted
    group.drafted += drafted
    counts = counts_behind(solved.num_steps, accepted, rates) if solved and rates else None
    group.steps = None if solved is None or group.steps is None else group.steps + solved.num_steps
    if counts is None or group.accepted_at is None:
        group.accepted_at = None
    else:
        group.accepted_at = [a + b for a, b in zip(group.accepted_at or [0] * len(counts), counts, strict=True)]
    if solved and size and evaluated and len(group.cycles) < _MOST_CYCLES:
        context = None if prompt is None else prompt + evaluated[1] // 2
        cycle = CyclePoint(
            block_size=size, batch=None, context=context, seconds=evaluated[0] / solved.num_steps, num_steps=solved.num_steps
        )
        group.cycles.append(cycle)


def _statistics(drafters: dict[tuple[str, str], _Drafter], tag: str, match: re.Match[str], source: Source, number: int) -> None:
    found = dict(_PAIR.findall(match[2]))
    if not {"gen drafts", "gen tokens", "acc tokens"} <= found.keys():
        return
    drafts, drafted, accepted = (
        _whole(source, number, f"#{key}", found[key]) for key in ("gen drafts", "gen tokens", "acc tokens")
    )
    drafters[tag, match[1]] = _Drafter(drafts, drafted, accepted)
    if len(drafters) > _MOST_RUNS:
        source.refuse(number, f"more than {_MOST_RUNS} drafters in one log", "split the log by server")


def _listed(drafters: dict[tuple[str, str], _Drafter]) -> list[Finding]:
    """What the drafters' own totals say, without adding them to the requests'."""
    findings = []
    for (_, name), drafter in drafters.items():
        text = f"drafter {name}: {drafter.drafts:,} drafts, {drafter.drafted:,} tokens proposed, {drafter.accepted:,} accepted"
        code = "drafter-totals" if drafter.drafts else "drafter-idle"
        hint = "totals since the start; part of the requests' sums, not added" if drafter.drafts else "it proposed nothing"
        findings.append(Finding(code=code, severity="info", message=text, hint=hint))
    return findings


def _run(key: tuple[str, str], group: _Group, findings: list[Finding]) -> ImportedRun:
    tag, form = key
    return run_of(
        name=f"{tag or 'log'} ({form})",
        source=NAME,
        definition=DEFINITION,
        num_steps=group.steps,
        num_draft_tokens=group.drafted,
        num_accepted=group.accepted,
        accepted_at=group.accepted_at or None,
        num_requests=group.requests,
        engine="llama.cpp",
        cycles=tuple(group.cycles),
        findings=tuple(findings),
    )


def _drafter_run(name: str, drafter: _Drafter, findings: list[Finding]) -> ImportedRun:
    return run_of(
        name=name,
        source=NAME,
        definition="totals of one drafter since the start: drafts, tokens proposed, tokens accepted (bonus excluded)",
        num_steps=drafter.drafts,
        num_draft_tokens=drafter.drafted,
        num_accepted=drafter.accepted,
        method=name,
        engine="llama.cpp",
        findings=tuple(findings),
    )


READER = Reader(
    name=NAME,
    description="llama.cpp server log: draft acceptance, timing and drafter statistics lines of every generation",
    cannot_know="the number of steps where only totals are printed; steps without a draft; the number of busy slots",
    sniff=sniff,
    read=read,
)
