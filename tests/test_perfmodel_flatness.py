"""Flat widths, knee and cause, against curves whose answer is known."""

import msgspec
import pytest
from fitted_points import SMALL, SMALL_DRAFT, TARGET, TRUE, V5P, cpu_points, machine, made, point

from perfmodel.errors import InputError
from perfmodel.fit import fit
from perfmodel.flatness import flat_table, flatness
from perfmodel.records import FittedModel, FittedRange, Parameter
from perfmodel.roofline import knee_tokens


def model_of(values, target=TARGET, hardware=V5P, tokens=(1, 1024), form="roofline", draws=()):
    """A fitted model with given constants and nothing else."""
    parameters = {name: Parameter(value=value, stderr=0.0, unit="1", identified=True) for name, value in values.items()}
    return FittedModel(
        form=form, hardware=hardware, target=target, draft=None, dtype="bfloat16", parameters=parameters, median_error=0.0,
        held_out_median_error=0.0, fitted_range=FittedRange(tokens=tokens, batch=(1, 64), context=(0, 4096)), num_points=9,
        num_rejected=0, draws=draws,
    )  # fmt: skip


DENSE = {"plateau_s": 0.010, "token_s": 1e-4, "exponent": 1.0}


def test_widths_by_hand():
    """T = 10 ms + 0.1 ms · K, so T(1) = 10.1 ms; within 5 % is K ≤ 6.05, 10 % K ≤ 11.1, 25 % K ≤ 26.25; from K=2, 10.2 ms."""
    flat = flatness(model_of(DENSE, target=None, hardware=None, form="dense"))
    assert flat.widths == {"0.05": 6, "0.10": 11, "0.25": 26}
    assert flat.widths_from_two == {"0.05": 7, "0.10": 12, "0.25": 27}
    assert flat.knee_tokens == 100
    assert flat.widths_low == flat.widths_high == flat.widths
    assert flat.cause == "memory"


def test_intervals_come_from_the_draws():
    draws = tuple((0.010, slope, 1.0) for slope in (0.5e-4, 1e-4, 2e-4))
    flat = flatness(model_of(DENSE, target=None, hardware=None, form="dense", draws=draws))
    assert flat.widths_low["0.10"] <= 6 < flat.widths["0.10"] == 11 < flat.widths_high["0.10"]
    assert flat.knee_low < flat.knee_tokens < flat.knee_high


def test_a_width_at_the_limit_means_at_least():
    flat = flatness(model_of(DENSE | {"token_s": 1e-9}, target=None, hardware=None, form="dense", tokens=(1, 128)))
    assert flat.limit == 128
    assert set(flat.widths.values()) == {128}
    assert flat.knee_tokens is None


def test_the_knee_by_hand():
    """8.04 GB of weights and 8.04 GFLOP, 5.41 MB of activations per token: K = 8.04e9 / (8.04e9 / 166 - 5.41e6) = 187 tokens.

    Attention inside the block, K² pairs with the masked half, adds about 1 % to the FLOP there and takes as much off the knee.
    """
    ideal = {"memory_efficiency": 1.0, "compute_efficiency": 1.0, "exponent": 20.0, "overhead_s": 0.0}
    assert flatness(model_of(ideal)).knee_tokens == pytest.approx(187 / 1.01, rel=0.01)
    halved = flatness(model_of(ideal), batch=8)
    assert halved.knee_tokens == pytest.approx(187, abs=8)
    assert halved.widths["0.10"] == pytest.approx(flatness(model_of(ideal)).widths["0.10"] / 8, abs=2)
    # Without activations it is the data sheet's knee.
    assert knee_tokens(TARGET, V5P, "bfloat16") == pytest.approx(166, abs=1)


def test_causes():
    assert flatness(model_of(TRUE)).cause == "memory"
    assert flatness(model_of(TRUE | {"overhead_s": 0.05})).cause == "overhead"
    assert flatness(model_of(TRUE | {"compute_efficiency": 0.002})).cause == "compute"
    assert flatness(model_of(TRUE), batch=32, context=4096).cause == "kv"
    sparse = msgspec.structs.replace(
        TARGET, num_experts=64, num_experts_per_token=4, moe_intermediate_size=4096, num_dense_layers=0
    )
    assert flatness(model_of(TRUE, target=sparse)).cause == "experts"
    kernel = flatness(model_of(TRUE | {"kernel": 0.7}))
    assert (kernel.cause, kernel.kernel, kernel.widths["0.25"]) == ("kernel", 0.7, 1)
    assert kernel.widths_from_two["0.25"] > 50


def test_more_overhead_and_longer_context_widen_the_plateau():
    plain = flatness(model_of(TRUE))
    assert flatness(model_of(TRUE | {"overhead_s": 5e-3})).widths["0.10"] > plain.widths["0.10"]
    assert flatness(model_of(TRUE), batch=16, context=4096).widths["0.25"] >= flatness(model_of(TRUE), batch=16).widths["0.25"]


def test_the_measured_cpu_curve_is_flat_nowhere_because_of_its_first_kernel():
    flat = flatness(fit(cpu_points(), SMALL, SMALL_DRAFT, machine(), "float32", num_draws=20), 1, 256)
    assert flat.cause == "kernel"
    assert flat.widths["0.25"] <= 2
    assert 4 <= flat.widths_from_two["0.25"] <= 10
    assert 8 <= flat.knee_tokens <= 32


def test_a_fitted_curve_gets_an_interval_around_its_width():
    flat = flatness(fit(made(TRUE, noise=0.01, repeats=5), TARGET, None, V5P, "bfloat16", num_draws=30), 1, 256)
    for key in flat.widths:
        assert flat.widths_low[key] <= flat.widths[key] <= flat.widths_high[key]
    assert flat.widths["0.05"] <= flat.widths["0.10"] <= flat.widths["0.25"]


def test_beyond_the_fitted_batch_or_context_is_flagged():
    assert not flatness(model_of(TRUE), 1, 8000).extrapolated
    assert flatness(model_of(TRUE), 1, 9000).extrapolated
    assert flatness(model_of(TRUE), 65, 0).extrapolated


def test_no_step_no_answer():
    with pytest.raises(InputError, match="no step"):
        flatness(model_of(TRUE), 0)
    assert point(1, 1.0).tokens == 1


def test_the_table_moves_one_thing_at_a_time():
    """Qwen3-4B on v5p at batch 1, context 256: batch divides the flat width, fewer weight bits and a faster dtype move the knee."""
    points = made(TRUE, noise=0.01, repeats=3, batches=(1, 8), contexts=(256, 4096), draft=None)
    model = fit(points, TARGET, None, V5P, num_draws=20)
    rows = flat_table(model)
    base = rows[0]
    assert (base.batch, base.context, base.dtype, base.weight_bits, base.what_if) == (1, 256, "bfloat16", 16.0, False)
    by_batch = {row.batch: row for row in rows if row.context == 256 and not row.what_if}
    assert set(by_batch) >= {1, 2, 8, 64}
    assert by_batch[8].widths["0.25"] < base.widths["0.25"] / 4  # eight requests reach the same tokens at an eighth of the width
    assert by_batch[8].knee_tokens == pytest.approx(base.knee_tokens, rel=0.1)
    # A query pays 4 x 4096 x 36 FLOP per cached token, which outgrows the rows read once: FLOP per token 8.2, 10.5, 17.7 G over
    # bytes 8.08, 8.65, 10.46 GB, so the knee falls to 0.83 and 0.60 of its width.
    longer = [row.knee_tokens / base.knee_tokens for row in rows if row.context > 256]
    assert longer == pytest.approx([0.83, 0.60], rel=0.1)
    bits = {row.weight_bits: row for row in rows if row.what_if and row.dtype == "bfloat16"}
    assert set(bits) == {8.0, 4.5}
    assert bits[8.0].knee_tokens == pytest.approx(base.knee_tokens / 2, rel=0.25)
    assert bits[4.5].widths["0.25"] < bits[8.0].widths["0.25"] < base.widths["0.25"]
    faster = [row for row in rows if row.dtype not in ("bfloat16", "")]
    assert {row.dtype for row in faster} == {"float8_e4m3fn", "int8"}
    assert all(row.what_if for row in faster)
    for row in rows:
        assert all(row.widths_low[key] <= row.widths[key] <= row.widths_high[key] for key in row.widths)


def test_a_law_without_dimensions_has_no_what_if_rows():
    rows = flat_table(model_of(DENSE, target=None, hardware=None, form="dense"), batches=(1, 2), contexts=(0, 512))
    assert [(row.batch, row.context) for row in rows] == [(1, 0), (2, 0), (1, 512)]
    assert all(row.weight_bits is None and not row.what_if for row in rows)
