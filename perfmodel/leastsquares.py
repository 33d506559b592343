"""Constants of the step-time law from measured times: robust least squares on log time, and what the data cannot see.

Times span decades and their errors are relative, so residuals are log(predicted / measured) over their error. The error has two
parts: scatter of repeats, and the law's own misfit (tile sizes, cache effects), estimated from the residuals. A soft-L1 loss
keeps one bad point from bending the curve.

A constant whose standard error stays large has not been seen by the data, alone or because another can take its place. It is
pinned at its prior and the rest fitted again, one constant at a time, so every number handed out is either measured or labelled.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from .records import Hardware
from .stepmodel import Prior, Values, Work, seconds

LOG_LIMIT = 0.35
"""A positive constant known to worse than about 35 % is not identified."""

EXPONENT_LIMIT = 0.6
"""The overlap exponent matters only near the knee; a factor of e^0.6 either way still says sharp or soft."""

START_MISFIT = 0.03
"""First guess of the law's own error, before residuals are known."""

PRIOR_WEIGHT = 2.0
"""How many points' worth of trust the first guess of the law's error has."""

LAW_ERROR = 0.01
"""Residuals below 1 % are not worth another constant."""

LEAST_MISFIT = 0.004
"""No four-constant law describes real hardware better than this; keeps exact synthetic data from claiming zero error."""

PIN_COST = 4.0
"""Rise of χ² (two standard errors) above which the data contradict a prior, so the constant is not pinned at it."""

DIFFERENCE = 1e-6
"""Step of the numerical derivative, in coordinates."""

ROBUST_SCALE = 2.0
"""Residuals beyond this many standard errors count linearly instead of quadratically."""


@dataclass(frozen=True)
class Knob:
    """One constant to fit: its bounds, its scale (log for positive constants), its prior, and what would make it visible.

    `visible` is the standard error, in its own unit, below which an additive constant counts as seen. An `optional` constant is
    there only because the points ask for it; it is never pinned.
    """

    name: str
    unit: str
    start: float
    low: float
    high: float
    log: bool
    prior: Prior
    remedy: str
    visible: float = 0.0
    optional: bool = False

    def encode(self, value: float) -> float:
        """The optimiser's coordinate of a value."""
        return float(np.log(value)) if self.log else float(value / self.scale)

    def decode(self, coordinate: float) -> float:
        """The value at the optimiser's coordinate, kept within the bounds."""
        value = float(np.exp(coordinate)) if self.log else coordinate * self.scale
        return float(min(max(value, self.low), self.high))

    @property
    def scale(self) -> float:
        """Unit of an additive constant's coordinate."""
        return self.high

    def at_bound(self, value: float) -> bool:
        """Whether a value sits at one of the bounds, to a thousandth of the constant's range."""
        coordinate, low, high = self.encode(value), self.encode(self.low), self.encode(self.high)
        return min(coordinate - low, high - coordinate) <= 1e-3 * (high - low)

    def blindness(self, error: float, value: float) -> float:
        """How badly the data see the constant: its standard error (in coordinates) over the largest that counts as seen."""
        if self.log:
            return error / (EXPONENT_LIMIT if self.name == "exponent" else LOG_LIMIT)
        return error * self.scale / max(0.3 * value, self.visible)


@dataclass(frozen=True)
class Problem:
    """Measured times (s) of known work on one chip, and the relative scatter of each point's repeats.

    `fixed` holds constants that were chosen from a list and are not fitted, such as a tile size.
    """

    work: Work
    measured_s: np.ndarray
    scatter: np.ndarray
    hardware: Hardware | None
    dtype: str
    fixed: Mapping[str, float] = field(default_factory=dict)

    def with_times(self, measured_s: np.ndarray) -> "Problem":
        """The same problem with other times (a bootstrap draw)."""
        return replace(self, measured_s=measured_s)

    def predicted_s(self, values: Values) -> np.ndarray:
        """Seconds of every point under given constants, beside the chosen ones."""
        return seconds({**self.fixed, **values}, self.work, self.hardware, self.dtype)


@dataclass(frozen=True)
class Solution:
    """Fitted constants, their errors and what was pinned. `covariance` is in the coordinates of `free`."""

    values: dict[str, float]
    stderr: dict[str, float]
    free: tuple[Knob, ...]
    covariance: np.ndarray
    misfit: float
    chi_square: float
    pinned: dict[str, Knob] = field(default_factory=dict)
    one_sided: frozenset[str] = frozenset()


def solve(problem: Problem, knobs: Sequence[Knob], prefer_pinned: str = "overhead_s") -> Solution:
    """The constants that fit the times best, those the data cannot see pinned at their priors.

    Where memory efficiency and launch overhead stand in for each other, `prefer_pinned` names the one to pin.
    """
    pinned: dict[str, Knob] = {}
    kept: set[str] = set()
    start = {knob.name: knob.start for knob in knobs}
    misfit = _misfit(problem, _optimise(problem, knobs, {}, start, START_MISFIT)[0], len(knobs))
    while True:
        free = tuple(knob for knob in knobs if knob.name not in pinned)
        fixed = {name: knob.prior.mode for name, knob in pinned.items()}
        values, jacobian, cost = _optimise(problem, free, fixed, start, misfit)
        covariance = _covariance(jacobian)
        blind = _least_seen(free, values, covariance, kept, prefer_pinned)
        if blind is None:
            break
        rest = tuple(knob for knob in free if knob.name != blind.name)
        _, _, pinned_cost = _optimise(problem, rest, fixed | {blind.name: blind.prior.mode}, values, misfit)
        if 2 * (pinned_cost - cost) > PIN_COST:
            kept.add(blind.name)
        else:
            pinned[blind.name] = blind
        start = values
    covariance = _covariance(jacobian, _inside(free, values))
    stderr = {
        knob.name: float(np.sqrt(covariance[i, i])) * (values[knob.name] if knob.log else knob.scale)
        for i, knob in enumerate(free)
    }
    return Solution(
        values={knob.name: values[knob.name] for knob in knobs},
        stderr=stderr,
        free=free,
        covariance=covariance,
        misfit=_misfit(problem, values, len(free)),
        chi_square=2 * cost,
        pinned=pinned,
        one_sided=frozenset(kept),
    )


def criterion(problem: Problem, knobs: Sequence[Knob]) -> float:
    """Bayesian information criterion of the best fit with these constants, all free: smaller is better; infinite if too many.

    Each constant pays ln(points) for as much of it as the points can see (ridge count Σ s²/(s² + 1) over singular values s).
    Judged before anything is pinned, because a missing term hides the others.
    """
    start = {knob.name: knob.start for knob in knobs}
    values, jacobian, _ = _optimise(problem, knobs, {}, start, START_MISFIT, tolerance=1e-4)
    errors = log_errors(problem, values)
    strength = np.linalg.svd(jacobian, compute_uv=False) ** 2
    num_seen = float(np.sum(strength / (strength + 1.0)))
    if errors.size < num_seen + 1.0:
        return float("inf")
    scale = ROBUST_SCALE * START_MISFIT
    robust = 2 * scale**2 * (np.sqrt(1 + (errors / scale) ** 2) - 1)
    return float(errors.size * np.log(np.mean(robust) + LAW_ERROR**2) + num_seen * np.log(errors.size))


def redraw(problem: Problem, solution: Solution, rng: np.random.Generator, measured_s: np.ndarray) -> dict[str, float]:
    """The constants refitted to other times of the same points; pinned ones drawn from their priors."""
    fixed = {name: float(np.clip(knob.prior.sample(rng, 1)[0], knob.low, knob.high)) for name, knob in solution.pinned.items()}
    values, _, _ = _optimise(
        problem.with_times(measured_s), solution.free, fixed, solution.values, solution.misfit, max_nfev=8, tolerance=1e-4
    )
    return values


def log_errors(problem: Problem, values: Values) -> np.ndarray:
    """log(predicted / measured) of every point."""
    return np.log(problem.predicted_s(values) / problem.measured_s)


def _optimise(
    problem: Problem,
    free: Sequence[Knob],
    fixed: Mapping[str, float],
    start: Mapping[str, float],
    misfit: float,
    max_nfev: int = 60,
    tolerance: float = 1e-7,
) -> tuple[dict[str, float], np.ndarray, float]:
    """Best constants, the weighted Jacobian there, and the robust cost (half of χ²)."""
    sigma = np.sqrt(misfit**2 + problem.scatter**2)

    def residuals(coordinates: np.ndarray) -> np.ndarray:
        values = dict(fixed) | {knob.name: knob.decode(x) for knob, x in zip(free, coordinates, strict=True)}
        return log_errors(problem, values) / sigma

    def jacobian(coordinates: np.ndarray) -> np.ndarray:
        steps = np.where(coordinates + DIFFERENCE < high, DIFFERENCE, -DIFFERENCE)
        table = coordinates + np.vstack([np.zeros(coordinates.size), np.diag(steps)])
        columns = {knob.name: np.exp(table[:, [i]]) if knob.log else knob.scale * table[:, [i]] for i, knob in enumerate(free)}
        errors = log_errors(problem, dict(fixed) | columns) / sigma
        return ((errors[1:] - errors[0]) / steps[:, None]).T

    if not free:
        errors = log_errors(problem, fixed) / sigma
        return dict(fixed), np.zeros((errors.size, 0)), float(np.sum(errors**2)) / 2
    from scipy.optimize import least_squares  # here: it takes longer to import than a prediction to make

    low = np.array([knob.encode(knob.low) for knob in free])
    high = np.array([knob.encode(knob.high) for knob in free])
    margin = 1e-6 * (high - low)
    begin = np.clip([knob.encode(start[knob.name]) for knob in free], low + margin, high - margin)
    found = least_squares(
        residuals,
        begin,
        jac=jacobian,
        bounds=(low, high),
        loss="soft_l1",
        f_scale=ROBUST_SCALE,
        max_nfev=max_nfev,
        ftol=tolerance,
        xtol=tolerance,
        gtol=tolerance,
    )
    values = dict(fixed) | {knob.name: knob.decode(x) for knob, x in zip(free, found.x, strict=True)}
    return values, found.jac, float(found.cost)


def _inside(free: Sequence[Knob], values: Mapping[str, float]) -> np.ndarray:
    """Which constants are away from their bounds: one at a bound is held there and lends no error to the others."""
    return np.array([not knob.at_bound(values[knob.name]) for knob in free], dtype=bool)


def _covariance(jacobian: np.ndarray, inside: np.ndarray | None = None) -> np.ndarray:
    """Inverse of JᵀJ over the constants `inside`; directions the data do not see get a huge, finite variance."""
    num = jacobian.shape[1]
    table = np.zeros((num, num))
    if inside is None:
        inside = np.ones(num, dtype=bool)
    if not inside.any():
        return table
    _, singular, rotation = np.linalg.svd(jacobian[:, inside], full_matrices=False)
    inverse = 1.0 / np.maximum(singular, 1e-6)
    table[np.ix_(inside, inside)] = (rotation.T * inverse**2) @ rotation
    return table


def _least_seen(
    free: Sequence[Knob], values: Mapping[str, float], covariance: np.ndarray, kept: set[str], prefer_pinned: str
) -> Knob | None:
    """The constant the data see least, or None when all are seen well enough."""
    blindness = {}
    for i, knob in enumerate(free):
        ratio = knob.blindness(float(np.sqrt(covariance[i, i])), values[knob.name])
        if ratio > 1.0 and knob.name not in kept and not knob.optional:
            blindness[knob.name] = ratio
    if not blindness:
        return None
    pair = {"overhead_s", "memory_efficiency"}
    if pair <= blindness.keys() or (prefer_pinned in blindness and max(blindness, key=lambda name: blindness[name]) in pair):
        name = prefer_pinned if prefer_pinned in blindness else max(blindness, key=lambda key: blindness[key])
    else:
        name = max(blindness, key=lambda key: blindness[key])
    return next(knob for knob in free if knob.name == name)


def _misfit(problem: Problem, values: Mapping[str, float], num_free: int) -> float:
    """Spread of the residuals beyond the scatter of repeats: a robust estimate, shrunk to the prior guess when points are few."""
    errors = np.abs(log_errors(problem, values))
    clipped = np.minimum(errors, 3 * 1.4826 * np.median(errors) + LEAST_MISFIT)
    freedom = max(errors.size - num_free, 0)
    variance = (PRIOR_WEIGHT * START_MISFIT**2 + float(np.sum(clipped**2))) / (PRIOR_WEIGHT + freedom)
    scatter = float(np.median(problem.scatter))
    return max(LEAST_MISFIT, float(np.sqrt(max(variance - scatter**2, 0.0))))
