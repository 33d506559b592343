"""τ(K): mean committed tokens per step at every block size, from whatever is known of the acceptance, with an interval.

τ(K) = 1 + Σ_{i<K} S_i (Sequoia, arXiv 2402.12374, and the EAGLE line): verifying only the first K tokens of a block commits the
accepted drafts among them plus one bonus token. Up to the measured block it is read off the survival curve; beyond it a fitted
tail continues (`perfmodel.tails`); mean lengths alone give a curve through them (`perfmodel.meanlength`). What cannot be known
from the profile is refused, and an interval is None where the number of steps is unknown.
"""

from typing import NamedTuple

import numpy as np

from .errors import InputError
from .families import family_shapes, guessed_shape
from .meanlength import curve_through, family_curves
from .records import AcceptanceProfile
from .records.prediction import TauSource
from .survival import (
    Array,
    Counts,
    Mask,
    bend_to_interval,
    count_steps,
    product_limit,
    resample_answers,
    resample_steps,
    tau_at_block,
)
from .tails import Tail, draw_powers, fit_tail, tail_sum, tail_survival

NUM_DRAWS = 400
SEED = 0


class Share(NamedTuple):
    """A share with its 95 % interval (None where it or its sampling error is unknown)."""

    value: float | None
    low: float | None
    high: float | None


def measured_block_size(profile: AcceptanceProfile) -> int:
    """The largest K at which τ is known without extrapolation."""
    return profile.tau_points[-1][0] if profile.tau_points else len(profile.survival) + 1


def tau_source(profile: AcceptanceProfile, block_size: int) -> TauSource:
    """Whether τ(K) is measured, estimated between given mean lengths, or extrapolated."""
    if block_size > measured_block_size(profile):
        return "extrapolated"
    known = not profile.tau_points or block_size == 1 or any(block_size == block for block, _ in profile.tau_points)
    return "measured" if known else "estimated"


def position_counts(profile: AcceptanceProfile) -> Counts | None:
    """Steps at risk and accepted per position, or None where the number of steps is unknown."""
    if not profile.survival or any(count is None for count in profile.at_risk):
        return None
    at_risk = np.array(profile.at_risk, dtype=np.float64)
    return Counts(at_risk, at_risk * _alpha(np.array(profile.survival)))


def _alpha(survival: Array) -> Array:
    previous = np.concatenate([[1.0], survival[:-1]])
    return np.divide(survival, previous, out=np.zeros_like(survival), where=previous > 0)


def _answer_counts(profile: AcceptanceProfile) -> Counts | None:
    """Steps at risk and accepted per answer and known position, or None where they were not kept."""
    answers = [index for index, steps in enumerate(profile.committed) if steps]
    if len(answers) < 2:
        return None
    cut = profile.last_step_cut or (False,) * len(profile.committed)
    counts = count_steps([profile.committed[i] for i in answers], [cut[i] for i in answers], profile.block_size)
    num_positions = len(profile.survival)
    return Counts(counts.at_risk[:, :num_positions], counts.accepted[:, :num_positions])


def tail_law(profile: AcceptanceProfile) -> Tail:
    """The law of conditional acceptance beyond the measured block. Raises `InputError` where no draft was ever seen."""
    if not profile.survival:
        raise InputError(
            f"acceptance profile {profile.name!r} holds no drafts, so nothing is known beyond K={measured_block_size(profile)}",
            "measure at a larger block size, or give mean acceptance lengths",
        )
    survival = np.array(profile.survival)
    known = _answer_counts(profile) or position_counts(profile)
    if known is not None and known.at_risk.sum() > 0:
        return fit_tail(known)
    at_risk = np.concatenate([[1.0], survival[:-1]])
    return fit_tail(Counts(at_risk, survival), has_counts=False)


def tau_curve(profile: AcceptanceProfile, max_block_size: int) -> Array:
    """τ(1) … τ(max_block_size), mean committed tokens per step (bonus included)."""
    if max_block_size < 1:
        raise InputError(f"block size {max_block_size} is impossible", "block sizes start at 1, plain decoding")
    if profile.tau_points:
        num_positions = max(max_block_size, profile.tau_points[-1][0])
        return curve_through(profile.tau_points, max_block_size, guessed_shape(profile.drafting, num_positions))
    survival = np.array(profile.survival[: max_block_size - 1])
    missing = max_block_size - 1 - len(survival)
    if missing > 0:
        tail = tail_survival(tail_law(profile), survival[-1:], len(survival), missing)[0]
        survival = np.concatenate([survival, tail])
    return np.concatenate([[1.0], 1.0 + np.cumsum(survival)])


def tau(profile: AcceptanceProfile, block_size: int) -> float:
    """Mean committed tokens per step at block size K, bonus included: 1 … K."""
    return float(tau_curve(profile, block_size)[-1])


def _survival_counts(profile: AcceptanceProfile, num_draws: int, seed: int) -> Counts | None:
    if profile.committed:
        answers = _answer_counts(profile)
        return None if answers is None else resample_answers(answers, num_draws, seed)
    known = position_counts(profile)
    if known is None:
        return None
    if profile.tau_low is None or profile.tau_high is None:
        return resample_steps(known, num_draws, seed)
    return bend_to_interval(known, profile.tau_low, profile.tau_high, num_draws, seed)


class _Draws(NamedTuple):
    survival: Array
    counts: Counts


def _draws(profile: AcceptanceProfile, num_draws: int, seed: int) -> _Draws | None:
    counts = _survival_counts(profile, num_draws, seed)
    if counts is None or not profile.survival:
        return None
    return _Draws(product_limit(counts, _alpha(np.array(profile.survival))), counts)


def _families(tail: Tail, num_draws: int, seed: int) -> list[tuple[Tail, Mask]]:
    """Each law of the tail with the draws it describes: the mixture as often as its evidence against the geometric law says."""
    plain = Tail("geometric", tail.mean_alpha, 1.0, tail.mean_alpha, tail.mean_alpha, 0.0)
    if tail.mixture_weight == 0.0:
        return [(plain, np.full(num_draws, True))]
    mixed = Tail("mixture", tail.mean_alpha, tail.easy_share, tail.easy_alpha, tail.hard_alpha, tail.mixture_weight)
    is_mixed = np.random.default_rng(seed + 1).random(num_draws) < tail.mixture_weight
    return [(plain, ~is_mixed), (mixed, is_mixed)]


def tau_draws(profile: AcceptanceProfile, max_block_size: int, num_draws: int = NUM_DRAWS, seed: int = SEED) -> Array | None:
    """Draws of τ(1) … τ(max_block_size), [num_draws, max_block_size]; None where the sampling error is unknown.

    Whole answers are resampled where the counts of each are known. Where only steps per position are known, they are; a
    published interval of τ is honoured instead if there is one. For mean lengths alone the draws are the curve families
    through them.
    """
    if profile.tau_points:
        num_positions = max(max_block_size, profile.tau_points[-1][0])
        curves = family_curves(profile.tau_points, max_block_size, family_shapes(profile.drafting, num_positions))
        return curves[np.random.default_rng(seed).integers(len(curves), size=num_draws)]
    if max_block_size == 1:
        return np.ones((num_draws, 1))
    drawn = _draws(profile, num_draws, seed)
    if drawn is None:
        return None
    survival = drawn.survival[:, : max_block_size - 1]
    missing = max_block_size - 1 - survival.shape[1]
    if missing > 0:
        law = tail_law(profile)
        powers = draw_powers(law, drawn.counts)
        tails = np.empty((num_draws, missing))
        for tail, chosen in _families(law, num_draws, seed):
            tails[chosen] = tail_survival(tail, survival[chosen, -1], survival.shape[1], missing, powers[chosen])
        survival = np.concatenate([survival, tails], axis=1)
    return np.concatenate([np.ones((num_draws, 1)), 1.0 + np.cumsum(survival, axis=1)], axis=1)


def tau_interval(
    profile: AcceptanceProfile, block_size: int, num_draws: int = NUM_DRAWS, seed: int = SEED
) -> tuple[float, float] | None:
    """The 95 % interval of τ(K), or None where the sampling error is unknown."""
    draws = tau_draws(profile, block_size, num_draws, seed)
    if draws is None:
        return None
    low, high = np.percentile(draws[:, -1], [2.5, 97.5])
    return float(low), float(high)


def ceiling_share(profile: AcceptanceProfile, block_size: int, num_draws: int = NUM_DRAWS, seed: int = SEED) -> Share:
    """Share of the unlimited block's τ that a block of K captures, τ(K) / τ(∞), with its interval.

    This judges "K=16 captures over 90 % of the maximum": under one α it is 1 − α^K, so it holds for α ≤ 0.1^(1/16) = 0.866
    only (`perfmodel.tails.share_threshold`). τ(∞) assumes a drafter trained for any block and a step time that K leaves alone.
    """
    law = tail_law(profile)
    survival = np.array(profile.survival)
    measured = len(survival)
    ceiling = float(tau_at_block(survival)) + float(tail_sum(law, survival[-1:], measured)[0])
    value = float(tau(profile, block_size) / ceiling)
    drawn = _draws(profile, num_draws, seed)
    captured = tau_draws(profile, block_size, num_draws, seed)
    if drawn is None or captured is None:
        return Share(value, None, None)
    powers = draw_powers(law, drawn.counts)
    ceilings = tau_at_block(drawn.survival)
    for tail, chosen in _families(law, num_draws, seed):
        ceilings[chosen] += tail_sum(tail, drawn.survival[chosen, -1], measured, powers[chosen])
    low, high = np.percentile(captured[:, -1] / ceilings, [2.5, 97.5])
    return Share(value, float(low), float(high))
