"""`perf doctor`: what this machine can run and measure."""

import click

from .options import json_option, print_json, quiet_option


@click.command("doctor", short_help="What this machine can run and measure, and which perf this is.")
@click.option("--calibrate", is_flag=True, help="Measure bandwidth, matmul rate and dispatch time now (under a minute).")
@json_option
@quiet_option
def command(calibrate: bool, as_json: bool, quiet: bool) -> None:
    """Say what this machine can run and measure: device, versions, embedded model, trace viewer, and measured limits if known.

    \b
    Examples:
        perf doctor
        perf doctor --calibrate
    """
    from sweeps.doctor import examine

    from .progress import progress_bars

    with progress_bars(quiet, passing=True) as report:
        document = examine(calibrate, report)
    if as_json:
        print_json("perf.doctor", 1, document)
        return
    from rich.console import Console

    from reports.documents import doctor_table

    Console().print(doctor_table(document))
