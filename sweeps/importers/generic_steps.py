"""Any file with one JSON object per decoding step: proposed and accepted drafts, or committed tokens.

This is the best there is: the histogram is counted here. Steps are grouped into answers by a request id where one is given, for the
steps of one answer are alike and the error is that of answers. Rows marked as warm-up are left out and counted.
"""

from collections.abc import Mapping
from typing import Any

from perfmodel.errors import InputError
from perfmodel.records import Finding, ImportedRun

from .counting import WIDEST, run_of
from .fields import Fields
from .reader import Likeness, Reader
from .rows import is_warmup
from .source import Source
from .vllm_requests import MAX_STEPS_KEPT

NAME = "generic-steps"
DEFINITION = (
    "one row per step: committed tokens (bonus included), or accepted drafts (bonus excluded) + 1; proposed drafts of the step"
)

_COMMITTED = ("committed", "num_committed", "committed_tokens", "acceptance_length", "accept_length", "emitted")
_ACCEPTED = ("accepted", "num_accepted", "accepted_drafts", "accepted_tokens", "num_accepted_tokens")
_PROPOSED = ("proposed", "num_proposed", "proposed_drafts", "drafted", "draft_tokens", "num_draft_tokens", "k")
_REQUEST = ("request_id", "request", "sample_index", "sample", "prompt_id", "answer")
_STEP = ("step", "step_id", "step_index", "iteration", "iter")
_TOTALS = ("num_drafts", "drafts", "num_steps", "num_spec_steps", "spec_verify_ct", "latency", "throughput")
_USUAL = 64
"""Figures above this are totals of many steps."""


def sniff(source: Source) -> Likeness:
    """Whether the first row is a step: it has a step's small figures, and no totals of many steps."""
    row = source.first_row
    if row is None or any(key in row for key in _TOTALS):
        return Likeness.NO
    counts = [row[key] for key in (*_COMMITTED, *_ACCEPTED, *_PROPOSED) if _is_whole(row.get(key))]
    has_count = any(_is_whole(row.get(key)) for key in (*_COMMITTED, *_ACCEPTED))
    if not has_count or max(counts) > _USUAL:
        return Likeness.NO
    named = any(key in row for key in (*_STEP, "accepted", "proposed", "committed"))
    return Likeness.LIKELY if named else Likeness.PERHAPS


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def read(source: Source) -> list[ImportedRun]:
    """All steps of the file as one run."""
    counts: dict[int, int] = {}
    proposals: dict[int, int] = {}
    answers: dict[str, list[int]] | None = {}
    num_steps = num_warmup = num_plain = drafted = 0
    for where, row in source.rows():
        if is_warmup(row):
            num_warmup += 1
            continue
        committed, proposed = _step(Fields.of_row(where, row))
        if proposed == 0 and committed == 1:
            num_plain += 1
            continue
        num_steps += 1
        counts[committed] = counts.get(committed, 0) + 1
        if proposed is not None:
            proposals[proposed] = proposals.get(proposed, 0) + 1
            drafted += proposed
        answers = _keep(answers, row, committed, num_steps)
    if not num_steps:
        raise InputError(f"{source}, line 1: no step in it drafted anything", "one object a step, with `accepted` or `committed`")
    whole = sum(proposals.values()) == num_steps
    return [_run(source, counts, proposals if whole else {}, drafted if whole else None, answers, num_warmup, num_plain)]


def _step(fields: Fields) -> tuple[int, int | None]:
    """Committed tokens and proposed drafts of one step."""
    committed, accepted, proposed = fields.count(*_COMMITTED), fields.count(*_ACCEPTED), fields.count(*_PROPOSED)
    if committed is None:
        committed = fields.need(accepted, "accepted") + 1
    if not 1 <= committed <= WIDEST:
        raise InputError(
            f"{fields.where('committed')}: a step committed {committed} tokens", "every step commits at least its bonus"
        )
    if proposed is not None and committed > proposed + 1:
        raise InputError(
            f"{fields.where('accepted')}: {committed - 1} drafts were accepted of {proposed} proposed",
            "check which column is which",
        )
    return committed, proposed


def _keep(
    answers: dict[str, list[int]] | None, row: Mapping[str, Any], committed: int, num_steps: int
) -> dict[str, list[int]] | None:
    """The answers with this step added; None once a row names no request, or there are too many steps."""
    key = next((str(row[name]) for name in _REQUEST if row.get(name) is not None), None)
    if answers is None or key is None or num_steps > MAX_STEPS_KEPT:
        return None
    answers.setdefault(key, []).append(committed)
    return answers


def _run(
    source: Source,
    counts: dict[int, int],
    proposals: dict[int, int],
    drafted: int | None,
    answers: dict[str, list[int]] | None,
    num_warmup: int,
    num_plain: int,
) -> ImportedRun:
    findings = []
    if num_warmup or num_plain:
        text = f"{source.path.name}: {num_warmup} warm-up steps and {num_plain} steps without drafts were left out"
        findings.append(Finding(code="rows-left-out", severity="info", message=text))
    committed = list(answers.values()) if answers else []
    usual = max(sorted(proposals), key=lambda length: proposals[length]) + 1 if proposals else None
    return run_of(
        name=source.path.stem,
        source=NAME,
        definition=DEFINITION,
        num_draft_tokens=drafted,
        histogram=[counts.get(value, 0) for value in range(1, max(counts) + 1)],
        committed=committed,
        block_size=usual,
        tau_per_answer=sum(sum(steps) / len(steps) for steps in committed) / len(committed) if committed else None,
        num_requests=len(committed) or None,
        num_warmup=num_warmup,
        num_plain=num_plain,
        findings=tuple(findings),
    )


READER = Reader(
    name=NAME,
    description="one JSON object per step: proposed, accepted or committed",
    cannot_know="K where nothing says what was proposed; which of two conventions an unclear name follows",
    sniff=sniff,
    read=read,
)
