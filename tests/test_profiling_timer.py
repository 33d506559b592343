import time

import jax
import jax.numpy as jnp
import pytest

from perfmodel.errors import InputError
from profiling.timer import Timing, compile_call, empty_call_s, measure_until, time_call, time_once

SIZE = 1000


@pytest.fixture(scope="module")
def slow():
    matrix = jnp.full((SIZE, SIZE), 1 / SIZE)

    @jax.jit
    def products(value):
        for _ in range(6):
            value = value @ matrix
        return value

    products(matrix).block_until_ready()
    return lambda: products(matrix)


def test_the_effects_barrier_returns_before_the_work_is_done(slow):
    """The trap behind verify times that do not grow with K: this wait is for side effects, and there are none."""
    begin = time.perf_counter()
    result = slow()
    jax.effects_barrier()
    rash = time.perf_counter() - begin
    ready = result.is_ready()
    result.block_until_ready()
    assert not ready, "the barrier returned with the work still under way"
    assert rash < time_once(slow)


def test_the_timer_waits_for_the_work(slow):
    # 6 products of 1000 cubed are 1.2e10 FLOP; no two cores do 4e12 FLOP/s.
    assert time_call(slow, num_samples=2).best_s > 1.2e10 / 4e12


def test_a_call_with_nothing_to_wait_for_is_refused():
    with pytest.raises(InputError, match="nothing to wait for"):
        time_once(lambda: None)


def test_warm_up_is_kept_apart():
    taken = iter([9.0, 8.0, 1.0, 1.0, 1.0, 1.0])
    timing = measure_until(lambda: next(taken), max_s=60.0, min_samples=4, num_warmup=2)
    assert timing.warmup_s == (9.0, 8.0)
    assert timing.samples_s == (1.0, 1.0, 1.0, 1.0)
    array = jnp.ones(3)
    timing = time_call(lambda: array + 1, num_samples=3, num_warmup=2)
    assert (len(timing.samples_s), len(timing.warmup_s)) == (3, 2)


def test_statistics_by_hand():
    timing = Timing(samples_s=(4.0, 1.0, 2.0, 3.0), warmup_s=())
    assert (timing.median_s, timing.best_s) == (2.5, 1.0)
    # Exclusive quartiles of 1, 2, 3, 4 are 1.25 and 3.75.
    assert timing.spread == pytest.approx(2.5 / 2.5)
    assert Timing((1.0, 2.0), ()).spread is None


def test_measuring_goes_on_until_samples_agree():
    # With two threes among n samples the upper quartile, at place 3 (n + 1) / 4, falls on a one from n = 11 on.
    taken = iter([1.0, 1.0, 3.0, 1.0, 3.0, 1.0, *[1.0] * 50])
    timing = measure_until(lambda: next(taken), max_s=60.0, min_samples=5, spread_target=0.05)
    assert timing.spread == 0
    assert timing.samples_s[:5] == (1.0, 3.0, 1.0, 3.0, 1.0)
    assert len(timing.samples_s) == 11


def test_measuring_stops_when_the_time_is_up():
    def sample_s() -> float:
        begin = time.perf_counter()
        time.sleep(0.02)
        return time.perf_counter() - begin

    begin = time.perf_counter()
    timing = measure_until(sample_s, max_s=0.15, min_samples=1000)
    assert time.perf_counter() - begin < 2
    assert 1 <= len(timing.samples_s) <= 7
    assert len(measure_until(sample_s, max_s=0.0).samples_s) == 1


def test_lowering_and_compiling_are_two_times():
    compiled = compile_call(lambda value: jnp.sin(value) @ value, jnp.ones((8, 8)))
    assert compiled.lower_s > 0
    assert compiled.compile_s > 0
    assert compiled.executable(jnp.ones((8, 8))).shape == (8, 8)


def test_an_empty_call_costs_something_and_little():
    assert 1e-7 < empty_call_s(50) < 5e-3
