"""SGLang replies: `meta_info` of each request, one reply a line or a list.

`spec_verify_ct` counts verify steps and `spec_accept_length` is completion tokens over steps, bonus included. Draft tokens are counted
without the root although the server's option counts it, so K comes from the counts. The names changed once; old and new are
read alike. The histogram is indexed by accepted drafts in some versions and by committed tokens in others: the totals beside it
decide which.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from perfmodel.errors import InputError
from perfmodel.records import Finding, ImportedRun

from .counting import run_of
from .fields import Fields
from .reader import Likeness, Reader, likeness
from .rows import is_warmup, left_out, replies
from .source import Source

NAME = "sglang-requests"
DEFINITION = (
    "per reply: verify steps, proposed drafts and accepted drafts (root and bonus excluded), summed; τ = 1 + accepted / steps, or"
    " completion tokens / steps where accepted drafts are not given"
)


@dataclass
class _Sums:
    steps: int = 0
    accepted: int | None = 0
    drafted: int | None = 0
    tokens: int = 0
    histogram: list[int] | None = field(default_factory=list)
    requests: int = 0
    plain: int = 0
    warmups: int = 0
    turns: int = 0
    means: float = 0.0
    by_tokens: bool = False


def sniff(source: Source) -> Likeness:
    """Whether SGLang's names stand in the first replies."""
    return likeness(source.looks_like_json and '"spec_verify_ct"' in source.head, '"meta_info"' in source.head)


def read(source: Source) -> list[ImportedRun]:
    """All replies of the file as one run."""
    sums = _Sums()
    for where, row in source.rows():
        if is_warmup(row):
            sums.warmups += 1
            continue
        for info, further in _infos(row):
            sums.turns += further
            _add(sums, Fields.of_row(where, info))
    if not sums.requests:
        raise InputError(
            f"{source}, line 1: no reply in it has spec_verify_ct ({sums.plain} without)", "start SGLang with speculation on"
        )
    return [_run(source, sums)]


def _infos(row: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], bool]]:
    """(`meta_info`, whether of a further turn) of a row, with the usage's completion tokens where it lacks them."""
    usage = row.get("usage")
    tokens = {"completion_tokens": usage.get("completion_tokens")} if isinstance(usage, Mapping) else {}
    for reply, further in replies(row):
        if "spec_verify_ct" in reply:
            yield {**tokens, **reply}, further
        elif isinstance(reply.get("meta_info"), Mapping):
            yield {**tokens, **reply["meta_info"]}, further


def _add(sums: _Sums, fields: Fields) -> None:
    steps = fields.count("spec_verify_ct")
    if not steps:
        sums.plain += 1
        return
    accepted = fields.count("spec_num_correct_drafts", "spec_accepted_drafts", "spec_accept_token_num")
    drafted = fields.count("spec_num_proposed_drafts", "spec_proposed_drafts", "spec_draft_token_num")
    length, tokens = fields.number("spec_accept_length"), fields.count("completion_tokens")
    sums.requests += 1
    sums.steps += steps
    sums.tokens += tokens or 0
    sums.accepted = None if accepted is None or sums.accepted is None else sums.accepted + accepted
    sums.drafted = None if drafted is None or sums.drafted is None else sums.drafted + drafted
    sums.means += length if length is not None else (tokens or 0) / steps
    histogram = fields.counts("spec_correct_drafts_histogram", "spec_accept_histogram")
    if histogram is None or sums.histogram is None:
        sums.histogram = None
        return
    counts, by_tokens = _by_accepted(histogram, steps, accepted, length)
    sums.by_tokens = sums.by_tokens or by_tokens
    sums.histogram += [0] * (len(counts) - len(sums.histogram))
    for index, count in enumerate(counts):
        sums.histogram[index] += count


def _by_accepted(histogram: list[int], steps: int, accepted: int | None, length: float | None) -> tuple[list[int], bool]:
    """The histogram by accepted drafts, and whether it had to be shifted from committed tokens."""
    total = sum(index * count for index, count in enumerate(histogram))
    committed = None if length is None else round(length * steps)
    shifted = histogram[:1] == [0] and total != accepted and (total == (accepted or 0) + steps or total == committed)
    return (histogram[1:], True) if shifted else (histogram, False)


def _run(source: Source, sums: _Sums) -> ImportedRun:
    findings = left_out(source.path.name, sums.warmups, sums.plain, sums.turns)
    if sums.by_tokens:
        text = f"{source.path.name}: the histogram is indexed by committed tokens here, and was shifted to accepted drafts"
        findings.append(Finding(code="histogram-shifted", severity="info", message=text))
    whole = sums.histogram is not None and sum(sums.histogram) == sums.steps
    return run_of(
        name=source.path.stem,
        source=NAME,
        definition=DEFINITION,
        num_steps=sums.steps,
        num_draft_tokens=sums.drafted,
        num_accepted=sums.accepted,
        num_committed=sums.tokens if sums.accepted is None and not whole and sums.tokens else None,
        histogram=sums.histogram if whole else None,
        tau_per_answer=sums.means / sums.requests,
        num_requests=sums.requests,
        num_warmup=sums.warmups,
        num_plain=sums.plain,
        num_output_tokens=sums.tokens or None,
        engine="sglang",
        findings=tuple(findings),
    )


READER = Reader(
    name=NAME,
    description="SGLang replies with `meta_info` (spec_verify_ct, …), old and new names",
    cannot_know="which step of an answer accepted what; trees wider than one branch; steps at K where only a mean is given",
    sniff=sniff,
    read=read,
)
