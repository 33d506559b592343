"""Compile the whole decode loop for every TPU generation, real pairs, batches and slices; record what came out.

    python -m benchmarks.compile_matrix [--out runs/compile-matrix.json] [--quick]

Each row is one program: the fused loop, counted per step. What is on disk already is not compiled again, so an interrupted run goes on
where it stopped. With `--quick` only the pairs of the test suite, batch 1. No TPU is needed; an hour or two of a machine is.
"""

import argparse
import itertools
from pathlib import Path

from rich.console import Console

from perfmodel import codec
from perfmodel.modelspec import load_model
from perfmodel.records import CompiledSet
from profiling.compile_topology import CHIPS
from reports.compiled import compiled_table
from reports.terminal import findings_list
from sweeps.compiling import Point, compile_table, points
from sweeps.step_programs import LOOP

EMBEDDED = ("smollm2-135m", "smollm2-135m-dflash", 8)
QWEN3_4B = ("qwen3-4b", "qwen3-4b-dflash-b16", 16)
PAIRS = (QWEN3_4B, ("qwen3-8b", "qwen3-8b-dflash-b16", 16), ("llama-3.1-8b", "llama-3.1-8b-dflash", 10))
"""Target, drafter, block size."""

SLICES = ("v5p:2x2x1", "v6e:2x2")
"""Four chips with the weights split over them."""

CONTEXT = 1024


def matrix(quick: bool) -> list[Point]:
    """Every program of the matrix."""
    cells = [((chip,), EMBEDDED, 1) for chip in CHIPS]
    cells += [((chip,), QWEN3_4B, 1) for chip in CHIPS]
    if not quick:
        cells += [
            ((chip,), pair, batch)
            for pair, batch, chip in itertools.product(PAIRS, (1, 8), CHIPS)
            if (pair, batch) != (QWEN3_4B, 1)
        ]
        cells += [((part,), pair, 1) for pair, part in itertools.product(PAIRS, SLICES)]
    return [
        point
        for names, (target, draft, block_size), batch in cells
        for point in points(names, load_model(target), load_model(draft), (LOOP,), (block_size,), (batch,), (CONTEXT,))
    ]


def main() -> None:
    """Compile, print and save the matrix."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/compile-matrix.json"))
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--jobs", type=int, default=None)
    options = parser.parse_args()
    wanted = matrix(options.quick)
    console = Console(stderr=True)
    found = compile_table(wanted, options.jobs, lambda share, message: console.print(f"{share:6.1%} {message}"))
    codec.save(options.out, found)
    for target in dict.fromkeys(row.target for row in found.rows):
        rows = tuple(row for row in found.rows if row.target == target)
        print_table(CompiledSet(rows=rows))
    Console().print(findings_list(found.findings))


def print_table(found: CompiledSet) -> None:
    """One pair's table on stdout."""
    Console(width=200).print(compiled_table(found))


if __name__ == "__main__":
    main()
