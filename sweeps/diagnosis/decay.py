"""A good first draft and a fast fall behind it: position by position the drafter loses its place.

Conditional acceptance normally drops a little after the first draft and then stays or recovers. A steep fall points at positions (RoPE or
cache offset), at a block longer than the trained one, at a context beyond training, or at an attention window that is ignored.
"""

from statistics import geometric_mean

from perfmodel.records import Diagnosed

from .finding import diagnosed
from .subject import Subject

GOOD_FIRST, WIDTH, STEEP = 0.6, 3, 0.3


def fast_decay(subject: Subject) -> list[Diagnosed]:
    """`fast-decay` where α_2 … α_4 lie far below a good α_1."""
    alpha = subject.alpha
    later = [value for value in alpha[1 : 1 + WIDTH] if value > 0]
    if len(alpha) < 3 or not later or alpha[0] < GOOD_FIRST or _is_vague(subject):
        return []
    mean = geometric_mean(later)
    if mean > max(0.5, alpha[0] - STEEP):
        return []
    evidence = f"α_1 = {alpha[0]:.2f}, then {mean:.2f} on average over the next {len(later)} drafts"
    cause = "RoPE or cache offset, context length past training, a sliding window ignored"
    trained, size = subject.trained_block_size, subject.block_size
    if trained is not None and size is not None and size > trained:
        cause = f"K = {size} is above the trained block of {trained}"
    elif size is not None:
        cause += f", or K = {size} above the trained block"
    return [
        diagnosed(
            "fast-decay",
            "warning",
            subject.name,
            evidence,
            cause,
            "repeat at the trained block and at a short prompt; check rope_theta, positions and the window with the config check",
        )
    ]


def _is_vague(subject: Subject) -> bool:
    """Whether so few steps reached the second draft that its share says little."""
    return subject.num_steps is not None and subject.num_steps * subject.survival[0] < 20


def k_above_trained(subject: Subject) -> list[Diagnosed]:
    """`k-above-trained-block`, whatever the acceptance: slots that were never trained spoil the whole block in some engines."""
    trained, size = subject.trained_block_size, subject.block_size
    if trained is None or size is None or size <= trained:
        return []
    return [
        diagnosed(
            "k-above-trained-block",
            "error",
            subject.name,
            f"K = {size} ({size - 1} drafts), trained for blocks of {trained}",
            "slots beyond the trained block were never trained; in some engines all positions collapse with them",
            f"use K ≤ {trained}: num_speculative_tokens ≤ {trained - 1}",
        )
    ]
