"""`perf diagnose`: why is acceptance low, why is it slow, is the configuration right?"""

from pathlib import Path

import click

from .options import json_option, out_option, print_record, quiet_option


@click.command("diagnose", short_help="Say why acceptance is low or tokens are slow, and check a pair's configuration.")
@click.argument("files", nargs=-1, type=click.Path(path_type=Path))
@click.option("--target", default=None, help="Check a configuration: the target's config.json, its folder, or a shipped name.")
@click.option("--draft", default=None, help="Check a configuration: the drafter's config.json, its folder, or a shipped name.")
@click.option("--k", "block_size", type=click.IntRange(1, 4096), default=None, help="Block size K that is to be used.")
@click.option("--context", type=click.IntRange(1, 100_000_000), default=None, help="Tokens of context that are to be served.")
@out_option("Write the findings there as JSON.")
@json_option
@quiet_option
def command(
    files: tuple[Path, ...],
    target: str | None,
    draft: str | None,
    block_size: int | None,
    context: int | None,
    out: Path | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Say what is wrong with results (any file `perf import` reads, its record, or a run folder) or with a configuration.

    Each finding has what was seen, the likely cause and the next step. With --target and --draft the two config.json are held against
    each other: layer ids, block size, mask id, head size, RoPE, window, vocabulary, memory.

    \b
    Examples:
        perf diagnose server.log
        perf diagnose --target Qwen3-4B/config.json --draft Qwen3-4B-DFlash-b16/config.json --k 16 --context 32768
    """
    if (target is None) != (draft is None):
        raise click.UsageError("--target and --draft go together.")
    if not files and target is None:
        raise click.UsageError("Give files to diagnose, or --target and --draft.")
    if target is None and (block_size is not None or context is not None):
        raise click.UsageError("--k and --context belong to the check of a configuration: give --target and --draft.")
    from sweeps.diagnosis.verdict import diagnose_all

    from .progress import progress_bars

    with progress_bars(quiet, passing=True) as report:
        record = diagnose_all(files, target, draft, block_size, context, report)
    if out is not None:
        from perfmodel.codec import save

        save(out, record)
    if as_json:
        print_record(record)
        return
    from rich.console import Console

    from reports.imported import diagnosis_content

    Console().print(diagnosis_content(record))
