"""Prometheus scrapes of vLLM and its relatives: one, or several of one server, of which the difference counts.

Counters only grow while a server lives, so scrapes before and after a run give exactly that run; a counter that fell means a restart
or files in the wrong order, and is refused. Engines of one server are added by name and position. Every counter has a companion
`…_created` that holds a Unix time; it is no count, and tells whether two scrapes are of one server. Without speculation
there is no spec_decode series at all.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from perfmodel.errors import InputError
from perfmodel.records import Finding, ImportedRun

from .counting import run_of
from .reader import Likeness, Reader, likeness
from .source import Source

NAME = "vllm-prometheus"
DEFINITION = (
    "counters of the engine: drafts (steps), draft tokens, accepted tokens (bonus excluded), accepted by position (0 is the first"
    " draft); survival = accepted at a position / drafts; τ = 1 + accepted / drafts"
)

_SERIES = re.compile(
    r"^(?:vllm[:_]|trtllm[:_]|tpu_?inference[:_])spec_decode_num_(drafts|draft_tokens|accepted_tokens(?:_per_pos)?)(?:_total)?$"
)
_OTHER = re.compile(r"^(?:vllm[:_])(generation_tokens|request_success|prompt_tokens)(?:_total)?$")
_CREATED = re.compile(r"^(?:vllm[:_]|trtllm[:_]|tpu_?inference[:_])spec_decode_num_\w+_created$")
_LINE = re.compile(r"^([A-Za-z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)(?:\s+-?\d+)?\s*$")
_LABEL = re.compile(r'([A-Za-z_]\w*)="((?:[^"\\]|\\.)*)"')
_WHOLE_LINE = re.compile(r"^(?:vllm|trtllm|tpu_?inference)[:_]spec_decode_num_", re.MULTILINE)

_Key = tuple[str, str, str]


@dataclass
class _Scrape:
    """Sums over engines by (model, series, position), and when the counters began."""

    sums: dict[_Key, int] = field(default_factory=dict)
    others: dict[tuple[str, str], float] = field(default_factory=dict)
    created: dict[str, set[float]] = field(default_factory=dict)

    def models(self) -> list[str]:
        return list(dict.fromkeys(model for model, _, _ in self.sums))

    def positions(self, model: str) -> list[int]:
        return sorted(int(position) for name, _, position in self.sums if name == model and position)


def sniff(source: Source) -> Likeness:
    """Whether the exposition format stands in the head, with vLLM's names."""
    text = source.head
    return likeness(bool(_WHOLE_LINE.search(text)), "# TYPE vllm" in text or "# HELP vllm" in text or "\nvllm:" in text)


def read(source: Source) -> list[ImportedRun]:
    """The counters since the server started, one run per model name."""
    return _runs(_scrape(source), source.path.name, "since the server started")


def join(sources: Sequence[Source]) -> list[ImportedRun]:
    """The difference between the last and the first scrape where they are of one server, else each scrape for itself."""
    scrapes = [(source, _scrape(source)) for source in sources]
    shapes = {tuple((model, len(scrape.positions(model))) for model in scrape.models()) for _, scrape in scrapes if scrape.sums}
    if len(shapes) != 1:
        return [run for source, scrape in scrapes for run in _runs(scrape, source.path.name, "since the server started")]
    for (earlier, before), (later, after) in pairwise(scrapes):
        _check_growth(earlier, before, later, after)
    first, last = scrapes[0][1], scrapes[-1][1]
    sums = {key: value - first.sums.get(key, 0) for key, value in last.sums.items()}
    others = {key: value - first.others.get(key, 0) for key, value in last.others.items()}
    name = f"{sources[0].path.name} to {sources[-1].path.name}"
    return _runs(_Scrape(sums, others), name, f"difference of {len(sources)} scrapes")


def _check_growth(earlier: Source, before: _Scrape, later: Source, after: _Scrape) -> None:
    hint = "give the earlier scrape first; scrapes of several servers must be imported one at a time"
    for key, value in before.sums.items():
        now = after.sums.get(key)
        if now is None or now < value:
            label = f" at position {key[2]}" if key[2] else ""
            fell = "is gone" if now is None else f"fell from {value:,} to {now:,}"
            raise InputError(f"{key[1]}{label} {fell} between {earlier} and {later}: the server restarted in between", hint)
    for model, times in before.created.items():
        if after.created.get(model) and times != after.created[model]:
            raise InputError(
                f"the counters of {later} began at another time than those of {earlier}: two servers, or a restart", hint
            )


def _scrape(source: Source) -> _Scrape:
    scrape = _Scrape()
    seen: set[tuple[str, str]] = set()
    for number, line in source.lines():
        if line.startswith("#") or not line.strip():
            continue
        match = _LINE.match(line)
        if match is None:
            if _WHOLE_LINE.match(line):
                source.refuse(number, "a counter line without a readable value", "the scrape may be cut off")
            continue
        name, labels, value = match[1], match[2] or "", match[3]
        if _CREATED.match(name):
            scrape.created.setdefault(_label(labels, "model_name"), set()).add(_value(source, number, name, value))
            continue
        series, other = _SERIES.match(name), _OTHER.match(name)
        counted = series or other
        if counted is None:
            continue
        if (name, labels) in seen:
            source.refuse(number, f"{name} with these labels stands twice", "split a file that holds several scrapes")
        seen.add((name, labels))
        model = _label(labels, "model_name")
        amount = _value(source, number, name, value)
        if other is not None:
            scrape.others[model, other[1]] = scrape.others.get((model, other[1]), 0) + amount
            continue
        assert series is not None
        if amount != int(amount):
            source.refuse(number, f"{name} is {value}, and counts are whole")
        key = (model, series[1], _position(source, number, series[1], labels))
        scrape.sums[key] = scrape.sums.get(key, 0) + int(amount)
    return scrape


def _label(labels: str, wanted: str) -> str:
    return next((value for name, value in _LABEL.findall(labels) if name == wanted), "")


def _position(source: Source, number: int, series: str, labels: str) -> str:
    if not series.endswith("per_pos"):
        return ""
    text = _label(labels, "position")
    if not re.fullmatch(r"\d{1,4}", text):
        source.refuse(number, f"a counter by position has the position {text!r}", "positions are whole numbers from 0")
    return str(int(text))


def _value(source: Source, number: int, name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        source.refuse(number, f"{name} is {text[:40]!r}, not a number")
    if not math.isfinite(value) or value < 0 or value > 1e15:
        source.refuse(number, f"{name} is {text[:40]}, and a counter is finite and not negative")
    return value


def _runs(scrape: _Scrape, name: str, when: str) -> list[ImportedRun]:
    models = scrape.models()
    if not models:
        finding = Finding(
            code="no-speculation",
            severity="warning",
            message=f"{name}: there is no spec_decode series at all, so this server runs without speculation",
            hint="with speculation on the series are there from the start, at zero",
        )
        return [ImportedRun(name=name, source=NAME, definition=DEFINITION, findings=(finding,), **_facts(scrape, ""))]
    return [_run(scrape, model, name if len(models) == 1 else f"{name}, {model}", when) for model in models]


def _run(scrape: _Scrape, model: str, name: str, when: str) -> ImportedRun:
    positions = scrape.positions(model)
    missing = sorted(set(range(max(positions, default=-1) + 1)) - set(positions))
    if missing:
        raise InputError(f"{name}: position {missing[0]} is missing among the counters by position", "the scrape may be cut off")
    drafts = scrape.sums.get((model, "drafts", ""))
    findings: tuple[Finding, ...] = ()
    if drafts is None:
        text = f"{name}: there is no counter of drafts, so steps, K and τ are unknown; engines that old count accepted drafts loosely"
        hint = "accepted is an upper bound there: drafts that pass their own test after a rejected one are counted too"
        findings = (Finding(code="steps-unknown", severity="warning", message=text, hint=hint),)
    by_position = [scrape.sums[model, "accepted_tokens_per_pos", str(position)] for position in positions]
    return run_of(
        name=name,
        source=NAME,
        definition=f"{DEFINITION}; {when}",
        num_steps=drafts,
        num_draft_tokens=scrape.sums.get((model, "draft_tokens", "")),
        num_accepted=scrape.sums.get((model, "accepted_tokens", "")),
        accepted_at=by_position or None,
        findings=findings,
        **_facts(scrape, model),
    )


def _facts(scrape: _Scrape, model: str) -> dict[str, Any]:
    """Tokens, requests and the model's name where the scrape holds them."""
    others = {name: value for (owner, name), value in scrape.others.items() if owner == model or not model}
    tokens, requests = others.get("generation_tokens"), others.get("request_success")
    return {
        "target": model or None,
        "num_output_tokens": None if tokens is None else int(tokens),
        "num_requests": None if requests is None else int(requests),
        "engine": "vllm",
    }


READER = Reader(
    name=NAME,
    description="Prometheus scrape of vLLM, TPU-inference or TensorRT-LLM: one, or before and after (the difference is taken)",
    cannot_know="what each answer did; the drafter; temperature and task; steps in which nothing was drafted",
    sniff=sniff,
    read=read,
    join=join,
)
