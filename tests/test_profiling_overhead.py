import numpy as np
import pytest

from perfmodel.errors import InputError
from profiling.overhead import profiler_overhead


def test_overhead_is_the_ratio_of_medians_less_one():
    # Medians 1.02 and 1.00; the outliers do not matter.
    found = profiler_overhead([1.02, 1.02, 9.0, 1.02, 0.1], [1.0, 1.0, 1.0, 50.0, 0.9])
    assert found.share == pytest.approx(0.02)


def test_the_interval_holds_the_true_share_and_narrows():
    random = np.random.default_rng(3)
    few = profiler_overhead((1.1 + 0.05 * random.random(8)).tolist(), (1.0 + 0.05 * random.random(8)).tolist())
    many = profiler_overhead((1.1 + 0.05 * random.random(800)).tolist(), (1.0 + 0.05 * random.random(800)).tolist())
    assert few.low <= many.share <= few.high
    assert many.high - many.low < (few.high - few.low) / 3
    assert many.low < 1.125 / 1.025 - 1 < many.high


def test_only_an_overhead_beyond_doubt_is_over_the_limit():
    assert profiler_overhead([1.2, 1.21, 1.19], [1.0, 1.0, 1.01]).over_limit
    assert not profiler_overhead([1.2, 0.9, 1.0, 1.0], [1.0, 1.3, 0.9, 1.0]).over_limit


def test_the_same_samples_give_the_same_interval():
    assert profiler_overhead([1.0, 1.1, 1.2], [0.9, 1.0, 1.0]) == profiler_overhead([1.0, 1.1, 1.2], [0.9, 1.0, 1.0])


def test_two_steps_are_too_few():
    with pytest.raises(InputError, match="too few"):
        profiler_overhead([1.0, 1.0], [1.0] * 9)
