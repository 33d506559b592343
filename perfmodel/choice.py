"""Which K wins, how surely, and what else is as good: the arithmetic behind a prediction, on plain arrays.

A step at block size K takes t(K) seconds and commits τ(K) tokens, so it makes τ(K) / t(K) tokens per second and is
τ(K) · t(1) / t(K) times as fast as plain decoding (arXiv 2211.17192, Theorem 3.8, with measured τ and t in place of α and c).
With r = t(K) / t(1) the step ratio, the break-even is τ = r, and a perfect drafter (τ = K) would reach K / r.
"""

from dataclasses import dataclass, field

import numpy as np

from .sensitivity import sensitivity
from .survival import Array, Mask, Whole

PLATEAU_TOLERANCE = 0.02
REACH = (0.90, 0.95, 0.99)
_INTERVAL = (2.5, 97.5)


@dataclass(frozen=True)
class Candidates:
    """Block sizes (ascending) with mean committed tokens and seconds per step, and draws [n, K] of both (None: unknown).

    `eligible` marks those that may be recommended. `tau_curve` holds τ(1) … τ(largest block size).
    """

    block_sizes: Whole
    tau: Array
    step_s: Array
    eligible: Mask
    tau_curve: Array
    tau_draws: Array | None = None
    step_draws: Array | None = None

    @property
    def plain_s(self) -> float | None:
        """Seconds of a plain decode step (K = 1), or None where it was not measured."""
        return float(self.step_s[0]) if self.block_sizes[0] == 1 else None


@dataclass(frozen=True)
class Choice:
    """The best candidate and everything said about it; indices are into the candidates."""

    best: int
    speedup: Array | None
    low: Array | None
    high: Array | None
    plateau: tuple[int, int]
    worth_it: bool | None
    break_even_tau: float | None
    ceiling: float | None
    cost: tuple[float, float] | None
    acceptance: tuple[float, float] | None
    best_block_size: tuple[int, int] | None
    reach: dict[str, int] = field(default_factory=dict)
    sensitivity: dict[str, float] = field(default_factory=dict)


def _gain(candidates: Candidates, tau: Array, step_s: Array) -> Array:
    """Speedup against plain decoding, or tokens per second where the plain step is unknown; candidates on the last axis."""
    return tau / step_s if candidates.plain_s is None else tau * (step_s[..., :1] / step_s)


def _interval(values: Array) -> tuple[float, float]:
    low, high = np.percentile(values, _INTERVAL)
    return float(low), float(high)


def _plateau(candidates: Candidates, gain: Array, draws: Array | None, best: int) -> tuple[int, int]:
    as_good = gain >= (1.0 - PLATEAU_TOLERANCE) * gain[best]
    if draws is not None:
        as_good |= np.percentile(draws[:, [best]] - draws, _INTERVAL[0], axis=0) <= 0.0
    chosen = np.flatnonzero(candidates.eligible)
    middle = int(np.flatnonzero(chosen == best)[0])
    left = right = middle
    while left > 0 and as_good[chosen[left - 1]]:
        left -= 1
    while right + 1 < len(chosen) and as_good[chosen[right + 1]]:
        right += 1
    return int(candidates.block_sizes[chosen[left]]), int(candidates.block_sizes[chosen[right]])


def _break_even(candidates: Candidates, best: int) -> float | None:
    speculative = np.flatnonzero(candidates.eligible & (candidates.block_sizes > 1))
    if candidates.plain_s is None or not speculative.size:
        return None
    at = best if candidates.block_sizes[best] > 1 else int(speculative[-1])
    return float(candidates.step_s[at]) / candidates.plain_s


def _reach(block_sizes: Whole, gain: Array, best_gain: float) -> dict[str, int]:
    return {f"{share:.2f}": int(block_sizes[int(np.argmax(gain >= share * best_gain))]) for share in REACH}


def choose(candidates: Candidates) -> Choice:
    """The best eligible K, its intervals, plateau, break-even, ceiling and sensitivity. At least one K must be eligible."""
    eligible = np.flatnonzero(candidates.eligible)
    gain = _gain(candidates, candidates.tau, candidates.step_s)
    best = int(eligible[np.argmax(gain[eligible])])
    is_known = candidates.plain_s is not None
    by_cost = None if candidates.step_draws is None else _gain(candidates, candidates.tau, candidates.step_draws)
    by_acceptance = None if candidates.tau_draws is None else _gain(candidates, candidates.tau_draws, candidates.step_s)
    both = None
    if candidates.step_draws is not None and candidates.tau_draws is not None:
        both = _gain(candidates, candidates.tau_draws, candidates.step_draws)
    winners = None if both is None else candidates.block_sizes[eligible[np.argmax(both[:, eligible], axis=1)]]
    low, high = (None, None) if both is None or not is_known else np.percentile(both, _INTERVAL, axis=0)
    has_rival = bool(np.any(candidates.block_sizes[eligible] > 1))
    blocks = candidates.block_sizes[eligible]
    plateau = _plateau(candidates, gain, both if both is not None else by_acceptance, best)
    place = int(np.searchsorted(eligible, best))
    oracle = _gain(candidates, candidates.block_sizes.astype(np.float64), candidates.step_s)[eligible]
    return Choice(
        best=best,
        speedup=gain if is_known else None,
        low=low,
        high=high,
        plateau=plateau,
        worth_it=bool(candidates.block_sizes[best] > 1) if is_known and has_rival else None,
        break_even_tau=_break_even(candidates, best),
        ceiling=float(np.max(oracle)) if is_known else None,
        cost=_interval(by_cost[:, best]) if by_cost is not None and is_known else None,
        acceptance=_interval(by_acceptance[:, best]) if by_acceptance is not None and is_known else None,
        best_block_size=None if winners is None else _whole(winners),
        reach=_reach(blocks, gain[eligible], gain[best]),
        sensitivity=sensitivity(
            blocks, candidates.tau[eligible], candidates.step_s[eligible], place, plateau, candidates.tau_curve[: blocks[-1]]
        ),
    )


def _whole(winners: Whole) -> tuple[int, int]:
    """The 95 % interval of the best K, as K values that did win."""
    low, high = np.percentile(winners, _INTERVAL, method="closest_observation")
    return int(low), int(high)
