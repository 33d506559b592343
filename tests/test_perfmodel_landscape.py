"""Grids of predictions: the same numbers as one at a time, and the laws of a map."""

import numpy as np
import pytest

from perfmodel.acceptance import load_profile
from perfmodel.errors import InputError
from perfmodel.hardware import load_hardware
from perfmodel.landscape import landscape
from perfmodel.modelspec import load_model
from perfmodel.predict import predict
from perfmodel.stepgrid import datasheet_grid
from perfmodel.steptime import datasheet_steps

TARGET, DRAFT = load_model("qwen3-4b"), load_model("qwen3-4b-dflash-b16")
CHIPS = [load_hardware(name) for name in ("tpu-v5p", "h100")]
PROFILES = [load_profile(f"qwen3-4b-dflash-b16/{task}") for task in ("math", "chat")]
BLOCKS, BATCHES, CONTEXTS = (1, 2, 4, 8, 16, 24), (1, 8, 64), (256, 4096)


@pytest.fixture(scope="module")
def found():
    grids = {chip.name: datasheet_grid(chip, TARGET, DRAFT, BLOCKS, BATCHES, CONTEXTS) for chip in CHIPS}
    return landscape(grids, PROFILES, 16, {"tpu-v5p": 4.2})


def test_every_cell_is_what_a_single_prediction_says(found):
    for chip, hardware in enumerate(CHIPS):
        for task, profile in enumerate(PROFILES):
            for batch, context in ((0, 0), (2, 1)):
                shape = (BATCHES[batch], CONTEXTS[context])
                one = predict(
                    datasheet_steps(hardware, TARGET, DRAFT, BLOCKS, *shape), profile, hardware=hardware.name, target=TARGET.name,
                    draft=DRAFT.name, batch=shape[0], context=shape[1], trained_block_size=16, usd_per_hour=4.2,
                )  # fmt: skip
                cells = found.speedup[chip, task, :, batch, context]
                assert cells == pytest.approx([row.speedup for row in one.rows], rel=1e-9)
                assert found.best[chip, task, batch, context] == one.best.block_size
                if hardware.name == "tpu-v5p":
                    dollars = found.usd_per_million_tokens[chip, task, :, batch, context]
                    assert dollars == pytest.approx([row.usd_per_million_tokens for row in one.rows], rel=1e-9)


def test_shape_and_axes(found):
    assert found.speedup.shape == (2, 2, 6, 3, 2)
    assert found.num_cells == 144
    assert (found.chips, found.tasks) == (("tpu-v5p", "h100"), ("math", "chat"))
    assert np.all(found.speedup[:, :, 0] == 1.0)
    assert np.all(np.isnan(found.usd_per_million_tokens[1]))
    assert found.beyond[0].tolist() == [False] * 5 + [True]


def test_the_best_is_never_beyond_the_block(found):
    assert found.best.max() <= 16
    assert found.in_training[0].tolist() == [True] * 5 + [False]


def test_larger_batches_want_no_larger_blocks(found):
    assert np.all(np.diff(found.best, axis=2) <= 0)


def test_without_plain_decoding_there_is_no_speedup():
    grid = datasheet_grid(CHIPS[0], TARGET, DRAFT, (4, 16), (1,), (256,))
    found = landscape({"tpu-v5p": grid}, PROFILES, 16)
    assert np.all(np.isnan(found.speedup))
    assert found.best[0, 0, 0, 0] == 16


def test_impossible_grids_are_refused():
    grid = datasheet_grid(CHIPS[0], TARGET, DRAFT, (1, 4), (1,), (256,))
    other = datasheet_grid(CHIPS[1], TARGET, DRAFT, (1, 8), (1,), (256,))
    with pytest.raises(InputError, match="unlike axes"):
        landscape({"a": grid, "b": other}, PROFILES)
    with pytest.raises(InputError, match="at least one chip"):
        landscape({}, PROFILES)
    with pytest.raises(InputError, match="can be recommended"):
        landscape({"a": datasheet_grid(CHIPS[0], TARGET, DRAFT, (32,), (1,), (256,))}, PROFILES)
    with pytest.raises(InputError, match="must be rising"):
        landscape({"a": datasheet_grid(CHIPS[0], TARGET, DRAFT, (4, 1), (1,), (256,))}, PROFILES)
