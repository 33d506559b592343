"""Survival of a draft block by position, from committed counts.

A step that committed c tokens accepted a = c − 1 drafts: its first a positions are successes and position a + 1 a failure,
unless the block ended there. A fully accepted block of K says only "at least K − 1", and so does a step in which a stop token
or the length limit ended the answer: it says "at least c − 1". Such steps are right-censored: they count for the positions
they show and drop out of the risk set of the first one they do not. The share of successes among the steps at risk is the
conditional acceptance α_i, and S_i = α_1 · … · α_i is the product-limit estimate (Kaplan and Meier, 1958). Without cut steps
it is the plain share of steps that accepted at least i drafts, and 1 + Σ S_i is the plain mean of committed tokens.

Steps of one answer are alike, so the sampling error is that of answers, not of steps: intervals resample whole answers.
Each draw takes one answer fewer than there are, which makes the variance of a mean exactly s²/n (Rao and Wu, 1988).
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Whole = NDArray[np.int64]
Mask = NDArray[np.bool_]

NORMAL_95 = 1.959964
"""Half width of a 95 % interval in standard deviations of a normal law."""


class Counts(NamedTuple):
    """Steps at risk and accepted, with positions 1 … K − 1 on the last axis."""

    at_risk: Array
    accepted: Array


def count_steps(committed: Sequence[Sequence[int]], last_step_cut: Sequence[bool], block_size: int) -> Counts:
    """Steps at risk and accepted per answer and position, [answers, block_size − 1]."""
    at_risk = np.zeros((len(committed), block_size - 1))
    accepted = np.zeros_like(at_risk)
    for answer, (steps, cut) in enumerate(zip(committed, last_step_cut, strict=True)):
        histogram = np.bincount(np.asarray(steps, dtype=np.int64), minlength=block_size + 1)
        at_least = np.cumsum(histogram[::-1])[::-1]  # at_least[c]: steps that committed c tokens or more
        at_risk[answer] = at_least[1:block_size]
        accepted[answer] = at_least[2 : block_size + 1]
        if cut and steps and steps[-1] < block_size:
            at_risk[answer, steps[-1] - 1] -= 1
    return Counts(at_risk, accepted)


def product_limit(counts: Counts, fallback: Array | None = None) -> Array:
    """Survival S_1 … by the product-limit estimate, positions on the last axis.

    A position without steps at risk takes α from `fallback` (one value per position), else it is NaN; once survival is zero
    it stays zero, whether or not a step could still show it.
    """
    unknown = np.full(counts.at_risk.shape[-1], np.nan) if fallback is None else fallback
    seen = counts.at_risk > 0
    alpha = np.where(seen, counts.accepted / np.where(seen, counts.at_risk, 1.0), unknown)
    survival = np.empty_like(alpha)
    previous = np.ones(alpha.shape[:-1])
    for position in range(alpha.shape[-1]):
        previous = np.where(previous == 0.0, 0.0, previous * alpha[..., position])
        survival[..., position] = previous
    return survival


def resample_answers(counts: Counts, num_draws: int, seed: int) -> Counts:
    """Bootstrap draws over answers: counts summed over n − 1 answers drawn with replacement, [draws, positions]."""
    num_answers = len(counts.at_risk)
    weights = np.random.default_rng(seed).multinomial(num_answers - 1, np.full(num_answers, 1 / num_answers), size=num_draws)
    return Counts(weights @ counts.at_risk, weights @ counts.accepted)


def resample_steps(counts: Counts, num_draws: int, seed: int) -> Counts:
    """Draws when only totals per position are known: α_i from a beta law with the steps at risk, [draws, positions].

    The beta law is the posterior of a share under Jeffreys' prior, so a position at which nothing was rejected keeps an
    error. Steps are taken as independent; those of one answer are not, so the interval is a lower bound of the true one.
    """
    rejected = counts.at_risk - counts.accepted
    shape = (num_draws, len(counts.at_risk))
    alpha = np.random.default_rng(seed).beta(counts.accepted + 0.5, rejected + 0.5, size=shape)
    return Counts(np.broadcast_to(counts.at_risk, shape), alpha * counts.at_risk)


def bend_to_interval(counts: Counts, low: float, high: float, num_draws: int, seed: int) -> Counts:
    """Draws that honour a published 95 % interval of τ at the whole block, [draws, positions].

    Easy and hard answers move all positions together, so each draw raises the whole curve to one power, S_i^γ, chosen so that
    τ follows a normal law with its own width on either side of the measured value.
    """
    survival = product_limit(counts)
    middle = float(tau_at_block(survival))
    normal = np.random.default_rng(seed).standard_normal(num_draws)
    width = np.where(normal < 0, max(middle - low, 0.0), max(high - middle, 0.0)) / NORMAL_95
    powers = np.exp(np.linspace(math.log(20.0), math.log(0.02), 2000))
    taus = tau_at_block(np.power(survival, powers[:, None]))
    drawn = np.interp(middle + normal * width, taus, powers)
    alpha = np.divide(counts.accepted, counts.at_risk, out=np.zeros_like(survival), where=counts.at_risk > 0)
    return Counts(np.broadcast_to(counts.at_risk, (num_draws, len(survival))), counts.at_risk * np.power(alpha, drawn[:, None]))


def tau_at_block(survival: Array) -> Array:
    """Mean committed tokens per step at the whole block, 1 + Σ S_i."""
    return 1.0 + survival.sum(axis=-1)
