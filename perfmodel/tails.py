"""What lies beyond the measured block: two laws of conditional acceptance, and how much of the ceiling a block captures.

*Geometric*: every draft is accepted with the same α (Leviathan et al., arXiv 2211.17192, eq. 1), S_i = α^i. *Mixture*: a share
w of steps is easy (a), the rest hard (b), S_i = w·a^i + (1 − w)·b^i; the conditional rate then rises with depth, because the
steps that survive are the easy ones. Both are fitted by the likelihood of the accepted and rejected drafts at each position
(censoring included, since a position counts only the steps that showed it), and the lower Bayesian information criterion wins.

The tail continues from the last measured survival with the law's conditional rates, so the measured part is never altered. It
describes a drafter *trained* for the longer block: the same drafter run beyond its own block does worse (a b16 drafter
committed 8.30 tokens at K=16 and 5.24 at K=32).
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit

from .survival import Array, Counts

_NUM_ITERATIONS = 1000
_NUM_TAIL_POSITIONS = 4096  # summed one by one for the ceiling; the rest is closed as a geometric series


@dataclass(frozen=True)
class Tail:
    """A law of conditional acceptance; `mixture_weight` is the evidence for the mixture against the geometric law (0 … 1)."""

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


def mixture_alpha(positions: Array, easy_share: float, easy_alpha: float, hard_alpha: float) -> Array:
    """Conditional acceptance S_i / S_(i−1) of S_i = w·a^i + (1 − w)·b^i, in logarithms so that deep positions stay exact."""

    def log_survival(i: Array) -> Array:
        easy = math.log(easy_share) + i * math.log(easy_alpha)
        return np.logaddexp(easy, math.log1p(-easy_share) + i * math.log(hard_alpha))

    return np.exp(log_survival(positions) - log_survival(positions - 1))


def geometric_tau(alpha: float, block_size: int) -> float:
    """Mean committed tokens of a block of K under one α, (1 − α^K) / (1 − α)."""
    return float(block_size) if alpha == 1.0 else (1 - alpha**block_size) / (1 - alpha)


def alpha_of_tau(tau: float, block_size: int) -> float:
    """The single α that gives the mean length τ at a block of K (inverse of `geometric_tau`); 1 ≤ τ ≤ K."""
    if tau <= 1.0:
        return 0.0
    if tau >= block_size:
        return 1.0
    return float(brentq(lambda alpha: geometric_tau(alpha, block_size) - tau, 0.0, 1.0))


def share_threshold(share: float, block_size: int) -> float:
    """The largest α at which a block of K captures this share of the ceiling under the geometric law, (1 − share)^(1/K)."""
    return (1.0 - share) ** (1.0 / block_size)


def _log_likelihood(alpha: Array, counts: Counts) -> float:
    safe = np.clip(alpha, 1e-12, 1 - 1e-12)
    return float(np.sum(counts.accepted * np.log(safe) + (counts.at_risk - counts.accepted) * np.log1p(-safe)))


def _expect_maximise(counts: Counts, start: tuple[float, float, float]) -> tuple[float, float, float]:
    """Mixture constants (w, a, b) by expectation–maximisation over steps, each ended by a rejection or by what it could show."""
    depth = np.arange(1.0, len(counts.at_risk) + 1)
    rejected = counts.at_risk - counts.accepted
    hidden = counts.accepted - np.append(counts.at_risk[1:], 0.0)  # steps that showed `depth` drafts, all accepted, and no more
    weights = np.concatenate([rejected, hidden])
    successes = np.concatenate([depth - 1, depth])
    failures = np.concatenate([np.ones_like(depth), np.zeros_like(depth)])
    share, easy, hard = start
    for _ in range(_NUM_ITERATIONS):
        easy_odds = share * easy**successes * (1 - easy) ** failures
        total = easy_odds + (1 - share) * hard**successes * (1 - hard) ** failures
        belongs = np.divide(easy_odds, total, out=np.zeros_like(total), where=total > 0)
        in_easy, in_hard = weights * belongs, weights * (1 - belongs)
        previous = (share, easy, hard)
        share = in_easy.sum() / weights.sum()
        easy = in_easy @ successes / max(in_easy @ (successes + failures), 1e-300)
        hard = in_hard @ successes / max(in_hard @ (successes + failures), 1e-300)
        share, easy, hard = (float(np.clip(value, 1e-6, 1 - 1e-6)) for value in (share, easy, hard))
        if max(abs(now - before) for now, before in zip((share, easy, hard), previous, strict=True)) < 1e-7:
            break
    return (share, easy, hard) if easy >= hard else (1 - share, hard, easy)


def _fit_mixture(counts: Counts, mean_alpha: float) -> tuple[tuple[float, float, float], float]:
    positions = np.arange(1.0, len(counts.at_risk) + 1)
    spread = 0.5 * min(mean_alpha, 1 - mean_alpha)
    fits = [_expect_maximise(counts, (share, mean_alpha + spread, mean_alpha - spread)) for share in (0.1, 0.6)]
    scored = [(_log_likelihood(mixture_alpha(positions, *fit), counts), fit) for fit in fits]
    likelihood, best = max(scored)
    return best, likelihood


def fit_tail(counts: Counts, has_counts: bool = True) -> Tail:
    """The law of conditional acceptance that the steps at each position (1-D counts) support.

    Where the number of steps is unknown (`has_counts` False) the evidence cannot be weighed, and the law with one constant is
    used.
    """
    return _fit_tail(tuple(counts.at_risk.tolist()), tuple(counts.accepted.tolist()), has_counts)


@lru_cache(maxsize=512)
def _fit_tail(at_risk: tuple[float, ...], accepted: tuple[float, ...], has_counts: bool) -> Tail:
    counts = Counts(np.array(at_risk), np.array(accepted))
    mean_alpha = float(counts.accepted.sum() / counts.at_risk.sum())
    geometric = Tail("geometric", mean_alpha, 1.0, mean_alpha, mean_alpha, 0.0)
    if not has_counts or not 0.0 < mean_alpha < 1.0 or np.count_nonzero(counts.at_risk) < 4:
        return geometric
    (share, easy, hard), fitted = _fit_mixture(counts, mean_alpha)
    plain = _log_likelihood(np.full(len(at_risk), mean_alpha), counts)
    # three constants against one: twice log n more to pay
    advantage = (fitted - plain) - math.log(float(counts.at_risk.sum()))
    weight = float(expit(advantage))
    return Tail("mixture" if advantage > 0 else "geometric", mean_alpha, share, easy, hard, weight)


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
