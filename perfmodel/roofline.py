"""The roofline: a step takes at least as long as its bytes at full bandwidth, and at least as long as its FLOP at full rate.

lower_s = max(bytes/β, FLOP/π) is the speed of light of a chip: a shorter measurement is an error of the measurement or of the
data sheet. It counts only weights and cached keys and values, because activations may stay on chip, and of those only what
exceeds a transparent cache, which may still hold the rest from the step before. Real steps sit above it:
the two times overlap imperfectly, which the p-norm (a^p + b^p)^(1/p) describes with one number, from p = 1 (one after the other)
to p → ∞ (perfect overlap). Where both times are equal is the ridge; in query tokens it is the knee, beyond which more tokens
are no longer free. Williams, Waterman, Patterson, "Roofline" (CACM 2009); scaling-book, "Rooflines".
"""

from typing import TypeVar

import numpy as np

from .cost import step_cost
from .errors import InputError
from .records import Hardware, ModelSpec, Record, StepCost, StepShape

A = TypeVar("A", float, np.ndarray)

MAX_KNEE_TOKENS = 1 << 20
"""Where the search for a knee gives up: no step verifies a million tokens."""


class Floor(Record):
    """The speed of light of one phase, s. `compute_s` is None where the chip's peak for the dtype is unknown."""

    seconds: float
    memory_s: float
    compute_s: float | None


def peak_flops_per_s(hardware: Hardware, dtype: str) -> float | None:
    """The chip's dense peak for a dtype, FLOP/s; None when nobody published it (never derived from another dtype)."""
    peak = hardware.flops_per_s.get(dtype)
    return None if peak is None else peak.value


def cached_bytes(hardware: Hardware) -> float:
    """Bytes that a transparent cache (a CPU's last level, a GPU's L2) may keep from one step to the next, B.

    A TPU's on-chip memory is scratch space that a program fills anew each time it runs, so nothing stays there.
    """
    return 0.0 if hardware.kind == "tpu" or hardware.on_chip_bytes is None else hardware.on_chip_bytes.value


def floor(cost: StepCost, hardware: Hardware, dtype: str) -> Floor:
    """The least time the work can take on one chip, s, with its memory and compute parts.

    What a cache may have kept need not cross the bus again: only bytes beyond `cached_bytes` count.
    With no peak for the dtype the bound is bandwidth alone and `compute_s` is None; callers must say so.
    """
    memory_s = max(cost.floor_bytes - cached_bytes(hardware), 0.0) / hardware.bandwidth_bytes_per_s.value
    peak = peak_flops_per_s(hardware, dtype)
    compute_s = None if peak is None else cost.flops / peak
    return Floor(seconds=max(memory_s, compute_s or 0.0), memory_s=memory_s, compute_s=compute_s)


def floor_s(cost: StepCost, hardware: Hardware, dtype: str) -> float:
    """The least time the work can take on one chip, s: max(bytes/β, FLOP/π), or bytes/β where π is unknown; see `floor`."""
    return floor(cost, hardware, dtype).seconds


def soft_max(memory_s: A, compute_s: A, exponent: float | np.ndarray) -> A:
    """The p-norm (a^p + b^p)^(1/p) of two times, s: max(a, b) ≤ result ≤ a + b for p ≥ 1."""
    larger = np.maximum(memory_s, compute_s)
    smaller = np.minimum(memory_s, compute_s)
    # Factoring the larger out keeps (b/a)^p in [0, 1], so high exponents neither overflow nor underflow. Powers as exp and log
    # take a third of the time, which shows on grids of a hundred thousand shapes.
    tiny = np.finfo(float).tiny
    powered = np.exp(exponent * np.log(np.maximum(smaller, tiny) / np.maximum(larger, tiny)))
    return larger * np.exp(np.log1p(powered) / exponent)


def ridge_point(hardware: Hardware, dtype: str) -> float:
    """Arithmetic intensity at which the chip turns from memory- to compute-bound, FLOP/B. Raises `InputError` without a peak."""
    peak = peak_flops_per_s(hardware, dtype)
    if peak is None:
        raise InputError(
            f"{hardware.name} has no known {dtype} peak, so no ridge point", "use a dtype the chip's data sheet lists"
        )
    return peak / hardware.bandwidth_bytes_per_s.value


def knee_tokens(
    target: ModelSpec,
    hardware: Hardware,
    dtype: str,
    batch: int = 1,
    context: int = 0,
    memory_efficiency: float = 1.0,
    compute_efficiency: float = 1.0,
) -> int | None:
    """Smallest verify width K at which compute takes at least as long as memory; None when no width does.

    For a dense model without cache it is about π/β · bytes per weight / 2 · efficiency ratio, over batch (scaling-book).
    """
    peak = peak_flops_per_s(hardware, dtype)
    if peak is None:
        raise InputError(f"{hardware.name} has no known {dtype} peak, so no knee", "use a dtype the chip's data sheet lists")
    memory_rate = hardware.bandwidth_bytes_per_s.value * memory_efficiency
    compute_rate = peak * compute_efficiency

    def compute_bound(block_size: int) -> bool:
        shape = StepShape(phase="verify", batch=batch, query_tokens=block_size, context=context)
        cost = step_cost(target, None, shape, dtype, hardware.num_chips)
        return cost.flops / compute_rate >= cost.floor_bytes / memory_rate

    high = 1
    while not compute_bound(high):
        high *= 2
        if high * batch > MAX_KNEE_TOKENS:
            return None
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if compute_bound(middle) else (middle, high)
    return high
