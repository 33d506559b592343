"""The best K over whole grids: chips × tasks × block sizes × batches × contexts, as arrays.

A single prediction carries intervals by draws; a map of where which K wins needs a hundred thousand cells at once and none of
that. Acceptance knows nothing of chips and step times know nothing of tasks, so a grid is an outer product: τ(task, K) over
t(chip, K, batch, context). Axes of every array are in that order: chip, task, block size, batch, context.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from .acceptance import measured_block_size, tau_curve
from .errors import InputError
from .price import usd_per_million_tokens
from .records import AcceptanceProfile
from .stepgrid import StepGrid
from .survival import Array, Mask, Whole


@dataclass(frozen=True)
class Landscape:
    """Speedups over a grid. `best` holds the best block size [chip, task, batch, context] among those in training.

    `speedup` is NaN throughout where K = 1 is not in the grid; `best` then has the least time per token. `usd_per_million_tokens`
    is NaN for a chip without a price. `in_training` and `beyond` [task, block size] say where K is within the drafter's block and
    where τ is extrapolated.
    """

    chips: tuple[str, ...]
    tasks: tuple[str, ...]
    block_sizes: Whole
    batches: Whole
    contexts: Whole
    tau: Array
    grids: tuple[StepGrid, ...]
    step_s: Array
    speedup: Array
    in_training: Mask
    beyond: Mask
    usd_per_million_tokens: Array
    best: Whole

    @property
    def num_cells(self) -> int:
        """Number of predictions in the grid."""
        return int(np.prod(self.speedup.shape))


def landscape(
    grids: Mapping[str, StepGrid],
    profiles: Sequence[AcceptanceProfile],
    trained_block_size: int | None = None,
    usd_per_hour: Mapping[str, float] | None = None,
) -> Landscape:
    """The grid of every chip's step times under every task's acceptance. Raises `InputError` for grids of unlike axes."""
    if not grids or not profiles:
        raise InputError("a grid needs at least one chip and one acceptance profile", "name them")
    first = next(iter(grids.values()))
    axes = [(grid.block_sizes.tolist(), grid.batches.tolist(), grid.contexts.tolist()) for grid in grids.values()]
    if any(other != axes[0] for other in axes):
        raise InputError("the grids of the chips have unlike axes", "use the same block sizes, batches and contexts")
    blocks = first.block_sizes
    if np.any(np.diff(blocks) <= 0):
        raise InputError("block sizes must be rising", "sort them and drop repeats")
    curves = np.array([tau_curve(profile, int(blocks[-1]))[blocks - 1] for profile in profiles])
    limits = [trained_block_size or p.trained_block_size or measured_block_size(p) for p in profiles]
    in_training = blocks[None, :] <= np.array(limits)[:, None]
    if not in_training.any(axis=1).all():
        raise InputError("no block size of the grid can be recommended", f"include K=1 or a K up to {min(limits)}")
    step_s = np.stack([grid.step_s for grid in grids.values()])
    tau = curves[None, :, :, None, None]
    rate = tau / step_s[:, None]
    speedup = tau * (step_s[:, None, :1] / step_s[:, None]) if blocks[0] == 1 else np.full(rate.shape, np.nan)
    allowed = np.where(in_training[None, :, :, None, None], rate, -np.inf)
    batches = first.batches[:, None].astype(np.float64)
    dollars = np.full(rate.shape, np.nan)
    for index, chip in enumerate(grids):
        price = (usd_per_hour or {}).get(chip)
        if price is not None:
            dollars[index] = usd_per_million_tokens(step_s[index], tau[0], batches, price)
    return Landscape(
        chips=tuple(grids),
        tasks=tuple(profile.task for profile in profiles),
        block_sizes=blocks,
        batches=first.batches,
        contexts=first.contexts,
        tau=curves,
        grids=tuple(grids.values()),
        step_s=step_s,
        speedup=speedup,
        in_training=in_training,
        beyond=blocks[None, :] > np.array([measured_block_size(profile) for profile in profiles])[:, None],
        usd_per_million_tokens=dollars,
        best=blocks[np.argmax(allowed, axis=2)],
    )
