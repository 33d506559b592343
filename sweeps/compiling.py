"""The TPU compiler's table of a pair: every chip, phase, block size, batch and context compiled, priced and held against the floor."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from perfmodel.compiled import CLOCKS, Calibration, calibrate, device_of, flat_width
from perfmodel.cost import step_cost
from perfmodel.errors import InputError
from perfmodel.hardware import load_hardware
from perfmodel.phases import COMMIT, DRAFT, STEP_PHASES, VERIFY
from perfmodel.records import CompiledSet, CompiledStep, Finding, Hardware, ModelSpec, StepCost, StepShape
from perfmodel.roofline import floor
from perfmodel.units import format_bytes, format_ratio
from profiling.compile import CompiledProgram, ProgramReference, compile_many
from profiling.compile_topology import Topology, find_topology
from profiling.hlo import parse_module
from profiling.hlo_account import Account, account, account_of_turn

from .step_programs import FACTORY, LOOP, PROGRAMS, SOURCES, STEP

TOLERANCES = (0.05, 0.10, 0.25)

Report = Callable[[float, str], object]
"""Told how far along the work is, 0 … 1, and which point was done last."""

Keep = Callable[[CompiledSet], object]
"""Given what there is of a table."""


@dataclass(frozen=True)
class Point:
    """One program to compile."""

    topology: Topology
    hardware: Hardware
    target: ModelSpec
    draft: ModelSpec | None
    phase: str
    block_size: int
    batch: int
    context: int
    dtype: str

    @property
    def label(self) -> str:
        """The point in a few words."""
        return f"{self.topology.name} {self.phase} K={self.block_size}"

    def reference(self) -> ProgramReference:
        """What the compiling process makes the program from."""
        arguments = {
            "phase": self.phase,
            "target": msgspec.to_builtins(self.target),
            "draft": None if self.draft is None else msgspec.to_builtins(self.draft),
            "block_size": self.block_size,
            "batch": self.batch,
            "context": self.context,
            "dtype": self.dtype,
        }
        return ProgramReference(FACTORY, arguments, SOURCES)


def points(
    names: Sequence[str],
    target: ModelSpec,
    draft: ModelSpec | None,
    phases: Sequence[str],
    block_sizes: Sequence[int],
    batches: Sequence[int],
    contexts: Sequence[int],
    dtype: str = "bfloat16",
) -> list[Point]:
    """All points of a table. Phases that a block size does not have (drafting at K=1, or without a drafter) are left out.

    Raises `InputError` for an unknown chip or phase, or when nothing is left.
    """
    for phase in phases:
        if phase not in PROGRAMS:
            raise InputError(f"{phase!r} is not a phase that is compiled", f"one of {', '.join(PROGRAMS)}")
    found = []
    for name in names:
        topology = find_topology(name)
        hardware = load_hardware(topology.chip)
        for context in contexts:
            for batch in batches:
                for block_size in block_sizes:
                    for phase in phases:
                        if _exists(phase, block_size, draft):
                            found.append(Point(topology, hardware, target, draft, phase, block_size, batch, context, dtype))
    if not found:
        raise InputError(
            "nothing to compile: none of the phases exists at these block sizes", "draft and commit need a drafter and K > 1"
        )
    return found


def compile_table(
    wanted: Sequence[Point],
    jobs: int | None = None,
    report: Report = lambda share, message: None,
    keep: Keep = lambda so_far: None,
) -> CompiledSet:
    """All points compiled, those already on disk at once; `keep` is given the table so far after each of them.

    Raises `UnsupportedError` where there is no compiler.
    """
    ready: dict[int, CompiledStep] = {}

    def table() -> CompiledSet:
        rows = tuple(ready[place] for place in sorted(ready))
        return CompiledSet(rows=rows, findings=_findings(rows))

    def done(place: int, compiled: CompiledProgram) -> None:
        ready[place] = _row(wanted[place], compiled)
        keep(table())
        report(len(ready) / len(wanted), wanted[place].label)

    report(0.0, wanted[0].label)
    compile_many([(point.reference(), point.topology) for point in wanted], jobs, done)
    return table()


def _exists(phase: str, block_size: int, draft: ModelSpec | None) -> bool:
    drafts = draft is not None and block_size > 1
    if phase in (DRAFT, COMMIT):
        return drafts
    return phase == VERIFY or (phase in (STEP, LOOP) and (drafts or block_size == 1))


def _cost(point: Point) -> StepCost:
    """Work of the point; a whole step is its phases one after the other."""
    phases = STEP_PHASES if point.phase in (STEP, LOOP) else (point.phase,)
    total = StepCost(flops=0.0, weight_bytes=0.0, kv_bytes=0.0, activation_bytes=0.0)
    for phase in phases:
        if _exists(phase, point.block_size, point.draft):
            shape = StepShape(phase=phase, batch=point.batch, query_tokens=point.block_size, context=point.context)  # type: ignore[arg-type]
            total = total + step_cost(point.target, point.draft if point.block_size > 1 else None, shape, point.dtype)
    return total


def _row(point: Point, compiled: CompiledProgram) -> CompiledStep:
    machine = device_of(point.hardware, compiled.num_devices)
    device = device_of(point.hardware)
    bound = floor(_cost(point), machine, point.dtype)
    clock = CLOCKS[point.topology.chip]
    memory = None if device.memory_bytes is None else device.memory_bytes.value
    common = CompiledStep(
        hardware=point.topology.chip,
        topology=point.topology.name,
        device_kind=compiled.device_kind,
        num_devices=compiled.num_devices,
        chip_share=1.0 / point.hardware.devices_per_chip,
        target=point.target.name,
        draft=None if point.draft is None else point.draft.name,
        dtype=point.dtype,
        phase=point.phase,  # type: ignore[arg-type]
        block_size=point.block_size,
        batch=point.batch,
        context=point.context,
        estimated_s=None,
        floor_s=bound.seconds,
        hbm_bytes=None,
        flops=None,
        argument_bytes=None,
        temporary_bytes=None,
        fits=False,
        memory_floor_s=bound.memory_s,
        compute_floor_s=bound.compute_s,
        memory_bytes=memory,
        clock_hz=clock.hz,
        versions=compiled.versions,
        failure=compiled.failure,
    )
    return common if compiled.failure else _priced(common, compiled, device, clock.hz)


def _priced(row: CompiledStep, compiled: CompiledProgram, device: Hardware, clock_hz: float) -> CompiledStep:
    price = account_of_turn if row.phase == LOOP else account
    found: Account = price(parse_module(compiled.hlo), device.bandwidth_bytes_per_s.value / clock_hz)
    parts = (compiled.argument_bytes, compiled.output_bytes, compiled.temporary_bytes)
    needed = sum(part for part in parts if part is not None) - (compiled.alias_bytes or 0.0)
    return msgspec.structs.replace(
        row,
        estimated_s=found.total_cycles / clock_hz,
        hbm_bytes=found.hbm_bytes,
        flops=compiled.flops,
        argument_bytes=compiled.argument_bytes,
        temporary_bytes=compiled.temporary_bytes,
        needed_bytes=needed,
        fits=row.memory_bytes is None or needed <= row.memory_bytes,
        estimated_cycles=found.estimated_cycles,
        wait_cycles=found.wait_cycles,
        call_cycles=found.call_cycles,
        collective_bytes=found.collective_bytes,
        scopes={scope: tally.cycles for scope, tally in found.scopes.items() if tally.cycles},
        scope_bytes={scope: tally.hbm_bytes for scope, tally in found.scopes.items() if tally.hbm_bytes},
        unpriced_calls=dict(found.unpriced),
        num_open_loops=found.num_open_loops,
        lower_s=compiled.lower_s,
        compile_s=compiled.compile_s,
    )


def _findings(rows: Sequence[CompiledStep]) -> tuple[Finding, ...]:
    found = [*map(_failure, (row for row in rows if row.failure)), *_unverified_clocks(rows), *_halves(rows), *_unpriced(rows)]
    found += [*_plain(rows), *_flatness(rows)]
    calibration = calibrate(rows)
    if calibration is not None:
        found.append(_calibrated(calibration))
    return tuple(found)


def _failure(row: CompiledStep) -> Finding:
    where = f"{row.topology} {row.phase} K={row.block_size} batch {row.batch} context {row.context}"
    text = " ".join((row.failure or "").split())
    if "RESOURCE_EXHAUSTED" in text or "Ran out of memory" in text:
        needed = re.search(r"\(?([\d.]+)([KMGT])\)? exceeds available HBM \(?([\d.]+)([KMGT])", text)
        sizes = f": it needs {needed[1]} {needed[2]}iB, {needed[3]} {needed[4]}iB are there" if needed else ""
        return Finding(
            code="does-not-fit",
            severity="warning",
            message=f"{row.target} does not fit {row.hardware}'s memory ({format_bytes(row.memory_bytes)} a device){sizes}",
            hint="use more chips (a slice such as v5e:2x2), a smaller batch or context, or weights of fewer bits",
            where=where,
        )
    return Finding(
        code="does-not-compile",
        severity="error",
        message=f"the compiler refused: {text[:300]}",
        hint="try another shape",
        where=where,
    )


def _unverified_clocks(rows: Sequence[CompiledStep]) -> list[Finding]:
    chips = dict.fromkeys(row.hardware for row in rows)
    return [
        Finding(
            code="clock-derived",
            severity="info",
            message=f"the clock of {chip} is not published; {CLOCKS[chip].hz / 1e9:g} GHz is {CLOCKS[chip].source}",
            where=chip,
        )
        for chip in chips
        if not CLOCKS[chip].is_verified
    ]


def _halves(rows: Sequence[CompiledStep]) -> list[Finding]:
    chips = dict.fromkeys(row.hardware for row in rows if row.chip_share < 1.0)
    return [
        Finding(
            code="part-of-a-chip",
            severity="info",
            message=f"{chip} shows more than one device per chip: a row is one device, and so is its floor",
            where=chip,
        )
        for chip in chips
    ]


def _unpriced(rows: Sequence[CompiledStep]) -> list[Finding]:
    names = sorted({name for row in rows for name in row.unpriced_calls})
    if not names:
        return []
    return [
        Finding(
            code="unpriced",
            severity="info",
            message=f"the compiler makes no estimate for {', '.join(names)}: charged what their bytes take, a lower bound",
        )
    ]


def _plain(rows: Sequence[CompiledStep]) -> list[Finding]:
    if not any(row.block_size == 1 and row.estimated_s for row in rows):
        return []
    return [
        Finding(
            code="matrix-vector",
            severity="info",
            message="K=1 is compiled as a matrix-vector product, whose estimate is out of line with measurements",
            hint="a prediction takes plain decoding from the narrowest wider block instead",
        )
    ]


def _flatness(rows: Sequence[CompiledStep]) -> list[Finding]:
    curves: dict[tuple[str, int, int], list[CompiledStep]] = {}
    for row in rows:
        if row.phase == VERIFY and row.block_size > 1 and row.estimated_s:
            curves.setdefault((row.topology, row.batch, row.context), []).append(row)
    found = []
    for (topology, batch, context), curve in curves.items():
        curve.sort(key=lambda row: row.block_size)
        if len(curve) < 2:
            continue
        first, last = curve[0], curve[-1]
        widths = ", ".join(f"{tolerance:.0%} up to K={flat_width(curve, tolerance)}" for tolerance in TOLERANCES)
        ratio = (last.estimated_s or 0.0) / (first.estimated_s or 1.0)
        found.append(
            Finding(
                code="flatness",
                severity="info",
                message=f"verify against K={first.block_size}: within {widths}; K={last.block_size} takes {format_ratio(ratio)}",
                where=f"{topology} batch {batch} context {context}",
            )
        )
    return found


def _calibrated(calibration: Calibration) -> Finding:
    return Finding(
        code="calibration",
        severity="info",
        message=(
            f"held against {len(calibration.points)} published measurements the estimates are off by {calibration.error_before:.0%} in "
            f"the mean, and by {calibration.error_after:.0%} with a factor ({_factors(calibration)}) taken from the other points"
        ),
    )


def _factors(calibration: Calibration) -> str:
    return ", ".join(f"{chip} {factor:.2f}" for chip, factor in calibration.factors.items())
