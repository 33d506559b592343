"""The worked examples of docs/model.md, computed: a figure there is wrong the moment one of these fails."""

import numpy as np
import pytest

from perfmodel import acceptance
from perfmodel.cost import Sizes, step_cost
from perfmodel.fit import fit
from perfmodel.flatness import flatness
from perfmodel.hardware import load_hardware
from perfmodel.modelspec import load_model
from perfmodel.parallel import all_reduce_s, collectives
from perfmodel.records import StepShape, TimingPoint
from perfmodel.roofline import floor_s, knee_tokens, ridge_point
from perfmodel.steptime import datasheet_steps
from sweeps.predicting import Question, answer

PAIR = "qwen3-4b-dflash-b16"


@pytest.fixture(scope="module")
def target():
    return load_model("qwen3-4b")


@pytest.fixture(scope="module")
def v5p():
    return load_hardware("tpu-v5p")


def cost(target, block_size):
    return step_cost(target, None, StepShape(phase="verify", batch=1, query_tokens=block_size, context=256))


def test_cost(target):
    layer = 2560 * (32 + 2 * 8) * 128 + 4096 * 2560 + 3 * 2560 * 9728
    weights = 36 * layer + 2560 * 151936
    assert layer == pytest.approx(100.9e6, rel=5e-4)
    assert weights == pytest.approx(4.022e9, rel=5e-4)
    row = 36 * 2 * 8 * 128 * 2
    assert row == pytest.approx(147e3, rel=5e-3)
    step = cost(target, 16)
    assert step.flops - step.attention_flops == 2 * 16 * weights == pytest.approx(128.7e9, rel=5e-4)
    assert step.attention_flops == 4 * 4096 * 36 * (16 * 256 + 136) == pytest.approx(2.5e9, rel=5e-3)
    assert step.flops == pytest.approx(131.2e9, rel=5e-4)
    assert step.weight_bytes == pytest.approx(8.045e9, rel=5e-4)
    assert step.kv_bytes == (256 + 16) * row


def test_roofline(target, v5p):
    assert (
        floor_s(cost(target, 16), v5p, "bfloat16")
        == pytest.approx(8.085e9 / 2.765e12, rel=1e-3)
        == pytest.approx(2.92e-3, rel=2e-3)
    )
    assert (
        floor_s(cost(target, 1024), v5p, "bfloat16")
        == pytest.approx(8.70e12 / 459e12, rel=1e-3)
        == pytest.approx(18.96e-3, rel=1e-3)
    )
    assert round(ridge_point(v5p, "bfloat16")) == knee_tokens(target, v5p, "bfloat16") == 166


def test_several_chips(target):
    chips = load_hardware("tpu-v5p:4")
    moved = collectives(target, Sizes(np.array(1.0), np.array(16.0), np.array(256.0)), "bfloat16", 4)
    assert moved.count == 72
    assert all_reduce_s(moved, chips, 5e-6) == pytest.approx(360e-6 + 49e-6, rel=2e-3)


def test_a_step_by_data_sheet(target, v5p):
    steps = datasheet_steps(v5p, target, load_model(PAIR), [1, 16], 1, 256, "bfloat16")
    plain, wide = (steps.draft_s + steps.verify_s + steps.host_s).tolist()
    assert steps.verify_s[1] == pytest.approx(4.05e-3, rel=2e-3)
    assert steps.draft_s[1] == pytest.approx(1.04e-3, rel=5e-3)
    assert (plain, wide) == (pytest.approx(4.9e-3, rel=5e-3), pytest.approx(7.0e-3, rel=5e-3))


def test_flat_widths_of_a_dense_law():
    sizes = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
    points = [TimingPoint(phase="verify", block_size=k, batch=1, context=0, samples_s=(10e-3 + 0.1e-3 * k,)) for k in sizes]
    assert flatness(fit(points, num_draws=0)).widths == {"0.05": 6, "0.10": 11, "0.25": 26}


def test_acceptance_of_three_answers():
    answers = [[3, 4], [1, 2, 4], [2]]
    given = {"block_size": 4, "task": "t", "target": "x", "draft": "y"}
    cut = acceptance.from_committed(answers, last_step_cut=[False, False, True], **given)
    assert cut.survival == pytest.approx((5 / 6, 5 / 6 * 3 / 4, 5 / 6 * 3 / 4 * 2 / 3))
    assert acceptance.tau(cut, 4) == pytest.approx(2.875)
    assert acceptance.tau(acceptance.from_committed(answers, **given), 4) == pytest.approx(16 / 6)


def shown(value, interval=None, digits=1):
    return tuple(f"{number:.{digits}f}" for number in (value, *(interval or ())))


def test_acceptance_beyond_the_block_and_from_mean_lengths():
    math = acceptance.load_profile(f"{PAIR}/math500")
    chat = acceptance.load_profile(f"{PAIR}/alpaca")
    assert shown(acceptance.tau(math, 16), acceptance.tau_interval(math, 16)) == ("8.8", "7.8", "10.2")
    assert shown(acceptance.tau(math, 32), acceptance.tau_interval(math, 32)) == ("10.6", "8.9", "13.4")
    for profile, expected in ((math, ("79", "68", "86")), (chat, ("73", "45", "99"))):
        share = acceptance.ceiling_share(profile, 16)
        assert shown(100 * share.value, (100 * share.low, 100 * share.high), 0) == expected
    known = acceptance.from_tau_points([(16, 5.4)])
    assert shown(acceptance.tau(known, 8), acceptance.tau_interval(known, 8)) == ("4.5", "4.1", "4.9")
    head = acceptance.from_tau_points([(4, 2.61)], drafting="sequential")
    assert shown(acceptance.tau(head, 9), acceptance.tau_interval(head, 9)) == ("3.2", "2.9", "3.7")


def test_a_prediction():
    found = answer(Question(hardware=("h100",), acceptance=(f"{PAIR}/chat",), batches=(32,))).predictions[0]
    plain, best = found.rows[0], found.best
    plain_s, best_s = (1e3 * (row.draft_s + row.verify_s + row.host_s) for row in (plain, best))
    assert best.block_size == 8
    assert shown(plain_s, (best_s, best_s / plain_s), 2) == ("6.20", "9.73", "1.57")
    assert shown(best.tau, (best.tau * plain_s / best_s, best.speedup), 2) == ("2.98", "1.90", "1.90")
    assert shown(best.speedup_low, (best.speedup_high,), 2) == ("1.36", "2.26")
    assert shown(found.acceptance_low, (found.acceptance_high, found.cost_low, found.cost_high), 2) == (
        "1.53",
        "2.19",
        "1.45",
        "2.08",
    )
    assert (found.plateau, found.reach["0.90"]) == ((5, 16), 4)
    assert best.usd_per_million_tokens == pytest.approx(10.80 / 3600 * best_s / 1e3 / (32 * best.tau) * 1e6)
    assert shown(best.usd_per_million_tokens, (plain.usd_per_million_tokens,), 2) == ("0.31", "0.58")
    assert shown(found.sensitivity["alpha_factor_down"], (found.sensitivity["alpha_winner_down"],), 2) == ("0.66", "4.00")
