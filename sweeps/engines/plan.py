"""What a sweep over a server will do, settled and said before it begins."""

import difflib
from pathlib import Path

from decoding.prompts import TASKS
from perfmodel.errors import InputError
from perfmodel.modelspec import load_model
from perfmodel.records import RunSpec

from ..grid import MAX_BLOCK_SIZE
from ..plan import MAX_NEW_TOKENS, NUM_PROMPTS, QUICK_MAX_NEW_TOKENS, QUICK_NUM_PROMPTS, tasks_of
from .choosing import MAX_SERVERS
from .client import parse_address
from .launch import check_command

ENGINES = ("openai",)
DEFAULT_CONCURRENCY = (1, 4, 8)
DEFAULT_WIDTH = 8
"""Candidates range up to this K where neither --max nor the drafter's config says how far."""

LAUNCH_LIMIT_S = 600.0
UNNAMED_TARGET = "served-model"
UNNAMED_DRAFT = "the-servers-own"
UNKNOWN_DTYPE = "unknown"


def make_engine_spec(
    *,
    engine: str,
    base_url: str,
    launch: str | None,
    launch_limit_s: float,
    concurrency: tuple[int, ...],
    maximum: int | None,
    points: tuple[int, ...] | None,
    target: str | None,
    draft: str | None,
    tasks: tuple[str, ...],
    prompts: Path | None,
    dtype: str | None,
    quick: bool,
) -> RunSpec:
    """The spec of a sweep over a server, every name in it checked. Raises `InputError` before anything has run."""
    if engine not in ENGINES:
        raise InputError(f"no engine named {engine!r}", f"known: {', '.join(ENGINES)}")
    for task in tasks:
        if task not in TASKS:
            near = difflib.get_close_matches(task, TASKS, n=1)
            raise InputError(f"no task named {task!r}", f"did you mean {near[0]}?" if near else f"tasks: {', '.join(TASKS)}")
    if not tasks:
        raise InputError("--task is empty", f"tasks: {', '.join(TASKS)}")
    address = parse_address(base_url)
    if launch is not None:
        check_command(launch)
    elif points or maximum:
        raise InputError("a server that runs already has one K", "give --launch to sweep over K, or leave out --points and --max")
    trained = _trained(draft)
    width = maximum or trained or DEFAULT_WIDTH
    if not 1 <= width <= MAX_BLOCK_SIZE:
        raise InputError(f"--max {width} is outside 1 … {MAX_BLOCK_SIZE}", "drafters are trained for 4 to 32")
    return RunSpec(
        target=target or UNNAMED_TARGET,
        draft=draft or UNNAMED_DRAFT,
        tasks=tasks if prompts is None else tasks_of(prompts, tasks),
        block_sizes=() if launch is None else tuple(sorted({1, *points})) if points else tuple(range(1, width + 1)),
        batches=concurrency,
        contexts=(),
        dtype=dtype or UNKNOWN_DTYPE,
        max_new_tokens=QUICK_MAX_NEW_TOKENS if quick else MAX_NEW_TOKENS,
        num_prompts=QUICK_NUM_PROMPTS if quick else NUM_PROMPTS,
        repeats=1,
        hardware=(),
        prompts_file=None if prompts is None else str(prompts.resolve()),
        engine=engine,
        base_url=str(address),
        launch=launch,
        launch_limit_s=launch_limit_s,
        choose=not points,
        trained_block_size=trained,
    )


def _trained(draft: str | None) -> int | None:
    """The drafter's own block, where `draft` is a config or a model that ships; a mere name of one tells nothing."""
    if draft is None:
        return None
    try:
        return load_model(draft).block_size
    except InputError:
        if Path(draft).exists():
            raise
        return None


def describe_engine(spec: RunSpec, folder: Path) -> str:
    """What will run, as text for a terminal."""
    sizes = ", ".join(map(str, spec.block_sizes))
    launches = f"one server for each K of {sizes}" if not spec.choose else f"up to {MAX_SERVERS} servers, K chosen among {sizes}"
    lines = [
        f"perf sweep-k: the server at {spec.base_url}",
        f"  servers     {launches if spec.launch else 'the one that runs there, at its own K; nothing is started'}",
        f"  requests    {', '.join(spec.tasks)}: {spec.num_prompts} prompts each, up to {spec.max_new_tokens} new tokens, greedy",
        f"              {', '.join(map(str, spec.batches))} in flight; /metrics before and after",
        f"  results in  {folder}",
    ]
    if spec.launch:
        lines.insert(2, f"              {spec.launch}")
    return "\n".join(lines)
