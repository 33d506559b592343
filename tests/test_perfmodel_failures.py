"""Ways in which step times fail in practice: each either is described by the law, or is named, and never passes as plain data."""

import re

import numpy as np
import pytest
from fitted_points import DRAFT, TARGET, TRUE, V5P, made, point

from perfmodel.audit import audit
from perfmodel.fit import fit
from perfmodel.hardware import load_hardware
from perfmodel.records import StepShape
from perfmodel.stepgrid import prefill_share_s
from perfmodel.stepmodel import roofline_work, seconds
from perfmodel.steptime import datasheet_steps, fitted_steps


def codes(record):
    return {finding.code for finding in record.findings}


def test_host_time_as_large_as_the_step_is_named_and_not_taken_for_the_chip():
    points = made(TRUE | {"overhead_s": 0.030}, blocks=(1, 2, 4, 8, 16, 32, 64), noise=0.005, repeats=3, draft=None)
    judged = audit(points, TARGET, None, V5P, "bfloat16")
    assert {one.verdict for one in judged.points} == {"overhead"}
    model = fit(points, TARGET, None, V5P, num_draws=10)
    assert "host-bound" in codes(model)
    assert model.parameters["overhead_s"].value == pytest.approx(0.030, rel=0.2)
    assert not model.parameters["memory_efficiency"].identified


def test_host_time_that_grows_with_the_batch_is_a_constant_of_its_own():
    points = made(TRUE | {"batch_overhead_s": 2e-4}, batches=(1, 8, 32), noise=0.005, repeats=3, draft=None)
    model = fit(points, TARGET, None, V5P, num_draws=0)
    assert model.parameters["batch_overhead_s"].value == pytest.approx(2e-4, rel=0.1)


def test_falling_off_the_largest_captured_graph_is_a_cliff_not_a_knee():
    """Beyond 64 tokens every step takes five times as long: no roofline grows faster than its tokens, and a finding says where."""
    points = [
        point(p.block_size, *(s * (5 if p.block_size > 64 else 1) for s in p.samples_s))
        for p in made(TRUE, noise=0.005, repeats=3, draft=None)
    ]
    model = fit(points, TARGET, None, V5P, num_draws=0)
    found = [finding for finding in model.findings if finding.code == "cliff"]
    assert len(found) == 1
    assert "K=64 to K=128" in found[0].message
    assert "cliff" not in codes(fit(made(TRUE, noise=0.02, repeats=3, draft=None), TARGET, None, V5P, num_draws=0))


def test_another_kernel_at_one_token_does_not_bend_the_curve():
    model = fit(made(TRUE | {"kernel": 0.7}, noise=0.005, repeats=3, draft=None), TARGET, None, V5P, num_draws=0)
    assert model.parameters["kernel"].value == pytest.approx(0.7, rel=0.05)
    assert model.parameters["memory_efficiency"].value == pytest.approx(
        TRUE["memory_efficiency"], rel=0.08
    )  # overhead is a prior here
    assert "kernel-change" in codes(model)


def test_layers_that_stay_on_chip_beat_the_bandwidth_and_are_called_so():
    """A 0.27 GB model on a chip with 1 GB of on-chip memory: below the bus's floor because nothing crosses the bus."""
    from perfmodel.modelspec import load_model
    from perfmodel.records import Peak

    chip = type(V5P)(
        **{name: getattr(V5P, name) for name in V5P.__struct_fields__} | {"on_chip_bytes": Peak(value=1e9, source="-")}
    )
    judged = audit([point(1, 5e-5)], load_model("smollm2-135m"), None, chip, "bfloat16").points[0]
    assert judged.verdict == "invalid"
    assert "on-chip memory" in judged.cause
    cached = type(chip)(**{name: getattr(chip, name) for name in chip.__struct_fields__} | {"kind": "gpu"})
    assert audit([point(1, 5e-5)], load_model("smollm2-135m"), None, cached, "bfloat16").points[0].verdict == "valid"


def test_prefill_of_arriving_requests_slows_wide_steps_more_than_it_slows_plain_ones():
    """Published A100 measurements at 64 requests: leaving the term out over-predicts the speedup by 40 to 54 %."""
    steps = datasheet_steps(load_hardware("a100-80gb"), TARGET, DRAFT, [1, 4], 64, 512)
    plain_s, wide_s = (steps.draft_s + steps.verify_s + steps.host_s).tolist()
    tau = np.array([1.0, 2.5])
    share = prefill_share_s(np.array(0.03), np.array(64.0), tau, 128)
    without = tau[1] * plain_s / wide_s
    loaded = tau[1] * (plain_s + share[0]) / (wide_s + share[1])
    assert loaded < 0.85 * without


def test_all_reduces_help_speculation_until_messages_grow():
    """Their fixed time is paid once per step, so T(K)/T(1) is smaller with it; at K = 1024 the messages are what is paid."""
    chips = load_hardware("tpu-v5p:4")
    shapes = [StepShape(phase="verify", batch=1, query_tokens=k, context=256) for k in (1, 16, 1024)]
    work = roofline_work(shapes, TARGET, None, "bfloat16", chips)
    with_latency, without = (seconds(TRUE | {"reduce_latency_s": s}, work, chips, "bfloat16") for s in (5e-6, 0.0))
    assert with_latency[1] / with_latency[0] < without[1] / without[0]
    assert work.reduce_s[2] > 5 * 5e-6 * work.reduces[2] > 5 * work.reduce_s[1]


def test_clocks_that_fall_over_the_repeats_are_unstable():
    falling = [point(16, *(0.005 * (1 + 0.03 * i) for i in range(12)))]
    judged = audit(falling, TARGET, None, V5P, "bfloat16").points[0]
    assert judged.verdict == "unstable"
    assert judged.cause.startswith("later repeats take 17 % longer than earlier ones")  # medians 1.255 and 1.075: 16.7 %
    steady = [point(16, *(0.005 * (1 + 0.03 * (i % 2)) for i in range(12)))]
    assert audit(steady, TARGET, None, V5P, "bfloat16").points[0].verdict == "valid"


def test_a_context_or_batch_far_beyond_what_was_measured_is_flagged():
    model = fit(made(TRUE, draft=None), TARGET, None, V5P, num_draws=0)
    assert fitted_steps(model, [1, 16], 1, 100_000, draft_s=1e-3).extrapolated.all()
    assert fitted_steps(model, [1, 16], 64, 256, draft_s=1e-3).extrapolated.all()
    assert not fitted_steps(model, [1, 16], 1, 256, draft_s=1e-3).extrapolated.any()


def test_a_constant_nobody_saw_names_the_point_that_fixes_it_and_measuring_it_does():
    blocks = (1, 2, 4, 8, 16, 32)
    short = fit(made(TRUE, blocks=blocks, noise=0.005, repeats=3, draft=None), TARGET, None, V5P, num_draws=0)
    unseen = short.parameters["compute_efficiency"]
    assert not unseen.identified
    wanted = int(re.search(r"for example K=(\d+) at batch 1", unseen.note).group(1))
    assert any(f"K={wanted}" in finding.hint for finding in short.findings)
    more = made(TRUE, blocks=(*blocks, wanted, 2 * wanted), noise=0.005, repeats=3, draft=None)
    seen = fit(more, TARGET, None, V5P, num_draws=0).parameters["compute_efficiency"]
    assert seen.identified
    assert seen.value == pytest.approx(TRUE["compute_efficiency"], rel=0.1)
