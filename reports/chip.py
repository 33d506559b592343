"""What is known of the chip and the pair, and the floors that follow: the least time each phase can take."""

from collections.abc import Sequence
from dataclasses import dataclass

from perfmodel.cost import DTYPE_BYTES, step_cost
from perfmodel.phases import COMMIT, DRAFT, Phase
from perfmodel.records import Hardware, ModelSpec, StepCost, StepShape
from perfmodel.roofline import Floor, floor

from .inputs import PageInputs


@dataclass(frozen=True)
class Chip:
    """The device with its peaks, the pair that ran on it, and the dtype."""

    hardware: Hardware
    target: ModelSpec
    draft: ModelSpec | None
    dtype: str

    def cost(self, phase: Phase, block_size: int, batch: int, context: int) -> StepCost | None:
        """Work of one phase; None for a phase without work (or a drafter nobody named)."""
        if self.draft is None and phase in (DRAFT, COMMIT):
            return None
        shape = StepShape(phase=phase, batch=batch, query_tokens=block_size, context=context)
        cost = step_cost(self.target, self.draft, shape, self.dtype, self.hardware.num_chips)
        return cost if cost.flops > 0 else None

    def floors(self, phase: Phase, block_sizes: Sequence[int], batch: int, context: int) -> list[tuple[int, Floor]]:
        """The floor of one phase at each block size that has work."""
        costs = [(size, self.cost(phase, size, batch, context)) for size in block_sizes]
        return [(size, floor(cost, self.hardware, self.dtype)) for size, cost in costs if cost is not None]


def chip_of(inputs: PageInputs) -> Chip | None:
    """The chip of the fitted model, else of the run; None where dimensions, peaks or the dtype's width are unknown."""
    chip = _named_chip(inputs)
    return chip if chip is not None and chip.dtype in DTYPE_BYTES else None


def _named_chip(inputs: PageInputs) -> Chip | None:
    model, run = inputs.model, inputs.run
    if model is not None and model.hardware is not None and model.target is not None:
        return Chip(model.hardware, model.target, model.draft, model.dtype)
    if run is not None and run.machine is not None and run.target is not None:
        return Chip(run.machine, run.target, run.draft, run.spec.dtype)
    return None


def grid(block_sizes: Sequence[int], num_per_doubling: int = 2) -> list[int]:
    """Block sizes for a smooth curve: all up to 16, then a geometric series, within the range given."""
    low, high = min(block_sizes), max(block_sizes)
    series, value = set(range(low, min(high, 16) + 1)) | {high}, 16.0
    while value < high:
        if value >= low:
            series.add(round(value))
        value *= 2 ** (1 / num_per_doubling)
    return sorted(series)
