"""Progress bars on stderr: what is going on and how long is left; silent when nobody watches.

A bar knows what share of its stage is done; the time left is what the rest takes at the pace of the share so far. Work that is over
in a moment shows nothing.
"""

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from sweeps.progress import Reporter, silent

MOMENT_S = 1.0
"""Work that is over by then shows no bar."""

PACE_S = 600.0
"""The time left is told by the pace over this long: some stages have few parts, of a minute each."""


class LastingProgress(Progress):
    """Bars that appear once the work has lasted a moment."""

    def get_renderables(self) -> Iterable[RenderableType]:
        """The table of bars, or nothing yet."""
        if any((task.elapsed or 0.0) >= MOMENT_S for task in self.tasks):
            yield from super().get_renderables()


class BarReporter:
    """Shows each stage of a piece of work as a bar."""

    def __init__(self, bars: Progress) -> None:
        self._bars = bars
        self._tasks: dict[str, TaskID] = {}

    def __call__(self, stage: str, share: float, message: str) -> None:
        """Say that `stage` is done to `share` (0 … 1), and what it is doing."""
        if stage not in self._tasks:
            self._tasks[stage] = self._bars.add_task(stage, total=1.0, message="")
        self._bars.update(self._tasks[stage], completed=share, message=message)


@contextmanager
def progress_bars(quiet: bool, passing: bool = False) -> Iterator[Reporter]:
    """A reporter of progress while inside; silent with `quiet` or when stderr is no terminal, or closed. `passing` bars go when it ends."""
    if quiet or sys.stderr is None or not sys.stderr.isatty():
        yield silent
        return
    columns = (
        TextColumn("{task.description:<12}"),
        BarColumn(bar_width=20),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("[dim]{task.fields[message]}"),
    )
    console = Console(stderr=True)
    with LastingProgress(*columns, console=console, transient=passing, speed_estimate_period=PACE_S) as bars:
        yield BarReporter(bars)


def shares(report: Reporter) -> Callable[[str, float], None]:
    """The reporter for rooms below, which tell the stage and the share of it that is done."""
    return lambda stage, share: report(stage, share, "")
