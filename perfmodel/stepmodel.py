"""The law of step time: what a phase takes, given its work and a handful of constants.

    T = ratio · (memory^p + compute^p)^(1/p) + overhead + batch_overhead · batch
    memory  = (bytes + (c - 1) · cached bytes) / (η_m β)
    compute = (FLOP + (s - 1) · attention FLOP) / (η_c π)

β and π are the chip's peaks; η are efficiencies in (0, 1]; p says how well the two overlap; overheads are launch and host time
that no peak explains. `ratio` is 1 except for a phase that the data show to run off the common curve; s says how much
dearer a FLOP is in attention than in a weight matrix; c how often cached keys and values really cross the bus (copied, or
expanded for grouped heads). A step of a single token may take another code path (matrix-vector products): then its time is
`kernel` times the curve's.

Matrix units work in tiles: where the times show it, tokens count as rounded up to `tile_tokens`. On several chips every
all-reduce adds its fixed time and the time of its bytes.

Without a model's dimensions bytes and FLOP are unknown, and the dense law takes their place, constants free:
memory = plateau + cached_token · cached tokens, compute = token · tokens; for a mixture of experts memory also has
experts · (1 - (1 - expert_share)^tokens), the part that fills as experts are touched.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from .cost import Sizes, step_costs
from .errors import InputError
from .layercost import Amount
from .parallel import Collectives, all_reduce_s, collectives
from .phases import COMMIT, DRAFT, VERIFY, Phase
from .records import FittedModel, Hardware, ModelSpec, StepShape
from .roofline import peak_flops_per_s, soft_max

ROOFLINE = "roofline"
DENSE = "dense"
EXPERTS = "experts"
"""The dense law with a second plateau that is filled as experts are touched: a mixture whose dimensions nobody gave."""

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
    "reduce_latency_s": Prior(
        5e-6, 1e-6, 2e-5, "1 µs per hop of a TPU torus (scaling-book); small all-reduces on NVLink take 5 to 20 µs"
    ),
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
    """Work of many points, arrays [points]; on several chips, the share of one.

    Roofline law: bytes but the cache's, bytes of the cache, FLOP; dense law: 1, cached tokens, tokens in the step.
    `reduces` counts all-reduces over chips, `reduce_s` is the time their bytes take.
    """

    memory: np.ndarray
    cached: np.ndarray
    linear: np.ndarray
    attention: np.ndarray
    batch: np.ndarray
    queries: np.ndarray
    context: np.ndarray
    phases: np.ndarray
    reduces: np.ndarray
    reduce_s: np.ndarray

    def select(self, mask: np.ndarray) -> "Work":
        """The work of some of the points."""
        return Work(**{name: getattr(self, name)[mask] for name in self.__dataclass_fields__})

    @cached_property
    def masks(self) -> dict[str, np.ndarray]:
        """Phase → which points are of it."""
        return {str(phase): self.phases == phase for phase in np.unique(self.phases)}

    @cached_property
    def tokens(self) -> np.ndarray:
        """Query tokens in the whole batch."""
        return self.batch * self.queries

    @cached_property
    def single(self) -> np.ndarray:
        """Verify steps of a single token, which may run another kernel."""
        return (self.phases == VERIFY) & (self.tokens == 1)


@dataclass(frozen=True)
class Terms:
    """The parts of a step time, s: `total = scale · soft_max(memory, compute) + overhead`."""

    memory_s: np.ndarray
    compute_s: np.ndarray
    overhead_s: np.ndarray
    total_s: np.ndarray


def roofline_work(
    shapes: Sequence[StepShape], target: ModelSpec, draft: ModelSpec | None, dtype: str, hardware: Hardware | None = None
) -> Work:
    """Bytes and FLOP of every shape; on several chips (`hardware.num_chips`) the share of one, and what adding up takes."""
    phases = np.array([shape.phase for shape in shapes])
    work = dense_work(shapes)
    columns = {name: np.zeros(len(shapes)) for name in ("memory", "cached", "linear", "attention", "reduces", "reduce_s")}
    for phase in dict.fromkeys(shape.phase for shape in shapes):
        here = phases == phase
        sizes = Sizes(work.batch[here], work.queries[here], work.context[here])
        part = phase_work(phase, sizes, target, draft, dtype, hardware)
        for name, column in columns.items():
            column[here] = getattr(part, name)
    return replace(work, **columns)


def phase_work(
    phase: Phase, sizes: Sizes, target: ModelSpec, draft: ModelSpec | None, dtype: str, hardware: Hardware | None = None
) -> Work:
    """Bytes and FLOP of one phase at all shapes of a grid at once; arrays of the grid's shape."""
    num_chips = 1 if hardware is None else hardware.num_chips
    cost = step_costs(target, draft, phase, sizes, dtype, num_chips)
    reduces, reduce_s = _reduces(phase, sizes, target, draft, dtype, hardware)
    columns = {
        "memory": cost.weight_bytes + cost.activation_bytes,
        "cached": cost.kv_bytes,
        "linear": cost.flops - cost.attention_flops,
        "attention": cost.attention_flops * _masked(phase, sizes),
        "batch": sizes.batch,
        "queries": sizes.queries,
        "context": sizes.context,
        "reduces": reduces,
        "reduce_s": reduce_s,
    }
    grid = np.broadcast_shapes(*(np.shape(column) for column in columns.values()))
    arrays = {name: np.broadcast_to(np.asarray(column, dtype=float), grid) for name, column in columns.items()}
    return Work(**arrays, phases=np.full(grid, phase))


def _reduces(
    phase: Phase, sizes: Sizes, target: ModelSpec, draft: ModelSpec | None, dtype: str, hardware: Hardware | None
) -> tuple[Amount, Amount]:
    """All-reduces of a phase over the chips, and the seconds their bytes take. A chained drafter has K - 1 passes of them."""
    if hardware is None or hardware.num_chips == 1 or phase == COMMIT:
        return 0.0, 0.0
    spec = target if phase != DRAFT or draft is None else draft
    moved = collectives(spec, sizes, dtype, hardware.num_chips)
    if phase == DRAFT and spec.drafter == "eagle3":
        one = Sizes(sizes.batch, np.ones_like(sizes.queries), sizes.context)
        per_pass = collectives(spec, one, dtype, hardware.num_chips)
        passes = sizes.queries - 1
        moved = Collectives(per_pass.count * passes, per_pass.sent_bytes * passes)
    return moved.count, all_reduce_s(moved, hardware, 0.0)


def _masked(phase: Phase, sizes: Sizes) -> Amount:
    """Query-key pairs that a plain attention computes over those a causal mask lets through.

    The floor counts visible pairs, K·s + K(K + 1)/2. A program without a causal kernel multiplies all K·(s + K) and masks half
    of the block; a drafter's block has no mask. At K far below s the two are one.
    """
    if phase != VERIFY:
        return 1.0
    return (sizes.context + sizes.queries) / (sizes.context + (sizes.queries + 1) / 2)


def dense_work(shapes: Sequence[StepShape]) -> Work:
    """The dense law's regressors: one plateau, tokens in the step, tokens in the cache."""
    batch, queries, context = (
        np.array([getattr(shape, name) for shape in shapes], dtype=float) for name in ("batch", "query_tokens", "context")
    )
    return _dense(np.array([shape.phase for shape in shapes]), Sizes(batch, queries, context))


def _dense(phases: np.ndarray, sizes: Sizes) -> Work:
    batch, queries, context = np.broadcast_arrays(sizes.batch, sizes.queries, sizes.context)
    nothing = np.zeros(batch.shape)
    return Work(
        memory=np.ones(batch.shape),
        cached=batch * context,
        linear=batch * queries,
        attention=nothing,
        batch=batch,
        queries=queries,
        context=context,
        phases=phases,
        reduces=nothing,
        reduce_s=nothing,
    )


def model_work(model: FittedModel, shapes: Sequence[StepShape]) -> Work:
    """The work of shapes as a fitted model sees it."""
    if model.form != ROOFLINE or model.target is None:
        return dense_work(shapes)
    return roofline_work(shapes, model.target, model.draft, model.dtype, model.hardware)


def model_grid_work(model: FittedModel, phase: Phase, sizes: Sizes) -> Work:
    """The work of one phase over a grid of shapes as a fitted model sees it; arrays of the grid's shape."""
    if model.form != ROOFLINE or model.target is None:
        grid = np.broadcast_shapes(np.shape(sizes.batch), np.shape(sizes.queries), np.shape(sizes.context))
        return _dense(np.full(grid, phase), sizes)
    return phase_work(phase, sizes, model.target, model.draft, model.dtype, model.hardware)


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
    if work.reduces.any():
        overhead = overhead + values.get("reduce_latency_s", PRIORS["reduce_latency_s"].mode) * work.reduces + work.reduce_s
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
    if "experts_s" in values:
        memory = memory + values["experts_s"] * (1.0 - (1.0 - values["expert_share"]) ** work.tokens)
    return memory, np.asarray(values["token_s"] * _tiled(values, work))


def _roofline_terms(values: Values, work: Work, hardware: Hardware | None, dtype: str) -> tuple[np.ndarray, np.ndarray]:
    if hardware is None:
        raise ValueError("the roofline law needs a chip")
    moved = work.memory + values.get("cache_slowdown", 1.0) * work.cached
    memory = moved / (values["memory_efficiency"] * hardware.bandwidth_bytes_per_s.value)
    peak = peak_flops_per_s(hardware, dtype)
    rate = values["compute_flops_per_s"] if peak is None else values["compute_efficiency"] * peak
    slowdown = values.get("attention_slowdown", 1.0)
    return memory, (_tiled(values, work) + work.attention * slowdown) / rate


def _tiled(values: Values, work: Work) -> np.ndarray:
    """FLOP of the weight matrices when tokens fill whole tiles of `tile_tokens` (1: no rounding)."""
    if "tile_tokens" not in values:
        return work.linear
    tile = values["tile_tokens"]
    return work.linear * (np.ceil(work.tokens / tile) * tile / work.tokens)


def checked(model: FittedModel, where: str) -> FittedModel:
    """The model, if it has the constants of its form with usable values. Raises `InputError` for a file that was edited."""
    needed = {"memory_efficiency", "exponent", "overhead_s"} if model.form == ROOFLINE else {"plateau_s", "token_s", "exponent"}
    missing = sorted(needed - model.parameters.keys())
    if missing:
        raise InputError(f"{where} lacks the constant {missing[0]}", "the file may be edited; fit again")
    for name, parameter in model.parameters.items():
        highest = 100.0 if name == "exponent" else 1e30
        if not 0.0 <= parameter.value < highest or (parameter.value < 1e-30 and not name.endswith("_s")):
            raise InputError(f"{where}: {name} is {parameter.value:g}", "the file may be edited; fit again")
    if any(len(draw) != len(model.parameters) for draw in model.draws):
        raise InputError(f"{where}: a draw has not one value per constant", "the file may be edited; fit again")
    return model


def values_of(model: FittedModel) -> dict[str, float]:
    """The fitted constants by name."""
    return {name: parameter.value for name, parameter in model.parameters.items()}


def draws_of(model: FittedModel) -> dict[str, np.ndarray]:
    """The bootstrap draws of every constant as columns [draws, 1]; empty when the model carries none."""
    if not model.draws:
        return {}
    table = np.asarray(model.draws, dtype=float)
    return {name: table[:, [i]] for i, name in enumerate(model.parameters)}
