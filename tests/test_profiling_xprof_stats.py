import pytest
from profiling_spaces import SpacePlane, write_space

from perfmodel.errors import PerfError, UnsupportedError
from profiling import extract as reading
from profiling import xprof_stats
from profiling.extract import extract
from profiling.xplane import read_space
from profiling.xprof_stats import convert, hlo_statistics

TPU_TRACE = "traces/xprof_tpu_inference_2.xplane.pb"
GPU_TRACE = "traces/tracelens_mi300_jax_conv_08.xplane.pb"


def test_gibibytes_are_put_right_against_the_capture_s_own_numbers(shared_data):
    found = hlo_statistics(shared_data / TPU_TRACE, num_devices=4)
    facts = read_space(shared_data / TPU_TRACE).matching("/device:TPU:0")[0].stats
    # XProf labels this peak GB/s and gives 1525.5, which is 1638 in GiB/s.
    assert found.peak_bytes_per_s == pytest.approx(facts["peak_hbm_bw_gigabytes_per_second"] * 1e9, rel=1e-4)
    assert found.peak_flops_per_s == pytest.approx(918e12)
    longest = found.operations[0]
    assert (longest.name, longest.count, longest.bound_by) == ("copy-done.4", 400, "HBM")
    # 5·1024·1024·256 floats in the mean time of one copy; times are per chip, four chips ran a hundred each.
    assert longest.bytes_per_s == pytest.approx(5 * 1024 * 1024 * 256 * 4 / (longest.self_s / 100), rel=1e-3)
    assert longest.roofline_share == pytest.approx(longest.bytes_per_s / found.peak_bytes_per_s, rel=1e-3)


def test_an_asynchronous_start_gets_no_rate(shared_data):
    starts = [one for one in hlo_statistics(shared_data / TPU_TRACE, 4).operations if one.category == "copy-start"]
    assert starts
    assert all((one.flops_per_s, one.bytes_per_s, one.roofline_share) == (None, None, None) for one in starts)


def test_xprof_and_we_agree_on_the_flops_of_a_real_convolution(shared_data):
    operations = {one.name: one for one in hlo_statistics(shared_data / GPU_TRACE, 8).operations}
    convolution = operations["cudnn-conv.1"]
    # XProf credits every kernel with the whole operation: 79 of them for 40 convolutions. We count the operation once.
    theirs = convolution.flops_per_s * convolution.self_s * 8 / convolution.count
    ours = extract(shared_data / GPU_TRACE, {"verify": "conv"}).phases["verify"].flops
    # 2 · results (5120·34·31·53) · kernel (16·1·2·2).
    assert ours == 2 * (5120 * 34 * 31 * 53) * 64
    # It leaves out products with the padding: one place on every side of 32 × 60 × 104.
    assert theirs == pytest.approx(ours * (32 / 34) * (60 / 62) * (104 / 106), rel=1e-3)


def test_statistics_come_with_extract_only_when_asked(shared_data):
    assert extract(shared_data / TPU_TRACE).operations == ()
    asked = extract(shared_data / TPU_TRACE, with_statistics=True)
    assert asked.operations[0].name == "copy-done.4"
    assert "xprof-failed" not in {finding.code for finding in asked.findings}


def test_nothing_is_left_beside_the_capture_and_another_file_s_cache_is_not_used(shared_data, tmp_path):
    first, second = tmp_path / "host.xplane.pb", tmp_path / "other.xplane.pb"
    first.write_bytes((shared_data / TPU_TRACE).read_bytes())
    second.write_bytes((shared_data / GPU_TRACE).read_bytes())
    names = [hlo_statistics(path, 1).operations[0].name for path in (first, second)]
    assert names == ["copy-done.4", "input_transpose_fusion"]
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [first.name, second.name]


def test_none_is_a_failure(shared_data):
    with pytest.raises(PerfError, match="no_such_tool gave no answer"):
        convert(shared_data / GPU_TRACE, "no_such_tool")


def test_a_failure_of_xprof_is_a_finding_and_what_was_read_stands(shared_data, monkeypatch):
    monkeypatch.setattr(xprof_stats, "HLO_STATISTICS", "no_such_tool")
    timings = extract(shared_data / TPU_TRACE, with_statistics=True)
    assert timings.steps == 100
    assert "xprof-failed" in {finding.code for finding in timings.findings}


def test_a_capture_too_large_for_xprof_is_read_without_it(shared_data, monkeypatch):
    monkeypatch.setattr(reading, "MAX_BYTES", 100_000)
    timings = extract(shared_data / TPU_TRACE, with_statistics=True)
    assert (timings.steps, timings.operations) == (100, ())
    assert "xprof-skipped" in {finding.code for finding in timings.findings}


def test_a_damaged_file_ends_the_worker_and_not_us(tmp_path):
    path = write_space(tmp_path, SpacePlane("/host:CPU").line("python", ("decode_step", 0, 5, {"step_num": 0})))
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(PerfError, match="XProf"):
        convert(path, "hlo_stats")


def test_a_missing_package_is_said(shared_data, monkeypatch):
    monkeypatch.setattr(xprof_stats, "find_spec", lambda name: None)
    with pytest.raises(UnsupportedError, match="xprof is not installed"):
        convert(shared_data / GPU_TRACE, "hlo_stats")
