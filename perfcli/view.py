"""`perf view`: TensorBoard's profile viewer on a run's trace."""

import sys
from pathlib import Path

import click

from .options import json_option, print_json


@click.command("view", short_help="Open a run's trace in TensorBoard's profile viewer.")
@click.argument("run", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option(
    "--port", default=6006, show_default=True, type=click.IntRange(0, 65535), help="Port on this machine; 0 takes a free one."
)
@json_option
def command(run: Path, port: int, as_json: bool) -> None:
    """Serve a run's XProf captures in TensorBoard on this machine, and say the address. Ctrl-C ends it.

    With --json the address is one document on stdout, printed as soon as TensorBoard answers.

    \b
    Example:
        perf view runs/demo
    """
    from profiling.view import serve

    def say(url: str) -> None:
        if as_json:
            print_json("perf.view", 1, {"run": str(run), "url": url})
            sys.stdout.flush()
        else:
            click.echo(f"TensorBoard shows {run} at {url} (Ctrl-C ends it)", err=True)

    serve(run, port, say)
