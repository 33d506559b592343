"""τ(K) for someone who knows only mean acceptance lengths at one or a few block sizes.

One mean length cannot tell a steep curve from a flat one. Under one α per draft, τ(K) = (1 − α^K) / (1 − α) and a single pair
(K, τ) fixes α. Real curves bend differently: the published block drafters (Qwen3-4B, nine tasks) drop after the first draft and
level off later. Any measured curve S_i is turned into a curve with another mean by a power, S_i^γ, which for the geometric law
just changes α. Given τ(16), the geometric curve misses the published τ(2), τ(4) and τ(8) by 1.5, 1.8 and 2.3 % on average (at
most 6 %); given τ(4), it misses τ(16) by 4.7 % (at most 10 %). The best guess is therefore the geometric curve, and the
interval is the spread over the members of a family (`perfmodel.families`). Given points are always met exactly: between two of
them the curve is stretched.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from .errors import InputError
from .records import Finding
from .survival import Array

Points = tuple[tuple[int, float], ...]

_ROUNDING = 0.02
"""Gain per draft that rounding and sampling of mean lengths may feign."""


def check_points(points: Sequence[tuple[int, float]]) -> Points:
    """The (block size, mean length) pairs, sorted, with the certain τ(1) = 1 in front. Raises `InputError`."""
    if not points:
        raise InputError("no mean acceptance length was given", "give at least one pair K:VALUE, for example 16:5.4")
    checked: dict[int, float] = {1: 1.0}
    for block_size, tau in points:
        if block_size < 1 or not 1.0 <= tau <= block_size:
            raise InputError(
                f"a mean acceptance length of {tau:g} at block size {block_size} is impossible",
                "it counts the bonus token and lies in 1 … K; K counts the anchor: one more than vLLM's speculative tokens",
            )
        if checked.get(block_size, tau) != tau:
            raise InputError(f"block size {block_size} has two mean lengths, {checked[block_size]:g} and {tau:g}", "give one")
        checked[block_size] = float(tau)
    if len(checked) == 1:
        raise InputError("τ(1) = 1 holds for every drafter and says nothing about this one", "give a mean length at K ≥ 2")
    return tuple(sorted(checked.items()))


def contradictions(points: Points) -> tuple[Finding, ...]:
    """A warning where no one survival curve has these mean lengths: τ falls with K, or gains more per draft than before.

    τ(K) = 1 + Σ S_i with S_i between 0 and 1 that never rises, so the gain per draft lies in 0 … 1 and never grows.
    """
    gains = [(right_tau - left_tau) / (right - left) for (left, left_tau), (right, right_tau) in pairwise(points)]
    for index, gain in enumerate(gains):
        before = gains[index - 1] if index else 1.0
        if -_ROUNDING <= gain <= before + _ROUNDING:
            continue
        (left, left_tau), (right, right_tau) = points[index : index + 2]
        said = "falls" if gain < 0 else f"gains {gain:.2g} per draft, after {before:.2g} before,"
        return (
            Finding(
                code="mean-lengths-disagree",
                severity="warning",
                message=f"τ {said} from τ({left}) = {left_tau:g} to τ({right}) = {right_tau:g}: no one survival curve does that",
                hint="they may come from different runs or drafters; check that each counts the bonus and belongs to its K",
            ),
        )
    return ()


def log_shape(survival: Array, num_positions: int) -> Array:
    """log S_i at positions 1 … num_positions; beyond the measured ones it goes on with its mean slope over the second half."""
    measured = np.log(np.maximum(survival[:num_positions], 1e-12))
    if num_positions <= len(survival):
        return measured
    half = len(survival) // 2
    slope = (measured[-1] - measured[half]) / (len(survival) - 1 - half)
    return np.concatenate([measured, measured[-1] + slope * np.arange(1, num_positions - len(survival) + 1)])


def _shape_tau(shape: Array, power: float) -> Array:
    return np.concatenate([[1.0], 1.0 + np.cumsum(np.exp(power * shape))])


def _fit_power(shape: Array, points: Points) -> float:
    from scipy.optimize import brentq, minimize_scalar  # here: it takes longer to import than a prediction to make

    blocks = np.array([block for block, _ in points[1:]])
    taus = np.array([tau for _, tau in points[1:]])

    def misfit(power: float) -> Array:
        return _shape_tau(shape, power)[blocks - 1] / taus - 1.0

    low, high = 1e-6, 1e6
    if len(points) == 2:
        if misfit(low)[0] <= 0.0:
            return low
        return high if misfit(high)[0] >= 0.0 else float(brentq(lambda power: misfit(power)[0], low, high))
    log_power = minimize_scalar(
        lambda free: float(np.sum(misfit(float(np.exp(free))) ** 2)), bounds=(np.log(low), np.log(high)), method="bounded"
    ).x
    return float(np.exp(log_power))


def curve_through(points: Points, max_block_size: int, shape: Array) -> Array:
    """τ(1) … τ(max_block_size) of one shape (log S_i, at least max_block_size − 1 long) through the points, exact at each.

    Between two points the shape's increments are scaled to fit; beyond the last one they go on with the last scale, which is
    kept within 0 … 1 so that no step commits more than it verifies.
    """
    tau = _shape_tau(shape, _fit_power(shape, points))
    result = np.empty(max(max_block_size, points[-1][0]))
    result[0] = 1.0
    scale = 1.0
    for (left, tau_left), (right, tau_right) in pairwise(points):
        rise = tau[right - 1] - tau[left - 1]
        inner = np.arange(left, right)
        share = (tau[inner] - tau[left - 1]) / rise if rise > 1e-9 else (inner - left + 1) / (right - left)
        result[inner] = tau_left + (tau_right - tau_left) * share
        result[right - 1] = tau_right
        scale = (tau_right - tau_left) / rise if rise > 1e-9 else 0.0
    last = points[-1][0]
    result[last:] = result[last - 1] + min(max(scale, 0.0), 1.0) * (tau[last : len(result)] - tau[last - 1])
    return result[:max_block_size]


def geometric_shape(num_positions: int) -> Array:
    """log S_i of the geometric law with α = 1/e; a power gives every other α."""
    return -np.arange(1.0, num_positions + 1)


def family_curves(points: Points, max_block_size: int, shapes: Sequence[Array]) -> Array:
    """τ(1) … τ(max_block_size) through the points, one row per shape (log S_i)."""
    return np.array([curve_through(points, max_block_size, shape) for shape in shapes])
