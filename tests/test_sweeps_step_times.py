"""Interleaved timing: drift hits all points alike, budgets hold, failures are values, finished points are not repeated."""

from pathlib import Path

import pytest

from perfmodel.records import TimingPoint
from sweeps import step_times
from sweeps.step_times import MIN_SAMPLES, NUM_WARMUP, Shape, measure
from sweeps.store import RunStore


class Clock:
    """A clock that only programs move."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        return self.now


class FakeProgram:
    lower_s = 0.5
    compile_s = 1.5

    def __init__(self, clock: Clock, seconds: float, log: list[str], name: str) -> None:
        self.clock, self.seconds, self.log, self.name = clock, seconds, log, name

    def run(self) -> float:
        self.clock.now += self.seconds
        self.log.append(self.name)
        # a machine that slows down by 1 % per second of its life
        return self.seconds * (1 + 0.01 * self.clock.now)


def shape(block_size: int) -> Shape:
    return Shape("verify", block_size, 1, 256)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(step_times, "time", clock)
    return clock


def run(
    clock: Clock, store: RunStore, seconds: dict[int, float], budget_s: float, max_samples: int = 1000
) -> tuple[dict[int, TimingPoint], list[str]]:
    log: list[str] = []

    def build(one: Shape) -> FakeProgram:
        return FakeProgram(clock, seconds[one.block_size], log, f"K{one.block_size}")

    points = measure([shape(size) for size in seconds], build, store, budget_s, max_samples, lambda share, message: None)
    return {point.block_size: point for point in points}, log


def test_time_is_shared_evenly_and_small_blocks_get_more_samples(clock: Clock, tmp_path: Path) -> None:
    points, _ = run(clock, RunStore(tmp_path), {1: 0.1, 64: 1.0}, budget_s=40)
    spent = {size: sum(point.samples_s) for size, point in points.items()}
    assert len(points[1].samples_s) > 5 * len(points[64].samples_s)
    assert 0.45 * spent[64] < spent[1] <= 1.05 * spent[64]  # a settled point may stop at half its plan


def test_drift_does_not_pass_for_k(clock: Clock, tmp_path: Path) -> None:
    # Both programs cost the same; a drifting machine must not make the later one look slower.
    points, _ = run(clock, RunStore(tmp_path), {1: 0.5, 2: 0.5}, budget_s=60)
    assert points[1].median_s == pytest.approx(points[2].median_s, rel=0.03)


def test_small_blocks_are_spread_over_the_whole_window(clock: Clock, tmp_path: Path) -> None:
    _, log = run(clock, RunStore(tmp_path), {1: 0.1, 64: 1.0}, budget_s=40, max_samples=12)
    sampled = log[2 * NUM_WARMUP :]
    # 12 samples each, alternating: neither point is measured before the other.
    assert all({first, second} == {"K1", "K64"} for first, second in zip(sampled[::2], sampled[1::2], strict=True))


def test_the_budget_holds_but_every_point_gets_three_samples(clock: Clock, tmp_path: Path) -> None:
    points, _ = run(clock, RunStore(tmp_path), {1: 0.1, 1024: 30.0}, budget_s=1)
    assert len(points[1024].samples_s) == MIN_SAMPLES
    assert len(points[1024].warmup_s) == NUM_WARMUP
    assert (points[1024].lower_s, points[1024].compile_s) == (0.5, 1.5)


def test_repeats_bound_the_samples(clock: Clock, tmp_path: Path) -> None:
    points, _ = run(clock, RunStore(tmp_path), {1: 0.1, 2: 0.1}, budget_s=1000, max_samples=7)
    assert {len(point.samples_s) for point in points.values()} == {7}


def test_a_steady_point_stops_early(clock: Clock, tmp_path: Path) -> None:
    class Steady(FakeProgram):
        def run(self) -> float:
            self.clock.now += 1e-6
            return 0.1

    points = measure(
        [shape(1)], lambda one: Steady(clock, 0.1, [], "K1"), RunStore(tmp_path), 100, 40, lambda share, message: None
    )
    assert len(points[0].samples_s) == 40 / 2  # half its plan: the median is known


@pytest.mark.parametrize("error", [RuntimeError("RESOURCE_EXHAUSTED: out of memory"), MemoryError(), ValueError("bad shape")])
def test_a_failing_point_is_a_recorded_value_not_the_end(clock: Clock, tmp_path: Path, error: Exception) -> None:
    def build(one: Shape) -> FakeProgram:
        if one.block_size == 512:
            raise error
        return FakeProgram(clock, 0.1, [], "K")

    store = RunStore(tmp_path)
    points = measure([shape(1), shape(512), shape(2)], build, store, 5, 10, lambda share, message: None)
    assert [point.block_size for point in points] == [1, 512, 2]
    assert points[1].failure is not None
    assert type(error).__name__ in points[1].failure
    assert points[1].samples_s == ()
    assert all(point.samples_s for point in (points[0], points[2]))


def test_a_point_that_fails_while_sampling_is_recorded_too(clock: Clock, tmp_path: Path) -> None:
    class Breaks(FakeProgram):
        def run(self) -> float:
            if len(self.log) > NUM_WARMUP:
                raise RuntimeError("device lost\nsecond line")
            return super().run()

    points = measure([shape(4)], lambda one: Breaks(clock, 0.1, [], "K"), RunStore(tmp_path), 5, 10, lambda share, message: None)
    assert points[0].failure == "RuntimeError: device lost"


def test_finished_points_are_not_repeated(clock: Clock, tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    first, _ = run(clock, store, {1: 0.1, 2: 0.2}, budget_s=5)
    again, log = run(clock, store, {1: 0.1, 2: 0.2, 4: 0.4}, budget_s=5)
    assert set(log) == {"K4"}
    assert {size: again[size] for size in first} == first
