"""`perf sweep-k`: the main job."""

from pathlib import Path
from typing import Any

import click

from .options import integers, json_option, out_option, print_json, quiet_option


@click.command("sweep-k", short_help="The main job: run, capture, fit, predict, check and report, in one run folder.")
@click.option("--max", "maximum", default=1024, show_default=True, help="Largest block size K to time.")
@click.option(
    "--target", default="smollm2-135m", show_default=True, help="Target model: a shipped name or a Hugging Face folder."
)
@click.option("--draft", default=None, help="Drafter: a shipped name or a folder.  [default: the target's own]")
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
@out_option("Run folder to make.  [default: runs/<time>-<target>]")
@json_option
@quiet_option
def command(
    maximum: int,
    target: str,
    draft: str | None,
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
    out: Path | None,
    as_json: bool,
    quiet: bool,
) -> int:
    """Measure, fit and predict the best number of tokens to verify per step, and write a page about it.

    Times draft and verify steps at K = 1, 2, 4, … --max, decodes the tasks' prompts under XProf capture (checking that no token
    is lost), fits a roofline, predicts the best K per task with an interval, runs the loop again at that K to check the
    prediction, and writes everything into one folder. Under ten minutes on two CPU cores.

    \b
    Examples:
        perf sweep-k --max 1024
        perf sweep-k --quick --out quick-run
        perf sweep-k --resume --out quick-run
    """
    from perfmodel.errors import InputError
    from sweeps.plan import describe, make_spec
    from sweeps.store import RunStore

    if resume:
        if out is None:
            raise InputError("--resume needs --out", "name the run folder to finish")
        store = RunStore(out)
        spec = store.read_spec()
    else:
        sizes = integers(points, "--points") if points else None
        spec = make_spec(
            maximum=maximum,
            points=sizes,
            target="tiny" if quick else target,
            draft=draft,
            tasks=tuple(part.strip() for part in tasks.split(",") if part.strip()),
            prompts=prompts,
            batches=integers(batch, "--batch"),
            contexts=integers(context, "--context"),
            dtype=dtype,
            repeats=repeats,
            hardware=tuple(part.strip() for part in hardware.split(",") if part.strip()),
            quick=quick,
        )
        store = RunStore(out or _default_folder(spec.target))
    click.echo(describe(spec, store.folder), err=True)
    if dry_run:
        return 0
    return _run(spec, store, resume, as_json, quiet)


def _run(spec: Any, store: Any, resume: bool, as_json: bool, quiet: bool) -> int:
    from rich.console import Console

    from sweeps.document import sweep_document
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
