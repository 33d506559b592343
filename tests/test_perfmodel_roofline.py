"""The speed of light of a step, and the soft maximum above it."""

import msgspec
import numpy as np
import pytest

from perfmodel.errors import InputError
from perfmodel.hardware import load_hardware
from perfmodel.modelspec import load_model
from perfmodel.records import Hardware, Peak, StepCost
from perfmodel.roofline import floor, floor_s, knee_tokens, peak_flops_per_s, ridge_point, soft_max

# 1 kB/s and 10 kFLOP/s: the ridge is at 10 FLOP/B
TOY = Hardware(
    name="toy", display_name="Toy", kind="cpu", source="datasheet", bandwidth_bytes_per_s=Peak(value=1e3, source="t"),
    flops_per_s={"float32": Peak(value=1e4, source="t")},
)  # fmt: skip


def cost(flops, weight_bytes, kv_bytes=0.0, activation_bytes=0.0):
    return StepCost(flops=flops, weight_bytes=weight_bytes, kv_bytes=kv_bytes, activation_bytes=activation_bytes)


def test_the_floor_is_the_larger_of_two_times():
    assert floor_s(cost(5_000, 400, 100), TOY, "float32") == max(500 / 1e3, 5_000 / 1e4)
    bound = floor(cost(50_000, 400, 100), TOY, "float32")
    assert (bound.seconds, bound.memory_s, bound.compute_s) == (5.0, 0.5, 5.0)


def test_activations_may_stay_on_chip_and_are_not_in_the_floor():
    assert floor_s(cost(0, 400, 100, 1e9), TOY, "float32") == 0.5


def test_what_a_cache_keeps_need_not_cross_the_bus_but_scratch_memory_keeps_nothing():
    roomy = msgspec.structs.replace(TOY, on_chip_bytes=Peak(value=200.0, source="t"))
    assert floor_s(cost(0, 400, 100), roomy, "float32") == (500 - 200) / 1e3
    assert floor_s(cost(0, 100, 50), roomy, "float32") == 0.0
    assert floor_s(cost(0, 400, 100), msgspec.structs.replace(roomy, kind="tpu"), "float32") == 0.5


def test_an_unknown_peak_leaves_bandwidth_alone_and_says_so():
    bound = floor(cost(1e9, 500), TOY, "bfloat16")
    assert (bound.seconds, bound.compute_s) == (0.5, None)
    assert peak_flops_per_s(TOY, "bfloat16") is None
    with pytest.raises(InputError, match="bfloat16"):
        ridge_point(TOY, "bfloat16")
    with pytest.raises(InputError, match="bfloat16"):
        knee_tokens(load_model("qwen3-4b"), TOY, "bfloat16")


def test_at_the_ridge_both_sides_are_equal():
    assert ridge_point(TOY, "float32") == 10.0
    bound = floor(cost(10.0 * 500, 500), TOY, "float32")
    assert bound.memory_s == bound.compute_s == bound.seconds


def test_soft_maximum_by_hand():
    assert soft_max(3.0, 4.0, 1.0) == 7.0
    assert soft_max(3.0, 4.0, 2.0) == pytest.approx(5.0)
    assert soft_max(3.0, 4.0, 200.0) == pytest.approx(4.0)
    assert soft_max(0.0, 4.0, 2.0) == 4.0
    assert soft_max(0.0, 0.0, 2.0) == 0.0
    assert soft_max(np.array([3.0, 5.0]), np.array([4.0, 12.0]), 2.0) == pytest.approx([5.0, 13.0])


@pytest.mark.parametrize(
    ("chip", "tokens"), [("tpu-v5e", 240), ("tpu-v5p", 166), ("h100", 295), ("tpu-v4", 229), ("a100-80gb", 153)]
)
def test_knees_of_a_dense_model_without_cache_are_peak_over_bandwidth(chip, tokens):
    """2 FLOP and 2 bytes per bfloat16 weight, so K = π/β; attention and embedding rows move it by about 1 %."""
    assert knee_tokens(load_model("qwen3-4b"), load_hardware(chip), "bfloat16") == pytest.approx(tokens, rel=0.01)


def test_the_knee_is_shared_by_the_batch_and_moves_with_efficiency():
    spec, chip = load_model("qwen3-4b"), load_hardware("tpu-v5e")
    alone = knee_tokens(spec, chip, "bfloat16")
    assert knee_tokens(spec, chip, "bfloat16", batch=8) == pytest.approx(alone / 8, abs=1)
    halved = knee_tokens(spec, chip, "bfloat16", compute_efficiency=0.5)
    assert halved == pytest.approx(alone / 2, rel=0.02)
    # A long cache adds bytes faster than a block adds arithmetic, so the knee moves out.
    assert knee_tokens(spec, chip, "bfloat16", batch=8, context=4096) > alone / 8


def test_a_chip_with_endless_arithmetic_has_no_knee():
    endless = Hardware(
        name="toy", display_name="Toy", kind="cpu", source="datasheet", bandwidth_bytes_per_s=Peak(value=1.0, source="t"),
        flops_per_s={"float32": Peak(value=1e30, source="t")},
    )  # fmt: skip
    assert knee_tokens(load_model("smollm2-135m"), endless, "float32") is None
