"""What a sweep will do, settled and said before it begins."""

import difflib
from pathlib import Path

from decoding.prompts import TASKS, read_prompts
from perfmodel.errors import InputError
from perfmodel.hardware import load_hardware
from perfmodel.records import RunSpec
from perfmodel.units import format_seconds

from .grid import DEFAULT_BUDGET, QUICK_BUDGET, Budget, block_sizes
from .pairs import CHECKPOINT, OWN_DRAFT, check_name, weights_findings

NUM_PROMPTS = 12
MAX_NEW_TOKENS = 96
QUICK_NUM_PROMPTS = 6
QUICK_MAX_NEW_TOKENS = 48


def make_spec(
    *,
    maximum: int,
    points: tuple[int, ...] | None,
    target: str,
    draft: str | None,
    tasks: tuple[str, ...],
    prompts: Path | None,
    batches: tuple[int, ...],
    contexts: tuple[int, ...],
    dtype: str,
    repeats: int,
    hardware: tuple[str, ...],
    quick: bool,
    weights: str = CHECKPOINT,
) -> RunSpec:
    """The spec of a sweep, every name in it checked. Raises `InputError` before anything has run."""
    for task in tasks:
        if task not in TASKS:
            near = difflib.get_close_matches(task, TASKS, n=1)
            raise InputError(f"no task named {task!r}", f"did you mean {near[0]}?" if near else f"tasks: {', '.join(TASKS)}")
    if not tasks:
        raise InputError("--task is empty", f"tasks: {', '.join(TASKS)}")
    return RunSpec(
        target=check_name(target, "target", weights),
        draft=check_name(_own_draft(target) if draft is None else draft, "draft", weights),
        tasks=tasks if prompts is None else tasks_of(prompts, tasks),
        block_sizes=tuple(sorted({1, *points})) if points else block_sizes(maximum),
        batches=batches,
        contexts=contexts,
        dtype=dtype,
        max_new_tokens=QUICK_MAX_NEW_TOKENS if quick else MAX_NEW_TOKENS,
        num_prompts=QUICK_NUM_PROMPTS if quick else NUM_PROMPTS,
        repeats=repeats,
        hardware=tuple(load_hardware(name).name for name in hardware),
        quick=quick,
        prompts_file=None if prompts is None else str(prompts.resolve()),
        weights=weights,
    )


def tasks_of(prompts: Path, asked: tuple[str, ...]) -> tuple[str, ...]:
    """The asked tasks that the file has prompts for. Rows that do not say their family belong to the one task asked for."""
    families = {prompt.task for prompt in read_prompts(prompts)}
    if None in families and len(asked) > 1:
        raise InputError(
            f"{prompts} holds rows that do not say whether they are {', '.join(TASKS)}", "say it, for example --task chat"
        )
    found = tuple(task for task in asked if task in families or None in families)
    if not found:
        raise InputError(f"{prompts} holds no prompts for {', '.join(asked)}", f"it has {', '.join(sorted(map(str, families)))}")
    return found


def _own_draft(target: str) -> str:
    if target not in OWN_DRAFT:
        raise InputError(f"no drafter ships for {target}", "give its folder with --draft")
    return OWN_DRAFT[target]


def budget(spec: RunSpec) -> Budget:
    """How long each part of the sweep may take."""
    return QUICK_BUDGET if spec.quick else DEFAULT_BUDGET


def describe(spec: RunSpec, folder: Path) -> str:
    """What will run and how long it will take, as text for a terminal."""
    limits = budget(spec)
    sizes = ", ".join(map(str, spec.block_sizes))
    lines = [
        f"perf sweep-k: {spec.target} + {spec.draft}, {spec.dtype}",
        f"  step times  draft, verify, commit at K = {sizes}",
        f"              batch {', '.join(map(str, spec.batches))}; context {', '.join(map(str, spec.contexts))}"
        f"   (about {format_seconds(limits.step_times_s)})",
        f"  decoding    {', '.join(spec.tasks)}: {spec.num_prompts} prompts each, up to {spec.max_new_tokens} new tokens,"
        f" under XProf capture   (about {format_seconds(limits.decode_s)})",
        f"  check       the predicted best K and its neighbours, run again   (about {format_seconds(limits.check_s)})",
        f"  also for    {', '.join(spec.hardware) if spec.hardware else 'no other chip'} (datasheet predictions)",
        f"  in all      about {format_seconds(limits.total_s)} on two CPU cores; results in {folder}",
    ]
    lines[1:1] = [f"  WARNING: {finding.message}" for finding in weights_findings(spec.weights)]
    if spec.quick:
        lines.insert(1, "  quick: a tiny synthetic pair, to see the tool work; its figures are not results")
    return "\n".join(lines)
