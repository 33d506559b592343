"""Conditional acceptance that rises with position: a mixture of easy and hard stretches, not an error.

Steps that get far are the easy ones, so among them the next draft is accepted more often than in the average step. One α for all
positions then understates what a longer block brings (docs/model.md, Acceptance).
"""

import math
from itertools import pairwise

from perfmodel.records import Diagnosed

from .finding import diagnosed
from .subject import Subject

RISE, SURE = 0.03, 2.0


def rising_alpha(subject: Subject) -> list[Diagnosed]:
    """`conditional-rates-rise` where α recovers after its low by more than chance."""
    alpha = subject.alpha
    if len(alpha) < 4 or any(b > a + 1e-9 for a, b in pairwise(subject.survival)):
        return []
    low = min(range(len(alpha) - 1), key=lambda index: alpha[index])
    high = max(range(low + 1, len(alpha)), key=lambda index: alpha[index])
    rise = alpha[high] - alpha[low]
    if rise < max(RISE, SURE * math.hypot(_error(subject, low), _error(subject, high))):
        return []
    return [
        diagnosed(
            "conditional-rates-rise",
            "info",
            subject.name,
            f"α falls to {alpha[low]:.2f} at draft {low + 1} and is {alpha[high]:.2f} at draft {high + 1}",
            "a mixture of easy and hard stretches of text, not an error",
            "use the whole survival curve, not one α, to choose K",
        )
    ]


def _error(subject: Subject, index: int) -> float:
    """Standard error of α at an index; zero where the number of steps is unknown."""
    if subject.num_steps is None:
        return 0.0
    at_risk = max(1.0, subject.num_steps * (subject.survival[index - 1] if index else 1.0))
    share = (min(1.0, subject.alpha[index]) * at_risk + 0.5) / (at_risk + 1)
    return math.sqrt(share * (1 - share) / at_risk)
