"""What recording a trace cost the run that was recorded: measured, not assumed.

The same steps are run with and without the profiler. The share is the ratio of median step walls less one; medians, because the
first recorded step and the occasional interrupted one say nothing about the rest.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from perfmodel.errors import InputError

OVERHEAD_LIMIT = 0.03
"""Share above which a run is flagged: the trace then no longer shows the loop that people run."""

MIN_STEPS = 3
"""Steps on either side below which nothing is said: a median of two is a guess."""


@dataclass(frozen=True, slots=True)
class Overhead:
    """Share of a step that recording added, with a 95 % bootstrap interval; negative when noise outweighs it."""

    share: float
    low: float
    high: float

    @property
    def over_limit(self) -> bool:
        """Whether the overhead is above the limit beyond doubt."""
        return self.low > OVERHEAD_LIMIT


def profiler_overhead(recorded_s: Sequence[float], plain_s: Sequence[float], num_draws: int = 1000, seed: int = 0) -> Overhead:
    """Overhead of recording from step walls with and without it, as a share.

    Raises `InputError` for fewer than `MIN_STEPS` steps on either side.
    """
    recorded, plain = np.asarray(recorded_s, float), np.asarray(plain_s, float)
    if min(len(recorded), len(plain)) < MIN_STEPS:
        raise InputError(
            f"{len(recorded)} recorded and {len(plain)} plain steps are too few to compare", f"run at least {MIN_STEPS} of each"
        )
    random = np.random.default_rng(seed)
    draws = _medians(recorded, num_draws, random) / _medians(plain, num_draws, random) - 1
    low, high = np.quantile(draws, (0.025, 0.975))
    return Overhead(float(np.median(recorded) / np.median(plain) - 1), float(low), float(high))


def _medians(samples: np.ndarray, num_draws: int, random: np.random.Generator) -> np.ndarray:
    return np.median(random.choice(samples, (num_draws, len(samples))), axis=1)
