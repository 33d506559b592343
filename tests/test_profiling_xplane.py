import numpy as np
import pytest
from profiling_spaces import SpacePlane, space_bytes

from perfmodel.errors import InputError
from profiling.xplane import parse_space, read_space

GPU_TRACE = "traces/tracelens_mi300_jax_conv_08.xplane.pb"
TPU_TRACE = "traces/xprof_tpu_inference_2.xplane.pb"


def test_events_keep_their_times_names_and_stats():
    plane = SpacePlane("/device:TPU:0", {"peak": 918.0, "kind": "TPU v6 Lite"})
    plane.line("XLA Modules", ("jit_f(1)", 5, 2, {"run_id": 7, "hlo_module": "jit_f"}), ("jit_g(2)", 9, 1))
    space = parse_space(space_bytes(plane), "made")
    assert space.planes[0].stats == {"peak": 918.0, "kind": "TPU v6 Lite"}
    line = space.planes[0].line("XLA Modules")
    assert [line.event_name(index) for index in range(len(line))] == ["jit_f(1)", "jit_g(2)"]
    assert line.times.tolist() == [[5_000_000, 7_000_000], [9_000_000, 10_000_000]]
    assert line.values("run_id") == {0: 7}
    assert line.values("hlo_module") == {0: "jit_f"}
    assert line.carrying("run_id") == [0]
    assert line.values("absent") == {}
    assert line.durations() == {"jit_f(1)": 2_000_000, "jit_g(2)": 1_000_000}


def test_absolute_times_do_not_overflow():
    # 1.7e18 ns since 1970 is 1.7e21 ps, which no 64-bit integer holds.
    late = parse_space(space_bytes(SpacePlane("/host:CPU").line("python", ("a", 1, 2))), "made")
    assert late.planes[0].lines[0].times.tolist() == [[1_000_000, 3_000_000]]


@pytest.mark.parametrize("trace", [TPU_TRACE, GPU_TRACE])
def test_every_event_of_a_real_trace_reads_as_another_reader_reads_it(shared_data, trace):
    from jax.profiler import ProfileData

    path = shared_data / trace
    ours = read_space(path)
    theirs = list(ProfileData.from_file(str(path)).planes)
    assert [plane.name for plane in ours.planes] == [plane.name for plane in theirs]
    for plane, other in zip(ours.planes, theirs, strict=True):
        for line, other_line in zip(plane.lines, other.lines, strict=True):
            expected = [(event.name, event.start_ns, event.duration_ns) for event in other_line.events]
            assert [line.event_name(index) for index in range(len(line))] == [event[0] for event in expected]
            if not expected:
                continue
            found = line.times / 1000
            # The other reader rounds to whole nanoseconds and counts from another instant.
            assert np.ptp(found[:, 0] - [event[1] for event in expected]) < 2
            assert np.abs(found[:, 1] - found[:, 0] - [event[2] for event in expected]).max() < 1


def test_stats_of_a_real_trace_read_as_another_reader_reads_them(shared_data):
    from jax.profiler import ProfileData

    path = shared_data / GPU_TRACE
    theirs = next(plane for plane in ProfileData.from_file(str(path)).planes if plane.name == "/device:GPU:3")
    ours = read_space(path).matching("/device:GPU:3")[0]
    for line, other_line in zip(ours.lines, theirs.lines, strict=True):
        for stat in ("correlation_id", "hlo_module", "hlo_op", "kernel_details", "absent"):
            expected = {
                index: dict(event.stats)[stat] for index, event in enumerate(other_line.events) if stat in dict(event.stats)
            }
            assert line.values(stat) == expected


@pytest.mark.parametrize("length", [0, 1, 100, 400_000])
def test_a_cut_off_file_is_refused(shared_data, tmp_path, length):
    path = tmp_path / "cut.xplane.pb"
    path.write_bytes((shared_data / TPU_TRACE).read_bytes()[:length])
    with pytest.raises(InputError) as refused:
        read_space(path)
    assert refused.value.exit_code == 2
    assert refused.value.hint


def test_a_file_re_encoded_as_text_is_called_that(shared_data, tmp_path):
    path = tmp_path / "text.xplane.pb"
    path.write_bytes((shared_data / TPU_TRACE).read_bytes().decode("utf-8", "replace").encode())
    with pytest.raises(InputError, match="re-encoded as text"):
        read_space(path)


@pytest.mark.parametrize(
    "data", [b'{"traceEvents": []}' * 20, b"\x1f\x8b\x08\x00" + bytes(200), bytes(64), b"\x0a\x00", b"plain text\n" * 9]
)
def test_other_kinds_of_file_are_refused(tmp_path, data):
    path = tmp_path / "other.xplane.pb"
    path.write_bytes(data)
    with pytest.raises(InputError):
        read_space(path)


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(InputError, match="cannot be read"):
        read_space(tmp_path / "absent.xplane.pb")
