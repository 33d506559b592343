"""Several chips: the share of one, and what adding up takes, by hand."""

import msgspec
import numpy as np
import pytest

from perfmodel.audit import audit
from perfmodel.cost import Sizes, step_cost
from perfmodel.errors import InputError
from perfmodel.hardware import load_hardware
from perfmodel.modelspec import load_model
from perfmodel.parallel import all_reduce_s, collectives, egress_bytes_per_s
from perfmodel.records import StepShape, TimingPoint
from perfmodel.records.model import LatentAttention
from perfmodel.stepmodel import PRIORS
from perfmodel.steptime import datasheet_steps

TARGET, DRAFT = load_model("qwen3-4b"), load_model("qwen3-4b-dflash-b16")
SHAPE = StepShape(phase="verify", batch=2, query_tokens=16, context=1024)


def test_four_chips_do_a_quarter_each():
    one, four = (step_cost(TARGET, DRAFT, SHAPE, "bfloat16", chips) for chips in (1, 4))
    for part in ("flops", "weight_bytes", "kv_bytes", "activation_bytes", "attention_flops"):
        assert getattr(four, part) == getattr(one, part) / 4


def test_cached_rows_divide_by_heads_at_most():
    one, many = (step_cost(TARGET, DRAFT, SHAPE, "bfloat16", chips) for chips in (1, 32))
    assert many.kv_bytes == one.kv_bytes / TARGET.num_kv_heads  # 8 heads: 32 chips keep four copies
    latent = msgspec.structs.replace(TARGET, latent=LatentAttention(q_rank=8, kv_rank=8, nope_dim=8, rope_dim=8, value_dim=8))
    assert (
        step_cost(latent, None, SHAPE, "bfloat16", 4).kv_bytes == step_cost(latent, None, SHAPE).kv_bytes
    )  # one row for all heads


def test_all_reduces_by_hand():
    """72 all-reduces (36 layers) of 32 tokens x 2560 x 2 B over 4 chips; a v5p torus axis sends 180 GB/s both ways."""
    sizes = Sizes(np.array(2.0), np.array(16.0), np.array(1024.0))
    moved = collectives(TARGET, sizes, "bfloat16", 4)
    assert moved.count == 72
    assert moved.sent_bytes == pytest.approx(72 * (32 * 2560 * 2) * 2 * 3 / 4)
    v5p = load_hardware("tpu-v5p:4")
    assert egress_bytes_per_s(v5p) == 180e9
    assert egress_bytes_per_s(load_hardware("h100")) == 450e9
    assert all_reduce_s(moved, v5p, 5e-6) == pytest.approx(72 * 5e-6 + moved.sent_bytes / 180e9)
    assert collectives(TARGET, sizes, "bfloat16", 1).count == 0


def test_step_times_divide_and_gain_the_fixed_time_of_every_all_reduce():
    one, four = (datasheet_steps(load_hardware(name), TARGET, DRAFT, [1, 16], 1, 1024) for name in ("tpu-v5p", "tpu-v5p:4"))
    launch, reduces = PRIORS["overhead_s"].mode, 72 * PRIORS["reduce_latency_s"].mode
    message = 72 * np.array([1, 16]) * 2560 * 2 * 1.5 / 180e9
    assert four.verify_s == pytest.approx((one.verify_s - launch) / 4 + launch + reduces + message, rel=1e-9)
    # What is fixed costs a wide step no more than a plain one; at 16 tokens the messages (49 us) are still the smaller part.
    assert message[1] == 16 * message[0] < reduces


def test_the_audit_divides_the_floor_and_blames_too_few_chips():
    points = [TimingPoint(phase="verify", block_size=16, batch=1, context=256, samples_s=(1.5e-3,))]
    one, four = (audit(points, TARGET, None, load_hardware(name), "bfloat16") for name in ("tpu-v5p", "tpu-v5p:4"))
    assert one.points[0].verdict == "invalid"
    assert "at least 2 chips" in one.points[0].cause
    assert four.points[0].verdict == "valid"
    assert four.points[0].floor_s == pytest.approx(one.points[0].floor_s / 4)
    assert four.hardware == "tpu-v5p:4"


@pytest.mark.parametrize("name", ["tpu-v5p:0", "tpu-v5p:5000"])
def test_impossible_numbers_of_chips_are_refused(name):
    with pytest.raises(InputError, match="chips"):
        load_hardware(name)


def test_chips_without_known_links_share_nothing():
    with pytest.raises(InputError, match="links"):
        datasheet_steps(load_hardware("l40s:2"), TARGET, DRAFT, [1, 16], 1, 1024)
    with pytest.raises(InputError):
        step_cost(TARGET, None, SHAPE, "bfloat16", 0)
