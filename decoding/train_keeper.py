"""What happens between training steps: the log line, the held-out figure, the checkpoint, and the export of the best so far."""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from .train_evaluate import Evaluator
from .train_features import Example
from .train_fit import Params, State, save_state

_log = logging.getLogger(__name__)


@dataclass
class Keeper:
    """Called after every step. `export` writes averaged parameters as a drafter folder: (folder, parameters, step)."""

    folder: Path
    export: Callable[[Path, Params, int], None]
    evaluator: Evaluator
    held_out: list[Example]
    num_steps: int
    evaluate_every: int
    save_every_s: float = 420.0
    num_anchors: int = 8
    best: float = 0.0
    saved_at: float = 0.0

    def __call__(self, step: int, state: State, report: dict, seconds: float) -> None:
        """Log every 25th step, evaluate every `evaluate_every`th, save by the clock; all three at the end."""
        last = step == self.num_steps
        if step % 25 == 0 or last:
            self._write(
                {"step": step, "step_s": round(seconds, 3), **{name: round(float(value), 5) for name, value in report.items()}}
            )
        if self.held_out and (step % self.evaluate_every == 0 or last):
            rows = self.evaluator.uniform(state.average, self.held_out, self.num_anchors)
            self._write(
                {"step": step, "held_out": {row.family: [round(row.tau, 3), round(row.first, 3), row.num_steps] for row in rows}}
            )
            mean = float(np.mean([row.tau for row in rows])) if rows else 0.0
            if mean >= self.best:
                self.best = mean
                self.export(self.folder / "best", state.average, step)
        if last or time.monotonic() - self.saved_at > self.save_every_s:
            save_state(self.folder / f"ckpt-{step:06d}.npz", state)
            self.saved_at = time.monotonic()
            for old in checkpoints(self.folder)[:-2]:
                old.unlink()

    def _write(self, row: dict) -> None:
        _log.info("%s", row)
        with (self.folder / "curve.jsonl").open("ab") as stream:
            stream.write(msgspec.json.encode(row) + b"\n")


@contextmanager
def watched(keeper: Keeper, first_step: int) -> Iterator[Callable[[int, State, dict, float], None]]:
    """`keeper` behind a progress bar on standard error (none where that is no terminal)."""
    console = Console(stderr=True)
    columns = (
        BarColumn(), MofNCompleteColumn(), TextColumn("loss {task.fields[loss]} · {task.fields[tau]} tokens a step"),
        TimeElapsedColumn(), TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("fit", total=keeper.num_steps, completed=first_step, loss="–", tau="–")

        def after_step(step: int, state: State, report: dict, seconds: float) -> None:
            keeper(step, state, report, seconds)
            bar.update(task, completed=step, loss=f"{float(report['loss']):.3f}", tau=f"{float(report['tau']):.2f}")

        yield after_step


def checkpoints(folder: Path) -> list[Path]:
    """The checkpoints in a training folder, oldest first."""
    return sorted(path for path in folder.glob("ckpt-*.npz") if ".part" not in path.name)
