"""`perf capture`: one decode run under XProf."""

from pathlib import Path

import click

from .options import draft_option, json_option, out_option, print_json, quiet_option, target_option, weights_option


@click.command("capture", short_help="Decode prompts once under XProf capture.")
@target_option
@draft_option
@weights_option
@click.option(
    "--dtype", type=click.Choice(["float32", "bfloat16"]), default="float32", show_default=True, help="Weights and activations."
)
@click.option(
    "-k",
    "--block-size",
    type=click.IntRange(1),
    default=None,
    help="Block size K; 1 is plain decoding.  [default: the drafter's]",
)
@click.option("--task", default="math", show_default=True, help="Task whose prompts are decoded.")
@click.option(
    "--prompts", type=click.Path(path_type=Path, dir_okay=False), default=None, help="Your own prompts (JSON or JSONL)."
)
@click.option(
    "--prompt-ids",
    type=click.Path(path_type=Path, dir_okay=False),
    default=None,
    help="Prompts as a JSON list of token-id lists.",
)
@click.option("--num-prompts", type=click.IntRange(1), default=4, show_default=True, help="How many of the task's prompts.")
@click.option("--batch", type=click.IntRange(1), default=1, show_default=True, help="Prompts decoded together.")
@click.option(
    "--max-new-tokens", type=click.IntRange(1), default=64, show_default=True, help="Limit per answer, stop token included."
)
@click.option("--no-trace", is_flag=True, help="Decode without recording.")
@click.option(
    "--dump-tokens",
    type=click.Path(path_type=Path, dir_okay=False),
    default=None,
    help="Write tokens and committed counts there.",
)
@out_option("Folder for the capture.  [default: runs/capture-<time>]")
@json_option
@quiet_option
def command(
    target: str,
    draft: str | None,
    weights: str,
    dtype: str,
    block_size: int | None,
    task: str,
    prompts: Path | None,
    prompt_ids: Path | None,
    num_prompts: int,
    batch: int,
    max_new_tokens: int,
    no_trace: bool,
    dump_tokens: Path | None,
    out: Path | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Decode prompts once, greedily, under XProf capture with a step annotation per decode step.

    \b
    Examples:
        perf capture --task code --num-prompts 2
        perf capture --prompt-ids prompts.json --no-trace --dump-tokens answers.json
    """
    from datetime import datetime

    from msgspec import to_builtins

    from perfmodel.codec import encode, write_atomic
    from profiling.environment import environment
    from sweeps.capturing import decode_prompts, read_prompt_ids, token_dump
    from sweeps.pairs import CHAIN_BLOCK_SIZE, OWN_DRAFT, open_pair, random_prompts, weights_findings

    from .progress import progress_bars

    ids = None if prompt_ids is None else read_prompt_ids(prompt_ids)
    pair = open_pair(target, draft or OWN_DRAFT.get(target), dtype, weights)
    findings = weights_findings(weights)
    if ids is None and findings and pair.tokenizer is None:
        ids = [list(prompt) for prompt in random_prompts(task, pair, num_prompts)]
    if ids is None:
        from decoding.tasks import load_prompts

        ids = [list(prompt.token_ids) for prompt in load_prompts(task, pair, num_prompts, path=prompts)]
    folder = None if no_trace else out or Path("runs") / f"capture-{datetime.now():%Y%m%d-%H%M%S}"
    size = block_size or pair.trained_block_size or (1 if pair.draft is None else CHAIN_BLOCK_SIZE)
    trace = None if folder is None else (folder / "xprof", f"{task}-K{size}")
    with progress_bars(quiet) as report:
        recording = decode_prompts(
            pair, ids, size, batch, max_new_tokens, trace, lambda share, message: report("decoding", share, message)
        )
    xplane, decode_s, overhead = recording.xplane, recording.decode_s, recording.overhead
    findings = (*findings, *recording.findings)
    dump = token_dump(recording.answers)
    if dump_tokens is not None:
        write_atomic(dump_tokens, encode(dump))
    num_steps = sum(len(answer["committed"]) for answer in dump)
    num_committed = sum(sum(answer["committed"]) for answer in dump)
    summary = {
        "target": target,
        "draft": pair.draft,
        "block_size": size,
        "num_prompts": len(dump),
        "num_steps": num_steps,
        "tau": num_committed / num_steps if num_steps else None,
        "lower_s": recording.lower_s,
        "compile_s": recording.compile_s,
        "warmup_s": recording.warmup_s,
        "decode_s": decode_s,
        "profiler_s": recording.profiler_s,
        "profiler_overhead": None if overhead is None else overhead.share,
        "profiler_overhead_low": None if overhead is None else overhead.low,
        "profiler_overhead_high": None if overhead is None else overhead.high,
        "trace": None if xplane is None else str(xplane),
        "weights": weights,
        "environment": to_builtins(environment()),
        "findings": [to_builtins(finding) for finding in findings],
    }
    if as_json:
        print_json("perf.capture", 1, summary)
        return
    from perfmodel.units import format_percent, format_seconds

    for finding in findings:
        click.echo(f"{finding.severity.upper()}: {finding.message}")
    tau = "no step ran" if not num_steps else f"τ {num_committed / num_steps:.2f}"
    click.echo(f"{pair.name}, K={size} (num_speculative_tokens {size - 1}): {len(dump)} answers, {num_steps} steps, {tau},"
               f" {format_seconds(decode_s)}")  # fmt: skip
    click.echo(f"lowering {format_seconds(recording.lower_s)}, compiling {format_seconds(recording.compile_s)}, "
               f"warm-up {format_seconds(recording.warmup_s)}, steps {format_seconds(decode_s)}")  # fmt: skip
    if overhead is not None:
        shares = [format_percent(share, 2) for share in (overhead.share, overhead.low, overhead.high)]
        click.echo(f"recording changed a step by {shares[0]} ({shares[1]} to {shares[2]})")
    if xplane is not None:
        click.echo(f"trace: {xplane}\n  perf extract {folder}\n  perf view {folder}")
