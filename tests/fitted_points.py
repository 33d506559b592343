"""Synthetic step times from known constants, for the tests of fit, steptime and flatness."""

import numpy as np

from perfmodel.hardware import load_hardware
from perfmodel.modelspec import load_model
from perfmodel.records import Hardware, Peak, StepShape, TimingPoint
from perfmodel.stepmodel import roofline_work, seconds

TARGET, DRAFT = load_model("qwen3-4b"), load_model("qwen3-4b-dflash-b16")
V5P = load_hardware("tpu-v5p")
WIDE = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
TRUE = {"memory_efficiency": 0.7, "compute_efficiency": 0.6, "exponent": 3.0, "overhead_s": 4e-4}
PARTS = {"draft_overhead_s": 3e-4, "commit_overhead_s": 2e-4}

SMALL, SMALL_DRAFT = load_model("smollm2-135m"), load_model("smollm2-135m-dflash")

CPU_MS = {1: 26, 2: 37, 8: 47, 16: 67, 32: 94, 64: 156, 128: 273, 256: 594, 1024: 3420}
"""Verify times of SmolLM2-135M in float32 measured on two cores of a server, ms."""


def machine(bandwidth=30e9, flops=130e9):
    """A micro-benchmarked two-core machine."""
    return Hardware(
        name="two-cores", display_name="Two cores", kind="cpu", source="measured",
        bandwidth_bytes_per_s=Peak(value=bandwidth, source="micro-benchmark"),
        flops_per_s={"float32": Peak(value=flops, source="micro-benchmark")},
        dispatch_s=Peak(value=1e-4, source="micro-benchmark"),
    )  # fmt: skip


def point(block_size, *samples_s, phase="verify", batch=1, context=256):
    """A timing."""
    return TimingPoint(phase=phase, block_size=block_size, batch=batch, context=context, samples_s=samples_s)


def cpu_points():
    """The measured CPU curve, five repeats within a per cent."""
    return [point(k, *(ms / 1e3 * f for f in (0.99, 0.995, 1.0, 1.005, 1.01))) for k, ms in CPU_MS.items()]


def made(
    values, phases=("verify",), blocks=WIDE, batches=(1,), contexts=(256,), noise=0.0, repeats=1, seed=0, target=TARGET,
    draft=DRAFT, hardware=V5P, dtype="bfloat16",
):  # fmt: skip
    """Points of a grid under known constants, each repeat with its own log-normal noise."""
    rng = np.random.default_rng(seed)
    shapes = [
        StepShape(phase=phase, batch=batch, query_tokens=block, context=context)
        for phase in phases
        for batch in batches
        for context in contexts
        for block in blocks
        if phase == "verify" or block > 1
    ]
    times = seconds(values, roofline_work(shapes, target, draft, dtype), hardware, dtype)
    return [
        point(
            shape.query_tokens, *(time * np.exp(rng.normal(0, noise, repeats))), phase=shape.phase, batch=shape.batch,
            context=shape.context,
        )
        for shape, time in zip(shapes, times, strict=True)
    ]  # fmt: skip
