"""Replies with acceptance per request: vLLM's `metrics.speculative_decoding` (TensorRT-LLM puts the same object in each choice).

The histogram's index is the number of accepted drafts, bonus excluded. The detailed form lists every step, so the answers can be
resampled. Rows marked as warm-up are counted and left out; so are answers without the object (plain decoding), and further
turns of one conversation are counted as answers of their own.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from perfmodel.errors import InputError
from perfmodel.records import Finding, ImportedRun

from .counting import WIDEST, run_of
from .fields import Fields
from .reader import Likeness, Reader, likeness
from .rows import is_warmup, left_out, replies
from .source import Source

NAME = "vllm-requests"
DEFINITION = (
    "per answer: steps, draft tokens, accepted drafts (bonus excluded); histogram by accepted drafts; τ = 1 + accepted / steps over all"
    " answers"
)
MAX_STEPS_KEPT = 2_000_000
"""Steps that are kept one by one; beyond, only the histogram grows."""

_KEY = "speculative_decoding"


@dataclass
class Answers:
    """Sums over the answers of one K, with the steps of each while they fit."""

    histogram: list[int] = field(default_factory=list)
    committed: list[list[int]] | None = field(default_factory=list)
    proposed: dict[int, int] = field(default_factory=dict)
    drafted: int = 0
    accepted: int = 0
    steps: int = 0
    requests: int = 0
    kept: int = 0
    means: float = 0.0
    open_rows: int = 0

    def keep(self, committed: list[int] | None) -> None:
        """Keep the steps of an answer, or give all up once there are too many or one answer has none."""
        if self.committed is None:
            return
        if committed is None or self.kept + len(committed) > MAX_STEPS_KEPT:
            self.committed = None
            return
        self.kept += len(committed)
        self.committed.append(committed)


def sniff(source: Source) -> Likeness:
    """Whether the object stands in the document or in the first rows."""
    if not source.looks_like_json or f'"{_KEY}"' not in source.head:
        return Likeness.NO
    document = source.document_or_none
    if document is not None:
        return likeness(_holds(document))
    rows = (_decoded(line) for line in source.head.splitlines()[:200])
    return likeness(any(_holds(row) for row in rows))


def _holds(value: Any) -> bool:
    if isinstance(value, list):
        return any(isinstance(item, Mapping) and any(_objects(item)) for item in value)
    return isinstance(value, Mapping) and (any(_objects(value)) or any(isinstance(v, list) and _holds(v) for v in value.values()))


def _decoded(line: str) -> Any:
    try:
        return msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError):
        return None


def read(source: Source) -> list[ImportedRun]:
    """One run per number of speculative tokens that was set."""
    groups: dict[int | None, Answers] = {}
    num_warmup = num_plain = num_turns = 0
    for where, row in _rows(source):
        if is_warmup(row):
            num_warmup += 1
            continue
        found = list(_objects(row))
        if not found:
            num_plain += 1
        for item, further in found:
            num_turns += further
            fields = Fields.of_row(where, item)
            group = groups.setdefault(fields.count("num_spec_tokens"), Answers())
            _add(group, fields)
    if not groups:
        raise InputError(
            f"{source}, line 1: no answer in it has `{_KEY}` ({num_plain} without, {num_warmup} warm-ups)",
            "start vLLM with --per-request-spec-decode-metrics",
        )
    notes = left_out(source.path.name, num_warmup, num_plain, num_turns)
    return [_run(source, limit, group, num_warmup, num_plain, notes) for limit, group in groups.items()]


def _rows(source: Source) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Rows of the file; a document with a list of requests somewhere gives the entries of that list."""
    document = source.document_or_none
    if isinstance(document, Mapping) and not list(_objects(document)):
        for key, value in document.items():
            if isinstance(value, list) and any(isinstance(item, Mapping) and list(_objects(item)) for item in value):
                for number, item in enumerate(value, start=1):
                    if not isinstance(item, Mapping):
                        raise InputError(
                            f"{source}, line {source.line_of(key)}: entry {number} is not an object", "check the file"
                        )
                    yield f"{source}, line {source.line_of(key)}, {key}[{number - 1}]", item
                return
    yield from source.rows()


def _objects(row: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], bool]]:
    """(acceptance object, whether of a further turn) of a row: at the top of each reply in it, or in its metrics."""
    for reply, further in replies(row):
        for holder in (reply, reply.get("metrics")):
            if isinstance(holder, Mapping) and isinstance(holder.get(_KEY), Mapping):
                yield holder[_KEY], further


def _add(group: Answers, fields: Fields) -> None:
    steps, accepted = fields.count("num_spec_steps"), fields.count("num_accepted_draft_tokens")
    per_step, lengths = fields.counts("per_step_accepted"), fields.counts("per_step_drafted")
    if per_step and max(per_step) >= WIDEST:
        raise InputError(
            f"{fields.where('per_step_accepted')}: a step accepted {max(per_step):,} drafts", "check what the list counts"
        )
    histogram = fields.counts("acceptance_histogram")
    if histogram is None and per_step is not None:
        histogram = [per_step.count(value) for value in range(max(per_step, default=-1) + 1)]
    if histogram is None or steps is None or accepted is None:
        group.open_rows += 1
        return
    if per_step is not None and len(per_step) != steps:
        raise InputError(
            f"{fields.where('per_step_accepted')}: {len(per_step)} steps are listed and {steps} counted", "check the file"
        )
    group.requests += 1
    group.steps += steps
    group.accepted += accepted
    group.drafted += fields.count("num_draft_tokens") or 0
    if len(histogram) > len(group.histogram):
        group.histogram += [0] * (len(histogram) - len(group.histogram))
    for index, count in enumerate(histogram):
        group.histogram[index] += count
    for length in lengths or ():
        group.proposed[length] = group.proposed.get(length, 0) + 1
    group.means += 1 + accepted / steps if steps else 0.0
    group.keep(None if per_step is None else [value + 1 for value in per_step])


def _run(source: Source, limit: int | None, group: Answers, num_warmup: int, num_plain: int, notes: list[Finding]) -> ImportedRun:
    findings = list(notes)
    if group.open_rows:
        text = f"{source.path.name}: {group.open_rows} rows hold no histogram and no steps, and were left out"
        findings.append(Finding(code="rows-without-counts", severity="warning", message=text))
    lengths = [length for length, count in sorted(group.proposed.items()) if count == max(group.proposed.values())][:1]
    committed = [steps for steps in group.committed or [] if steps]
    return run_of(
        name=source.path.stem if limit is None else f"{source.path.stem}, K={limit + 1}",
        source=NAME,
        definition=DEFINITION,
        num_steps=group.steps,
        num_draft_tokens=group.drafted,
        num_accepted=group.accepted,
        histogram=group.histogram,
        committed=committed if sum(len(steps) for steps in committed) == group.steps else (),
        block_size=1 + lengths[0] if lengths else None,
        tau_per_answer=group.means / group.requests if group.requests else None,
        num_requests=group.requests,
        num_warmup=num_warmup,
        num_plain=num_plain,
        engine="vllm",
        findings=tuple(findings),
    )


READER = Reader(
    name=NAME,
    description="replies with `metrics.speculative_decoding`, as JSON, a list, or one reply a line",
    cannot_know="survival where only the summary without a histogram was asked for; answers drawn with n > 1",
    sniff=sniff,
    read=read,
)
