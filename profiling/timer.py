"""Timing a call by the clock on the wall, with the wait inside.

JAX returns before the work is done. A timer that does not wait measures how fast work can be *asked for*, which hardly depends
on how much of it there is: the origin of verify times that do not grow with K. Only waiting for the arrays that came back is
proof; `jax.effects_barrier()` waits for side effects (prints, callbacks) and returns at once for plain arithmetic. So this timer
waits for the result itself, and refuses a call that returns nothing to wait for.

Warm-up, lowering, compiling and running are four numbers, never mixed.
"""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax

from perfmodel.errors import InputError


@dataclass(frozen=True, slots=True)
class Timing:
    """Samples of one call, seconds, in the order they were taken."""

    samples_s: tuple[float, ...]
    warmup_s: tuple[float, ...]

    @property
    def median_s(self) -> float:
        """Median of the samples, s."""
        return statistics.median(self.samples_s)

    @property
    def best_s(self) -> float:
        """Shortest sample, s: the one that was disturbed least."""
        return min(self.samples_s)

    @property
    def spread(self) -> float | None:
        """Interquartile range over median; None for fewer than four samples."""
        if len(self.samples_s) < 4:
            return None
        low, _, high = statistics.quantiles(self.samples_s, n=4)
        return (high - low) / self.median_s


@dataclass(frozen=True, slots=True)
class CompiledCall:
    """An executable and what it took to get it, seconds."""

    executable: Any
    lower_s: float
    compile_s: float


def time_once(call: Callable[[], Any]) -> float:
    """Wall time of one call until its result is there, s.

    Raises `InputError` when the call returns no array: its time would be the time to ask for the work.
    """
    begin = time.perf_counter()
    result = jax.block_until_ready(call())
    seconds = time.perf_counter() - begin
    if not any(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(result)):
        raise InputError("the timed call returned no array, so there is nothing to wait for", "return the call's result")
    return seconds


def time_call(call: Callable[[], Any], num_samples: int = 5, num_warmup: int = 1) -> Timing:
    """A fixed number of samples of a call, s, after its warm-up."""
    warmup = tuple(time_once(call) for _ in range(num_warmup))
    return Timing(tuple(time_once(call) for _ in range(num_samples)), warmup)


def measure_until(
    sample_s: Callable[[], float], max_s: float, min_samples: int = 5, spread_target: float = 0.05, num_warmup: int = 1
) -> Timing:
    """Samples, s, until they agree or the time is up.

    Arguments:
        sample_s: takes one sample and returns its seconds: `partial(time_once, call)`, or a program's own blocking `run`.
        max_s: no sample is begun that, as long as the median, would end later than this (warm-up included).
        min_samples: at least so many before their agreement counts; one is always taken.
        spread_target: interquartile range over median at which they agree.
    """
    begin = time.perf_counter()
    warmup = tuple(sample_s() for _ in range(num_warmup))
    timing = Timing((sample_s(),), warmup)
    while time.perf_counter() - begin + timing.median_s <= max_s:
        if len(timing.samples_s) >= min_samples and timing.spread is not None and timing.spread <= spread_target:
            break
        timing = Timing((*timing.samples_s, sample_s()), warmup)
    return timing


def compile_call(function: Callable[..., Any], *args: Any) -> CompiledCall:
    """The executable of a function for these arguments, with lowering and compiling timed apart, s."""
    jitted = function if hasattr(function, "lower") else jax.jit(function)
    begin = time.perf_counter()
    lowered = jitted.lower(*args)
    middle = time.perf_counter()
    executable = lowered.compile()
    return CompiledCall(executable, middle - begin, time.perf_counter() - middle)


def empty_call_s(num_samples: int = 200) -> float:
    """Wall time of a jitted call that does nothing, until its result is there: what every call costs at least, s."""
    argument = jax.numpy.zeros((), "float32")
    executable = compile_call(lambda value: value + 1, argument).executable
    return time_call(lambda: executable(argument), num_samples, num_warmup=20).median_s
