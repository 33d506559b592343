"""Which terms of the law a set of points supports: the plain law, and as much beyond it as the points ask for.

Every subset of the optional constants is fitted and the one with the least information criterion wins; each constant must pay
for itself. Terms of the curve itself are judged on the phase the curve is about, so that a misfit of the drafter cannot hide
them; then the other phases choose theirs. Where sizes lie just above a multiple of 16 … 256 tokens the steps of a tiled matrix unit
may show; the tile size is chosen the same way, from those that the points could show at all.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np

from .knobs import base_knobs, optional_knobs
from .leastsquares import Knob, Problem, Solution, criterion, solve

TERM_GAIN = 2.0
"""Fall of the information criterion that a set of optional terms must bring over the plain law, per term."""

KERNEL_MIN_OFFSET = 0.08
"""A single-token step less than 8 % off the curve is not called another kernel."""

TILES = (16, 32, 64, 128, 256)
"""Rows of a matrix-unit tile that hardware in use has, in query tokens."""

TILE_SHOWS = 1.15
"""A tile can be seen only where it would round some size beyond its first tile up by at least this factor."""


def best_solution(
    problem: Problem, form: str, lead: str, overhead_bound: bool, progress: Callable[[float], object] = lambda share: None
) -> tuple[Problem, Solution]:
    """The law with the terms that the points support best, fitted; and the problem, with its tile size where one shows.

    `progress` is told the share of the choices that is made: the curve's terms for every tile size, then those of the other phases.
    """
    optional = optional_knobs(problem, form, lead)
    of_others = [knob for knob in optional if knob.name.endswith("_ratio")]
    of_curve = [knob for knob in optional if knob not in of_others]
    curve = select(problem, problem.work.phases == lead)
    base = base_knobs(curve, form, lead)
    tiles = _visible_tiles(curve)
    progress(0.0)
    plain = _best_terms(curve, base, of_curve)
    tried = [(_score(curve, base, plain), plain, 0)]
    for index, tile in enumerate(tiles, start=1):
        progress(index / (len(tiles) + 2))
        tiled = replace(curve, fixed={"tile_tokens": float(tile)})
        chosen = _best_terms(tiled, base, of_curve)
        # A tile is no constant that is fitted but one of a list, none among them, and pays 2 ln(list) for the choice.
        price = 2 * np.log(len(tiles) + 1)
        tried.append((_score(tiled, base, chosen) + price, chosen, tile))
    _, chosen, tile = min(tried, key=lambda row: row[0])
    if tile:
        problem = replace(problem, fixed={"tile_tokens": float(tile)})
    base = base_knobs(problem, form, lead)
    progress((len(tiles) + 1) / (len(tiles) + 2))
    chosen += _best_terms(problem, (*base, *chosen), of_others)
    prefer = "memory_efficiency" if overhead_bound else "overhead_s"
    solution = solve(problem, [*base, *chosen], prefer)
    if "kernel" in solution.values and not _is_kernel(solution):
        solution = solve(problem, [*base, *(knob for knob in chosen if knob.name != "kernel")], prefer)
    return problem, solution


def same_terms(problem: Problem, solution: Solution, overhead_bound: bool) -> Solution:
    """Other points of the same kind under the terms that were chosen before."""
    knobs = (*solution.free, *solution.pinned.values())
    return solve(problem, knobs, "memory_efficiency" if overhead_bound else "overhead_s")


def select(problem: Problem, mask: np.ndarray) -> Problem:
    """The problem with some of its points."""
    return replace(problem, work=problem.work.select(mask), measured_s=problem.measured_s[mask], scatter=problem.scatter[mask])


def _visible_tiles(curve: Problem) -> list[int]:
    tokens = np.unique(curve.work.tokens)
    padding = {tile: np.ceil(tokens / tile) * tile / tokens for tile in TILES}
    return [tile for tile in TILES if np.any((tokens > tile) & (padding[tile] > TILE_SHOWS))]


def _score(problem: Problem, base: Sequence[Knob], chosen: Sequence[Knob]) -> float:
    return criterion(problem, [*base, *chosen]) + TERM_GAIN * len(chosen)


def _best_terms(problem: Problem, base: Sequence[Knob], optional: Sequence[Knob]) -> tuple[Knob, ...]:
    """The optional constants worth having beside the others, by the information criterion."""
    subsets = [subset for size in range(len(optional) + 1) for subset in combinations(optional, size) if _makes_sense(subset)]
    return min(subsets, key=lambda subset: _score(problem, base, subset))


def _makes_sense(subset: Sequence[Knob]) -> bool:
    """Whether no phase gets a price of its own for arithmetic before it has one for all of its work."""
    names = {knob.name for knob in subset}
    return all(name.replace("_compute_ratio", "_ratio") in names for name in names)


def _is_kernel(solution: Solution) -> bool:
    """Whether single-token steps lie off the curve by enough to matter."""
    return bool(abs(np.log(solution.values["kernel"])) > KERNEL_MIN_OFFSET)
