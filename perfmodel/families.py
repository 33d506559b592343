"""Families of acceptance curves: what is assumed of τ(K) where only a mean length or two is known.

Two kinds of drafters, two kinds of curves. A *block* drafter (DFlash, DSpark) proposes all drafts in one pass; its conditional
acceptance drops after the first draft and then levels off or rises. A *sequential* drafter (EAGLE, a small model) feeds each draft
its own guess, so errors pile up and conditional acceptance decays, α_i = α · δ^(i−1). The published curves that ship are the
families' members; for sequential drafters two decays are learned from 84 published runs besides, which accepted at most three
and then seven drafts: one α fitted at three over-predicts seven by 5.5 % in the mean and by 14.5 % at worst. Which member is
right cannot be told from one mean length, so their spread is the interval.
"""

import numpy as np

from .catalogue import shipped
from .meanlength import geometric_shape, log_shape
from .records.acceptance import Drafting
from .survival import Array

MEAN_DECAY = 0.113
WORST_DECAY = 0.425
"""log δ / log α of a sequential drafter: one α fitted at 3 drafts (mean length 2.8) over-predicts 7 by 5.5 %, by 14.5 %."""


def decaying_shape(num_positions: int, decay: float) -> Array:
    """log S_i of α_i = α · δ^(i−1) with α = 1/e and log δ = decay · log α; a power gives every other α."""
    position = np.arange(1.0, num_positions + 1)
    return -(position + decay * position * (position - 1) / 2)


def guessed_shape(drafting: Drafting | None, num_positions: int) -> Array:
    """log S_i of the best guess: one α, or the mean decay for a drafter known to be sequential."""
    return decaying_shape(num_positions, MEAN_DECAY) if drafting == "sequential" else geometric_shape(num_positions)


def family_shapes(drafting: Drafting | None, num_positions: int) -> list[Array]:
    """log S_i of every member of a kind's family (None: of both), the best guess first."""
    shapes = [guessed_shape(drafting, num_positions)]
    known = [profile for profile in shipped().values() if len(profile.survival) > 2 and drafting in (None, profile.drafting)]
    shapes += [log_shape(np.array(profile.survival), num_positions) for profile in known]
    if drafting != "block":
        shapes += [decaying_shape(num_positions, decay) for decay in (MEAN_DECAY, WORST_DECAY)]
        shapes.append(geometric_shape(num_positions))
    return shapes
