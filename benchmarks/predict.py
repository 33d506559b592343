"""How long 100,000 predictions take: `python -m benchmarks.predict`.

Two grids of that many cells: many batches and contexts over five chips and five tasks, and a thousand block sizes on one chip.
Each is timed several times in this process; the median counts, and the first includes what is cached later (the shipped profiles
and the tails of their acceptance).
"""

import statistics
import time

import click
import numpy as np

from perfmodel.acceptance import load_profile
from perfmodel.hardware import load_hardware
from perfmodel.landscape import landscape
from perfmodel.modelspec import load_model
from perfmodel.stepgrid import datasheet_grid
from perfmodel.units import format_seconds

PAIR = "qwen3-4b-dflash-b16"
GRIDS = {
    "5 chips, 5 tasks, K to 16, 25 batches, 10 contexts": (
        ("tpu-v4", "tpu-v5e", "tpu-v5p", "tpu-v6e", "h100"), ("math", "code", "chat", "gsm8k", "alpaca"), 16, 25, 10,
    ),
    "1 chip, 1 task, K to 1000, 10 batches, 10 contexts": (("h100",), ("math",), 1000, 10, 10),
}  # fmt: skip


def run(chips: tuple[str, ...], tasks: tuple[str, ...], largest: int, num_batches: int, num_contexts: int) -> int:
    """Predict every cell of one grid; the number of cells."""
    target, draft = load_model("qwen3-4b"), load_model(PAIR)
    contexts = np.linspace(256, 8192, num_contexts).astype(int).tolist()
    axes = (range(1, largest + 1), range(1, num_batches + 1), contexts)
    grids = {chip: datasheet_grid(load_hardware(chip), target, draft, *axes) for chip in chips}
    return landscape(grids, [load_profile(f"{PAIR}/{task}") for task in tasks], draft.block_size).num_cells


@click.command()
@click.option("--repeats", type=click.IntRange(min=1), default=5, show_default=True)
def main(repeats: int) -> None:
    """Time both grids."""
    for name, shape in GRIDS.items():
        seconds = []
        for _ in range(repeats):
            start = time.perf_counter()
            num_cells = run(*shape)
            seconds.append(time.perf_counter() - start)
        spread = f"{format_seconds(min(seconds))} to {format_seconds(max(seconds))}"
        click.echo(f"{num_cells:,} cells ({name}): median {format_seconds(statistics.median(seconds))}, {spread}")


if __name__ == "__main__":
    main()
