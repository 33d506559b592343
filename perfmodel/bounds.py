"""What holds a step back: launches and the host, arithmetic, or one kind of bytes.

The largest part of a step time names its bound. Memory time is split by what the bytes are: weights that every step reads
(`memory`), routed experts (`experts`), or what requests remember (`kv`). A single-token step that runs a kernel of its own is
named `kernel`.
"""

import numpy as np

from .cost import Sizes, step_costs
from .phases import VERIFY
from .records import Hardware, ModelSpec
from .stepmodel import Values, Work, terms


def bounds_of(values: Values, work: Work, target: ModelSpec | None, hardware: Hardware | None, dtype: str) -> np.ndarray:
    """The bound of every verify step, names in an array of the work's shape."""
    parts = terms(values, work, hardware, dtype)
    longest = np.maximum(parts.memory_s, parts.compute_s)
    found = np.where(parts.compute_s >= parts.memory_s, "compute", _memory_bound(work, target, dtype))
    found = np.where(parts.overhead_s >= longest, "overhead", found)
    return np.where(work.single, "kernel", found) if "kernel" in values else found


def _memory_bound(work: Work, target: ModelSpec | None, dtype: str) -> np.ndarray:
    """Which bytes dominate: what requests remember, routed experts, or the weights every step reads."""
    if target is None:
        return np.full(work.batch.shape, "memory")
    cost = step_costs(target, None, VERIFY, Sizes(work.batch, work.queries, work.context), dtype)
    weights = cost.weight_bytes - cost.expert_bytes
    bound = np.where(cost.expert_bytes > weights, "experts", "memory")
    return np.where((cost.kv_bytes > weights) & (cost.kv_bytes > cost.expert_bytes), "kv", bound)
