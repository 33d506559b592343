"""Step times for a prediction: from a fitted model with draws, and from a data sheet with honest priors."""

import msgspec
import numpy as np
import pytest
from fitted_points import DRAFT, PARTS, TARGET, TRUE, V5P, WIDE, machine, made, point

from perfmodel.cost import step_cost
from perfmodel.errors import InputError
from perfmodel.fit import fit
from perfmodel.hardware import load_hardware, names
from perfmodel.records import StepShape
from perfmodel.roofline import floor_s
from perfmodel.stepmodel import PRIORS, roofline_work, seconds
from perfmodel.steptime import datasheet_steps, fitted_steps, misfit


@pytest.fixture(scope="module")
def model():
    """Three phases at two contexts, 1 % noise."""
    points = made(TRUE | PARTS, ("verify", "draft", "commit"), contexts=(256, 8192), noise=0.01, repeats=5)
    return fit(points, TARGET, DRAFT, V5P, "bfloat16", num_draws=30)


def true_seconds(phase, blocks, context):
    shapes = [StepShape(phase=phase, batch=1, query_tokens=k, context=context) for k in blocks]
    return seconds(TRUE | PARTS, roofline_work(shapes, TARGET, DRAFT, "bfloat16"), V5P, "bfloat16")


def test_fitted_steps_give_back_what_was_put_in(model):
    blocks = [1, 3, 16, 200]
    steps = fitted_steps(model, blocks, batch=1, context=1024, host_s=1e-3)
    assert steps.source == "measured"
    assert list(steps.block_sizes) == blocks
    assert steps.verify_s == pytest.approx(true_seconds("verify", blocks, 1024), rel=0.03)
    drafting = true_seconds("draft", blocks, 1024) + true_seconds("commit", blocks, 1024)
    assert steps.draft_s[1:] == pytest.approx(drafting[1:], rel=0.05)
    assert list(steps.host_s) == [1e-3] * 4


def test_plain_decoding_drafts_nothing(model):
    steps = fitted_steps(model, [1, 2], batch=1, context=256)
    assert steps.draft_s[0] == 0
    assert np.all(steps.draft_draws[:, 0] == 0)
    assert steps.draft_s[1] > 0


def test_draws_surround_the_centre(model):
    steps = fitted_steps(model, WIDE, batch=1, context=256, host_s=1e-3)
    assert steps.verify_draws.shape == steps.draft_draws.shape == steps.host_draws.shape == (30, len(WIDE))
    low, high = np.percentile(steps.verify_draws, [0, 100], axis=0)
    assert np.all(low < steps.verify_s)
    assert np.all(high > steps.verify_s)
    again = fitted_steps(model, WIDE, batch=1, context=256, host_s=1e-3)
    assert np.array_equal(steps.verify_draws, again.verify_draws)


def test_draws_are_at_least_as_wide_as_the_law_misses(model):
    steps = fitted_steps(model, [16], batch=1, context=256)
    assert np.std(np.log(steps.verify_draws)) > 0.5 * misfit(model, "verify") > 0


def test_what_lies_outside_the_fitted_range_is_flagged(model):
    steps = fitted_steps(model, [1, 1024, 1025], batch=1, context=8192)
    assert list(steps.extrapolated) == [False, False, True]
    assert fitted_steps(model, [1, 16], batch=2, context=256).extrapolated.all()
    assert fitted_steps(model, [1, 16], batch=1, context=20000).extrapolated.all()
    assert not fitted_steps(model, [1, 16], batch=1, context=10000).extrapolated.any()


def test_bounds_name_what_holds_a_step_back(model):
    assert fitted_steps(model, [1, 16, 1024], 1, 256).bound == ("memory", "memory", "compute")
    assert fitted_steps(model, [16], 8, 60000).bound == ("kv",)
    slow_launch = msgspec.structs.replace(
        model, parameters=model.parameters | {"overhead_s": msgspec.structs.replace(model.parameters["overhead_s"], value=0.1)}
    )
    assert fitted_steps(slow_launch, [16], 1, 256).bound == ("overhead",)
    kernel = msgspec.structs.replace(model.parameters["exponent"], value=0.7)
    other = msgspec.structs.replace(model, parameters=model.parameters | {"kernel": kernel}, draws=())
    steps = fitted_steps(other, [1, 2], 1, 256)
    assert steps.bound == ("kernel", "memory")
    assert steps.verify_s[0] == pytest.approx(0.7 * fitted_steps(model, [1], 1, 256).verify_s[0])


def test_experts_hold_back_a_mixture(model):
    sparse = msgspec.structs.replace(
        TARGET, num_experts=64, num_experts_per_token=4, moe_intermediate_size=2048, intermediate_size=2048, num_dense_layers=0
    )
    steps = fitted_steps(msgspec.structs.replace(model, target=sparse), [16], 1, 256)
    assert steps.bound == ("experts",)


def test_a_model_without_draws_gives_none(model):
    steps = fitted_steps(msgspec.structs.replace(model, draws=()), [1, 4], 1, 256)
    assert steps.draft_draws is steps.verify_draws is steps.host_draws is None


def test_a_drafter_nobody_measured_is_extrapolated():
    model = fit(made(TRUE), TARGET, DRAFT, V5P, "bfloat16", num_draws=3)
    assert list(fitted_steps(model, [1, 16], 1, 256).extrapolated) == [False, True]


def test_a_drafter_nobody_named_needs_its_time():
    bare = fit([point(k, 0.01 + k / 1e4, context=0) for k in (1, 2, 4, 8, 16)], num_draws=4)
    with pytest.raises(InputError, match="no drafter"):
        fitted_steps(bare, [1, 4], 1, 0)
    steps = fitted_steps(bare, [1, 4], 1, 0, draft_s=2e-3)
    assert list(steps.draft_s) == [0, 2e-3]
    assert steps.draft_draws.shape == (4, 2)
    assert steps.bound[1] == "memory"
    assert not steps.extrapolated.any()


@pytest.mark.parametrize("blocks", [[], [0, 1], [-3]])
def test_bad_block_sizes_are_refused(model, blocks):
    with pytest.raises(InputError, match="block sizes"):
        fitted_steps(model, blocks, 1, 256)


def test_misfit_is_the_robust_spread_of_held_out_errors(model):
    held = [abs(np.log1p(p.error)) for p in model.points if p.phase == "verify" and p.held_out]
    assert misfit(model, "verify") == pytest.approx(1.4826 * np.median(held))


@pytest.mark.parametrize("name", [name for name in names() if "bfloat16" in load_hardware(name).flops_per_s])
def test_datasheet_steps_never_beat_the_speed_of_light(name):
    chip = load_hardware(name)
    steps = datasheet_steps(chip, TARGET, DRAFT, WIDE, batch=1, context=1024)
    floors = [
        floor_s(step_cost(TARGET, DRAFT, StepShape(phase="verify", batch=1, query_tokens=k, context=1024)), chip, "bfloat16")
        for k in WIDE
    ]
    assert np.all(steps.verify_s >= floors)
    assert np.all(steps.verify_draws >= floors)
    assert np.all(np.diff(steps.verify_s) > 0)
    assert steps.source == "datasheet"


def test_datasheet_intervals_hold_a_published_plain_step():
    """Qwen3-4B on one TPU v5p decodes a token in 6.3 ms; a step of 16 tokens took 10.6 to 12.1 ms in an unoptimised loop."""
    steps = datasheet_steps(V5P, TARGET, DRAFT, [1, 16], batch=1, context=512)
    total = steps.draft_draws + steps.verify_draws + steps.host_draws
    low, high = np.percentile(total, [2.5, 97.5], axis=0)
    assert low[0] < 6.3e-3 < high[0]
    assert high[1] > 10.6e-3


def test_datasheet_host_time_can_be_given():
    steps = datasheet_steps(V5P, TARGET, DRAFT, [1, 16], 1, 512, host_s=0.0)
    assert list(steps.host_s) == [0, 0]
    default = datasheet_steps(V5P, TARGET, DRAFT, [1, 16], 1, 512)
    assert list(default.host_s) == [PRIORS["host_s"].mode, PRIORS["host_s"].mode + PRIORS["drafting_host_s"].mode]


def test_a_chip_without_a_peak_is_not_predicted():
    with pytest.raises(InputError, match="no known bfloat16 peak"):
        datasheet_steps(load_hardware("rtx-4060"), TARGET, DRAFT, [1, 2], 1, 256)


def test_every_prior_is_a_range_with_a_source():
    rng = np.random.default_rng(0)
    for name, prior in PRIORS.items():
        assert prior.low <= prior.mode <= prior.high, name
        assert len(prior.source) > 20, name
        draws = prior.sample(rng, 100)
        assert draws.min() >= prior.low
        assert draws.max() <= prior.high


def test_a_roofline_needs_its_chip():
    work = roofline_work([StepShape(phase="verify", batch=1, query_tokens=1, context=0)], TARGET, None, "bfloat16")
    with pytest.raises(ValueError, match="needs a chip"):
        seconds(TRUE, work, None, "bfloat16")
    assert machine().source == "measured"
