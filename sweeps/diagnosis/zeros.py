"""Exact zeros beyond a position are no bad luck: something ends there.

With n steps that had position j accepted, zero acceptances at j + 1 have a chance of (1 − α)^n; where ten were to be expected that is
nothing. The usual reasons are a K above the trained block, slots filled with the wrong token, or features that reach one slot only.
"""

from perfmodel.records import Diagnosed

from .finding import diagnosed
from .subject import Subject

EXPECTED, TYPICAL_ALPHA = 10.0, 0.3


def exact_zeros(subject: Subject) -> list[Diagnosed]:
    """`zeros-beyond-position` where acceptances stop all at once and had to go on."""
    values = subject.survival
    last = max((index for index, value in enumerate(values) if value > 0), default=None)
    if last is None or last + 1 >= len(values) or subject.num_steps is None:
        return []
    alive = values[last] * subject.num_steps
    if alive * TYPICAL_ALPHA < EXPECTED:
        return []
    evidence = (
        f"{alive:,.0f} of {subject.num_steps:,} steps had {last + 1} draft{'s' if last else ''} accepted, not one had {last + 2},"
        f" and {len(values)} positions are counted"
    )
    limit = last + 2
    return [
        diagnosed(
            "zeros-beyond-position",
            "error" if last == 0 else "warning",
            subject.name,
            evidence,
            "K above the trained block, wrong mask tokens in the later slots, positions that do not advance, or a drafter that drafts one"
            " token only",
            f"try K = {limit} ({limit - 1} drafts): if it is as good, the rest was wasted; then check block_size and mask id",
        )
    ]
