"""The step-time law on single matrix products: weight [n, k] times m tokens, the smallest thing a verify step is made of.

Public tables of matrix-product latency exist for chips that nobody here owns. A product of m tokens reads 2·n·k bytes of bfloat16
weights, moves m·(n + k) activations, and does 2·m·n·k FLOP; the law of a whole step applies with its four constants: two
efficiencies, the exponent of the soft maximum, and a launch. Only weights larger than twice the last on-chip memory say
anything about main memory, because a benchmark repeats the same product and smaller weights stay on chip.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from perfmodel.cost import dtype_bytes
from perfmodel.errors import InputError
from perfmodel.leastsquares import Problem, Solution
from perfmodel.phases import VERIFY
from perfmodel.records import Hardware
from perfmodel.stepmodel import ROOFLINE, Work
from perfmodel.termchoice import best_solution

RESIDENT = 2.0
"""Weights below this many times the last on-chip memory may stay there between repeats."""


@dataclass(frozen=True)
class GemmTime:
    """The seconds that a matrix product took: weight [n, k], `tokens` rows."""

    n: int
    k: int
    tokens: int
    seconds: float

    @property
    def weight(self) -> tuple[int, int]:
        """The weight's shape."""
        return self.n, self.k


@dataclass(frozen=True)
class GemmFit:
    """The law fitted to matrix products on one chip."""

    problem: Problem
    solution: Solution

    def predicted_s(self, times: Sequence[GemmTime]) -> np.ndarray:
        """Seconds of other products on the same chip."""
        problem = _problem(times, self.problem.hardware, self.problem.dtype)
        return Problem(**{**vars(problem), "fixed": self.problem.fixed}).predicted_s(self.solution.values)

    def errors(self, times: Sequence[GemmTime]) -> np.ndarray:
        """Relative error of each product, predicted / measured - 1."""
        return self.predicted_s(times) / np.array([time.seconds for time in times]) - 1.0


def off_chip(times: Sequence[GemmTime], hardware: Hardware, dtype: str = "bfloat16") -> tuple[GemmTime, ...]:
    """The products whose weight is too large to stay on chip between repeats."""
    kept = 0.0 if hardware.on_chip_bytes is None else RESIDENT * hardware.on_chip_bytes.value
    return tuple(time for time in times if time.n * time.k * dtype_bytes(dtype) > kept)


def fit_gemm(times: Sequence[GemmTime], hardware: Hardware, dtype: str = "bfloat16") -> GemmFit:
    """The law fitted to measured products of one chip. Raises `InputError` when there are too few sizes."""
    if len({time.tokens for time in times}) < 4:
        raise InputError("fewer than four sizes cannot carry a curve", "give products of more token counts")
    problem, solution = best_solution(_problem(times, hardware, dtype), ROOFLINE, VERIFY, False)
    return GemmFit(problem, solution)


def _problem(times: Sequence[GemmTime], hardware: Hardware | None, dtype: str) -> Problem:
    n, k, tokens, seconds = (np.array([getattr(time, name) for time in times], float) for name in ("n", "k", "tokens", "seconds"))
    nothing = np.zeros_like(tokens)
    work = Work(
        memory=dtype_bytes(dtype) * (n * k + tokens * (n + k)),
        cached=nothing,
        linear=2.0 * tokens * n * k,
        attention=nothing,
        batch=np.ones_like(tokens),
        queries=tokens,
        context=nothing,
        phases=np.full(tokens.shape, VERIFY),
        reduces=nothing,
        reduce_s=nothing,
    )
    return Problem(work, seconds, nothing, hardware, dtype)
