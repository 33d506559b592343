import msgspec
import pytest

from perfmodel.hardware import load_hardware
from perfmodel.records import PhaseTimes, TraceTimings
from sweeps.peaks import with_peaks


def timings(device_kind: str, **fields) -> TraceTimings:
    plain = TraceTimings(
        device_kind=device_kind, num_devices=1, steps=1, step_seconds_median=1.0, step_source="modules", phases={},
        busy_share=1.0, coverage=1.0, host_gap_s_median=0.0, timing="device",
    )  # fmt: skip
    return msgspec.structs.replace(plain, **fields)


def phase(flops_per_s: float, bytes_per_s: float) -> PhaseTimes:
    return PhaseTimes(
        count=1, device_s_median=1.0, wall_s_median=None, flops=flops_per_s, accessed_bytes=bytes_per_s, flops_per_s=flops_per_s,
        bytes_per_s=bytes_per_s,
    )  # fmt: skip


def test_the_catalogue_states_the_peaks_of_the_chip_in_the_trace():
    chip = load_hardware("tpu-v5p")
    found = with_peaks(timings(chip.device_kinds[0]))
    assert found.peak_flops_per_s == chip.flops_per_s["bfloat16"].value
    assert found.peak_bytes_per_s == chip.bandwidth_bytes_per_s.value


def test_an_unknown_chip_keeps_what_the_trace_says_and_no_more():
    assert with_peaks(timings("made up")).peak_flops_per_s is None
    assert with_peaks(timings("made up", peak_bytes_per_s=5.0)).peak_bytes_per_s == 5.0


def test_the_machine_that_was_measured_wins_in_the_dtype_that_was_run():
    chip = load_hardware("h100")
    found = with_peaks(timings("cpu"), chip, "float32")
    expected = chip.flops_per_s.get("float32")
    assert found.peak_flops_per_s == (expected.value if expected else None)


@pytest.mark.parametrize(("flops", "num_bytes", "severities"), [(9.0, 9.0, []), (11.0, 9.0, ["warning"]), (9.0, 11.0, ["info"])])
def test_a_rate_above_its_peak_is_said(flops, num_bytes, severities):
    found = with_peaks(
        timings("made up", peak_flops_per_s=10.0, peak_bytes_per_s=10.0, phases={"verify": phase(flops, num_bytes)})
    )
    assert [finding.severity for finding in found.findings if finding.code == "rate-above-peak"] == severities
