"""A plausible set of records for the report's tests: SmolLM2-135M and a small DFlash drafter on a two-core machine.

The numbers are made up but obey the arithmetic: speedup = τ · T(1) / T(K), committed counts follow the survival curve. Nothing
random: every call gives the same records. Step times are in `report_steps`.
"""

import typing
from datetime import UTC, datetime
from functools import cache
from typing import Any

import msgspec
from report_steps import DRAFT, HOST_S, MACHINE, SIZES, TARGET, audit, flatness, law_s, measured_s, model, step_times

from perfmodel.acceptance import from_committed
from perfmodel.phases import STEP_PHASES
from perfmodel.records import (
    AcceptanceProfile,
    AcceptanceSet,
    CheckedK,
    DecodeRun,
    Environment,
    Finding,
    KPrediction,
    KRow,
    PhaseTimes,
    PredictionSet,
    Record,
    Run,
    RunSpec,
    TraceTimings,
)
from reports.inputs import PageInputs

GENERATED_AT = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)
SURVIVAL = {
    "math": (0.78, 0.55, 0.40, 0.31, 0.24, 0.19, 0.155),
    "code": (0.62, 0.37, 0.235, 0.16, 0.115, 0.085, 0.064),
    "chat": (0.42, 0.175, 0.078, 0.037, 0.018, 0.009, 0.005),
}
ROW_SIZES = tuple(range(1, 9)) + SIZES[4:]


def tau(task: str, size: int) -> float:
    """1 + Σ S_i over the first size − 1 positions (beyond the block nothing is added)."""
    return 1.0 + sum(profile(task).survival[: size - 1])


def row(task: str, size: int) -> KRow:
    """A prediction row by the arithmetic of the main formula."""
    verify_s = law_s("verify", size)
    draft_s = law_s("draft", size) + law_s("commit", size) if size > 1 else 0.0
    step_s, plain_s = draft_s + verify_s + HOST_S, law_s("verify", 1) + HOST_S
    mean = tau(task, size)
    speedup = mean * plain_s / step_s
    half = 0.0 if size == 1 else 0.06
    return KRow(
        block_size=size,
        batch=1,
        context=256,
        draft_s=draft_s,
        verify_s=verify_s,
        host_s=HOST_S,
        tau=mean,
        tpot_s=step_s / mean,
        speedup=speedup,
        speedup_low=speedup * (1 - half),
        speedup_high=speedup * (1 + half),
        tau_low=1 + (mean - 1) * 0.93,
        tau_high=1 + (mean - 1) * 1.07,
        bound="kernel" if size == 1 else "memory" if size <= 8 else "compute",
        extrapolated=size > 512,
        in_training=size <= 8,
    )


def prediction(task: str, **changes: Any) -> KPrediction:
    """The prediction of one task on this machine."""
    rows = tuple(row(task, size) for size in ROW_SIZES)
    best = max((r for r in rows if r.in_training), key=lambda r: r.speedup or 0.0)
    near = [r.block_size for r in rows if r.in_training and (r.speedup or 0.0) >= 0.98 * (best.speedup or 0.0)]
    fields: dict[str, Any] = {
        "hardware": "this-machine",
        "target": TARGET.name,
        "draft": DRAFT.name,
        "task": task,
        "source": "measured",
        "batch": 1,
        "context": 256,
        "rows": rows,
        "best": best,
        "plateau": (min(near), max(near)),
        "worth_it": best.block_size > 1,
        "break_even_tau": (best if best.block_size > 1 else row(task, 8)).tau
        / ((best if best.block_size > 1 else row(task, 8)).speedup or 1.0),
        "ceiling": max(r.block_size * (r.speedup or 0.0) / r.tau for r in rows if r.in_training),
        "trained_block_size": 8,
    }
    return KPrediction(**{**fields, **changes})


def elsewhere() -> tuple[KPrediction, ...]:
    """Datasheet predictions of two pairs on three chips."""
    made = []
    for target, draft, gain in (("smollm2-135m", "smollm2-135m-dflash", 1.15), ("qwen3-4b", "qwen3-4b-dflash-b16", 2.6)):
        for chip, factor in (("tpu-v5p", 1.0), ("h200", 1.06), ("b200", 1.1)):
            for index, task in enumerate(("math", "code", "chat")):
                speedup = gain * factor * (1.0, 0.85, 0.62)[index]
                size = 16 if target.startswith("qwen3") else 8
                best = msgspec.structs.replace(
                    row(task, 8),
                    block_size=size,
                    speedup=speedup,
                    speedup_low=0.88 * speedup,
                    speedup_high=1.1 * speedup,
                    bound="memory",
                )
                made.append(
                    prediction(
                        task,
                        hardware=chip,
                        target=target,
                        draft=draft,
                        source="datasheet",
                        best=best if speedup > 1 else row(task, 1),
                        worth_it=speedup > 1,
                        label="datasheet prediction",
                    )
                )
    return tuple(made)


def committed(task: str, num_answers: int = 12, num_steps: int = 40) -> tuple[tuple[int, ...], ...]:
    """Committed counts that follow the survival curve: levels of a golden-ratio sequence, shifted a little per answer."""
    rows = []
    for answer in range(num_answers):
        shift = 0.12 * ((answer * 5 % num_answers) / (num_answers - 1) - 0.5)
        levels = [((97 * answer + step) * 0.6180339887498949) % 1.0 + shift for step in range(num_steps - answer * 7 % 11)]
        rows.append(tuple(1 + sum(level < share for share in SURVIVAL[task]) for level in levels))
    return tuple(rows)


@cache
def profile(task: str) -> AcceptanceProfile:
    """The acceptance of one task at block 8."""
    return from_committed(
        committed(task),
        block_size=8,
        task=task,
        target=TARGET.name,
        draft=DRAFT.name,
        trained_block_size=8,
        source="this run",
    )


def acceptance() -> AcceptanceSet:
    """The measured acceptance of three tasks."""
    return AcceptanceSet(profiles=tuple(profile(task) for task in SURVIVAL))


def trace(task: str, size: int) -> TraceTimings:
    """What a capture of one decode run says."""
    parts = {phase: measured_s(phase, size) for phase in STEP_PHASES if phase != "draft" or size > 1}
    return TraceTimings(
        device_kind="cpu",
        num_devices=1,
        steps=120,
        step_seconds_median=sum(parts.values()) + 1.4e-3,
        step_source="annotations",
        phases={name: PhaseTimes(count=120, device_s_median=None, wall_s_median=seconds) for name, seconds in parts.items()},
        busy_share=None,
        coverage=0.97,
        host_gap_s_median=HOST_S,
        timing="host",
        file=f"xprof/{task}-k{size}/plugins/profile/2026_01_02/host.xplane.pb",
    )


def run() -> Run:
    """The sweep as a whole."""
    decodes, checks = [], []
    for task in SURVIVAL:
        for size in (1, 8):
            decodes.append(
                DecodeRun(
                    task=task,
                    block_size=size,
                    batch=1,
                    prompt_tokens=(60, 71),
                    tokens=((11, 12, 13), (14, 15, 16)),
                    committed=((2,), (2,)) if size > 1 else ((1, 1), (1, 1)),
                    ttft_s=0.21,
                    compile_s=2.2,
                    decode_s=3.1,
                    step_wall_s=(0.05, 0.05),
                    trace=f"xprof/{task}-k{size}",
                )
            )
        best = prediction(task).best
        for size in sorted({2, best.block_size, 8} - {1}):
            predicted = row(task, size)
            measured = (predicted.speedup or 0.0) * 0.97
            checks.append(
                CheckedK(
                    task=task,
                    block_size=size,
                    predicted_speedup=predicted.speedup,
                    measured_speedup=measured,
                    measured_low=measured * 0.95,
                    measured_high=measured * 1.05,
                    measured_tpot_s=(predicted.tpot_s or 0.0) / 0.97,
                    predicted_tpot_s=predicted.tpot_s,
                    num_tokens=1536,
                )
            )
    return Run(
        spec=RunSpec(
            target=TARGET.name,
            draft=DRAFT.name,
            tasks=tuple(SURVIVAL),
            block_sizes=SIZES,
            batches=(1,),
            contexts=(256,),
            dtype="float32",
            max_new_tokens=128,
            num_prompts=12,
            repeats=7,
            hardware=("tpu-v5p", "h200", "b200"),
        ),
        environment=Environment(
            device_kind="cpu",
            platform="cpu",
            num_devices=1,
            host_cpu="Example CPU @ 2.90GHz",
            num_cores=2,
            versions={"jax": "0.10.2", "python": "3.11.2"},
            flags={"XLA_FLAGS": ""},
            commit=None,
            perf_version="0.1.0",
        ),
        machine=MACHINE,
        target=TARGET,
        draft=DRAFT,
        decodes=tuple(decodes),
        checks=tuple(checks),
        lossless=True,
        lossless_compared=4608,
        profiler_overhead=0.021,
        wall_s={"step_times": 171.0, "decoding": 228.0, "check": 55.0},
        findings=(
            Finding(
                code="KERNEL_AT_K1",
                severity="info",
                message="Plain decoding (K = 1) runs on a matrix-vector kernel of its own, 42 % faster than K = 2",
                hint="judge flatness from K = 2 on",
            ),
            Finding(
                code="BELOW_FLOOR",
                severity="warning",
                message="The draft step at K = 2 is faster than its weights can be read",
                hint="the point was left out of the fit",
                where="draft, K = 2",
            ),
        ),
    )


def inputs(**changes: Any) -> PageInputs:
    """All records of one page."""
    fields: dict[str, Any] = {
        "generated_at": GENERATED_AT,
        "run": run(),
        "step_times": step_times(),
        "traces": tuple(trace(task, size) for task in SURVIVAL for size in (1, 8)),
        "audit": audit(),
        "model": model(),
        "flatness": flatness(),
        "acceptance": acceptance(),
        "predictions": PredictionSet(here=tuple(prediction(task) for task in SURVIVAL), elsewhere=elsewhere()),
        "commands": ("perf sweep-k --max 1024 --out runs/example", "perf view runs/example"),
    }
    return PageInputs(**{**fields, **changes})


def poisoned(value: Any, hint: Any, poison: str) -> Any:
    """The same records with `poison` appended to every free text (fields typed as plain `str`), literals untouched."""
    if isinstance(value, str):
        return value + poison if hint is str or str in typing.get_args(hint) else value
    if isinstance(value, Record):
        hints = typing.get_type_hints(type(value))
        names = value.__struct_fields__
        return msgspec.structs.replace(value, **{name: poisoned(getattr(value, name), hints[name], poison) for name in names})
    if isinstance(value, tuple):
        inner = [arg for arg in typing.get_args(hint) if arg is not Ellipsis]
        return tuple(poisoned(item, inner[0] if inner else None, poison) for item in value)
    if isinstance(value, dict):
        inner_hint = typing.get_args(hint)[1]
        return {key: poisoned(item, inner_hint, poison) for key, item in value.items()}
    return value
