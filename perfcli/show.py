"""`perf show`: any record, readable."""

from pathlib import Path

import click

from .options import json_option, print_record


@click.command("show", short_help="Show any record in readable form.")
@click.argument("file", type=click.Path(path_type=Path))
@json_option
def command(file: Path, as_json: bool) -> None:
    """Show any record that perf wrote: what it is, and what it says. A run folder shows its run.json.

    \b
    Example:
        perf show runs/demo/model.json
    """
    from perfmodel.codec import load_any

    record = load_any(file / "run.json" if file.is_dir() else file)
    if as_json:
        print_record(record)
        return
    from rich.console import Console

    from reports.description import describe

    Console().print(describe(record))
