"""What a drafter's proposals were worth: committed tokens per step, per answer."""

from typing import Annotated, Literal

import msgspec

from .base import Finding, Record

Drafting = Literal["block", "sequential"]
"""All drafts in one pass (DFlash), or one after the other, each fed its own guess (EAGLE, a small model)."""


NumCommitted = Annotated[int, msgspec.Meta(ge=1)]
"""Tokens that one step committed: the bonus at least. A file that says otherwise is refused when it is read."""


class AcceptanceProfile(Record):
    """Survival by position of one drafter on one task.

    `survival[i-1]` is P(at least i drafts accepted), i = 1 … block_size − 1; positions that no step could show are left off
    its end. `at_risk[i-1]` counts the steps whose first i − 1 drafts were accepted and whose i-th was seen (None: unknown), so
    a share α_i = survival[i-1] / survival[i-2] rests on that many steps. `committed` holds the raw counts per answer
    (1 … block_size each, bonus included) where they are known; `last_step_cut` says, per answer, that a stop token or the
    length limit ended it in its last step, whose count therefore means "at least".

    `tau_points` holds (block size, mean committed tokens) pairs where those are all that is known; `survival` is then empty.
    `tau_low` and `tau_high` are a published 95 % interval of τ at `block_size`. `trained_block_size` is the drafter's own.
    `drafting` says how it drafts, where that is known: it decides which family of curves an estimate takes. `longest_context` is
    the longest context, in tokens, that an answer reached.
    """

    name: str
    task: str
    target: str
    draft: str
    block_size: int
    survival: tuple[float, ...]
    at_risk: tuple[float | None, ...]
    committed: tuple[tuple[NumCommitted, ...], ...] = ()
    last_step_cut: tuple[bool, ...] = ()
    num_steps: int | None = None
    num_prompts: int | None = None
    tau_points: tuple[tuple[int, float], ...] = ()
    tau_per_answer: float | None = None
    tau_low: float | None = None
    tau_high: float | None = None
    trained_block_size: int | None = None
    drafting: Drafting | None = None
    longest_context: int | None = None
    synthetic: bool = False
    source: str = ""
    definition: str = ""
    findings: tuple[Finding, ...] = ()


class AcceptanceSet(Record):
    """Acceptance of every task of a sweep: `acceptance.json`."""

    profiles: tuple[AcceptanceProfile, ...]
    findings: tuple[Finding, ...] = ()
