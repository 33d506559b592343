"""Progress bars on stderr: what is going on and how long is left; silent when nobody watches."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from sweeps.progress import Reporter


class BarReporter:
    """Shows each stage of a sweep as a bar."""

    def __init__(self, bars: Progress) -> None:
        self._bars = bars
        self._tasks: dict[str, TaskID] = {}

    def __call__(self, stage: str, share: float, message: str) -> None:
        """Say that `stage` is done to `share` (0 … 1), and what it is doing."""
        if stage not in self._tasks:
            self._tasks[stage] = self._bars.add_task(stage, total=1.0, message="")
        self._bars.update(self._tasks[stage], completed=share, message=message)


@contextmanager
def working(message: str, quiet: bool) -> Iterator[None]:
    """A moving bar with the time so far, for one piece of work that cannot say how far it is; gone when it ends."""
    if quiet or not sys.stderr.isatty():
        yield
        return
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=20), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        bars.add_task(message, total=None)
        yield


@contextmanager
def progress_bars(quiet: bool) -> Iterator[Reporter]:
    """A reporter of progress while inside; silent with `quiet` or when stderr is not a terminal."""
    if quiet or not sys.stderr.isatty():
        yield lambda stage, share, message: None
        return
    columns = (
        TextColumn("{task.description:<12}"),
        BarColumn(bar_width=20),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("[dim]{task.fields[message]}"),
    )
    with Progress(*columns, console=Console(stderr=True)) as bars:
        yield BarReporter(bars)
