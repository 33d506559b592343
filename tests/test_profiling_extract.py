import random

import pytest
from profiling_spaces import SpacePlane, write_space

from perfmodel import codec
from perfmodel.errors import InputError
from profiling import trace_checks
from profiling.chrome import CHROME_WALL
from profiling.extract import extract
from profiling.xplane import EVENT_WALLS

US = 1e-6


def codes(timings) -> set[str]:
    return {finding.code for finding in timings.findings}


def host_loop(num_steps=4, verify_us=50.0, step_us=100.0, last_is_cut=False) -> SpacePlane:
    """Steps of 100 µs: draft 0–20, verify 25–75, commit 80–90; XLA works inside each for 4 µs less."""
    python, worker = [], []
    for step in range(num_steps):
        at = step * step_us
        phases = [("draft", 0, 20), ("verify", 25, 50), ("commit", 80, 10)]
        python.append(("decode_step", at, step_us - 2, {"step_num": step}))
        for name, start, length in phases[: 1 if last_is_cut and step == num_steps - 1 else 3]:
            python.append((name, at + start, length))
            work = verify_us - 4 if name == "verify" else length - 4
            stats = {"hlo_op": "dot", "hlo_module": f"jit_{name}", "run_id": step, "device_ordinal": 0}
            worker.append(("dot", at + start + 2, work, stats))
            worker.append(("end: dot", at + start + length - 2, 0))
    random.Random(0).shuffle(python)
    random.Random(1).shuffle(worker)
    return SpacePlane("/host:CPU").line("python", *python).line("tf_XLAPjRtCpuClient/1", *worker)


def test_cpu_steps_phases_and_gaps_by_hand(tmp_path):
    timings = extract(write_space(tmp_path, host_loop()), expected_steps=4)
    assert (timings.device_kind, timings.num_devices, timings.timing) == ("cpu", 1, "host")
    assert (timings.steps, timings.step_source) == (4, "annotations")
    assert timings.step_seconds == pytest.approx([98 * US] * 4)
    assert {name: times.count for name, times in timings.phases.items()} == {"draft": 4, "verify": 4, "commit": 4}
    assert timings.phases["verify"].wall_s == pytest.approx([50 * US] * 4)
    assert timings.phases["verify"].device_s == pytest.approx([46 * US] * 4)
    # Host gap: 98 less the regions 20 + 50 + 10.
    assert timings.host_gap_s == pytest.approx([18 * US] * 4)
    # Busy: 16 + 46 + 6 of each step's work, four times, in a window from the first step's start to the last one's end, 398.
    assert timings.busy_share == pytest.approx(4 * (16 + 46 + 6) / 398)
    assert timings.coverage == pytest.approx(1.0)
    assert timings.top_ops[0] == ("dot", pytest.approx(4 * (16 + 46 + 6) * US))
    assert codes(timings) == set()


def test_a_record_of_a_trace_survives_its_file(tmp_path):
    timings = extract(write_space(tmp_path, host_loop()))
    codec.save(tmp_path / "timings.json", timings)
    assert codec.load_any(tmp_path / "timings.json") == timings


def test_a_step_cut_off_by_the_end_is_dropped_and_said(tmp_path):
    timings = extract(write_space(tmp_path, host_loop(num_steps=5, last_is_cut=True)))
    assert timings.steps == 4
    assert "partial-step" in codes(timings)


def test_plain_decoding_without_drafts_loses_no_step(tmp_path):
    host = host_loop()
    host.lines[0] = ("python", [event for event in host.lines[0][1] if event[0] != "draft"])
    timings = extract(write_space(tmp_path, host))
    assert timings.steps == 4
    assert "partial-step" not in codes(timings)


def test_another_number_of_steps_than_were_run_is_an_error(tmp_path):
    timings = extract(write_space(tmp_path, host_loop()), expected_steps=7)
    assert [finding.severity for finding in timings.findings if finding.code == "steps-mismatch"] == ["error"]


def test_work_longer_than_its_region_means_that_nobody_waited(tmp_path):
    timings = extract(write_space(tmp_path, host_loop(verify_us=400.0, step_us=1000.0)))
    found = [finding for finding in timings.findings if finding.code == "device-exceeds-wall"]
    assert found[0].severity == "error"
    assert "verify" in found[0].message


def test_a_full_event_buffer_is_reported(tmp_path, monkeypatch):
    host = host_loop()
    num_events = sum(len(events) for _, events in host.lines)
    monkeypatch.setattr(trace_checks, "EVENT_WALLS", (num_events,))
    assert "truncated" in codes(extract(write_space(tmp_path, host)))
    monkeypatch.setattr(trace_checks, "EVENT_WALLS", (num_events + 1,))
    assert "truncated" not in codes(extract(write_space(tmp_path, host)))


def test_busy_longer_than_the_whole_capture_is_an_error(tmp_path):
    clock = SpacePlane("Task Environment", {"profile_start_time": 1_000_000, "profile_stop_time": 1_100_000})  # 100 µs
    assert "device-exceeds-capture" in codes(extract(write_space(tmp_path, host_loop(), clock)))


def test_work_outside_any_phase_lowers_coverage(tmp_path):
    host = host_loop()
    # Between regions, 18 µs of another program in each step: 68 of 86 µs are attributed, 79 %.
    stats = {"hlo_op": "sum", "hlo_module": "jit_other", "run_id": 0, "device_ordinal": 0}
    gaps = [(20, 5), (75, 5), (90, 8)]
    host.line("tf_XLAPjRtCpuClient/2", *[("sum", step * 100 + at, length, stats) for step in range(4) for at, length in gaps])
    timings = extract(write_space(tmp_path, host))
    assert timings.coverage == pytest.approx(68 / 86)
    assert "low-coverage" in codes(timings)


def test_an_operation_named_like_a_phase_is_no_annotation(tmp_path):
    host = host_loop()
    stats = {"hlo_op": "verify", "hlo_module": "jit_verify", "run_id": 0, "device_ordinal": 0}
    host.line("tf_XLAPjRtCpuClient/2", ("verify", 30, 10, stats))
    assert extract(write_space(tmp_path, host)).phases["verify"].count == 4


def test_foreign_steps_are_used_and_named(tmp_path):
    host = SpacePlane("/host:CPU").line("python", *[("train", 10 * step, 8, {"step_num": step}) for step in range(3)])
    timings = extract(write_space(tmp_path, host))
    assert timings.steps == 3
    assert timings.busy_share is None
    assert timings.coverage is None
    assert timings.num_devices == 0
    assert {"foreign-steps", "no-phases", "no-device-events"} <= codes(timings)


def test_programs_without_annotations_make_steps(tmp_path):
    host = host_loop()
    del host.lines[0]
    timings = extract(write_space(tmp_path, host))
    assert (timings.steps, timings.step_source) == (4, "modules")
    assert timings.phases["draft"].wall_s_median is None


def test_a_readable_trace_without_our_phases_is_no_error(tmp_path):
    stats = {"hlo_op": "dot", "hlo_module": "jit_f", "run_id": 1, "device_ordinal": 0}
    timings = extract(write_space(tmp_path, SpacePlane("/host:CPU").line("worker", ("dot", 0, 5, stats))))
    assert timings.steps is None
    assert timings.phases == {}
    assert {"no-steps", "no-phases"} <= codes(timings)


def test_host_events_of_nobody_we_know_are_refused(tmp_path):
    path = write_space(tmp_path, SpacePlane("/host:CPU").line("python", ("Session", 0, 5)))
    with pytest.raises(InputError, match="neither a device"):
        extract(path)


def tpu_chip(number: int, *programs: tuple[str, float, float], steps: bool = False) -> SpacePlane:
    plane = SpacePlane(f"/device:TPU:{number}", {"device_type_string": "TPU v6 Lite"})
    plane.line(
        "XLA Modules", *[(f"jit_{name}({index % 3})", start, length) for index, (name, start, length) in enumerate(programs)]
    )
    plane.line("XLA Ops", *[(f"%dot.{name} = f32[2] dot()", start, length) for name, start, length in programs])
    plane.line("Async XLA Ops", *[("%copy", start, length) for _, start, length in programs])
    if steps:
        plane.line("Steps", ("0", 0, 100), ("1", 100, 100))
    return plane


LOOP = [
    (name, 100 * step + start, length)
    for step in range(3)
    for name, start, length in [("draft", 0, 20), ("verify", 20, 60), ("commit", 85, 5)]
]


def test_tpu_steps_from_repeated_phases_by_hand(tmp_path):
    timings = extract(write_space(tmp_path, tpu_chip(0, *LOOP), tpu_chip(1, *LOOP)))
    assert (timings.device_kind, timings.num_devices, timings.timing) == ("TPU v6 Lite", 2, "device")
    assert (timings.steps, timings.step_source) == (3, "modules")
    # A step is draft's start to commit's end; its host gap is the idle time up to the next draft: 5 before commit, 10 after.
    assert timings.step_seconds == pytest.approx([90 * US] * 6)
    assert timings.host_gap_s == pytest.approx([15 * US] * 4)
    assert timings.phases["verify"].count == 3
    assert timings.phases["verify"].device_s == pytest.approx([60 * US] * 6)
    # Operations and asynchronous copies overlap: summed, 170 of 290 would be busy.
    assert timings.busy_share == pytest.approx(3 * 85 / 290)
    assert timings.coverage == pytest.approx(1.0)
    assert timings.top_ops[0] == ("dot.verify", pytest.approx(180 * US))


def test_tpu_prefers_its_own_line_of_steps(tmp_path):
    timings = extract(write_space(tmp_path, tpu_chip(0, *LOOP, steps=True)))
    assert (timings.steps, timings.step_source) == (2, "steps")
    assert timings.host_gap_s == pytest.approx([15 * US] * 2)


def test_tpu_last_step_without_its_verify_is_dropped(tmp_path):
    timings = extract(write_space(tmp_path, tpu_chip(0, *LOOP, ("draft", 300, 20))))
    assert timings.steps == 3
    assert "partial-step" in codes(timings)


def test_tpu_chips_that_differ_are_said(tmp_path):
    timings = extract(write_space(tmp_path, tpu_chip(0, *LOOP), tpu_chip(1, *LOOP[:6])))
    assert timings.steps == 2
    assert "uneven-devices" in codes(timings)


def test_a_chip_without_events_is_not_counted(tmp_path):
    timings = extract(write_space(tmp_path, tpu_chip(0, *LOOP), SpacePlane("/device:TPU:1")))
    assert timings.num_devices == 1


def test_planes_of_equal_name_are_devices_of_their_own(tmp_path):
    timings = extract(write_space(tmp_path, tpu_chip(0, *LOOP), tpu_chip(0, *LOOP)))
    assert timings.num_devices == 2
    assert timings.steps == 3
    assert len(timings.step_seconds) == 6
    assert timings.busy_share == pytest.approx(3 * 85 / 290)
    assert "equal-planes" in codes(timings)


def test_the_side_that_takes_more_of_the_time_is_the_bound(tmp_path):
    assert extract(write_space(tmp_path, tpu_chip(0, *LOOP))).bound == "device"
    sparse = [(name, 10 * start, length) for name, start, length in LOOP]
    timings = extract(write_space(tmp_path, tpu_chip(0, *sparse)))
    # 255 of the 2,850 µs from the first draft to the last commit's end, 2000 + 850 + 5.
    assert timings.busy_share == pytest.approx(255 / 2855)
    assert timings.bound == "host"
    assert "host-bound" in codes(timings)


def test_the_walls_are_those_of_the_profilers():
    assert 2_097_153 in EVENT_WALLS
    assert CHROME_WALL == 1_000_000


def test_real_v6e_trace_has_a_hundred_steps_per_chip(shared_data):
    timings = extract(shared_data / "traces/xprof_tpu_inference_2.xplane.pb")
    assert (timings.device_kind, timings.num_devices) == ("TPU v6 Lite", 4)
    assert (timings.steps, timings.step_source, timings.timing) == (100, "modules", "device")
    assert len(timings.step_seconds) == 400
    assert sum(timings.step_seconds) / 400 == pytest.approx(0.78415, abs=5e-5)
    # Summed lines of chip 0 alone exceed its wall clock more than threefold.
    assert 0.99 < timings.busy_share <= 1.0
    assert timings.coverage == 0.0
    assert {"no-phases", "low-coverage", "steps-from-repeated-module"} <= codes(timings)


def test_a_pattern_maps_a_foreign_program_onto_a_phase(shared_data):
    timings = extract(shared_data / "traces/xprof_tpu_inference_2.xplane.pb", {"verify": r"^jit_f\("})
    assert timings.phases["verify"].count == 100
    assert timings.phases["verify"].device_s_median == pytest.approx(0.78400, abs=5e-5)
    assert timings.coverage == pytest.approx(1.0)
    assert codes(timings) == set()


def test_real_mi300x_trace_has_kernels_and_no_steps(shared_data):
    timings = extract(shared_data / "traces/tracelens_mi300_jax_conv_08.xplane.pb")
    assert timings.num_devices == 8
    assert timings.device_kind.startswith("AMD GPU")
    assert timings.steps is None
    assert timings.phases == {}
    assert {"no-steps", "no-phases"} <= codes(timings)
    assert 0 < timings.busy_share < 1


def test_real_mi300x_kernels_group_into_executions_of_their_module(shared_data):
    # Each GPU ran jit_forward_3d_conv five times, five kernels each.
    timings = extract(shared_data / "traces/tracelens_mi300_jax_conv_08.xplane.pb", {"verify": "forward_3d_conv"})
    assert timings.phases["verify"].count == 5
    assert len(timings.phases["verify"].device_s) == 40


def test_gpu_streams_are_a_union_and_launches_give_phases(tmp_path):
    gpu = SpacePlane("/device:GPU:0", {"device_vendor": "NVIDIA"})
    gpu.line("Stream #1(Compute)", ("gemm", 12, 10, {"correlation_id": 1}), ("gemm", 112, 10, {"correlation_id": 2}))
    gpu.line("Stream #2(MemcpyD2D)", ("copy", 17, 10, {"correlation_id": 3}))
    host = SpacePlane("/host:CPU")
    host.line(
        "python",
        *[("decode_step", 100 * step, 90, {"step_num": step}) for step in range(2)],
        ("verify", 5, 30),
        ("verify", 105, 30),
    )
    host.line("launches", *[("cuLaunch", at, 1, {"correlation_id": number}) for number, at in [(1, 6), (2, 106), (3, 8)]])
    timings = extract(write_space(tmp_path, gpu, host))
    assert (timings.steps, timings.step_source) == (2, "annotations")
    assert timings.phases["verify"].count == 2
    # First verify: 12–22 and 17–27 are 15 µs together, not 20.
    assert timings.phases["verify"].device_s == pytest.approx([15 * US, 10 * US])
    assert timings.host_gap_s == pytest.approx([75 * US, 80 * US])
    assert timings.coverage == pytest.approx(1.0)


def test_one_gap_that_makes_the_busy_share_small_is_said(tmp_path):
    # 1 µs of work, a gap of 900 µs, then 96 of 99 µs: 97 of 1,000 µs are busy, and 97 of 100 without the gap.
    apart = [("copy", 0, 1), ("gemm", 901, 50), ("gemm", 954, 46)]
    timings = extract(write_space(tmp_path / "apart", SpacePlane("/device:GPU:0").line("Stream #1", *apart)))
    assert timings.busy_share == pytest.approx(0.097)
    message = next(finding.message for finding in timings.findings if finding.code == "one-gap")
    assert "90.0 % of its time is one gap of 900 µs" in message
    assert "97.0 %" in message
    close = [("gemm", at, 10) for at in (0, 30, 60)]  # two gaps of 20 in 70 µs
    timings = extract(write_space(tmp_path / "close", SpacePlane("/device:GPU:0").line("Stream #1", *close)))
    assert "one-gap" not in codes(timings)


def test_unknown_phases_and_broken_patterns_are_refused(tmp_path):
    path = write_space(tmp_path, host_loop())
    with pytest.raises(InputError, match="not a phase"):
        extract(path, {"accept": "x"})
    with pytest.raises(InputError, match="regular expression"):
        extract(path, {"verify": "jit_f("})


def test_a_folder_stands_for_its_one_run(tmp_path):
    path = write_space(tmp_path, host_loop())
    expected = extract(path)
    for folder in (path.parent, path.parent.parent, tmp_path):
        assert extract(folder) == expected


def test_folders_without_one_trace_say_what_they_hold(tmp_path):
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(InputError, match=r"notes\.txt") as refused:
        extract(tmp_path)
    assert "plugins/profile" in refused.value.hint
    with pytest.raises(InputError, match="does not exist"):
        extract(tmp_path / "absent")
    write_space(tmp_path, host_loop(), run="one")
    write_space(tmp_path, host_loop(), run="two")
    with pytest.raises(InputError, match=r"2 runs: .*one.*two"):
        extract(tmp_path)
    write_space(tmp_path, host_loop(), run="one", host="other")
    with pytest.raises(InputError, match="2 hosts"):
        extract(tmp_path / "plugins" / "profile" / "one")


def test_nothing_is_written_beside_the_trace(tmp_path):
    path = write_space(tmp_path, host_loop())
    before = {entry: entry.stat().st_mtime_ns for entry in path.parent.iterdir()}
    extract(path)
    assert {entry: entry.stat().st_mtime_ns for entry in path.parent.iterdir()} == before
