"""What lies beyond the measured block: two laws of conditional acceptance, and how much of the ceiling a block captures.

*Geometric*: every draft is accepted with the same α (Leviathan et al., arXiv 2211.17192, eq. 1), S_i = α^i. *Mixture*: a share
w of steps is easy (a), the rest hard (b), S_i = w·a^i + (1 − w)·b^i; the conditional rate then rises with depth, because the
steps that survive are the easy ones. Both are fitted by the likelihood of the accepted and rejected drafts at each position
(censoring included, since a position counts only the steps that showed it); the mixture is chosen where it predicts left-out
steps better by a standard error (`perfmodel.mixture`), and draws take it as often as it is likely to.

The tail continues from the last measured survival with the law's conditional rates, so the measured part is never altered. It
describes a drafter *trained* for the longer block: the same drafter run beyond its own block does worse (a b16 drafter
committed 8.30 tokens at K=16 and 5.24 at K=32).
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import Literal

import numpy as np

from .mixture import fit_mixtures, held_out, mixture_alpha
from .survival import Array, Counts

_CLEARLY = NormalDist().cdf(1.0)  # the law with three constants must win by one standard error (the usual rule of parsimony)
_FEW_STEPS = 20  # fewer say nothing of two kinds of steps
_NUM_TAIL_POSITIONS = 4096  # summed one by one for the ceiling; the rest is closed as a geometric series


@dataclass(frozen=True)
class Tail:
    """A law of conditional acceptance; `mixture_weight` is the chance that the mixture predicts unseen steps better (0 … 1)."""

    family: Literal["geometric", "mixture"]
    mean_alpha: float
    easy_share: float
    easy_alpha: float
    hard_alpha: float
    mixture_weight: float

    def alpha(self, positions: Array) -> Array:
        """Conditional acceptance α_i at positions i ≥ 1."""
        if self.family == "geometric":
            return np.full(np.shape(positions), self.mean_alpha)
        return mixture_alpha(positions, self.easy_share, self.easy_alpha, self.hard_alpha)


def geometric_tau(alpha: float, block_size: int) -> float:
    """Mean committed tokens of a block of K under one α, (1 − α^K) / (1 − α)."""
    return float(block_size) if alpha == 1.0 else (1 - alpha**block_size) / (1 - alpha)


def share_threshold(share: float, block_size: int) -> float:
    """The largest α at which a block of K captures this share of the ceiling under the geometric law, (1 − share)^(1/K)."""
    return (1.0 - share) ** (1.0 / block_size)


def fit_tail(counts: Counts, has_counts: bool = True) -> Tail:
    """The law of conditional acceptance that the steps at each position support, chosen by held-out likelihood.

    Counts are [positions], or [answers, positions]: then whole answers are left out, else steps. Where the number of steps is
    unknown (`has_counts` False) the evidence cannot be weighed, and the law with one constant is used.
    """
    groups = Counts(np.atleast_2d(counts.at_risk), np.atleast_2d(counts.accepted))
    rows = groups.at_risk.sum(axis=1) > 0
    return _fit_tail(_tuples(groups.at_risk[rows]), _tuples(groups.accepted[rows]), has_counts)


def _tuples(rows: Array) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(row) for row in rows.tolist())


@lru_cache(maxsize=512)
def _fit_tail(at_risk: tuple[tuple[float, ...], ...], accepted: tuple[tuple[float, ...], ...], has_counts: bool) -> Tail:
    groups = Counts(np.array(at_risk), np.array(accepted))
    pooled = Counts(groups.at_risk.sum(axis=0), groups.accepted.sum(axis=0))
    mean_alpha = float(pooled.accepted.sum() / pooled.at_risk.sum())
    geometric = Tail("geometric", mean_alpha, 1.0, mean_alpha, mean_alpha, 0.0)
    if not has_counts or not 0.0 < mean_alpha < 1.0 or np.count_nonzero(pooled.at_risk) < 4 or pooled.at_risk[0] < _FEW_STEPS:
        return geometric
    judged = held_out(groups)
    weight = NormalDist().cdf(judged.gain / judged.stderr) if judged.stderr > 0 else float(judged.gain > 0)
    (mixture,) = fit_mixtures(Counts(pooled.at_risk[None], pooled.accepted[None]))
    return Tail("mixture" if weight > _CLEARLY else "geometric", mean_alpha, *mixture, mixture_weight=weight)


def tail_survival(tail: Tail, last: Array, num_measured: int, num_positions: int, power: Array | None = None) -> Array:
    """Survival at positions num_measured + 1 … num_measured + num_positions, continuing from `last` [draws], [draws, positions].

    `power` scales the logarithm of every conditional rate, one value per draw: a draw whose drafts were accepted less often
    has a steeper tail.
    """
    alpha = tail.alpha(np.arange(num_measured + 1.0, num_measured + num_positions + 1))
    with np.errstate(divide="ignore"):
        exponents = np.cumsum(np.log(alpha))
    powers = np.ones(np.shape(last)) if power is None else power
    return np.reshape(last, (-1, 1)) * np.exp(np.reshape(powers, (-1, 1)) * exponents)


def draw_powers(tail: Tail, draws: Counts) -> Array:
    """Per draw, the power that turns the law's mean α into the draw's own mean α, [draws]."""
    risk = draws.at_risk.sum(axis=1)
    alpha = np.divide(draws.accepted.sum(axis=1), risk, out=np.zeros(len(risk)), where=risk > 0)
    if not 0.0 < tail.mean_alpha < 1.0:
        return np.ones(len(alpha))
    usable = alpha > 0
    return np.where(usable, np.log(np.where(usable, alpha, 1.0)) / math.log(tail.mean_alpha), 1.0)


def tail_sum(tail: Tail, last: Array, num_measured: int, power: Array | None = None) -> Array:
    """Tokens per step that only an unlimited block would add, Σ S_i over all positions beyond the measured ones, [draws]."""
    survival = tail_survival(tail, last, num_measured, _NUM_TAIL_POSITIONS, power)
    ratio = np.divide(survival[:, -1], survival[:, -2], out=np.zeros(len(survival)), where=survival[:, -2] > 0)
    rest = np.where(ratio < 1.0, survival[:, -1] * ratio / np.where(ratio < 1.0, 1.0 - ratio, 1.0), np.inf)
    return survival.sum(axis=1) + np.where(survival[:, -1] > 0, rest, 0.0)
