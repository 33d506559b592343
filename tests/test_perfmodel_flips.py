"""Which constant flips the answer: by hand, and checked by applying the factor."""

import numpy as np
import pytest

from perfmodel.acceptance import load_profile, tau_curve
from perfmodel.flips import constant_flips, datasheet_law
from perfmodel.hardware import load_hardware
from perfmodel.modelspec import load_model

BLOCKS = np.arange(1, 17)


def test_a_flip_by_hand():
    # K=1 takes 10 s, K=2 takes 12 s and `more`; with τ = 1.5 it wins while 12 + more < 15, so `more` = 1 may grow threefold
    def law(values):
        more = np.asarray(values["more_s"])
        return np.concatenate([np.full((*more.shape[:-1], 1), 10.0), 12.0 + more], axis=-1)

    both = np.array([True, True])
    found = constant_flips(law, {"more_s": 1.0}, np.array([1, 2]), np.array([1.0, 1.5]), both, (2, 2))
    assert found["more_s_factor_up"] == pytest.approx(3.0, rel=0.011)
    assert found["more_s_winner_up"] == 1.0
    assert "more_s_factor_down" not in found


def test_a_factor_that_flips_the_answer_does_flip_it():
    profile = load_profile("qwen3-4b-dflash-b16/chat")
    target, draft = load_model("qwen3-4b"), load_model("qwen3-4b-dflash-b16")
    law, values = datasheet_law(load_hardware("tpu-v5p"), target, draft, BLOCKS, 16, 1024, "bfloat16")
    tau = tau_curve(profile, 16)
    rate = tau / law(values)
    best = int(BLOCKS[np.argmax(rate)])
    good = BLOCKS[rate >= 0.98 * rate.max()]
    plateau = (int(good.min()), int(good.max()))
    found = constant_flips(law, values, BLOCKS, tau, BLOCKS > 0, plateau)
    assert 1 < best < 16
    assert {"compute_efficiency_factor_down", "compute_efficiency_factor_up"} & set(found)
    for key, factor in found.items():
        name, kind, way = key.rsplit("_", 2)
        if kind == "factor":
            again = law(values | {name: values[name] * factor})
            winner = int(BLOCKS[np.argmax(tau / again)])
            assert winner == found[f"{name}_winner_{way}"]
            assert not plateau[0] <= winner <= plateau[1]
    efficiency = values["memory_efficiency"] * found.get("memory_efficiency_factor_up", 1.0)
    assert efficiency <= 1.0


def test_nothing_flips_where_every_k_is_as_good():
    assert constant_flips(lambda values: np.ones(2), {"a": 1.0}, np.array([1, 2]), np.ones(2), np.ones(2, bool), (1, 2)) == {}
