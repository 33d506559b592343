"""Step times of the report's tests: a law with known constants, points that miss it by known errors, and what follows from them.

One point (draft at K = 2) is below its floor, one (commit at K = 1024) failed.
"""

import statistics
from functools import cache

from perfmodel import stepmodel
from perfmodel.cost import step_cost
from perfmodel.phases import STEP_PHASES, Phase
from perfmodel.records import (
    Audit,
    AuditedPoint,
    FittedModel,
    FittedPoint,
    FittedRange,
    Flatness,
    Hardware,
    ModelSpec,
    Parameter,
    Peak,
    StepShape,
    StepTimes,
    TimingPoint,
)
from perfmodel.roofline import floor_s

SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
HOST_S = 0.7e-3
WOBBLE = (0.0, 0.012, -0.008, 0.031, -0.004, 0.006, 0.052)

TARGET = ModelSpec(
    name="smollm2-135m",
    role="target",
    hidden_size=576,
    num_layers=30,
    num_heads=9,
    num_kv_heads=3,
    head_dim=64,
    intermediate_size=1536,
    vocab_size=49152,
    tied_embeddings=True,
    weight_bits=32.0,
    kv_bits=32.0,
)
DRAFT = ModelSpec(
    name="smollm2-135m-dflash",
    role="draft",
    hidden_size=576,
    num_layers=2,
    num_heads=9,
    num_kv_heads=3,
    head_dim=64,
    intermediate_size=1536,
    vocab_size=49152,
    tied_embeddings=True,
    weight_bits=32.0,
    kv_bits=32.0,
    qk_norm=True,
    drafter="dflash",
    block_size=8,
    target_layer_ids=(9, 18, 27),
    target_hidden_size=576,
    borrows_head=True,
)
MACHINE = Hardware(
    name="this-machine",
    display_name="Example CPU, 2 cores",
    kind="cpu",
    source="measured",
    bandwidth_bytes_per_s=Peak(value=23e9, source="triad over 512 MB"),
    flops_per_s={"float32": Peak(value=118e9, source="matmul 2048 cubed")},
)


CONSTANTS = {
    "memory_efficiency": 0.63,
    "compute_efficiency": 0.72,
    "exponent": 2.2,
    "overhead_s": 4.1e-4,
    "draft_overhead_s": 3.0e-4,
    "commit_overhead_s": 2.0e-4,
    "kernel": 0.70,
}
ERRORS = (0.031, -0.052, 0.020, 0.063, -0.041, 0.078, -0.020, 0.012, -0.068, 0.051, 0.024)
"""Predicted over measured, minus one, at each block size."""


@cache
def law_s(phase: Phase, size: int) -> float:
    """The step time of the law under `CONSTANTS`, s."""
    shape = StepShape(phase=phase, batch=1, query_tokens=size, context=256)
    work = stepmodel.roofline_work([shape], TARGET, DRAFT, "float32")
    return float(stepmodel.seconds(CONSTANTS, work, MACHINE, "float32")[0])


def error(phase: Phase, size: int) -> float:
    """The known error of one point; the phases take the same errors in another order."""
    return ERRORS[(SIZES.index(size) + 4 * STEP_PHASES.index(phase)) % len(ERRORS)]


def measured_s(phase: Phase, size: int) -> float:
    """What the fixture calls measured: the law off by the known error, s."""
    return law_s(phase, size) / (1 + error(phase, size))


def samples(seconds: float, num: int) -> tuple[float, ...]:
    """Samples around a median with a one-sided tail, s."""
    return tuple(seconds * (1 + WOBBLE[index]) for index in range(num))


def step_times() -> StepTimes:
    """Step times of three phases; the draft at K = 2 is impossibly fast, commit at K = 1024 failed."""
    points = []
    for phase in STEP_PHASES:
        for size in SIZES:
            num = 7 if size < 256 else 3
            if (phase, size) == ("commit", 1024):
                points.append(TimingPoint(phase="commit", block_size=size, batch=1, context=256, failure="out of memory"))
                continue
            taken = samples(0.9e-3 if (phase, size) == ("draft", 2) else measured_s(phase, size), num)
            points.append(
                TimingPoint(phase=phase, block_size=size, batch=1, context=256, samples_s=taken, compile_s=1.9, lower_s=0.4)
            )
    return StepTimes(device_kind="cpu", target=TARGET.name, draft=DRAFT.name, dtype="float32", points=tuple(points))


def limit_s(phase: Phase, size: int) -> float:
    """The floor of one phase, s."""
    shape = StepShape(phase=phase, batch=1, query_tokens=size, context=256)
    return floor_s(step_cost(TARGET, DRAFT, shape, "float32"), MACHINE, "float32")


def audit() -> Audit:
    """The verdict on every measured point."""
    audited = []
    for point in step_times().points:
        if point.samples_s:
            limit = limit_s(point.phase, point.block_size)
            bad = point.median_s < limit
            audited.append(
                AuditedPoint(
                    phase=point.phase,
                    block_size=point.block_size,
                    batch=1,
                    context=256,
                    seconds=point.median_s,
                    floor_s=limit,
                    verdict="invalid" if bad else "valid",
                    cause="faster than the weights can be read: the timer did not wait" if bad else "",
                )
            )
    return Audit(hardware="this-machine", points=tuple(audited))


def model() -> FittedModel:
    """A fitted model whose errors are small and known."""
    points = []
    for phase in STEP_PHASES:
        for index, size in enumerate(SIZES[:-1]):
            if (phase, size) == ("draft", 2):
                continue
            points.append(
                FittedPoint(
                    phase=phase,
                    block_size=size,
                    batch=1,
                    context=256,
                    measured_s=measured_s(phase, size),
                    predicted_s=law_s(phase, size),
                    error=error(phase, size),
                    held_out=index in (3, 6),
                )
            )
    fitted = [abs(p.error) for p in points if not p.held_out]
    return FittedModel(
        form="roofline",
        hardware=MACHINE,
        target=TARGET,
        draft=DRAFT,
        dtype="float32",
        parameters={
            name: Parameter(
                value=value,
                stderr=None if name == "commit_overhead_s" else 0.06 * value,
                unit="s" if name.endswith("_s") else "",
                identified=name != "commit_overhead_s",
                low=None if name == "commit_overhead_s" else 0.88 * value,
                high=None if name == "commit_overhead_s" else 1.12 * value,
                note="prior: commit is too short to tell its launch from its work" if name == "commit_overhead_s" else "",
            )
            for name, value in CONSTANTS.items()
        },
        median_error=statistics.median(fitted),
        held_out_median_error=0.04,
        fitted_range=FittedRange(tokens=(1, 512), batch=(1, 1), context=(256, 256)),
        num_points=len(points),
        num_rejected=1,
        points=tuple(points),
    )


def flatness() -> Flatness:
    """Not flat from K = 1, which has a kernel of its own; flat from K = 2 on."""
    return Flatness(
        batch=1,
        context=256,
        limit=512,
        widths={"0.05": 1, "0.10": 1, "0.25": 1},
        widths_low={"0.05": 1, "0.10": 1, "0.25": 1},
        widths_high={"0.05": 1, "0.10": 1, "0.25": 2},
        widths_from_two={"0.05": 4, "0.10": 6, "0.25": 10},
        knee_tokens=15,
        knee_low=13,
        knee_high=18,
        cause="kernel",
        kernel=0.70,
    )
