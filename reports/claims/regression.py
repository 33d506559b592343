"""The model against published measurements: nine TPU speedups, a concurrency table, an ablation of the block size.

These are the choice side's validation. Each predicts figures it was not given, from as little as possible, and reports its error;
docs/model.md quotes them and a test holds that they only fall.
"""

from dataclasses import dataclass

import numpy as np

from perfmodel.acceptance import from_tau_points, load_profile, tau, tau_draws, tau_pooled
from perfmodel.hardware import load_hardware
from perfmodel.modelspec import load_model
from perfmodel.stepgrid import datasheet_grid
from perfmodel.survival import Array

from . import published
from .claim import Estimate

PAIR = "qwen3-4b-dflash-b16"
_BLOCK = 16


@dataclass(frozen=True)
class TaskCheck:
    """One task of the TPU table: predicted from its acceptance curve and two constants of the other eight."""

    task: str
    tau: float
    predicted: Estimate
    published: float

    @property
    def error(self) -> float:
        """Relative error of the prediction."""
        return self.predicted.value / self.published - 1


def _draws(task: str, seed: int) -> Array:
    found = tau_draws(load_profile(f"{PAIR}/{task}"), _BLOCK, seed=seed)
    if found is None:
        raise ValueError(f"{task} ships without counts")
    return found[:, -1]


def nine_tasks() -> tuple[TaskCheck, ...]:
    """TPU v5p, raw result files: each task's speedup from its own τ, and the plain and speculative step of the other eight."""
    taus = {task: tau_pooled(load_profile(f"{PAIR}/{task}")) for task in published.V5P}
    found = []
    for seed, (task, row) in enumerate(published.V5P.items()):
        ratio = _step_ratio(taus, [name for name in published.V5P if name != task])
        low, high = np.percentile(_draws(task, seed), [2.5, 97.5]) / ratio
        found.append(TaskCheck(task, taus[task], Estimate(taus[task] / ratio, float(low), float(high)), row.raw_speedup))
    return tuple(found)


def nine_task_average() -> Estimate:
    """The mean speedup over the nine tasks, from acceptance and the two constants; the interval resamples prompts."""
    taus = {task: tau_pooled(load_profile(f"{PAIR}/{task}")) for task in published.V5P}
    ratio = _step_ratio(taus, list(published.V5P))
    means = np.mean([_draws(task, seed) for seed, task in enumerate(published.V5P)], axis=0) / ratio
    low, high = np.percentile(means, [2.5, 97.5])
    return Estimate(float(np.mean(list(taus.values()))) / ratio, float(low), float(high))


def _step_ratio(taus: dict[str, float], names: list[str]) -> float:
    """A speculative step in plain ones: median of τ · TPOT over the mean plain time, over the tasks named."""
    plain = np.mean([published.V5P[name].raw_plain_ms for name in names])
    return float(np.median([published.V5P[name].raw_tpot_ms * taus[name] for name in names]) / plain)


@dataclass(frozen=True)
class ServedCheck:
    """One row of the B200 table: relative errors of the predicted speedup by concurrency (None where it was given)."""

    served: published.Served
    from_one: tuple[float | None, ...]
    from_two: tuple[float | None, ...]


def served_table() -> tuple[ServedCheck, ...]:
    """B200, SGLang: the speedup at c = 4 … 32 from c = 1 alone, and at c = 8 … 32 from c = 1 and 4.

    The roofline comes from the data sheet with the priors' modes. What it leaves of the measured step at c = 1 is fixed overhead;
    with c = 4 beside it, a time per request too.
    """
    return tuple(_served(row) for row in published.B200)


def _served(row: published.Served) -> ServedCheck:
    c = np.array(published.CONCURRENCY, dtype=float)
    grid = datasheet_grid(
        load_hardware("b200"), load_model(row.target), load_model(row.draft), (1, _BLOCK), published.CONCURRENCY,
        (published.SERVED_CONTEXT,), host_s=0.0,
    )  # fmt: skip
    roofline = grid.step_s[:, :, 0]
    measured = np.array([c / np.array(row.plain), c * row.tau / np.array(row.dflash)])
    rest = measured - roofline
    per_request = (rest[:, 1] - rest[:, 0]) / (c[1] - c[0])
    fixed = rest[:, 0] - per_request * c[0]
    speedup = np.array(row.dflash) / np.array(row.plain)

    def errors(step_s: Array, num_given: int) -> tuple[float | None, ...]:
        found = row.tau * step_s[0] / step_s[1] / speedup - 1
        return tuple(None if index < num_given else float(value) for index, value in enumerate(found))

    return ServedCheck(row, errors(roofline + rest[:, :1], 1), errors(roofline + fixed[:, None] + per_request[:, None] * c, 2))


def mean_error(rows: tuple[ServedCheck, ...], which: str, is_mixture: bool) -> float:
    """Mean absolute relative error over the dense or the mixture-of-experts rows."""
    values = [getattr(row, which) for row in rows if row.served.is_mixture == is_mixture]
    return float(np.mean([abs(value) for row in values for value in row if value is not None]))


@dataclass(frozen=True)
class BlockCheck:
    """A drafter trained for 16 and used at 8: τ and speedup predicted from those at 16."""

    task: str
    predicted_tau: float
    published_tau: float
    predicted_speedup: float
    published_speedup: float


def block_ablation() -> tuple[BlockCheck, ...]:
    """Paper, block ablation: τ(8) from τ(16) alone, and the speedup at 8 with the step ratio of 16 (flat in K)."""
    found = []
    for task, cells in published.ABLATION.items():
        speedup, known = cells[16, 16]
        predicted = tau(from_tau_points([(16, known)], drafting="block"), 8)
        found.append(BlockCheck(task, predicted, cells[16, 8][1], predicted * speedup / known, cells[16, 8][0]))
    return tuple(found)
