"""Easy and hard steps: a two-component law of acceptance, fitted by likelihood and judged on steps it was not fitted to.

Drafts are not accepted with one probability. Some steps are easy (the drafter and the target agree on a formula, a bracket, a
boilerplate line) and some are hard, so survival is a blend, S_i = w·a^i + (1 − w)·b^i, and the conditional rate S_i / S_(i−1)
*rises* with depth, because the steps that get that far are the easy ones. Three constants always fit better than the one of the
geometric law; whether they *predict* better is asked of steps left out of the fit. Whole answers are left out where the counts
of each are known, since steps of one answer are alike; else steps are dealt to folds at random.
"""

import math
from typing import NamedTuple

import numpy as np

from .survival import Array, Counts

_NUM_ITERATIONS = 600
_TOLERANCE = 1e-7
_NUM_FOLDS = 5
_NUM_DEALS = 2  # times that steps are dealt to folds anew, where they are dealt at random
_MAX_FOLDS = 10
_SEED = 0
_STARTS = (0.1, 0.6)  # shares of easy steps from which the fit sets out


class Mixture(NamedTuple):
    """Share w of easy steps, their α, and the α of the hard ones."""

    easy_share: float
    easy_alpha: float
    hard_alpha: float


class HeldOut(NamedTuple):
    """How much better the mixture predicts unseen steps than one α: log-likelihood gained, nats, and its standard error."""

    gain: float
    stderr: float


def mixture_alpha(positions: Array, easy_share: float, easy_alpha: float, hard_alpha: float) -> Array:
    """Conditional acceptance S_i / S_(i−1) of S_i = w·a^i + (1 − w)·b^i, in logarithms so that deep positions stay exact."""

    def log_survival(i: Array) -> Array:
        easy = math.log(easy_share) + i * math.log(easy_alpha)
        return np.logaddexp(easy, math.log1p(-easy_share) + i * math.log(hard_alpha))

    return np.exp(log_survival(positions) - log_survival(positions - 1))


def log_likelihood(alpha: Array, counts: Counts) -> Array:
    """Log-likelihood of the accepted and rejected drafts at each position, nats, summed over the last axis."""
    safe = np.clip(alpha, 1e-12, 1 - 1e-12)
    rejected = counts.at_risk - counts.accepted
    return np.sum(counts.accepted * np.log(safe) + rejected * np.log1p(-safe), axis=-1)


def fit_mixtures(counts: Counts) -> list[Mixture]:
    """The maximum-likelihood mixture of each row of counts [rows, positions], by expectation–maximisation over steps.

    A step ends in a rejection, or in what it could show (censored): both enter with the drafts it accepted.
    """
    num_rows, num_positions = counts.at_risk.shape
    weights, successes, failures = _endings(counts)
    totals = np.maximum(weights.sum(axis=1), 1e-300)
    mean = counts.accepted.sum(axis=1) / np.maximum(counts.at_risk.sum(axis=1), 1e-300)
    spread = 0.5 * np.minimum(mean, 1 - mean)
    num_starts = len(_STARTS)
    weights, totals = np.tile(weights, (num_starts, 1)), np.tile(totals, num_starts)
    share = np.repeat(_STARTS, num_rows)
    easy, hard = np.tile(mean + spread, num_starts), np.tile(mean - spread, num_starts)
    share, easy, hard = (np.clip(value, 1e-6, 1 - 1e-6) for value in (share, easy, hard))
    for _ in range(_NUM_ITERATIONS):
        is_easy = share[:, None] * _odds(easy, successes, failures)
        total = is_easy + (1 - share)[:, None] * _odds(hard, successes, failures)
        belongs = np.divide(is_easy, total, out=np.zeros_like(total), where=total > 0)
        in_easy = weights * belongs
        in_hard = weights - in_easy
        previous = (share, easy, hard)
        share = in_easy.sum(axis=1) / totals
        easy = in_easy @ successes / np.maximum(in_easy @ (successes + failures), 1e-300)
        hard = in_hard @ successes / np.maximum(in_hard @ (successes + failures), 1e-300)
        share, easy, hard = (np.clip(value, 1e-6, 1 - 1e-6) for value in (share, easy, hard))
        if max(np.abs(now - before).max() for now, before in zip((share, easy, hard), previous, strict=True)) < _TOLERANCE:
            break
    found = []
    positions = np.arange(1.0, num_positions + 1)
    for row in range(num_rows):
        fits = [_ordered(*(float(value[start * num_rows + row]) for value in (share, easy, hard))) for start in range(num_starts)]
        here = Counts(counts.at_risk[row], counts.accepted[row])
        found.append(max(fits, key=lambda fit: float(log_likelihood(mixture_alpha(positions, *fit), here))))
    return found


def _odds(alpha: Array, successes: Array, failures: Array) -> Array:
    """Probability of each ending under each α, [fits, endings]."""
    return np.exp(np.log(alpha)[:, None] * successes + np.log1p(-alpha)[:, None] * failures)


def _endings(counts: Counts) -> tuple[Array, Array, Array]:
    """Steps by how they ended: weights [rows, endings], drafts accepted and drafts rejected of each ending."""
    depth = np.arange(1.0, counts.at_risk.shape[1] + 1)
    rejected = counts.at_risk - counts.accepted
    following = np.concatenate([counts.at_risk[:, 1:], np.zeros((len(rejected), 1))], axis=1)
    hidden = np.maximum(counts.accepted - following, 0.0)  # steps that showed `depth` drafts, all accepted, and no more
    weights = np.concatenate([rejected, hidden], axis=1)
    return weights, np.concatenate([depth - 1, depth]), np.concatenate([np.ones_like(depth), np.zeros_like(depth)])


def _ordered(share: float, easy: float, hard: float) -> Mixture:
    return Mixture(share, easy, hard) if easy >= hard else Mixture(1 - share, hard, easy)


def held_out(groups: Counts) -> HeldOut:
    """The mixture against one α on steps left out of both fits.

    `groups` [groups, positions] are answers, left out whole; a single group is dealt to folds step by step.
    """
    deals = [groups] if len(groups.at_risk) > 1 else _deal(groups)
    gains, errors = zip(*(_cross_validate(deal) for deal in deals), strict=True)
    return HeldOut(float(np.mean(gains)), float(np.mean(errors)))


def _deal(group: Counts) -> list[Counts]:
    """Steps of one group dealt to folds at random, several times: [folds, positions] each."""
    weights, successes, failures = _endings(group)
    whole = np.round(weights[0]).astype(np.int64)
    ending = np.repeat(np.arange(len(whole)), whole)
    positions = np.arange(1, group.at_risk.shape[1] + 1)
    reached = (successes + failures)[:, None] >= positions
    passed = successes[:, None] >= positions
    rng = np.random.default_rng(_SEED)
    deals = []
    for _ in range(_NUM_DEALS):
        fold = rng.permutation(len(ending)) % _NUM_FOLDS
        table = np.zeros((_NUM_FOLDS, len(whole)))
        np.add.at(table, (fold, ending), 1.0)
        deals.append(Counts(table @ reached, table @ passed))
    return deals


def _cross_validate(groups: Counts) -> tuple[float, float]:
    num_groups = len(groups.at_risk)
    num_folds = min(num_groups, _MAX_FOLDS)
    is_in = np.arange(num_groups)[None, :] % num_folds == np.arange(num_folds)[:, None]
    outside = (~is_in).astype(np.float64)
    training = Counts(outside @ groups.at_risk, outside @ groups.accepted)
    positions = np.arange(1.0, groups.at_risk.shape[1] + 1)
    gains = np.zeros(num_groups)
    for fold, mixture in enumerate(fit_mixtures(training)):
        risk = training.at_risk[fold].sum()
        mean = training.accepted[fold].sum() / risk if risk > 0 else 0.5
        mine = Counts(groups.at_risk[is_in[fold]], groups.accepted[is_in[fold]])
        plain = np.full(len(positions), mean)
        gains[is_in[fold]] = log_likelihood(mixture_alpha(positions, *mixture), mine) - log_likelihood(plain, mine)
    return float(gains.sum()), float(np.sqrt(num_groups) * gains.std(ddof=1))
