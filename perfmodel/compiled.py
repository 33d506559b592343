"""The TPU compiler's estimate as a source of step times, beside the data sheet and beside measurements, and never as one of them.

XLA schedules a program with a cost model of the chip, in cycles. That view knows what an analytical roofline does not: which matrix
product became which kernel, what is fused, what is fetched ahead. It does not know the chip's real memory system, so it is held against
the few published measurements there are: a factor per chip where there is one to compare with, else their mean.

Cycles become seconds by the clock. A matrix unit of w × w cells does 2w² FLOP per cycle, so the peak fixes the clock once the
number of units is known, and a compute-bound product gives that number: its estimate cannot beat the peak, so
clock ≤ cycles · peak / FLOP, and the clock is peak / (2w²·m) for the smallest whole m that respects the bound.

A single token is compiled as a matrix–vector product, another code path with an estimate two to four times too long against
measurements. So K=1 takes its seconds from the narrowest wider block in hand, which reads the same weights, less the bytes it does not
move; the estimate itself is only shown.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from .errors import InputError
from .phases import COMMIT, DRAFT, VERIFY
from .records import CompiledSet, CompiledStep, Hardware, Peak
from .records.prediction import Bound
from .steptime import StepSeconds

STEP = "step"


@dataclass(frozen=True)
class Clock:
    """Cycles per second, and where the number is from. `is_verified` is False for a value derived from an estimate."""

    hz: float
    is_verified: bool
    source: str


CLOCKS = {
    "tpu-v4": Clock(1.05e9, True, "peak over 8 matrix units of 128 × 128"),
    "tpu-v5e": Clock(1.5e9, True, "peak over 4 matrix units of 128 × 128"),
    "tpu-v5p": Clock(1.75e9, True, "peak over 8 matrix units of 128 × 128"),
    "tpu-v6e": Clock(1.75e9, False, "derived: a compute-bound product bounds it at 2.01 GHz, so 4 units of 256 × 256"),
    "tpu-v7x": Clock(2.2e9, False, "derived: a compute-bound product bounds it at 2.59 GHz, so 4 units of 256 × 256 per device"),
}
"""Clock by chip."""


def clock_from_matmul(cycles: float, flops: float, peak_flops_per_s: float, unit_width: int) -> float:
    """The clock in Hz that a compute-bound product's estimate implies: peak / (2w²·m) for the smallest m whose clock it allows."""
    bound = cycles * peak_flops_per_s / flops
    per_unit = peak_flops_per_s / (2.0 * unit_width**2)
    return per_unit / math.ceil(per_unit / bound)


def device_of(hardware: Hardware, num_devices: int = 1) -> Hardware:
    """The peaks of what runs a program: so many devices, each its share of a chip."""
    share = num_devices / hardware.devices_per_chip
    if share == 1.0:
        return hardware

    def scaled(peak: Peak | None) -> Peak | None:
        return None if peak is None else Peak(value=peak.value * share, source=f"{peak.source}; {share:g} of a chip")

    rates = {dtype: Peak(value=peak.value * share, source=peak.source) for dtype, peak in hardware.flops_per_s.items()}
    return msgspec.structs.replace(
        hardware,
        bandwidth_bytes_per_s=scaled(hardware.bandwidth_bytes_per_s),
        memory_bytes=scaled(hardware.memory_bytes),
        on_chip_bytes=scaled(hardware.on_chip_bytes),
        flops_per_s=rates,
    )


@dataclass(frozen=True)
class Known:
    """A published measurement that a compiled step can be held against, s; `host_s` is the part that no device phase covers."""

    hardware: str
    phase: str
    block_size: int
    measured_s: float
    host_s: float
    source: str


KNOWN = (
    Known("tpu-v5p", VERIFY, 1, 6.3e-3, 0.0, "plain decoding, Qwen3-4B, batch 1: raw standalone files, mean of nine data sets"),
    Known("tpu-v4", VERIFY, 1, 10.7e-3, 0.0, "same, v4"),
    Known("tpu-v5p", STEP, 16, 11.35e-3, 1.5e-3, "DFlash step of 10.6 to 12.1 ms, middle; 1 to 2 ms of it host time"),
    Known("tpu-v4", STEP, 16, 16.5e-3, 1.5e-3, "DFlash step, median of a phase profile; 1 to 2 ms of it host time"),
)
"""Measurements of Qwen3-4B with its DFlash drafter on one chip, published for the tpu-spec-decode harness."""


@dataclass(frozen=True)
class Compared:
    """One measurement beside the estimate before and after calibration, s, with relative errors."""

    known: Known
    estimated_s: float
    calibrated_s: float

    @property
    def error_before(self) -> float:
        """(Estimate + host) over measurement, less 1."""
        return (self.estimated_s + self.known.host_s) / self.known.measured_s - 1.0

    @property
    def error_after(self) -> float:
        """(Calibrated estimate + host) over measurement, less 1."""
        return (self.calibrated_s + self.known.host_s) / self.known.measured_s - 1.0


@dataclass(frozen=True)
class Calibration:
    """Factors on the compiler's seconds, and their spread (standard deviation of a factor's logarithm over the measurements)."""

    factors: dict[str, float]
    factor: float
    spread: float
    points: tuple[Compared, ...]

    def factor_of(self, hardware: str) -> float:
        """The chip's own factor where a measurement is known there, else the mean over chips that have one."""
        return self.factors.get(hardware, self.factor)

    @property
    def error_before(self) -> float:
        """Mean absolute relative error of the bare estimates."""
        return float(np.mean([abs(point.error_before) for point in self.points]))

    @property
    def error_after(self) -> float:
        """Mean absolute relative error, each point calibrated by the other points alone."""
        return float(np.mean([abs(point.error_after) for point in self.points]))


def plain_seconds(steps: Sequence[CompiledStep], plain: CompiledStep) -> float | None:
    """Seconds of plain decoding: the narrowest wider verify in hand, scaled by the bytes moved. None without one."""
    wider = [
        step
        for step in steps
        if step.phase == plain.phase and step.block_size > 1 and step.estimated_s and _place(step) == _place(plain)
    ]
    if not wider:
        return None
    narrowest = min(wider, key=lambda step: step.block_size)
    if not plain.hbm_bytes or not narrowest.hbm_bytes or not narrowest.estimated_s:
        return None
    return narrowest.estimated_s * min(1.0, plain.hbm_bytes / narrowest.hbm_bytes)


def calibrate(steps: Sequence[CompiledStep]) -> Calibration | None:
    """Factors between the compiler's seconds and measured ones, from the steps that a measurement is known of; None without two.

    A factor is the geometric mean of measured device time over estimate, per chip. Each point's `calibrated_s` uses the other
    points only (its chip's if there are any), so `error_after` is what the calibration is worth on a measurement it has not seen.
    """
    pairs = [(known, seconds) for known in KNOWN if (seconds := _estimate_of(steps, known)) is not None]
    if len(pairs) < 2:
        return None
    logs = [math.log((known.measured_s - known.host_s) / seconds) for known, seconds in pairs]
    points = []
    for place, (known, seconds) in enumerate(pairs):
        others = [index for index in range(len(pairs)) if index != place]
        same = [index for index in others if pairs[index][0].hardware == known.hardware]
        log = float(np.mean([logs[index] for index in same or others]))
        points.append(Compared(known, seconds, seconds * math.exp(log)))
    chips = dict.fromkeys(known.hardware for known, _ in pairs)
    factors = {
        chip: math.exp(float(np.mean([log for log, (known, _) in zip(logs, pairs, strict=True) if known.hardware == chip])))
        for chip in chips
    }
    return Calibration(factors, math.exp(float(np.mean(logs))), float(np.std(logs, ddof=1)), tuple(points))


def compiled_steps(found: CompiledSet, hardware: str, block_sizes: Sequence[int], batch: int, context: int) -> StepSeconds:
    """Seconds per step over block sizes by the compiler's account, calibrated where measurements are known, with draws of the factor.

    Between compiled block sizes seconds are interpolated; draft, verify and commit must each have been compiled. Device time only:
    the compiler knows no host. Raises `InputError` naming what is missing.
    """
    rows = [row for row in found.rows if row.hardware == hardware and (row.batch, row.context) == (batch, context)]
    blocks = np.asarray(block_sizes, dtype=np.int64)
    verify = _curve(rows, VERIFY, blocks)
    drafting = np.zeros(blocks.size)
    if np.any(blocks > 1):
        wide = blocks > 1
        drafting[wide] = _curve(rows, DRAFT, blocks[wide]) + _curve(rows, COMMIT, blocks[wide])
    calibration = calibrate(found.rows)
    factor = 1.0 if calibration is None else calibration.factor_of(hardware)
    spread = UNCALIBRATED_SPREAD if calibration is None else calibration.spread
    draws = factor * np.exp(np.random.default_rng(0).normal(0.0, spread, (NUM_DRAWS, 1)))
    return StepSeconds(
        block_sizes=blocks,
        draft_s=factor * drafting,
        verify_s=factor * verify,
        host_s=np.zeros(blocks.size),
        draft_draws=draws * drafting,
        verify_draws=draws * verify,
        host_draws=np.zeros((NUM_DRAWS, blocks.size)),
        bound=tuple(_bound(rows, int(block)) for block in blocks),
        extrapolated=blocks == 1,
        source="compiled",
    )


NUM_DRAWS = 1000

UNCALIBRATED_SPREAD = 0.3
"""Standard deviation of the logarithm of an uncalibrated estimate: what the known measurements scatter by, doubled."""


def flat_width(steps: Sequence[CompiledStep], tolerance: float) -> int | None:
    """Largest block size up to which every compiled verify is within the tolerance of the narrowest one above K=1."""
    curve = sorted((step.block_size, step.estimated_s) for step in steps if step.block_size > 1 and step.estimated_s)
    if len(curve) < 2:
        return None
    widest = curve[0][0]
    for block_size, seconds in curve:
        if seconds > (1.0 + tolerance) * curve[0][1]:
            break
        widest = block_size
    return widest


def _curve(rows: Sequence[CompiledStep], phase: str, blocks: np.ndarray) -> np.ndarray:
    """Seconds of a phase over block sizes, interpolated between the compiled ones."""
    known = {row.block_size: row for row in rows if row.phase == phase and row.estimated_s}
    seconds = {size: _seconds(rows, row) for size, row in known.items()}
    sizes = sorted(size for size, value in seconds.items() if value is not None)
    if phase != VERIFY and sizes:
        sizes = [size for size in sizes if size > 1]
    least = min(sizes, default=0)
    # Two slots are drafted much as the narrowest compiled block is: the passes read the same weights.
    low = 2 if phase != VERIFY and sizes else least
    outside = [int(block) for block in blocks if not sizes or not low <= block <= sizes[-1]]
    if outside:
        held = ", ".join(map(str, sizes)) or "none"
        raise InputError(
            f"the compiled table holds no {phase} at block size {outside[0]}; it holds {held}",
            "compile it: perf compile --phase draft,verify,commit --k 1,4,8,16",
        )
    return np.interp(blocks, sizes, [float(seconds[size] or 0.0) for size in sizes])


def _seconds(rows: Sequence[CompiledStep], row: CompiledStep) -> float | None:
    """A row's seconds; at K=1 by its own rule, None where that has nothing to go by."""
    return row.estimated_s if row.block_size > 1 else plain_seconds(rows, row)


def _estimate_of(steps: Sequence[CompiledStep], known: Known) -> float | None:
    rows = [
        step
        for step in steps
        if step.hardware == known.hardware
        and step.num_devices == 1
        and step.target == "qwen3-4b"
        and step.phase == known.phase
        and step.batch == 1
        and step.dtype == "bfloat16"
        and step.estimated_s
    ]
    exact = [step for step in rows if step.block_size == known.block_size]
    if not exact:
        return None
    return plain_seconds(rows, exact[0]) if known.block_size == 1 else exact[0].estimated_s


def _place(step: CompiledStep) -> tuple[str, int, int, str]:
    return step.topology, step.batch, step.context, step.target


def _bound(rows: Sequence[CompiledStep], block_size: int) -> Bound:
    """What holds a verify back: another kernel at K=1, arithmetic where it outlasts the bytes, else the weights."""
    if block_size == 1:
        return "kernel"
    row = min((row for row in rows if row.phase == VERIFY), key=lambda row: abs(row.block_size - block_size))
    return "compute" if (row.compute_floor_s or 0.0) >= (row.memory_floor_s or 0.0) else "memory"
