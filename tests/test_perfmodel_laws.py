"""Laws every step time obeys, whatever the constants."""

import numpy as np
from fitted_points import DRAFT, TARGET, V5P
from hypothesis import given, settings
from hypothesis import strategies as st

from perfmodel.cost import step_cost
from perfmodel.records import StepShape
from perfmodel.roofline import floor, floor_s, soft_max
from perfmodel.stepmodel import roofline_work, seconds, terms

CONSTANTS = st.fixed_dictionaries(
    {
        "memory_efficiency": st.floats(0.05, 1.0),
        "compute_efficiency": st.floats(0.05, 1.0),
        "exponent": st.floats(1.0, 20.0),
        "overhead_s": st.floats(0.0, 0.05),
    }
)
TIMES = st.floats(1e-9, 1e3)


def verify(blocks, batch=1, context=256):
    return [StepShape(phase="verify", batch=batch, query_tokens=int(k), context=context) for k in blocks]


@given(a=TIMES, b=TIMES, p=st.floats(1.0, 20.0))
def test_the_soft_maximum_lies_between_maximum_and_sum(a, b, p):
    value = soft_max(a, b, p)
    assert max(a, b) * (1 - 1e-12) <= value <= (a + b) * (1 + 1e-12)
    assert value == soft_max(b, a, p)


@given(a=TIMES, b=TIMES, p=st.floats(1.0, 19.0))
def test_a_sharper_overlap_is_never_slower(a, b, p):
    assert soft_max(a, b, p + 1.0) <= soft_max(a, b, p) * (1 + 1e-12)


@settings(max_examples=40, deadline=None)
@given(values=CONSTANTS, batch=st.integers(1, 16), context=st.integers(0, 4096))
def test_no_prediction_beats_the_speed_of_light(values, batch, context):
    shapes = verify([1, 7, 64, 1000], batch, context)
    predicted = seconds(values, roofline_work(shapes, TARGET, None, "bfloat16"), V5P, "bfloat16")
    floors = np.array([floor_s(step_cost(TARGET, None, shape), V5P, "bfloat16") for shape in shapes])
    assert np.all(predicted >= floors * (1 - 1e-12))


@settings(max_examples=40, deadline=None)
@given(values=CONSTANTS, phase=st.sampled_from(["verify", "draft", "commit"]))
def test_more_tokens_never_take_less_time(values, phase):
    shapes = [StepShape(phase=phase, batch=1, query_tokens=k, context=256) for k in (2, 3, 8, 50, 51, 400)]
    predicted = seconds(values, roofline_work(shapes, TARGET, DRAFT, "bfloat16"), V5P, "bfloat16")
    assert np.all(np.diff(predicted) >= 0)


@settings(max_examples=40, deadline=None)
@given(values=CONSTANTS)
def test_better_constants_never_take_more_time(values):
    work = roofline_work(verify([1, 16, 300]), TARGET, None, "bfloat16")

    def time(**changes):
        return seconds(values | changes, work, V5P, "bfloat16")

    base = time()
    assert np.all(time(memory_efficiency=1.0) <= base * (1 + 1e-12))
    assert np.all(time(compute_efficiency=1.0) <= base * (1 + 1e-12))
    assert np.all(time(overhead_s=0.0) <= base)
    assert np.all(time(attention_slowdown=2.0) >= base)
    assert np.all(time(cache_slowdown=2.0) >= base)


@given(scale=st.floats(1.0, 1e6))
def test_at_the_ridge_both_sides_are_equal(scale):
    """Work of exactly π/β FLOP per byte takes memory and arithmetic the same time."""
    cost = step_cost(TARGET, None, verify([16])[0])
    ridge = V5P.flops_per_s["bfloat16"].value / V5P.bandwidth_bytes_per_s.value
    at_ridge = type(cost)(flops=scale * ridge, weight_bytes=scale, kv_bytes=0.0, activation_bytes=0.0)
    bound = floor(at_ridge, V5P, "bfloat16")
    assert np.isclose(bound.memory_s, bound.compute_s, rtol=1e-12)
    assert np.isclose(soft_max(bound.memory_s, bound.compute_s, 1.0), 2 * bound.seconds)


@settings(max_examples=30, deadline=None)
@given(values=CONSTANTS, kernel=st.floats(0.2, 3.0), ratio=st.floats(0.3, 3.0))
def test_kernel_and_phase_ratios_touch_only_what_they_name(values, kernel, ratio):
    shapes = [*verify([1, 2]), *verify([1], batch=2), StepShape(phase="draft", batch=1, query_tokens=4, context=256)]
    work = roofline_work(shapes, TARGET, DRAFT, "bfloat16")
    plain = seconds(values, work, V5P, "bfloat16")
    changed = seconds(values | {"kernel": kernel, "draft_ratio": ratio}, work, V5P, "bfloat16")
    assert np.isclose(changed[0], kernel * plain[0])
    assert np.allclose(changed[1:3], plain[1:3])
    launch = values["overhead_s"]
    assert np.isclose(changed[3] - launch, ratio * (plain[3] - launch))


@settings(max_examples=30, deadline=None)
@given(values=CONSTANTS)
def test_the_parts_make_the_whole(values):
    parts = terms(values, roofline_work(verify([1, 16, 300]), TARGET, None, "bfloat16"), V5P, "bfloat16")
    whole = soft_max(parts.memory_s, parts.compute_s, values["exponent"]) + parts.overhead_s
    assert np.allclose(parts.total_s, whole)


@settings(max_examples=20, deadline=None)
@given(values=st.lists(CONSTANTS, min_size=2, max_size=4))
def test_columns_of_draws_give_what_single_draws_give(values):
    work = roofline_work(verify([1, 16, 300]), TARGET, None, "bfloat16")
    columns = {name: np.array([[draw[name]] for draw in values]) for name in values[0]}
    table = seconds(columns, work, V5P, "bfloat16")
    for row, draw in zip(table, values, strict=True):
        assert np.allclose(row, seconds(draw, work, V5P, "bfloat16"))
