"""The law of step time: what a phase takes, given its work and a handful of constants.

    T = ratio · (memory^p + compute^p)^(1/p) + overhead + batch_overhead · batch
    memory  = (bytes + (c - 1) · cached bytes) / (η_m β)
    compute = (FLOP + (s - 1) · attention FLOP) / (η_c π)

β and π are the chip's peaks; η are efficiencies in (0, 1]; p says how well the two overlap; overheads are launch and host time
that no peak explains. `ratio` is 1 except for a phase that the data show to run off the common curve; s says how much
dearer a FLOP is in attention than in a weight matrix; c how often cached keys and values really cross the bus (copied, or
expanded for grouped heads). A step of a single token may take another code path (matrix-vector products): then its time is
`kernel` times the curve's.

Without a model's dimensions bytes and FLOP are unknown, and the dense law takes their place, constants free:
memory = plateau + cached_token · cached tokens, compute = token · tokens.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from .cost import step_cost
from .phases import VERIFY
from .records import FittedModel, Hardware, ModelSpec, StepShape
from .records.prediction import Bound
from .roofline import peak_flops_per_s, soft_max

ROOFLINE = "roofline"
DENSE = "dense"

Values = Mapping[str, "float | np.ndarray"]
"""Constants by name: numbers, or columns [draws, 1] that broadcast against points."""


@dataclass(frozen=True)
class Prior:
    """What is believed of a constant before any measurement: mode and range of a triangular law, and where it comes from."""

    mode: float
    low: float
    high: float
    source: str

    def sample(self, rng: np.random.Generator, num: int) -> np.ndarray:
        """`num` draws, in the constant's own unit."""
        return rng.triangular(self.low, self.mode, self.high, num) if self.high > self.low else np.full(num, self.mode)


_GEMM = "our fits to published GEMM tables (A100, H200, L40S, weights above twice the L2)"

PRIORS: dict[str, Prior] = {
    "memory_efficiency": Prior(0.75, 0.50, 0.88, f"{_GEMM} give 0.80 to 0.86; whole steps reach less"),
    "compute_efficiency": Prior(0.65, 0.40, 0.90, f"{_GEMM} give 0.76 to 0.91; whole steps reach less"),
    "exponent": Prior(2.5, 1.5, 5.0, f"{_GEMM} give 1.7 to 4.3"),
    "overhead_s": Prior(1e-4, 0.0, 1e-3, "one compiled launch per phase; published traces of such loops"),
    "draft_overhead_s": Prior(5e-5, 0.0, 5e-4, "one compiled launch per phase; published traces of such loops"),
    "commit_overhead_s": Prior(5e-5, 0.0, 5e-4, "one compiled launch per phase; published traces of such loops"),
    "host_s": Prior(9e-4, 4e-4, 2e-3, "one host round trip per step in the DFlash TPU port takes 0.4 to 2 ms"),
    "drafting_host_s": Prior(
        1e-3,
        0.0,
        5e-3,
        "published speculative steps beyond their device time and a plain step's host time: H200, TPU v4, v5p, B200",
    ),
}
"""Beliefs used where no measurement speaks, always labelled as such."""


@dataclass(frozen=True)
class Work:
    """Work of many points, arrays [points].

    Roofline law: bytes but the cache's, bytes of the cache, FLOP; dense law: 1, cached tokens, tokens in the step.
    """

    memory: np.ndarray
    cached: np.ndarray
    linear: np.ndarray
    attention: np.ndarray
    batch: np.ndarray
    context: np.ndarray
    phases: np.ndarray
    single: np.ndarray

    def select(self, mask: np.ndarray) -> "Work":
        """The work of some of the points."""
        return Work(**{name: getattr(self, name)[mask] for name in self.__dataclass_fields__})

    @cached_property
    def masks(self) -> dict[str, np.ndarray]:
        """Phase → which points are of it."""
        return {str(phase): self.phases == phase for phase in np.unique(self.phases)}


@dataclass(frozen=True)
class Terms:
    """The parts of a step time, s: `total = scale · soft_max(memory, compute) + overhead`."""

    memory_s: np.ndarray
    compute_s: np.ndarray
    overhead_s: np.ndarray
    total_s: np.ndarray


def roofline_work(shapes: Sequence[StepShape], target: ModelSpec, draft: ModelSpec | None, dtype: str) -> Work:
    """Bytes and FLOP of every shape."""
    costs = [step_cost(target, draft, shape, dtype) for shape in shapes]
    return _work(
        shapes,
        memory=[cost.weight_bytes + cost.activation_bytes for cost in costs],
        cached=[cost.kv_bytes for cost in costs],
        linear=[cost.flops - cost.attention_flops for cost in costs],
        attention=[cost.attention_flops * _masked(shape) for cost, shape in zip(costs, shapes, strict=True)],
    )


def _masked(shape: StepShape) -> float:
    """Query-key pairs that a plain attention computes over those a causal mask lets through.

    The floor counts visible pairs, K·s + K(K + 1)/2. A program without a causal kernel multiplies all K·(s + K) and masks half
    of the block; a drafter's block has no mask. At K far below s the two are one.
    """
    if shape.phase != VERIFY:
        return 1.0
    return (shape.context + shape.query_tokens) / (shape.context + (shape.query_tokens + 1) / 2)


def dense_work(shapes: Sequence[StepShape]) -> Work:
    """The dense law's regressors: one plateau, tokens in the step, tokens in the cache."""
    return _work(
        shapes,
        memory=[1.0] * len(shapes),
        cached=[float(shape.batch * shape.context) for shape in shapes],
        linear=[float(shape.tokens) for shape in shapes],
        attention=[0.0] * len(shapes),
    )


def model_work(model: FittedModel, shapes: Sequence[StepShape]) -> Work:
    """The work of shapes as a fitted model sees it."""
    if model.form == DENSE or model.target is None:
        return dense_work(shapes)
    return roofline_work(shapes, model.target, model.draft, model.dtype)


def _work(shapes: Sequence[StepShape], **columns: list[float]) -> Work:
    return Work(
        **{name: np.asarray(column, dtype=float) for name, column in columns.items()},
        batch=np.array([shape.batch for shape in shapes], dtype=float),
        context=np.array([shape.context for shape in shapes], dtype=float),
        phases=np.array([shape.phase for shape in shapes]),
        single=np.array([shape.phase == VERIFY and shape.tokens == 1 for shape in shapes]),
    )


def terms(values: Values, work: Work, hardware: Hardware | None, dtype: str) -> Terms:
    """The step time of every point and its parts, s, under given constants; [points], or [draws, points] for columns.

    A law with `plateau_s` among its constants is dense; every other needs the chip's peaks.
    """
    is_dense = "plateau_s" in values
    memory_s, compute_s = _dense_terms(values, work) if is_dense else _roofline_terms(values, work, hardware, dtype)
    for phase, here in work.masks.items():
        if f"{phase}_compute_ratio" in values:
            compute_s = np.where(here, values[f"{phase}_compute_ratio"] * compute_s, compute_s)
    curve = soft_max(memory_s, compute_s, values["exponent"])
    ratio = np.ones_like(curve)
    overhead = np.zeros_like(curve)
    for phase, here in work.masks.items():
        if f"{phase}_ratio" in values:
            ratio = np.where(here, values[f"{phase}_ratio"], ratio)
        launch = values.get(f"{phase}_overhead_s", values.get("overhead_s", 0.0))
        overhead = np.where(here, launch, overhead)
    overhead = overhead + values.get("batch_overhead_s", 0.0) * work.batch
    kernel = np.where(work.single, values.get("kernel", 1.0), 1.0)
    return Terms(
        memory_s=memory_s * ratio * kernel,
        compute_s=compute_s * ratio * kernel,
        overhead_s=overhead * kernel,
        total_s=(curve * ratio + overhead) * kernel,
    )


def seconds(values: Values, work: Work, hardware: Hardware | None, dtype: str) -> np.ndarray:
    """The step time of every point, s."""
    return terms(values, work, hardware, dtype).total_s


def _dense_terms(values: Values, work: Work) -> tuple[np.ndarray, np.ndarray]:
    memory = values["plateau_s"] * work.memory + values.get("cached_token_s", 0.0) * work.cached
    return memory, np.asarray(values["token_s"] * work.linear)


def _roofline_terms(values: Values, work: Work, hardware: Hardware | None, dtype: str) -> tuple[np.ndarray, np.ndarray]:
    if hardware is None:
        raise ValueError("the roofline law needs a chip")
    moved = work.memory + values.get("cache_slowdown", 1.0) * work.cached
    memory = moved / (values["memory_efficiency"] * hardware.bandwidth_bytes_per_s.value)
    peak = peak_flops_per_s(hardware, dtype)
    rate = values["compute_flops_per_s"] if peak is None else values["compute_efficiency"] * peak
    slowdown = values.get("attention_slowdown", 1.0)
    return memory, (work.linear + work.attention * slowdown) / rate


def values_of(model: FittedModel) -> dict[str, float]:
    """The fitted constants by name."""
    return {name: parameter.value for name, parameter in model.parameters.items()}


def draws_of(model: FittedModel) -> dict[str, np.ndarray]:
    """The bootstrap draws of every constant as columns [draws, 1]; empty when the model carries none."""
    if not model.draws:
        return {}
    table = np.asarray(model.draws, dtype=float)
    return {name: table[:, [i]] for i, name in enumerate(model.parameters)}


def bounds_of(
    values: Values, work: Work, shapes: Sequence[StepShape], target: ModelSpec | None, hardware: Hardware | None, dtype: str
) -> tuple[Bound, ...]:
    """What holds each step back: the largest of overhead, compute and memory, memory split into weights, experts and cache."""
    parts = terms(values, work, hardware, dtype)
    found: list[Bound] = []
    for i, shape in enumerate(shapes):
        if work.single[i] and "kernel" in values:
            found.append("kernel")
        elif parts.overhead_s[i] >= max(parts.memory_s[i], parts.compute_s[i]):
            found.append("overhead")
        elif parts.compute_s[i] >= parts.memory_s[i]:
            found.append("compute")
        else:
            found.append(_memory_bound(shape, target, dtype))
    return tuple(found)


def _memory_bound(shape: StepShape, target: ModelSpec | None, dtype: str) -> Bound:
    """Which bytes dominate: cached keys and values, routed experts, or the weights every step reads."""
    if target is None:
        return "memory"
    cost = step_cost(target, None, shape, dtype)
    weights = cost.weight_bytes - cost.expert_bytes
    if cost.kv_bytes > weights and cost.kv_bytes > cost.expert_bytes:
        return "kv"
    return "experts" if cost.expert_bytes > weights else "memory"
