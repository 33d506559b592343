import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profiling_spaces import SpacePlane, space_bytes

from perfmodel.errors import InputError
from profiling.extract import read_timeline, summarise
from profiling.phase_map import PhaseMap
from profiling.xplane import parse_space, read_space
from profiling.xplane_schema import message_types

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
    assert line.carrying("run_id").tolist() == [0]
    assert line.values("absent") == {}
    assert line.durations() == {"jit_f(1)": 2_000_000, "jit_g(2)": 1_000_000}


def test_absolute_times_do_not_overflow():
    # 1.7e18 ns since 1970 is 1.7e21 ps, which no 64-bit integer holds.
    late = parse_space(space_bytes(SpacePlane("/host:CPU").line("python", ("a", 1, 2))), "made")
    assert late.planes[0].lines[0].times.tolist() == [[1_000_000, 3_000_000]]


def test_an_empty_line_needs_no_clock():
    empty = space_bytes(SpacePlane("/host:metadata").line("nothing"), timestamp_ns=0)
    late = space_bytes(SpacePlane("/host:CPU").line("python", ("a", 1, 2)))
    assert parse_space(empty + late, "made").planes[1].lines[0].times.tolist() == [[1_000_000, 3_000_000]]


def test_times_that_no_column_holds_are_refused():
    plane = SpacePlane("/host:CPU").line("python", ("a", 1, 2))
    with pytest.raises(InputError, match="'python' begins months away"):
        parse_space(space_bytes(plane, timestamp_ns=0) + space_bytes(plane), "made")
    with pytest.raises(InputError, match="not a whole XSpace"):  # 5e12 us are 58 days
        parse_space(space_bytes(SpacePlane("/host:CPU").line("python", ("a", 5e12, 5e12))), "made")


def test_progress_is_the_share_of_the_bytes_that_is_read():
    plane = SpacePlane("/host:CPU").line("a", *[("x", n, 1) for n in range(99)]).line("b", ("y", 1, 2))
    told: list[float] = []
    parse_space(space_bytes(plane), "made", told.append)
    # One line holds nearly all of the events; what follows the last event are the tables of names.
    assert len(told) == 2
    assert 0.8 < told[0] < told[1] < 1


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


@settings(deadline=None)
@given(st.data())
def test_a_damaged_capture_is_refused_or_read_and_never_an_accident(data):
    plane = SpacePlane("/device:GPU:0", {"device_vendor": "AMD"}).line(
        "Stream #1", *[("gemm", 10 * n, 5, {"correlation_id": n, "hlo_op": "dot"}) for n in range(4)]
    )
    raw = bytearray(space_bytes(plane, SpacePlane("/host:CPU").line("python", ("decode_step", 0, 9, {"step_num": 0}))))
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    try:
        space = parse_space(bytes(raw[: data.draw(st.integers(1, len(raw)))]), "damaged")
        summarise(read_timeline(space, PhaseMap({})), space)
    except InputError:
        return


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(InputError, match="cannot be read"):
        read_space(tmp_path / "absent.xplane.pb")


MEASURE_EXTRACT = """
import re, sys
from pathlib import Path
from profiling.extract import extract

def peak_bytes():
    return 1024 * int(re.search(r"VmHWM:\\s*(\\d+)", Path("/proc/self/status").read_text())[1])

before = peak_bytes()
extract(Path(sys.argv[1]))
print(peak_bytes() - before)
"""


@pytest.mark.skipif(not Path("/proc/self/status").is_file(), reason="the system does not report peak memory there")
def test_reading_holds_little_more_than_the_columns(tmp_path):
    # One long line is the worst case: nothing of it can be let go before all of it is read.
    stats = {"hlo_op": "dot", "hlo_module": "jit_verify", "program_id": 3, "run_id": 7, "device_ordinal": 0, "_r": 1}
    raw = space_bytes(SpacePlane("/host:CPU").line("tf_XLAPjRtCpuClient", *[("dot", 5 * n, 4, stats) for n in range(200)]))
    types = message_types()
    space = types["Space"].FromString(raw)
    plane = types["Plane"].FromString(space.planes[0])
    line = types["Line"].FromString(plane.lines[0])
    line.events.extend(list(line.events) * 1_199)
    plane.lines[0] = line.SerializeToString()
    space.planes[0] = plane.SerializeToString()
    path = tmp_path / "large.xplane.pb"
    path.write_bytes(space.SerializeToString())
    # The file itself, and per event of 50 bytes there: 24 in columns, 21 for each of six stats, 100 to tell operations apart and to
    # group them. That makes 6 times the file, and half as much again passes. 64-bit columns of a whole line made 32 times.
    child = subprocess.run([sys.executable, "-c", MEASURE_EXTRACT, path], capture_output=True, text=True, check=True, timeout=120)
    assert int(child.stdout) < 16 * path.stat().st_size
