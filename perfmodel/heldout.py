"""How well the law predicts what it was not fitted to: error on left-out block sizes, batches and contexts.

A residual says how well the constants follow the points they were fitted to; a left-out error says what a prediction between or
beyond them is worth. Block sizes: every second interior one is left out of the very fit that is reported. Batches and contexts:
each value is left out in turn and predicted from the others, the first and last of them included, which is extrapolation.
"""

import statistics
from collections.abc import Callable, Sequence

import numpy as np

from .leastsquares import Problem, log_errors
from .records import TimingPoint
from .termchoice import select

MAX_LEFT_OUT = 8
"""Values of one axis left out in turn: more would take long and say nothing new."""

MIN_SIZES = 3
"""A curve with a plateau and a slope needs at least three distinct sizes."""

Refit = Callable[[Problem], dict[str, float]]
"""Constants for a problem with some points left out."""


def held_out_sizes(block_sizes: Sequence[int]) -> set[int]:
    """Every second interior block size (K=1 aside), when enough remain to fit."""
    sizes = sorted({size for size in block_sizes if size > 1})
    return set(sizes[1:-1:2]) if len(sizes) >= MIN_SIZES + 1 else set()


def left_out_errors(
    problem: Problem, points: Sequence[TimingPoint], lead: str, refit: Refit, progress: Callable[[float], object]
) -> dict[str, float]:
    """Median relative error of points whose batch, or context, was left out; an axis with one value has no entry.

    `progress` is told the share of the refits that is done.
    """
    found = {}
    axes = {axis: np.array([getattr(point, axis) for point in points]) for axis in ("batch", "context")}
    num_refits = sum(len(_spread(values)) for values in axes.values())
    done = 0
    for axis, values in axes.items():
        errors: list[float] = []
        for value in _spread(values):
            progress(done / num_refits)
            done += 1
            rest = values != value
            if not _carries_a_curve(problem, rest, lead):
                continue
            constants = refit(select(problem, rest))
            errors += np.abs(np.expm1(log_errors(select(problem, ~rest), constants))).tolist()
        if errors:
            found[axis] = statistics.median(errors)
    return found


def _spread(values: np.ndarray) -> np.ndarray:
    """All distinct values, or at most `MAX_LEFT_OUT` of them evenly spread; none when there is only one."""
    distinct = np.unique(values)
    if distinct.size < 2:
        return distinct[:0]
    return distinct[np.unique(np.linspace(0, distinct.size - 1, min(distinct.size, MAX_LEFT_OUT)).round().astype(int))]


def _carries_a_curve(problem: Problem, kept: np.ndarray, lead: str) -> bool:
    return len(np.unique(problem.work.tokens[kept & (problem.work.phases == lead)])) >= MIN_SIZES
