"""The speed-of-light gate, on hand-made points and on the published tables it was made for."""

import csv
from collections import Counter

import pytest

from perfmodel.audit import MEASURED_PEAK_TOLERANCE, audit
from perfmodel.cost import step_cost
from perfmodel.errors import InputError
from perfmodel.hardware import load_hardware
from perfmodel.modelspec import load_model
from perfmodel.records import Hardware, Peak, StepShape, TimingPoint
from perfmodel.roofline import floor_s

TARGET, DRAFT = load_model("qwen3-4b"), load_model("qwen3-4b-dflash-b16")
V5P = load_hardware("tpu-v5p")
CHIPS = {"TPU v4": "tpu-v4", "TPU v5p": "tpu-v5p", "RTX 2000 Ada": "rtx-2000-ada", "H100 SXM": "h100"}


def point(block_size, *samples_s, phase="verify", context=256, batch=1):
    return TimingPoint(phase=phase, block_size=block_size, batch=batch, context=context, samples_s=samples_s)


def limit(block_size, hardware=V5P, phase="verify", context=256):
    shape = StepShape(phase=phase, batch=1, query_tokens=block_size, context=context)
    return floor_s(step_cost(TARGET, DRAFT, shape, "bfloat16"), hardware, "bfloat16")


def verdicts(points, hardware=V5P, target=TARGET, draft=DRAFT):
    return [judged.verdict for judged in audit(points, target, draft, hardware, "bfloat16").points]


@pytest.fixture(scope="module")
def published(shared_data):
    """Points of each device of the published verify-against-K table."""
    devices: dict[str, list[TimingPoint]] = {}
    with (shared_data / "published" / "verify_vs_k.csv").open() as stream:
        for row in csv.DictReader(stream):
            made = point(int(row["K"]), float(row["reported_mean_ms"]) / 1e3, context=int(row["context"]))
            devices.setdefault(row["device"], []).append(made)
    return devices


def test_published_tpu_rows_are_refused_gpu_rows_kept_and_host_bound_rows_named(published):
    found = {device: Counter(verdicts(points, load_hardware(CHIPS[device]), draft=None)) for device, points in published.items()}
    assert found["TPU v4"] + found["TPU v5p"] == Counter(invalid=19)
    assert found["RTX 2000 Ada"] == Counter(valid=35)
    assert found["H100 SXM"] == Counter(overhead=19)


def test_published_tpu_rows_are_blamed_on_the_timer(published):
    result = audit(published["TPU v5p"], TARGET, None, V5P, "bfloat16")
    assert result.num_invalid == 7
    assert all("did not wait" in judged.cause for judged in result.points)
    assert [finding.severity for finding in result.findings] == ["error"]


def test_a_chip_without_a_peak_is_audited_against_bandwidth_and_says_so(published):
    result = audit(published["RTX 2000 Ada"], TARGET, None, load_hardware("rtx-2000-ada"), "bfloat16")
    assert [finding.code for finding in result.findings] == ["no-peak"]
    # 8.04 GB of weights at 224 GB/s
    assert result.points[0].floor_s == pytest.approx(8.045e9 / 224e9, rel=0.01)


def test_just_below_and_just_above_the_floor():
    assert verdicts([point(16, 0.999 * limit(16)), point(16, 1.001 * limit(16))]) == ["invalid", "valid"]


def test_a_measured_peak_gets_its_stated_error():
    machine = Hardware(
        name="here", display_name="Here", kind="cpu", source="measured", bandwidth_bytes_per_s=V5P.bandwidth_bytes_per_s,
        flops_per_s=V5P.flops_per_s,
    )  # fmt: skip
    inside, outside = 1 - MEASURED_PEAK_TOLERANCE + 0.01, 1 - MEASURED_PEAK_TOLERANCE - 0.01
    assert verdicts([point(16, inside * limit(16)), point(16, outside * limit(16))], machine) == ["valid", "invalid"]


def test_every_phase_has_its_own_floor():
    points = [point(16, 2 * limit(16, phase=phase), phase=phase) for phase in ("draft", "commit", "verify")]
    assert verdicts(points) == ["valid"] * 3
    assert verdicts([point(16, 0.5 * limit(16, phase="draft"), phase="draft")]) == ["invalid"]
    assert limit(16, phase="draft") < limit(16)


def test_scattered_repeats_are_unstable():
    steady = [4e-3, 4.1e-3, 3.9e-3, 4e-3, 4.05e-3]
    wild = [4e-3, 8e-3, 4e-3, 9e-3, 4.1e-3, 12e-3]
    assert verdicts([point(16, *steady), point(16, *wild)]) == ["valid", "unstable"]


def test_flat_and_far_above_the_floor_is_overhead_but_only_if_flat():
    flat = [point(k, 20e-3) for k in (1, 16, 64)]
    assert verdicts(flat) == ["overhead"] * 3
    rising = [point(1, 20e-3), point(16, 24e-3), point(64, 80e-3)]
    assert verdicts(rising) == ["valid"] * 3
    assert verdicts([point(16, 20e-3)]) == ["valid"]  # one size shows no flatness
    near = [point(k, 2 * limit(k)) for k in (1, 16, 64)]
    assert verdicts(near) == ["valid"] * 3


def test_causes_follow_the_evidence():
    def cause(points, hardware=V5P, target=TARGET):
        return audit(points, target, None, hardware, "bfloat16").points[0].cause

    assert "peak may be wrong" in cause([point(16, 0.9 * limit(16))])
    spread = [point(16, 0.2 * limit(16)), point(1024, 0.2 * limit(1024))]
    assert "at least 5 chips" in cause(spread)
    small = load_model("smollm2-135m")
    roomy = Hardware(
        name="roomy", display_name="Roomy", kind="tpu", source="datasheet", bandwidth_bytes_per_s=Peak(value=1e10, source="t"),
        flops_per_s={}, on_chip_bytes=Peak(value=1e9, source="t"),
    )  # fmt: skip
    assert "on-chip memory" in cause([point(1, 1e-3)], roomy, small)


def test_without_model_or_chip_nothing_is_audited_and_it_says_so():
    result = audit([point(16, 1e-9)], None, None, V5P, "bfloat16")
    assert (result.points[0].verdict, result.points[0].floor_s) == ("valid", None)
    assert result.findings[0].code == "not-audited"
    assert audit([point(16, 1e-9)], TARGET, None, None, "bfloat16").hardware == "unknown"
    # A drafter's pass without the drafter's dimensions has no floor either.
    assert audit([point(16, 1e-9, phase="draft")], TARGET, None, V5P, "bfloat16").points[0].floor_s is None


def test_failed_points_are_left_out_and_nonsense_is_refused():
    failed = TimingPoint(phase="verify", block_size=1, batch=1, context=0, failure="out of memory")
    assert audit([failed], TARGET, None, V5P, "bfloat16").points == ()
    with pytest.raises(InputError, match="no positive number"):
        audit([point(16, -1.0)], TARGET, None, V5P, "bfloat16")
