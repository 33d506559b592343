"""The fit recovers what is known, says what it cannot see, and refuses what cannot carry a curve."""

import csv

import msgspec
import numpy as np
import pytest
from fitted_points import CPU_MS, DRAFT, PARTS, SMALL, SMALL_DRAFT, TARGET, TRUE, V5P, WIDE, cpu_points, machine, made, point

from perfmodel import codec
from perfmodel.errors import FitError, NothingTrustedError
from perfmodel.fit import MAX_DRAWS, fit
from perfmodel.hardware import load_hardware
from perfmodel.modelspec import load_model
from perfmodel.records import FittedModel, ModelSpec
from sweeps.validation import cross_validate

ALL_PHASES = ("verify", "draft", "commit")


def fitted(points, target=TARGET, draft=DRAFT, hardware=V5P, dtype="bfloat16", num_draws=20):
    return fit(points, target, draft, hardware, dtype, num_draws=num_draws)


def within(model, name, true, errors=3.0):
    parameter = model.parameters[name]
    return abs(parameter.value - true) <= errors * parameter.stderr + 1e-9


@pytest.fixture(scope="module")
def recovered():
    """All three phases at two contexts and two batches, 1 % noise, known constants."""
    points = made(TRUE | PARTS, ALL_PHASES, batches=(1, 8), contexts=(256, 16384), noise=0.01, repeats=7)
    return fitted(points, num_draws=40)


def test_known_constants_are_recovered_within_their_stated_error(recovered):
    for name, true in (TRUE | PARTS).items():
        assert recovered.parameters[name].identified, name
        assert within(recovered, name, true), (name, recovered.parameters[name])
    assert recovered.parameters["memory_efficiency"].value == pytest.approx(0.7, rel=0.05)
    assert recovered.parameters["compute_efficiency"].value == pytest.approx(0.6, rel=0.05)


def test_exact_data_get_exact_constants_and_no_extra_terms():
    model = fitted(made(TRUE | PARTS, ALL_PHASES, batches=(1, 8), contexts=(256, 16384)), num_draws=0)
    assert set(model.parameters) == set(TRUE | PARTS)
    for name, true in (TRUE | PARTS).items():
        assert model.parameters[name].value == pytest.approx(true, rel=0.01), name
    assert model.median_error < 1e-3
    assert model.held_out_median_error < 1e-3
    assert model.draws == ()


def test_every_second_interior_block_size_is_held_out(recovered):
    held = {p.block_size for p in recovered.points if p.held_out}
    assert held == {4, 16, 64, 256}  # every second of 4, 8, …, 512; neither K=1 nor the ends 2 and 1024
    assert recovered.held_out_median_error < 0.03
    errors = [abs(p.predicted_s / p.measured_s - 1) for p in recovered.points if p.held_out]
    assert recovered.held_out_median_error == pytest.approx(float(np.median(errors)))


def test_draws_follow_the_parameters_and_scatter_like_the_errors(recovered):
    table = np.array(recovered.draws)
    assert table.shape == (40, len(recovered.parameters))
    for i, (name, parameter) in enumerate(recovered.parameters.items()):
        assert abs(np.median(table[:, i]) - parameter.value) < 4 * parameter.stderr + 1e-9, name
        assert table[:, i].min() >= 0


def test_correlations_are_a_correlation_matrix(recovered):
    table = np.array(recovered.correlations)
    assert np.allclose(np.diag(table), 1)
    assert np.allclose(table, table.T)
    assert np.all(np.abs(table) <= 1 + 1e-9)
    names = list(recovered.parameters)
    # More overhead looks like a slower memory: less overhead is made good by less efficiency.
    assert table[names.index("overhead_s"), names.index("memory_efficiency")] > 0


def test_the_same_points_give_the_same_model(recovered):
    points = made(TRUE, noise=0.01, repeats=5)
    assert fitted(points, num_draws=5) == fitted(points, num_draws=5)


def test_the_record_survives_a_file(recovered, tmp_path):
    codec.save(tmp_path / "model.json", recovered)
    assert codec.load(tmp_path / "model.json", FittedModel) == recovered


def test_ranges_and_counts(recovered):
    assert recovered.fitted_range.tokens == (1, 8 * 1024)
    assert recovered.fitted_range.batch == (1, 8)
    assert recovered.fitted_range.context == (256, 16384)
    assert (recovered.num_points, recovered.num_rejected) == (4 * (11 + 10 + 10), 0)
    assert recovered.form == "roofline"


def test_points_below_the_speed_of_light_are_never_fitted():
    good = made(TRUE, noise=0.002, repeats=5)
    lies = [point(k, 1.3e-3) for k in (16, 128, 1024)]
    failed = [msgspec.structs.replace(good[0], samples_s=(), failure="out of memory")]
    model, clean = fitted(good + lies + failed), fitted(good)
    assert (model.num_points, model.num_rejected) == (len(good), 4)
    assert model.parameters["memory_efficiency"].value == pytest.approx(clean.parameters["memory_efficiency"].value)
    assert "below-floor" in {finding.code for finding in model.findings}


def test_before_the_knee_compute_efficiency_is_a_labelled_prior():
    """K up to 16 on a chip whose knee is at 166: arithmetic never shows."""
    model = fitted(made(TRUE, blocks=(1, 2, 4, 8, 12, 16), contexts=(256, 16384), batches=(1,), noise=0.003, repeats=7))
    parameter = model.parameters["compute_efficiency"]
    assert not parameter.identified
    assert (parameter.value, parameter.stderr) == (0.65, None)
    assert "prior" in parameter.note
    assert "beyond the knee" in parameter.note
    assert "not-identified" in {finding.code for finding in model.findings}
    assert model.parameters["memory_efficiency"].identified
    # What is not known varies over its prior in the draws.
    column = [draw[list(model.parameters).index("compute_efficiency")] for draw in model.draws]
    assert np.std(column) > 0.03


def test_one_size_cannot_tell_overhead_from_memory_efficiency():
    """One model, one context: the plateau is bytes/(ηβ) + overhead, so overhead is pinned at the machine's dispatch time."""
    model = fitted(made(TRUE, noise=0.002, repeats=7))
    overhead = model.parameters["overhead_s"]
    assert not overhead.identified
    assert "another model size" in overhead.note
    assert model.parameters["memory_efficiency"].identified
    assert model.median_error < 0.01


def test_a_host_bound_curve_determines_overhead_and_nothing_else(shared_data):
    points = published(shared_data, "H100 SXM")
    model = fitted(points, draft=None, hardware=load_hardware("h100"))
    assert model.parameters["overhead_s"].identified
    assert 0.015 < model.parameters["overhead_s"].value < 0.021
    assert not model.parameters["memory_efficiency"].identified
    assert not model.parameters["compute_efficiency"].identified
    assert "host-bound" in {finding.code for finding in model.findings}


def published(shared_data, device):
    with (shared_data / "published" / "verify_vs_k.csv").open() as stream:
        rows = [row for row in csv.DictReader(stream) if row["device"] == device]
    return [point(int(row["K"]), float(row["reported_mean_ms"]) / 1e3, context=int(row["context"])) for row in rows]


def test_the_published_rtx_2000_ada_table_is_explained(shared_data):
    """No peak is known: the compute rate is free. Context costs far more than reading the cache once (eager attention)."""
    model = fitted(published(shared_data, "RTX 2000 Ada"), draft=None, hardware=load_hardware("rtx-2000-ada"))
    assert model.num_points == 35
    assert model.held_out_median_error < 0.03
    assert "compute_flops_per_s" in model.parameters
    assert model.parameters["compute_flops_per_s"].unit == "FLOP/s"
    assert 0.6 < model.parameters["memory_efficiency"].value < 0.95
    assert model.parameters["cache_slowdown"].value > 5


def test_the_published_rtx_4060_table_is_explained_with_and_without_a_model(shared_data):
    with (shared_data / "published" / "qwen3-1.7b_rtx4060_verify_cost_medians.csv").open() as stream:
        points = [
            point(int(row["num_tokens"]) // 8, float(row["median_ms"]) / 1e3, batch=8, context=int(row["context_len"]))
            for row in csv.DictReader(stream)
        ]
    spec = ModelSpec(
        name="qwen3-1.7b", role="target", hidden_size=2048, num_layers=28, num_heads=16, num_kv_heads=8, head_dim=128,
        intermediate_size=6144, vocab_size=151936, tied_embeddings=True, qk_norm=True,
    )  # fmt: skip
    model = fitted(points, target=spec, draft=None, hardware=load_hardware("rtx-4060"))
    assert model.held_out_median_error < 0.03
    bare = fit(points, num_draws=5)
    assert bare.form == "dense"
    assert bare.held_out_median_error < 0.05
    assert bare.parameters["cached_token_s"].identified


def test_the_cpu_curve_shows_another_kernel_dearer_attention_and_small_held_out_error():
    """K=1 to 2 jumps by 40 %, a short plateau, compute beyond about 16, and attention that costs more per FLOP than matrices."""
    model = fit(cpu_points(), SMALL, SMALL_DRAFT, machine(), "float32", num_draws=20)
    assert model.held_out_median_error < 0.10
    kernel = model.parameters["kernel"]
    assert kernel.identified
    assert 0.6 < kernel.value < 0.85
    assert kernel.stderr > 0
    assert "kernel-change" in {finding.code for finding in model.findings}
    single = next(p for p in model.points if p.block_size == 1)
    assert abs(single.error) < 0.01


@pytest.mark.parametrize(("bandwidth", "flops"), [(25e9, 130e9), (35e9, 150e9), (23e9, 110e9)])
def test_the_cpu_curve_is_held_whatever_the_micro_benchmark_said(bandwidth, flops):
    model = fit(cpu_points(), SMALL, SMALL_DRAFT, machine(bandwidth, flops), "float32", num_draws=0)
    assert model.held_out_median_error < 0.10
    assert model.parameters["memory_efficiency"].value <= 1
    assert model.parameters["compute_efficiency"].value <= 1


def test_step_times_that_beat_a_micro_benchmark_raise_its_peak_not_the_efficiency():
    """The benchmark read 108 GFLOP/s where the machine does 120: efficiency 1 of a peak raised 1.11 times."""
    true = {"memory_efficiency": 0.8, "compute_efficiency": 1.0, "exponent": 2.0, "overhead_s": 1e-4}
    points = made(true, target=SMALL, draft=SMALL_DRAFT, hardware=machine(30e9, 120e9), dtype="float32")
    model = fit(points, SMALL, SMALL_DRAFT, machine(30e9, 108e9), "float32", num_draws=5)
    assert model.parameters["compute_efficiency"].value == pytest.approx(1.0)
    assert model.hardware.flops_per_s["float32"].value == pytest.approx(120e9, rel=0.02)
    assert "raised" in model.hardware.flops_per_s["float32"].source
    assert "peak-raised" in {finding.code for finding in model.findings}
    assert max(abs(p.error) for p in model.points) < 0.02
    slow_memory = fit(
        made(
            true | {"memory_efficiency": 1.0, "compute_efficiency": 0.8}, target=SMALL, draft=SMALL_DRAFT, hardware=machine(),
            dtype="float32",
        ),
        SMALL, SMALL_DRAFT, machine(27e9, 130e9), "float32", num_draws=0,
    )  # fmt: skip
    assert slow_memory.hardware.bandwidth_bytes_per_s.value == pytest.approx(30e9, rel=0.03)


def test_a_data_sheet_peak_is_never_raised(recovered):
    assert recovered.hardware == V5P
    assert "peak-raised" not in {finding.code for finding in recovered.findings}


def test_a_known_kernel_ratio_is_recovered():
    model = fitted(made(TRUE | {"kernel": 0.7}, contexts=(256, 16384), noise=0.005, repeats=7))
    assert within(model, "kernel", 0.7, errors=4)
    assert "kernel" not in fitted(made(TRUE, contexts=(256, 16384), noise=0.005, repeats=7)).parameters


def test_known_extra_terms_are_found_and_named():
    true = TRUE | PARTS | {"attention_slowdown": 8.0, "draft_ratio": 1.6}
    model = fitted(made(true, ALL_PHASES, contexts=(256, 4096), noise=0.003, repeats=7), num_draws=0)
    assert model.parameters["attention_slowdown"].value == pytest.approx(8.0, rel=0.25)
    assert model.parameters["draft_ratio"].value == pytest.approx(1.6, rel=0.15)


def test_time_per_request_is_seen_when_batches_differ():
    model = fitted(
        made(TRUE | {"batch_overhead_s": 1e-3}, batches=(1, 4, 16), contexts=(256, 4096), noise=0.003, repeats=7), num_draws=0
    )
    assert model.parameters["batch_overhead_s"].value == pytest.approx(1e-3, rel=0.15)


def test_one_wild_point_does_not_bend_the_curve():
    points = made(TRUE, noise=0.003, repeats=5)
    wild = [point(p.block_size, *(4 * s for s in p.samples_s)) if p.block_size == 32 else p for p in points]
    clean, bent = fitted(points, num_draws=0), fitted(wild, num_draws=0)
    assert bent.parameters["memory_efficiency"].value == pytest.approx(clean.parameters["memory_efficiency"].value, rel=0.08)


def test_a_bare_table_gets_the_dense_law():
    """T = ((10 ms)^3 + (0.1 ms · tokens)^3)^(1/3): plateau 10 ms, knee at 100 tokens."""
    blocks = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
    points = [point(k, (0.010**3 + (1e-4 * k) ** 3) ** (1 / 3), context=0) for k in blocks]
    model = fit(points, num_draws=10)
    assert (model.form, model.hardware, model.target) == ("dense", None, None)
    assert model.parameters["plateau_s"].value == pytest.approx(0.010, rel=0.02)
    assert model.parameters["token_s"].value == pytest.approx(1e-4, rel=0.02)
    assert model.parameters["exponent"].value == pytest.approx(3.0, rel=0.1)
    assert "not-audited" in {finding.code for finding in model.findings}
    flat = fit([point(k, 0.01, context=0) for k in (1, 2, 4, 8)], num_draws=5)
    assert not flat.parameters["token_s"].identified


def test_few_sizes_hold_nothing_out_and_say_so():
    model = fitted(made(TRUE, blocks=(1, 64, 1024)), num_draws=0)
    assert model.held_out_median_error is None
    assert "no-held-out" in {finding.code for finding in model.findings}


def test_a_bad_curve_is_called_a_poor_fit():
    zigzag = [point(k, 0.02 * (3 if i % 2 else 1) * (1 + k / 200)) for i, k in enumerate(WIDE)]
    assert "poor-fit" in {finding.code for finding in fit(zigzag, num_draws=0).findings}


@pytest.mark.parametrize(
    ("points", "said"),
    [
        ([], "no timing to fit"),
        ([point(k, 1e-6) for k in WIDE], "11 were below the speed of light"),
        ([point(16, 0.01), point(32, 0.01)], "2 distinct verify sizes"),
        ([point(16, 0.01 + i / 1e4) for i in range(9)], "1 distinct verify sizes"),
        ([point(16, 0.01, context=c) for c in (1, 2, 3, 4)], "1 distinct"),
        ([point(k, 1.0, phase="prefill") for k in WIDE], "no timing to fit"),
    ],
)
def test_too_few_or_degenerate_points_are_an_error_not_a_number(points, said):
    with pytest.raises(FitError) as caught:
        fitted(points)
    assert said in caught.value.message
    assert caught.value.hint


def test_where_no_point_can_be_trusted_the_exit_status_says_so():
    impossible = [point(k, 1e-6) for k in WIDE]
    with pytest.raises(NothingTrustedError) as caught:
        fitted(impossible)
    assert caught.value.exit_code == 3
    with pytest.raises(NothingTrustedError) as caught:
        cross_validate(impossible, TARGET, DRAFT, V5P, "bfloat16")
    assert caught.value.exit_code == 3


def test_a_bare_table_of_two_phases_is_refused():
    with pytest.raises(FitError, match="cannot share a curve"):
        fit([point(k, 0.01, phase=phase) for phase in ("verify", "draft") for k in (2, 4, 8)])


def test_the_empty_commit_of_plain_decoding_is_no_point_of_the_law():
    points = made(TRUE | PARTS, ALL_PHASES)
    model = fitted([*points, point(1, 1e-5, phase="commit")], num_draws=0)
    assert (model.num_points, model.num_rejected) == (len(points), 0)


def test_without_a_drafter_only_verification_is_fitted():
    model = fitted(made(TRUE | PARTS, ALL_PHASES), draft=None, num_draws=0)
    assert {p.phase for p in model.points} == {"verify"}


def test_draws_are_capped():
    assert MAX_DRAWS <= 200
    assert len(fit([point(k, 0.01 + k / 1e4) for k in (1, 2, 4, 8)], num_draws=500).draws) == MAX_DRAWS


def test_the_measured_curve_is_what_the_docs_say():
    assert CPU_MS[2] / CPU_MS[1] == pytest.approx(1.42, abs=0.01)
    assert load_model("smollm2-135m") == SMALL
