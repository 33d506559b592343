"""Which constant of the cost model would have to change, and by how much, before another K wins.

A recommendation rests on constants that a fit knows to some per cent and a data sheet not at all. Each is scaled in turn, up and
down, until the best K leaves its plateau; the factor found says how much error in that constant the answer survives. A
constant that flips nothing within a factor of four is left out.
"""

from collections.abc import Callable

import numpy as np

from .cost import Sizes
from .phases import COMMIT, DRAFT, VERIFY
from .records import FittedModel, Hardware, ModelSpec
from .stepmodel import DENSE, PRIORS, Values, model_grid_work, phase_work, seconds, values_of
from .steptime import prior_values
from .survival import Array, Mask, Whole

Law = Callable[[Values], Array]
"""Constants (numbers, or columns [factors, 1]) → seconds of a whole step, [K] or [factors, K]."""

_FACTORS = np.geomspace(1.0, 4.0, 141)[1:]
_CHOSEN = ("tile_tokens",)  # picked from a list, not scaled
_LIMITS = {"memory_efficiency": (0.0, 1.0), "compute_efficiency": (0.0, 1.0), "exponent": (1.0, np.inf)}


def fitted_law(
    model: FittedModel, block_sizes: Whole, batch: int, context: int, host_s: float = 0.0
) -> tuple[Law, dict[str, float]]:
    """The whole step of a fitted model as a function of its constants, and their values."""
    sizes, plain = _sizes(block_sizes, batch, context)
    phases = [VERIFY] if model.draft is None or model.form == DENSE else [VERIFY, DRAFT, COMMIT]
    works = {phase: model_grid_work(model, phase, sizes) for phase in phases}

    def law(values: Values) -> Array:
        parts = {phase: seconds(values, work, model.hardware, model.dtype) for phase, work in works.items()}
        drafting = sum(part for phase, part in parts.items() if phase != VERIFY)
        return np.asarray(parts[VERIFY] + np.where(plain, 0.0, drafting) + host_s)

    return law, values_of(model)


def datasheet_law(
    hardware: Hardware, target: ModelSpec, draft: ModelSpec, block_sizes: Whole, batch: int, context: int, dtype: str
) -> tuple[Law, dict[str, float]]:
    """The whole step on a chip known by its data sheet as a function of the priors' modes, and these."""
    sizes, plain = _sizes(block_sizes, batch, context)
    works = {phase: phase_work(phase, sizes, target, draft, dtype, hardware) for phase in (VERIFY, DRAFT, COMMIT)}

    def law(values: Values) -> Array:
        parts = {phase: seconds(values, work, hardware, dtype) for phase, work in works.items()}
        more = parts[DRAFT] + parts[COMMIT] + values["drafting_host_s"]
        return np.asarray(parts[VERIFY] + values["host_s"] + np.where(plain, 0.0, more))

    return law, prior_values() | {name: PRIORS[name].mode for name in ("host_s", "drafting_host_s")}


def _sizes(block_sizes: Whole, batch: int, context: int) -> tuple[Sizes, Mask]:
    blocks = np.asarray(block_sizes, dtype=np.float64)
    return Sizes(np.array([float(batch)]), blocks, np.array([float(context)])), blocks == 1


def constant_flips(
    law: Law, values: dict[str, float], block_sizes: Whole, tau: Array, eligible: Mask, plateau: tuple[int, int]
) -> dict[str, float]:
    """`<constant>_factor_up`, `…_down`: the factor at which the best K leaves the plateau, and `…_winner_…`, the K that wins then.

    Efficiencies stay in (0, 1], the exponent at 1 or above.
    """
    found: dict[str, float] = {}
    chosen = np.flatnonzero(eligible)
    outside = (block_sizes[chosen] < plateau[0]) | (block_sizes[chosen] > plateau[1])
    if not outside.any():
        return found
    for name, value in values.items():
        if value == 0.0 or name in _CHOSEN:
            continue
        low, high = _LIMITS.get(name, (0.0, np.inf))
        for way, factors in (("up", _FACTORS), ("down", 1.0 / _FACTORS)):
            usable = factors[(value * factors >= low) & (value * factors <= high)]
            if not usable.size:
                continue
            # a constant that touches no phase here (a drafter's, say) leaves the law without the axis of factors
            step_s = np.broadcast_to(law(values | {name: value * usable[:, None]}), (len(usable), len(block_sizes)))
            winners = np.argmax(tau[chosen] / step_s[:, chosen], axis=1)
            flips = np.flatnonzero(outside[winners])
            if flips.size:
                found[f"{name}_factor_{way}"] = float(usable[flips[0]])
                found[f"{name}_winner_{way}"] = float(block_sizes[chosen][winners[flips[0]]])
    return found
