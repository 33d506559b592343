"""A fitted model on another chip: peaks swapped, efficiencies kept, certainty lost."""

import csv
import dataclasses
import itertools

import msgspec
import numpy as np
import pytest
from fitted_points import DRAFT, PARTS, TARGET, TRUE, V5P, made, point
from gemm_products import GemmTime, fit_gemm, off_chip

from perfmodel.errors import InputError
from perfmodel.fit import fit
from perfmodel.hardware import load_hardware
from perfmodel.records import StepShape
from perfmodel.stepmodel import roofline_work, seconds
from perfmodel.steptime import fitted_steps
from perfmodel.transfer import label_of, moved, transfer

BLOCKS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


@pytest.fixture(scope="module")
def fitted():
    points = made(TRUE | PARTS, phases=("verify", "draft", "commit"), blocks=BLOCKS, noise=0.02, repeats=8)
    return fit(points, TARGET, DRAFT, V5P, "bfloat16", num_draws=40)


def true_seconds(chip, blocks):
    work = roofline_work(
        [StepShape(phase="verify", batch=1, query_tokens=k, context=256) for k in blocks], TARGET, DRAFT, "bfloat16"
    )
    return seconds(TRUE, work, chip, "bfloat16")


def test_with_the_same_efficiencies_the_other_chip_is_met(fitted):
    chip = load_hardware("tpu-v6e")
    moved = fitted_steps(transfer(fitted, chip), BLOCKS, 1, 256)
    truth = true_seconds(chip, BLOCKS)
    assert moved.verify_s == pytest.approx(truth, rel=0.05)
    low, high = np.percentile(moved.verify_draws, [2.5, 97.5], axis=0)
    assert np.all((low < truth) & (truth < high))


def test_the_interval_is_wider_than_at_home(fitted):
    at_home = fitted_steps(fitted, BLOCKS, 1, 256)
    moved = fitted_steps(transfer(fitted, load_hardware("tpu-v6e")), BLOCKS, 1, 256)
    spread = [np.std(np.log(steps.verify_draws), axis=0) for steps in (at_home, moved)]
    assert np.all(spread[1] > 2 * spread[0])


def test_it_says_what_it_is(fitted):
    chip = load_hardware("h100")
    moved = transfer(fitted, chip)
    assert moved.hardware.name == "h100"
    assert moved.findings[-1].code == "transferred"
    assert "tpu-v5p" in moved.findings[-1].message
    assert label_of(fitted, chip) == "moved from tpu-v5p to h100, not measured there"
    table = np.array(moved.draws)
    efficiencies = table[:, [list(moved.parameters).index(name) for name in ("memory_efficiency", "compute_efficiency")]]
    assert np.all((efficiencies > 0) & (efficiencies <= 1))


def test_an_unknown_peak_at_home_leaves_compute_to_the_prior(shared_data, fitted):
    known = fitted.parameters
    free = known["compute_efficiency"]
    bare = msgspec.structs.replace(
        fitted,
        hardware=load_hardware("rtx-2000-ada"),
        parameters={("compute_flops_per_s" if name == "compute_efficiency" else name): known[name] for name in known},
    )
    moved = transfer(bare, load_hardware("h100"))
    assert "compute_flops_per_s" not in moved.parameters
    assert moved.parameters["compute_efficiency"].identified is False
    assert moved.parameters["compute_efficiency"].value != free.value
    assert "prior" in moved.findings[-1].message
    assert np.all(np.isfinite(fitted_steps(moved, BLOCKS, 1, 256).verify_draws))


SYSTEMS = {"a100_sxm": "a100-80gb", "h200_sxm": "h200", "l40s": "l40s"}


def test_published_matrix_products_move_between_chips(shared_data):
    """Six moves between three chips, efficiencies carried over, launch times their own: 8 to 13 % off, inside the interval."""
    with (shared_data / "published" / "gemm_latency_vs_tokens.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    chips = {system: load_hardware(name) for system, name in SYSTEMS.items()}
    times = {
        system: off_chip(
            [
                GemmTime(int(row["n"]), int(row["k"]), int(row["m"]), float(row["latency_ms"]) / 1e3)
                for row in rows
                if row["system"] == system
            ],
            chip,
        )
        for system, chip in chips.items()
    }
    fits = {system: fit_gemm(times[system], chip) for system, chip in chips.items()}
    rng = np.random.default_rng(0)
    for home, away in itertools.permutations(SYSTEMS, 2):
        values = fits[home].solution.values | {"overhead_s": fits[away].solution.values["overhead_s"]}
        problem = dataclasses.replace(fits[away].problem, fixed={})
        measured = np.array([time.seconds for time in times[away]])
        assert np.mean(np.abs(problem.predicted_s(values) / measured - 1)) < 0.13, (home, away)
        columns = {name: moved(name, np.full(300, value), rng) for name, value in values.items()}
        draws = np.array([problem.predicted_s({name: columns[name][i] for name in columns}) for i in range(300)])
        low, high = np.percentile(draws * np.exp(0.05 * rng.standard_normal(draws.shape)), [2.5, 97.5], axis=0)
        assert np.mean((low < measured) & (measured < high)) > 0.9, (home, away)


def test_what_cannot_be_moved_is_refused(fitted):
    dense = fit([point(k, 0.01 + 1e-5 * k) for k in (1, 4, 16, 64)], None, None, None, "bfloat16")
    with pytest.raises(InputError, match="no chip and no target"):
        transfer(dense, V5P)
    with pytest.raises(InputError, match="no known bfloat16 peak"):
        transfer(fitted, load_hardware("rtx-2000-ada"))
