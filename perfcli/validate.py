"""`perf validate`: a model against points it was not fitted to."""

from pathlib import Path
from typing import Any

import click

from .options import json_option, print_json, quiet_option
from .source import add_table_help, read_source


@click.command("validate", short_help="Compare a fitted model with points it was not fitted to.")
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path), metavar="[MODEL] SOURCE")
@click.option("--hardware", default=None, help="Chip that was measured. With MODEL: another chip to move the model to.")
@click.option("--target", default=None, help="Target model, where SOURCE stands alone: a shipped name or a config.json.")
@click.option("--draft", default=None, help="Drafter, where SOURCE stands alone.")
@click.option("--dtype", default=None, help="Dtype, where SOURCE stands alone.  [default: the run's, else bfloat16]")
@json_option
@quiet_option
def command(
    paths: tuple[Path, ...],
    hardware: str | None,
    target: str | None,
    draft: str | None,
    dtype: str | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Predict every timing of SOURCE and print predicted against measured.

    With MODEL (model.json or a run folder) the predictions are that model's; --hardware then moves it to another chip by its data
    sheet. Without, every block size of SOURCE is left out in turn and predicted by a fit to the others. Timings below the speed
    of light are left out and counted.

    \b
    Examples:
        perf validate runs/monday/model.json runs/tuesday
        perf validate table.csv --hardware h100 --target qwen3-4b
    """
    if not 1 <= len(paths) <= 2:
        raise click.UsageError("give a SOURCE of timings, and before it a MODEL if there is one")
    from .progress import progress_bars

    if len(paths) == 2:
        document = _by_model(*paths, hardware, target or draft or dtype)
    else:
        with progress_bars(quiet, passing=True) as report:
            document = _left_out(paths[0], hardware, target, draft, dtype, report)
    if as_json:
        print_json("perf.validation", 1, document)
        return
    from rich.console import Console

    from reports.documents import validation_table

    Console().print(validation_table(document))


def _by_model(model: Path, source: Path, hardware: str | None, other: str | None) -> dict[str, object]:
    from perfmodel.codec import load
    from perfmodel.hardware import load_hardware
    from perfmodel.records import FittedModel
    from perfmodel.stepmodel import checked
    from perfmodel.transfer import transfer
    from sweeps.validation import validate

    if other is not None:
        raise click.UsageError("--target, --draft and --dtype belong to a SOURCE alone; a MODEL knows its own")
    path = model / "model.json" if model.is_dir() else model
    fitted = checked(load(path, FittedModel), str(path))
    points = read_source(source, None, None, None, None).points
    chip = None if hardware is None else load_hardware(hardware)
    if chip is None or (fitted.hardware is not None and chip.label == fitted.hardware.label):
        return validate(fitted, points)
    return validate(transfer(fitted, chip), points)


def _left_out(
    source: Path, hardware: str | None, target: str | None, draft: str | None, dtype: str | None, report: Any
) -> dict[str, object]:
    from sweeps.validation import cross_validate

    found = read_source(source, hardware, target, draft, dtype)
    return cross_validate(found.points, found.target, found.draft, found.hardware, found.dtype, report)


add_table_help(command)
