"""Grids of step times: the same numbers as one by one, quickly, and prefill under load."""

import time

import numpy as np
import pytest
from fitted_points import DRAFT, PARTS, TARGET, TRUE, V5P, made

from perfmodel.errors import InputError
from perfmodel.fit import fit
from perfmodel.stepgrid import datasheet_grid, fitted_grid, prefill_s, prefill_share_s
from perfmodel.steptime import datasheet_steps, fitted_steps

BLOCKS, BATCHES, CONTEXTS = (1, 4, 16, 64), (1, 8), (256, 4096)


@pytest.fixture(scope="module")
def model():
    points = made(TRUE | PARTS, phases=("verify", "draft", "commit"), noise=0.01, repeats=3)
    return fit(points, TARGET, DRAFT, V5P, num_draws=12)


def test_a_grid_holds_what_single_steps_give(model):
    sheet = datasheet_grid(V5P, TARGET, DRAFT, BLOCKS, BATCHES, CONTEXTS)
    fitted = fitted_grid(model, BLOCKS, BATCHES, CONTEXTS, host_s=1e-3)
    assert sheet.verify_s.shape == (4, 2, 2)
    for j, batch in enumerate(BATCHES):
        for k, context in enumerate(CONTEXTS):
            for grid, steps in (
                (sheet, datasheet_steps(V5P, TARGET, DRAFT, BLOCKS, batch, context)),
                (fitted, fitted_steps(model, BLOCKS, batch, context, host_s=1e-3)),
            ):
                for part in ("draft_s", "verify_s", "host_s"):
                    assert getattr(grid, part)[:, j, k] == pytest.approx(getattr(steps, part), rel=1e-12)
                assert tuple(grid.bound[:, j, k]) == steps.bound
                assert grid.extrapolated[:, j, k].tolist() == steps.extrapolated.tolist()
    assert np.all(sheet.draft_s[0] == 0)
    assert sheet.step_s == pytest.approx(sheet.draft_s + sheet.verify_s + sheet.host_s)


def test_draws_are_asked_for(model):
    assert datasheet_grid(V5P, TARGET, DRAFT, BLOCKS, BATCHES, CONTEXTS).verify_draws is None
    sheet = datasheet_grid(V5P, TARGET, DRAFT, BLOCKS, BATCHES, CONTEXTS, num_draws=50)
    assert sheet.verify_draws.shape == sheet.draft_draws.shape == sheet.host_draws.shape == (50, 4, 2, 2)
    assert sheet.verify_draws.min() < sheet.verify_s.min() < sheet.verify_draws.max()
    fitted = fitted_grid(model, BLOCKS, BATCHES, CONTEXTS, num_draws=5)
    assert fitted.verify_draws.shape == (5, 4, 2, 2)
    fixed = datasheet_grid(V5P, TARGET, DRAFT, BLOCKS, BATCHES, CONTEXTS, host_s=2e-3, num_draws=3)
    assert np.all(fixed.host_s == 2e-3)
    assert np.all(fixed.host_draws == 2e-3)


def test_a_hundred_thousand_cells_take_less_than_a_second():
    started = time.process_time()
    grid = datasheet_grid(V5P, TARGET, DRAFT, range(1, 101), range(1, 101), [512 * i for i in range(1, 11)])
    assert grid.verify_s.size == 100_000
    assert time.process_time() - started < 1.0


def test_a_model_without_a_drafter_needs_its_time():
    bare = fit(made(TRUE, draft=None), TARGET, None, V5P, num_draws=0)
    with pytest.raises(InputError, match="no drafter"):
        fitted_grid(bare, BLOCKS, BATCHES, CONTEXTS)
    grid = fitted_grid(bare, BLOCKS, BATCHES, CONTEXTS, draft_s=1e-3)
    assert np.all(grid.draft_s[1:] == 1e-3)
    assert np.all(grid.draft_s[0] == 0)
    with pytest.raises(InputError, match="at least one"):
        fitted_grid(bare, (), BATCHES, CONTEXTS, draft_s=1e-3)


def test_prefill_under_load_by_hand(model):
    """32 requests that leave after 256 tokens, 4 committed per step: half a request ends per step and one prompt of 20 ms is due."""
    assert prefill_share_s(np.array(0.02), np.array(32.0), np.array(4.0), 256) == pytest.approx(0.5 * 0.02)
    assert prefill_share_s(np.array(0.02), np.array(32.0), np.array(4.0), 256, duty=0.0) == 0
    assert prefill_share_s(np.array(0.02), np.array(2.0), np.array(9.0), 4) == pytest.approx(2 * 0.02)  # at most one per request
    short, long = prefill_s(model, [128, 4096])
    assert 0 < short < long
    with pytest.raises(InputError, match="no load"):
        prefill_share_s(np.array(0.02), np.array(1.0), np.array(1.0), 0)


def test_speculation_makes_prefill_matter_more():
    """A step that commits four times as much ends requests four times as often, so prefill takes back part of the speedup."""
    step, drafted, prompt = np.array(0.010), np.array(0.013), np.array(0.05)
    plain = step + prefill_share_s(prompt, np.array(64.0), np.array(1.0), 200)
    wide = drafted + prefill_share_s(prompt, np.array(64.0), np.array(4.0), 200)
    assert 4 * plain / wide < 4 * step / drafted
