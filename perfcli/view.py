"""`perf view`: TensorBoard's profile viewer on a run's trace."""

from pathlib import Path

import click


@click.command("view", short_help="Open a run's trace in TensorBoard's profile viewer.")
@click.argument("run", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option(
    "--port", default=6006, show_default=True, type=click.IntRange(0, 65535), help="Port on this machine; 0 takes a free one."
)
def command(run: Path, port: int) -> None:
    """Serve a run's XProf captures in TensorBoard on this machine, and say the address. Ctrl-C ends it.

    \b
    Example:
        perf view runs/demo
    """
    from profiling.view import serve

    serve(run, port, say=lambda line: click.echo(line, err=True))
