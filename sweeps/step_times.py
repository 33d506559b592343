"""Step times against K, measured so that drift cannot pass for K.

Every point is compiled and warmed up first, and gets a number of samples planned from its warm-up time: an equal share of the
time that is left. Then one sample is taken at a time from the point that is furthest behind its plan, so all points are spread
over the same stretch of wall clock: a machine that slows down slows all of them. Small blocks end up with many samples and
large ones with few. All samples are kept.
"""

import random
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from perfmodel.phases import Phase
from perfmodel.records import TimingPoint

from .store import RunStore

NUM_WARMUP = 2
MIN_SAMPLES = 3
MIN_SETTLED = 8
SETTLED = 0.01
"""A point may stop at half its plan when its median is known to about 1 %."""

FAILURES = (RuntimeError, MemoryError, ValueError)
"""What a backend raises when a shape does not fit or compile; such a point is a recorded value, not the end."""


class Program(Protocol):
    """One phase at one shape, ready to be timed."""

    lower_s: float
    compile_s: float

    def run(self) -> float:
        """Wall seconds of one execution, blocked on its result."""


@dataclass(frozen=True)
class Shape:
    """The shape of one point."""

    phase: Phase
    block_size: int
    batch: int
    context: int

    @property
    def key(self) -> str:
        """Name of the point in the run folder."""
        return f"time-{self.phase}-K{self.block_size}-b{self.batch}-c{self.context}"


@dataclass
class Series:
    """One point while it is being measured; `planned` is how many samples it should get."""

    shape: Shape
    program: Program
    warmup_s: list[float]
    samples_s: list[float] = field(default_factory=list)
    planned: int = MIN_SAMPLES

    @property
    def share(self) -> float:
        """Share of the plan that is done."""
        return len(self.samples_s) / self.planned

    @property
    def finished(self) -> bool:
        """Whether the plan is done, or half of it and the median is known well enough."""
        count = len(self.samples_s)
        if self.share < 0.5 or count < MIN_SETTLED:
            return count >= self.planned
        low, median, high = statistics.quantiles(self.samples_s, n=4)
        # Standard error of a median, from the interquartile range of a normal sample: 1.253 · IQR / 1.349 / √n.
        return count >= self.planned or 1.253 * (high - low) / 1.349 / count**0.5 <= SETTLED * median

    def point(self) -> TimingPoint:
        """The record of what was measured."""
        return _point(
            self.shape,
            samples_s=tuple(self.samples_s),
            warmup_s=tuple(self.warmup_s),
            lower_s=self.program.lower_s,
            compile_s=self.program.compile_s,
        )


def _point(shape: Shape, **fields: object) -> TimingPoint:
    return TimingPoint(phase=shape.phase, block_size=shape.block_size, batch=shape.batch, context=shape.context, **fields)  # type: ignore[arg-type]


def measure(
    shapes: Iterable[Shape],
    build: Callable[[Shape], Program],
    store: RunStore,
    budget_s: float,
    max_samples: int,
    progress: Callable[[float, str], None],
) -> tuple[TimingPoint, ...]:
    """The timing points of all shapes, finished ones read back from the store.

    Arguments: `build` compiles one shape; `budget_s` bounds compiling and sampling together (every point still gets three
    samples); `progress` is told the share done, 0 … 1, and what is going on.
    """
    shapes = tuple(shapes)
    started = time.perf_counter()
    points = {shape: found for shape in shapes if (found := store.get(shape.key, TimingPoint)) is not None}
    missing = [shape for shape in shapes if shape not in points]
    series: list[Series] = []
    for index, shape in enumerate(missing):
        progress(0.5 * index / len(missing), f"compiling {shape.phase} K={shape.block_size}")
        try:
            program = build(shape)
            series.append(Series(shape, program, warmup_s=[program.run() for _ in range(NUM_WARMUP)]))
        except FAILURES as error:
            points[shape] = _failed(shape, error)
            store.put(shape.key, points[shape])
    deadline = started + budget_s
    for shape, point in _sample(series, deadline, max_samples, progress):
        points[shape] = point
        store.put(shape.key, point)
    return tuple(points[shape] for shape in shapes)


def _sample(
    series: Sequence[Series], deadline: float, max_samples: int, progress: Callable[[float, str], None]
) -> Iterable[tuple[Shape, TimingPoint]]:
    order = random.Random(0)
    running = list(series)
    _plan(running, deadline - time.perf_counter(), max_samples)
    while running:
        late = time.perf_counter() >= deadline
        open_points = [one for one in running if not late or len(one.samples_s) < MIN_SAMPLES]
        if not open_points:
            break
        chosen = min(open_points, key=lambda one: (one.share, order.random()))
        progress(0.5 + 0.5 * chosen.share, f"timing {chosen.shape.phase} K={chosen.shape.block_size}")
        try:
            chosen.samples_s.append(chosen.program.run())
        except FAILURES as error:
            running.remove(chosen)
            yield chosen.shape, _failed(chosen.shape, error)
            continue
        if chosen.finished:
            running.remove(chosen)
            yield chosen.shape, chosen.point()
    for one in running:
        yield one.shape, one.point()


def _plan(series: Sequence[Series], seconds: float, max_samples: int) -> None:
    """Give every point an equal share of the seconds, in samples of its own length."""
    for one in series:
        fitting = int(max(seconds, 0.0) / len(series) / max(one.warmup_s[-1], 1e-9))
        one.planned = min(max(fitting, MIN_SAMPLES), max_samples)


def _failed(shape: Shape, error: Exception) -> TimingPoint:
    reason = str(error).partition("\n")[0] or "no message"
    return _point(shape, failure=f"{type(error).__name__}: {reason}")
