"""`perf sweep-k`: the main job."""

from pathlib import Path
from typing import Any

import click

from .options import (
    draft_option,
    integers,
    json_option,
    out_option,
    print_json,
    print_record,
    quiet_option,
    target_option,
    weights_option,
)


@click.command("sweep-k", short_help="The main job: run, capture, fit, predict, check and report, in one run folder.")
@click.option("--max", "maximum", default=1024, show_default=True, help="Largest block size K to time.")
@target_option
@draft_option
@weights_option
@click.option("--task", "tasks", default="math,code,chat", show_default=True, help="Tasks to decode, separated by commas.")
@click.option(
    "--prompts",
    type=click.Path(path_type=Path, dir_okay=False),
    default=None,
    help="Your own prompts (JSONL) in place of the tasks'.",
)
@click.option("--batch", default="1", show_default=True, help="Batch sizes for the step times, e.g. 1,8.")
@click.option("--context", default="256", show_default=True, help="Context lengths for the step times, e.g. 256,1024.")
@click.option(
    "--dtype", type=click.Choice(["float32", "bfloat16"]), default="float32", show_default=True, help="Weights and activations."
)
@click.option("--points", default=None, help="Block sizes to time, e.g. 1,2,4,8 or 1:16, in place of 1, 2, 4, … --max.")
@click.option(
    "--repeats", default=40, show_default=True, type=click.IntRange(3, 10_000), help="Most samples per point; three at least."
)
@click.option(
    "--hardware",
    default="tpu-v5p,tpu-v6e,h200,b200",
    show_default=True,
    help="Further chips to predict for, by datasheet; `perf list hardware` names them.",
)
@click.option("--quick", is_flag=True, help="The tiny synthetic pair: at most a minute, same files. Its figures are not results.")
@click.option("--resume", is_flag=True, help="Finish the run in --out without repeating what is done.")
@click.option("--dry-run", is_flag=True, help="Say what would run and for how long, and stop.")
@click.option(
    "--engine", default=None, help="Measure a running server instead of this loop: openai (vLLM, SGLang, TPU-inference)."
)
@click.option("--base-url", default="http://127.0.0.1:8000", show_default=True, help="Where the server listens.")
@click.option(
    "--launch",
    default=None,
    help="Command that starts a server, with {num_speculative_tokens} or {block_size} in it: one is started per K and stopped again. "
    "For plain decoding its --spec… options are left out.",
)
@click.option(
    "--launch-limit",
    default=600.0,
    show_default=True,
    type=click.FloatRange(1, 86_400),
    help="Seconds a server may take to start.",
)
@click.option("--concurrency", default="1,4,8", show_default=True, help="Requests in flight at the server, e.g. 1,4,8.")
@out_option("Run folder to make.  [default: runs/<time>-<target>]")
@json_option
@quiet_option
def command(
    maximum: int,
    target: str,
    draft: str | None,
    weights: str,
    tasks: str,
    prompts: Path | None,
    batch: str,
    context: str,
    dtype: str,
    points: str | None,
    repeats: int,
    hardware: str,
    quick: bool,
    resume: bool,
    dry_run: bool,
    engine: str | None,
    base_url: str,
    launch: str | None,
    launch_limit: float,
    concurrency: str,
    out: Path | None,
    as_json: bool,
    quiet: bool,
) -> int:
    """Measure, fit and predict the best number of tokens to verify per step, and write a page about it.

    Times draft and verify steps at K = 1, 2, 4, … --max, decodes the tasks' prompts under XProf capture (checking that no token
    is lost), fits a roofline, predicts the best K per task with an interval, runs the loop again at that K to check the
    prediction, and writes everything into one folder. Under ten minutes on two CPU cores.

    With --engine openai a server is measured instead: streamed answers at several numbers of requests in flight, its own
    counters before and after; with --launch one server per K, few of them, each chosen by what the ones before it taught. Then
    --batch, --context, --repeats, --weights and --hardware have no meaning.

    \b
    Examples:
        perf sweep-k --max 1024
        perf sweep-k --quick --out quick-run
        perf sweep-k --target qwen3-4b --weights random --dtype bfloat16
        perf sweep-k --resume --out quick-run
        perf sweep-k --engine openai --base-url http://127.0.0.1:8000
        perf sweep-k --engine openai --draft DRAFT --launch 'vllm serve TARGET
            --speculative-config {"method":"dflash","model":"DRAFT","num_speculative_tokens":{num_speculative_tokens}}'
    """
    from perfmodel.errors import InputError
    from sweeps.engines.plan import describe_engine, make_engine_spec
    from sweeps.plan import describe, make_spec
    from sweeps.store import RunStore

    if resume:
        if out is None:
            raise InputError("--resume needs --out", "name the run folder to finish")
        store = RunStore(out)
        spec = store.read_spec()
    elif engine is not None:
        _refuse(("weights", "batch", "context", "repeats", "hardware"), "is about our own loop and not about a server")
        spec = make_engine_spec(
            engine=engine,
            base_url=base_url,
            launch=launch,
            launch_limit_s=launch_limit,
            concurrency=integers(concurrency, "--concurrency"),
            maximum=_said("maximum"),
            points=integers(points, "--points") if points else None,
            target=_said("target"),
            draft=draft,
            tasks=_names(tasks),
            prompts=prompts,
            dtype=_said("dtype"),
            quick=quick,
        )
        store = RunStore(out or _default_folder(spec.target))
    else:
        _refuse(("base_url", "launch", "launch_limit", "concurrency"), "is about a server, and no --engine is named")
        spec = make_spec(
            maximum=maximum,
            points=integers(points, "--points") if points else None,
            target="tiny" if quick else target,
            draft=draft,
            tasks=_names(tasks),
            prompts=prompts,
            batches=integers(batch, "--batch"),
            contexts=integers(context, "--context"),
            dtype=dtype,
            repeats=repeats,
            hardware=_names(hardware),
            quick=quick,
            weights=weights,
        )
        store = RunStore(out or _default_folder(spec.target))
    click.echo((describe_engine if spec.engine else describe)(spec, store.folder), err=True)
    if dry_run:
        if as_json:
            print_record(spec)
        return 0
    return _run(spec, store, resume, as_json, quiet)


def _names(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _refuse(options: tuple[str, ...], why: str) -> None:
    from perfmodel.errors import InputError

    for option in options:
        if _said(option) is not None:
            raise InputError(f"--{option.replace('_', '-')} {why}", "see perf sweep-k --help")


def _said(option: str) -> Any:
    """An option's value where the user gave it; None where it is the default, which is meant for our own loop."""
    context = click.get_current_context()
    is_default = context.get_parameter_source(option) is click.core.ParameterSource.DEFAULT
    return None if is_default else context.params[option]


def _run(spec: Any, store: Any, resume: bool, as_json: bool, quiet: bool) -> int:
    from rich.console import Console

    from sweeps.document import sweep_document

    if spec.engine is not None:
        from sweeps.engines.runner import run_engine_sweep as run_sweep
    else:
        from sweeps.runner import run_sweep

    from .page import page_inputs, write_page
    from .progress import progress_bars

    try:
        with store.lock(), progress_bars(quiet) as report:
            store.begin(spec, resume)
            result = run_sweep(spec, store, report)
            inputs = page_inputs(result)
            write_page(inputs, result.report)
    except KeyboardInterrupt:
        click.echo(f"perf: stopped; what was measured is kept. To finish it: {store.resume_command}", err=True)
        raise
    if as_json:
        print_json("perf.sweep", 1, sweep_document(result))

    from reports.summary import sweep_summary

    Console(stderr=as_json).print(sweep_summary(inputs, str(result.report)))
    return 3 if result.untrusted else 0


def _default_folder(target: str) -> Path:
    from datetime import datetime

    return Path("runs") / f"{datetime.now():%Y%m%d-%H%M%S}-{Path(target).name}"
