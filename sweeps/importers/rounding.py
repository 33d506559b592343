"""Whole numbers behind printed figures: how many steps give this mean, these rates and these totals, each rounded as printed.

A log line says "mean acceptance length 3.57, accepted 239, per position 0.978, 0.796, 0.796" and not how many steps that were. With
τ = 1 + accepted / steps the mean leaves a few candidates; the rates, each a whole number over steps, usually leave one: 93 (91, 74 and
74 of them). Where several remain the number stays unknown.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

_MOST_CANDIDATES = 2_000
_WIDTHS = 64


@dataclass(frozen=True)
class Steps:
    """Number of steps behind a line; `bonus` says whether the printed mean counts the bonus token."""

    num_steps: int
    bonus: bool


def steps_behind(
    accepted: int, drafted: int, mean: float, rates: Sequence[float], mean_step: float = 0.01, rate_step: float = 0.001
) -> Steps | None:
    """The one number of steps that explains a mean, rates by position and totals; None where none or several do.

    `mean_step` and `rate_step` are the last digits printed. A mean that counts the bonus is tried first, and drafts of one length
    (drafted = steps × a whole number) before drafts of any.
    """
    for bonus in (True, False):
        least, most = _range(accepted, drafted, mean - bonus, rates, mean_step)
        widths = range(1, (len(rates) or _WIDTHS) + 1)
        full = {drafted // width for width in widths if drafted % width == 0 and least <= drafted // width <= most}
        found = [steps for steps in sorted(full) if _fits(steps, accepted, rates, rate_step)]
        if not found and most - least <= _MOST_CANDIDATES:
            found = [steps for steps in range(least, most + 1) if _fits(steps, accepted, rates, rate_step)]
        if len(found) == 1:
            return Steps(found[0], bonus)
        if found:
            return None
    return None


def _range(accepted: int, drafted: int, per_step: float, rates: Sequence[float], mean_step: float) -> tuple[int, int]:
    """The least and the largest number of steps that the mean allows; an empty range where none does.

    No step drafts more than there are positions. Where nothing was accepted the mean says nothing: drafts of full length are all
    that can be assumed.
    """
    low, high = per_step - mean_step / 2, per_step + mean_step / 2
    if accepted == 0:
        exact = bool(rates) and drafted > 0 and drafted % len(rates) == 0 and abs(per_step) <= mean_step / 2
        return (drafted // len(rates),) * 2 if exact else (1, 0)
    if high <= 0:
        return 1, 0
    least = max(1, math.ceil(accepted / high - 1e-9), math.ceil(drafted / len(rates)) if rates else 1)
    return least, min(drafted, math.floor(accepted / low + 1e-9)) if low > 0 else drafted


def _fits(steps: int, accepted: int, rates: Sequence[float], rate_step: float) -> bool:
    """Whether whole numbers over `steps` round to the rates and add up to the accepted total."""
    if not rates:
        return True
    lows = [math.ceil(steps * (rate - rate_step / 2) - 1e-6) for rate in rates]
    highs = [math.floor(steps * (rate + rate_step / 2) + 1e-6) for rate in rates]
    if any(low > high for low, high in zip(lows, highs, strict=True)):
        return False
    return sum(max(low, 0) for low in lows) <= accepted <= sum(highs)


def counts_behind(steps: int, accepted: int, rates: Sequence[float], rate_step: float = 0.001) -> list[int] | None:
    """Accepted drafts by position where the rates allow one whole number each and they add up to the total; else None."""
    counts = []
    for rate in rates:
        low, high = math.ceil(steps * (rate - rate_step / 2) - 1e-6), math.floor(steps * (rate + rate_step / 2) + 1e-6)
        if low != high:
            return None
        counts.append(low)
    return counts if sum(counts) == accepted else None
