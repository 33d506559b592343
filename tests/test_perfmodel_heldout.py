"""What is left out, which form of the law wins there, and tiles only where they show."""

import pytest
from fitted_points import DRAFT, TARGET, TRUE, V5P, made, point

from perfmodel.errors import FitError
from perfmodel.fit import fit
from perfmodel.hardware import load_hardware
from perfmodel.heldout import held_out_sizes
from perfmodel.modelspec import load_model
from sweeps.validation import cross_validate

FINE = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
UNEVEN = (1, 2, 4, 8, 16, 24, 32, 48, 64, 80, 96, 112, 128, 160, 192, 256, 320)


def test_every_second_interior_size_is_held_out_when_enough_remain():
    assert held_out_sizes([1, 2, 4, 8, 16, 32]) == {4, 16}
    assert held_out_sizes([1, 2, 4, 8]) == set()


def test_each_axis_with_several_values_gets_an_error():
    model = fit(made(TRUE, noise=0.01, repeats=3, batches=(1, 8), contexts=(256, 2048, 8192)), TARGET, DRAFT, V5P, num_draws=0)
    assert set(model.held_out) == {"block_size", "batch", "context"}
    assert all(0 <= error < 0.03 for error in model.held_out.values())
    assert model.held_out["block_size"] == model.held_out_median_error
    alone = fit(made(TRUE), TARGET, DRAFT, V5P, num_draws=0)
    assert set(alone.held_out) == {"block_size"}


def test_a_context_that_behaves_otherwise_shows_only_when_it_is_left_out():
    """At the longest context a step takes half as long again: no constant of the law says so, and leaving it out tells."""
    points = made(TRUE, noise=0.005, repeats=3, contexts=(256, 2048))
    odd = [
        point(p.block_size, *(1.5 * s for s in p.samples_s), context=8192)
        for p in made(TRUE, noise=0.005, repeats=3, contexts=(8192,))
    ]
    model = fit([*points, *odd], TARGET, DRAFT, V5P, num_draws=0)
    assert model.held_out["context"] > 2 * model.held_out["block_size"]


@pytest.mark.parametrize(("name", "form"), [("qwen3-30b-a3b", "experts"), ("qwen3-8b", "dense")])
@pytest.mark.parametrize("noise", [0.0, 0.02])
def test_without_dimensions_the_form_that_predicts_is_chosen_and_named(name, form, noise):
    """Steps of a mixture (8 of 128 experts) and of a dense model on one H100, fitted without saying which is which."""
    points = made(
        TRUE,
        blocks=FINE,
        noise=noise,
        repeats=3,
        target=load_model(name),
        draft=None,
        hardware=load_hardware("h100"),
        contexts=(0,),
    )
    model = fit(points, num_draws=5)
    assert model.form == form
    assert model.target is None
    assert model.held_out_median_error < 0.03
    if form == "experts":
        assert model.parameters["expert_share"].value == pytest.approx(8 / 128, rel=0.1)
        assert all(len(draw) == len(model.parameters) for draw in model.draws)


@pytest.mark.parametrize("tile", [64, 128])
def test_a_tile_is_found_where_sizes_lie_just_above_it(tile):
    points = made(TRUE | {"tile_tokens": float(tile)}, blocks=UNEVEN, noise=0.02, repeats=3)
    model = fit(points, TARGET, DRAFT, V5P, num_draws=3)
    assert model.parameters["tile_tokens"].value == tile
    assert model.parameters["compute_efficiency"].value == pytest.approx(TRUE["compute_efficiency"], rel=0.1)
    assert model.draws[0][list(model.parameters).index("tile_tokens")] == tile


@pytest.mark.parametrize("seed", range(4))
def test_no_tile_is_invented(seed):
    model = fit(made(TRUE, blocks=UNEVEN, noise=0.02, repeats=3, seed=seed), TARGET, DRAFT, V5P, num_draws=0)
    assert "tile_tokens" not in model.parameters


def test_sizes_left_out_of_a_lone_table_are_predicted():
    document = cross_validate(made(TRUE, noise=0.01, repeats=3, draft=None), TARGET, None, V5P, "bfloat16")
    assert document["method"] == "left-out block sizes"
    assert len(document["points"]) == 11
    assert document["median_error"] < 0.05
    assert document["max_error"] >= document["mean_error"] >= 0
    with pytest.raises(FitError):
        cross_validate(made(TRUE, blocks=(1, 8, 64)), TARGET, None, V5P, "bfloat16")
