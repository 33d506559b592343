"""Intervals of a median straight from the samples."""

from collections.abc import Sequence

from scipy.stats import binom


def median_interval(samples: Sequence[float]) -> tuple[float, float]:
    """The 95 % interval of the median by order statistics (binomial ranks; conservative), in the samples' unit.

    With fewer than six samples no interval of that level exists; then it is the whole range.
    """
    ordered = sorted(samples)
    count = len(ordered)
    rank = int(binom.ppf(0.025, count, 0.5))
    if rank < 1:
        return ordered[0], ordered[-1]
    return ordered[rank - 1], ordered[count - rank]
