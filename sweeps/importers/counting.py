"""From somebody's counters to one imported run: K, τ and survival, and only what follows from what was counted.

Steps, draft tokens and accepted drafts give K = 1 + round(drafted / steps) and τ = 1 + accepted / steps. Accepted drafts by position
over steps are the survival S_i = P(at least i drafts accepted); so is a histogram of committed tokens per step, summed from
its end. Where drafts are shorter than the engine's limit (prompt lookup, a confidence gate), S_i falls partly because of that;
it is still the right curve for that drafter. Nothing is filled in: a count that is missing makes what follows from it None.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from perfmodel.errors import InputError
from perfmodel.records import ImportedRun

from .plausibility import findings_of

WIDEST = 4096
"""Largest K that is believed; anything above is a wrong count, and no list is made that long."""


def run_of(
    *,
    name: str,
    source: str,
    definition: str,
    num_steps: int | None = None,
    num_draft_tokens: int | None = None,
    num_accepted: int | None = None,
    accepted_at: Sequence[int] | None = None,
    survival: Sequence[float] | None = None,
    histogram: Sequence[int] | None = None,
    committed: Sequence[Sequence[int]] = (),
    block_size: int | None = None,
    proposal_lengths: Sequence[int] | None = None,
    tau: float | None = None,
    num_committed: int | None = None,
    **facts: Any,
) -> ImportedRun:
    """A run from whichever counts are known, with a finding for every value that cannot be.

    `accepted_at[i-1]` counts the steps that accepted at least i drafts, `histogram[c-1]` those that committed c tokens,
    `committed` lists committed tokens per step for each answer, `proposal_lengths` the drafts of each step, `num_committed` is
    the tokens committed by all steps where accepted drafts are counted in another way. A given `tau`, `survival` or
    `block_size` is kept as the source states it where the counts do not give it.
    """
    stated_tau, stated_steps = tau, num_steps
    if committed and histogram is None:
        histogram = histogram_of([count for steps in committed for count in steps])
    if block_size is None:
        steps = num_steps if histogram is None else sum(histogram)
        block_size = usual_block_size(steps, num_draft_tokens, proposal_lengths)
    impossible = block_size if block_size is not None and not 1 <= block_size <= WIDEST else None
    block_size = None if impossible else block_size
    if histogram is not None and block_size is not None:
        histogram = [*histogram, *[0] * (block_size - len(histogram))]
    if histogram is not None:
        num_steps = sum(histogram)
        num_accepted = sum(count * index for index, count in enumerate(histogram)) if num_accepted is None else num_accepted
        accepted_at = at_least(histogram) if accepted_at is None else accepted_at
    if accepted_at is not None and num_steps:
        survival = [count / num_steps for count in accepted_at]
    if num_accepted is None and accepted_at is not None:
        num_accepted = sum(accepted_at)
    if proposal_lengths and num_draft_tokens is None:
        num_draft_tokens = sum(proposal_lengths)
    if num_steps and num_committed is not None:
        tau = num_committed / num_steps
    elif num_steps and num_accepted is not None:
        tau = 1 + num_accepted / num_steps
    run = ImportedRun(
        name=name,
        source=source,
        definition=definition,
        num_steps=num_steps,
        num_draft_tokens=num_draft_tokens,
        num_accepted=num_accepted,
        block_size=block_size,
        tau=tau,
        survival=None if survival is None else tuple(float(value) for value in survival),
        histogram=None if histogram is None else tuple(histogram),
        committed=tuple(tuple(steps) for steps in committed),
        **facts,
    )
    found = findings_of(run, stated_tau=stated_tau, stated_steps=stated_steps, impossible_size=impossible)
    return msgspec.structs.replace(run, findings=(*run.findings, *found))


def usual_block_size(
    num_steps: int | None, num_draft_tokens: int | None, proposal_lengths: Sequence[int] | None = None
) -> int | None:
    """K as it was run: 1 + the commonest proposal length, or 1 + the rounded mean; None where neither is known."""
    if proposal_lengths:
        lengths = [length for length in proposal_lengths if length > 0]
        return 1 + max(sorted(set(lengths)), key=lengths.count) if lengths else None
    if not num_steps or not num_draft_tokens:
        return None
    return 1 + max(1, round(num_draft_tokens / num_steps))


def histogram_of(committed: Sequence[int]) -> list[int]:
    """Steps that committed 1, 2, … tokens. Raises `InputError` for a count beyond `WIDEST`."""
    most = max(committed, default=0)
    if most > WIDEST:
        raise InputError(f"a step committed {most:,} tokens, and blocks have at most {WIDEST:,}", "check what the list counts")
    counts = [0] * most
    for value in committed:
        counts[value - 1] += 1
    return counts


def at_least(histogram: Sequence[int]) -> list[int]:
    """Steps that accepted at least 1, 2, … drafts, from steps that committed 1, 2, … tokens."""
    sums, running = [], 0
    for count in reversed(histogram[1:]):
        running += count
        sums.append(running)
    return sums[::-1]
