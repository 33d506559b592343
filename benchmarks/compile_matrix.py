"""Compile the whole decode loop for every TPU generation, real pairs, batches and slices; record what came out.

    python -m benchmarks.compile_matrix [--out runs/compile-matrix.json] [--quick]

Each row is one program: the fused loop, counted per step. The table is saved after every program, the most telling ones first, and
what is on disk already is not compiled again: an interrupted run leaves its rows, and goes on where it stopped. With `--quick` only
the pairs of the test suite, batch 1. No TPU is needed; an hour or two of a machine is.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from perfmodel import codec
from perfmodel.modelspec import load_model
from perfmodel.phases import VERIFY
from perfmodel.records import CompiledSet
from profiling.compile_topology import CHIPS
from reports.compiled import compiled_table
from reports.terminal import findings_list
from sweeps.compiling import Point, compile_table, points
from sweeps.step_programs import LOOP, STEP

EMBEDDED = ("smollm2-135m", "smollm2-135m-dflash", 8)
QWEN3_4B = ("qwen3-4b", "qwen3-4b-dflash-b16", 16)
OTHER_PAIRS = (("qwen3-8b", "qwen3-8b-dflash-b16", 16), ("llama-3.1-8b", "llama-3.1-8b-dflash", 10))
"""Target, drafter, block size."""

MEASURED = ("tpu-v5p", "tpu-v4")
"""Chips with published step times of Qwen3-4B, to hold the estimates against."""

SLICES = ("v5p:2x2x1", "v6e:2x2")
"""Four chips with the weights split over them."""

CONTEXT = 1024


def matrix(quick: bool) -> list[Point]:
    """Every program of the matrix, the most telling first: one chip, the steps that were measured, slices, batches, other pairs."""
    found = _cells(CHIPS, QWEN3_4B, 1) + _cells(CHIPS, EMBEDDED, 1)
    if quick:
        return found
    target, draft, block_size = QWEN3_4B
    specs = load_model(target), load_model(draft)
    for size, phases in ((1, (VERIFY,)), (block_size, (VERIFY, STEP))):  # K=1 takes its seconds from the wider block's
        found += points(MEASURED, *specs, phases, (size,), (1,), (CONTEXT,))
    found += _cells(SLICES, QWEN3_4B, 1) + _cells(CHIPS, QWEN3_4B, 8)
    for pair in OTHER_PAIRS:
        found += _cells(CHIPS, pair, 1) + _cells(SLICES, pair, 1)
    for pair in OTHER_PAIRS:
        found += _cells(CHIPS, pair, 8)
    return found


def _cells(names: Sequence[str], pair: tuple[str, str, int], batch: int) -> list[Point]:
    target, draft, block_size = pair
    return points(names, load_model(target), load_model(draft), (LOOP,), (block_size,), (batch,), (CONTEXT,))


def main() -> None:
    """Compile, print and save the matrix."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/compile-matrix.json"))
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--jobs", type=int, default=None)
    options = parser.parse_args()
    wanted = matrix(options.quick)
    console = Console(stderr=True)
    found = compile_table(
        wanted,
        options.jobs,
        lambda share, message: console.print(f"{share:6.1%} {message}"),
        lambda so_far: codec.save(options.out, so_far),
    )
    for target in dict.fromkeys(row.target for row in found.rows):
        rows = tuple(row for row in found.rows if row.target == target)
        print_table(CompiledSet(rows=rows))
    Console().print(findings_list(found.findings))


def print_table(found: CompiledSet) -> None:
    """One pair's table on stdout."""
    Console(width=120).print(compiled_table(found))


if __name__ == "__main__":
    main()
