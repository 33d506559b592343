"""`perf validate`: a model against points it was not fitted to."""

from pathlib import Path

import click

from .options import json_option, print_json
from .source import add_table_help, read_source


@click.command("validate", short_help="Compare a fitted model with points it was not fitted to.")
@click.argument("model", type=click.Path(path_type=Path))
@click.argument("source", type=click.Path(path_type=Path))
@json_option
def command(model: Path, source: Path, as_json: bool) -> None:
    """Predict every timing of SOURCE with MODEL (model.json or a run folder) and print predicted against measured.

    Timings below the speed of light are left out and counted.

    \b
    Example:
        perf validate runs/monday/model.json runs/tuesday
    """
    from perfmodel.codec import load
    from perfmodel.records import FittedModel
    from sweeps.validation import validate

    fitted = load(model / "model.json" if model.is_dir() else model, FittedModel)
    document = validate(fitted, read_source(source, None, None, None, None).points)
    if as_json:
        print_json("perf.validation", 1, document)
        return
    from rich.console import Console

    from reports.documents import validation_table

    Console().print(validation_table(document))


add_table_help(command)
