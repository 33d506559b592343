import gzip
import json
import re

import pytest
from profiling_spaces import SpacePlane, write_space

from perfmodel.errors import InputError
from profiling import chrome, trace_checks
from profiling.extract import extract

US = 1e-6
SGLANG = "traces/tracelens_sglang_qwen3-8b_decode.trace.json.gz"
VLLM = "traces/tracelens_vllm_decode_full_graph.trace.json.gz"


def codes(timings) -> set[str]:
    return {finding.code for finding in timings.findings}


def span(name: str, ts: float, dur: float, cat: str = "", pid=1, tid=1, **args) -> dict:
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args}


def torch_events() -> list[dict]:
    """Three steps of 100 µs. Each has a region that launches two kernels; the second overlaps the first for 5 µs on another stream."""
    events = []
    for step in range(3):
        at = 5_000_000_000 + 100 * step
        events += [
            span(f"ProfilerStep#{step}", at, 98, "user_annotation", 7, 7),
            span("execute_context_0_generation_8", at + 5, 40, "user_annotation", 7, 7),
            span("aten::mm", at + 6, 10, "cpu_op", 7, 7),
            span("cudaLaunchKernel", at + 6, 2, "cuda_runtime", 7, 7, correlation=10 * step),
            span("cudaLaunchKernel", at + 9, 2, "cuda_runtime", 7, 7, correlation=10 * step + 1),
            span("gemm[0]", at + 20, 20, "kernel", 0, 7, device=0, stream=7, correlation=10 * step),
            span("attention", at + 35, 15, "kernel", 0, 8, device=0, stream=8, correlation=10 * step + 1),
            span("execute_context_0_generation_8", at + 20, 30, "gpu_user_annotation", 0, 7),
        ]
    return events


def write_trace(folder, events, name="run.pt.trace.json", **around):
    path = folder / name
    data = json.dumps({"traceEvents": events, **around}).encode()
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return path


@pytest.mark.parametrize("name", ["a.pt.trace.json", "a.trace.json.gz", "noextension"])
def test_torch_kernels_are_a_union_and_regions_map_by_pattern(tmp_path, name):
    path = write_trace(tmp_path, torch_events(), name, deviceProperties=[{"id": 0, "name": "NVIDIA H100"}])
    timings = extract(path, {"verify": "^execute_"})
    assert (timings.device_kind, timings.num_devices, timings.timing) == ("NVIDIA H100", 1, "device")
    assert (timings.steps, timings.step_source) == (3, "annotations")
    assert timings.phases["verify"].count == 3
    assert timings.phases["verify"].wall_s == pytest.approx([40 * US] * 3)
    # 20–40 and 35–50 are 30 µs together, not 35.
    assert timings.phases["verify"].device_s == pytest.approx([30 * US] * 3)
    assert timings.busy_share == pytest.approx(3 * 30 / 298)
    assert timings.host_gap_s == pytest.approx([68 * US] * 3)
    assert timings.bound == "host"
    assert {"foreign-steps", "host-bound"} <= codes(timings)


def test_kernel_names_map_too_and_regions_tell_executions_apart(tmp_path):
    timings = extract(write_trace(tmp_path, torch_events()), {"verify": "gemm"})
    assert timings.phases["verify"].count == 3
    assert timings.phases["verify"].device_s == pytest.approx([20 * US] * 3)
    assert timings.coverage == pytest.approx(20 / 30)


def test_a_list_of_events_is_a_trace_as_well(tmp_path):
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(torch_events()))
    assert extract(path).steps == 3


def test_rates_that_are_no_numbers_do_no_harm(tmp_path):
    path = write_trace(tmp_path, torch_events())
    path.write_text(path.read_text().replace('"stream": 7', '"bandwidth": NaN, "occupancy": Infinity, "stream": 7'))
    assert extract(path).steps == 3


def test_jax_processes_and_threads_are_planes_and_lines(tmp_path):
    names = [("process_name", 3, None, "/device:TPU:0"), ("thread_name", 3, 1, "XLA Modules"), ("thread_name", 3, 2, "XLA Ops"),
             ("process_name", 9, None, "/host:CPU"), ("thread_name", 9, 5, "python")]  # fmt: skip
    events = [{"ph": "M", "name": kind, "pid": pid, "tid": tid, "args": {"name": name}} for kind, pid, tid, name in names]
    for step in range(3):
        events.append(span(f"decode_step {step}", 100 * step, 90, pid=9, tid=5, step_num=str(step)))
        for program, start, length in [("draft", 5, 10), ("verify", 20, 50), ("commit", 75, 5)]:
            events.append(span(f"jit_{program}(12)", 100 * step + start, length, pid=3, tid=1))
            events.append(span("fusion", 100 * step + start, length, pid=3, tid=2))
    timings = extract(write_trace(tmp_path, [*events, {}], "host.trace.json.gz"))
    assert (timings.device_kind, timings.steps, timings.step_source) == ("TPU", 3, "annotations")
    assert timings.phases["verify"].device_s == pytest.approx([50 * US] * 3)
    assert timings.busy_share == pytest.approx(3 * 65 / 290)
    assert "foreign-steps" not in codes(timings)


@pytest.mark.parametrize("trace", [SGLANG, VLLM])
def test_real_serving_traces_read_without_our_phases(shared_data, trace):
    timings = extract(shared_data / trace)
    assert (timings.timing, timings.num_devices) == ("device", 1)
    assert timings.phases == {}
    assert timings.steps is None
    assert {"no-steps", "no-phases"} <= codes(timings)
    assert len(timings.top_ops) == 10
    assert 0 < timings.busy_share <= 1


def test_a_replayed_graph_is_device_bound_and_an_eager_step_is_host_bound(shared_data):
    assert extract(shared_data / VLLM).bound == "device"
    assert extract(shared_data / SGLANG).bound == "host"


def test_kernels_of_a_real_vllm_step_against_the_raw_events(shared_data):
    events = json.loads(gzip.decompress((shared_data / VLLM).read_bytes()))["traceEvents"]
    kernels = sorted((e["ts"], e["ts"] + e["dur"]) for e in events if e.get("cat") == "kernel" and "matmul" in e["name"])
    busy = reach = 0.0
    for start, end in kernels:
        busy += max(0.0, end - max(start, reach))
        reach = max(reach, end)
    timings = extract(shared_data / VLLM, {"verify": "matmul"})
    assert timings.phases["verify"].device_s == pytest.approx([busy * US], rel=1e-6)


def test_the_same_capture_says_the_same_as_xplane_and_as_chrome(shared_data, tmp_path):
    from xprof.convert.raw_to_tool_data import xspace_to_tool_data

    original = shared_data / "traces/xprof_tpu_inference_2.xplane.pb"
    link = tmp_path / "host.xplane.pb"
    link.symlink_to(original)
    text, _ = xspace_to_tool_data([str(link)], "trace_viewer", {})
    (tmp_path / "as.trace.json").write_text(text)
    ours, theirs = extract(original, {"verify": "jit_f"}), extract(tmp_path / "as.trace.json", {"verify": "jit_f"})
    assert (theirs.steps, theirs.num_devices, theirs.phases["verify"].count) == (100, 4, 100)
    assert theirs.step_seconds_median == pytest.approx(ours.step_seconds_median, rel=1e-9)
    assert theirs.busy_share == pytest.approx(ours.busy_share, abs=1e-6)
    assert dict(theirs.top_ops)["copy-done.2"] == pytest.approx(dict(ours.top_ops)["copy-done.2"], rel=1e-9)


def test_a_trace_cut_off_at_the_exporters_wall_is_an_error(tmp_path, monkeypatch):
    path = write_trace(tmp_path, torch_events())
    assert "truncated" not in codes(extract(path))
    monkeypatch.setattr(trace_checks, "CHROME_WALL", len(torch_events()))
    assert [finding.severity for finding in extract(path).findings if finding.code == "truncated"] == ["error"]


def test_a_folder_with_a_chrome_trace_only_stands_for_it(tmp_path):
    write_trace(tmp_path, torch_events())
    assert extract(tmp_path).steps == 3
    write_trace(tmp_path, torch_events(), "other.pt.trace.json.gz")
    with pytest.raises(InputError, match="2 hosts"):
        extract(tmp_path)
    host = SpacePlane("/host:CPU").line("python", *[("decode_step", 10 * step, 8, {"step_num": step}) for step in range(5)])
    write_space(tmp_path, host)
    assert extract(tmp_path).steps == 5


def refusal(path) -> InputError:
    before = sorted(path.parent.iterdir())
    with pytest.raises(InputError) as refused:
        extract(path)
    assert sorted(path.parent.iterdir()) == before
    assert refused.value.exit_code == 2
    assert refused.value.hint
    assert "\n" not in refused.value.message
    return refused.value


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "is empty"),
        (b"no gzip at all", "not gzip"),
        (b"\x1f\xef\xbf\xbd\x08\x00", "re-encoded as text"),
        (gzip.compress(json.dumps({"traceEvents": [span("a", 0, 1)]}).encode(), mtime=0)[:40], "not whole gzip"),
        (gzip.compress(b'{"traceEvents": [{"ph": "X"', mtime=0), "not whole JSON"),
        (gzip.compress(b'{"schema": "perf.run"}', mtime=0), "no Chrome trace"),
        (gzip.compress(b'{"traceEvents": [{"ph": 3}]}', mtime=0), "no Chrome trace"),
        (gzip.compress(b'{"traceEvents": []}', mtime=0), "no event with a start"),
        (gzip.compress(b"[" * 5000, mtime=0), "JSON|nested"),
    ],
)
def test_damaged_and_foreign_files_are_refused_by_name(tmp_path, data, said):
    path = tmp_path / "x.trace.json.gz"
    path.write_bytes(data)
    assert re.search(said, refusal(path).message)


def test_a_region_shorter_than_the_work_it_launched_is_said(tmp_path):
    """Three steps: the host's region lasts 100 µs, the kernel it launches 400 µs."""
    events = []
    for step in range(3):
        at = 5_000_000_000 + 1000 * step
        events += [
            span("execute_model", at, 100, "user_annotation", 7, 7),
            span("cudaLaunchKernel", at + 6, 2, "cuda_runtime", 7, 7, correlation=step),
            span("gemm", at + 20, 400, "kernel", 0, 7, device=0, stream=7, correlation=step),
        ]
    path = tmp_path / "async.trace.json"
    path.write_text(json.dumps({"traceEvents": events}))
    timings = extract(path, phase_patterns={"verify": "execute_"})
    assert timings.phases["verify"].device_s_median == pytest.approx(400 * US)
    (finding,) = (finding for finding in timings.findings if finding.code == "device-exceeds-wall")
    assert "400 µs" in finding.message
    assert "100 µs" in finding.message


@pytest.mark.parametrize("times", ['"ts":NaN,"dur":1', '"ts":0,"dur":1e300', '"ts":0,"dur":-3', '"ts":0,"dur":1e13'])
def test_times_that_are_none_are_refused(tmp_path, times):
    path = tmp_path / "odd.trace.json"
    path.write_text(f'{{"traceEvents":[{{"ph":"X","name":"a","pid":1,"tid":1,{times}}}]}}')
    with pytest.raises(InputError, match="no time"):
        chrome.read_chrome(path)


def test_a_real_trace_cut_off_or_re_encoded_is_refused(shared_data, tmp_path):
    whole = (shared_data / VLLM).read_bytes()
    path = tmp_path / "cut.trace.json.gz"
    for length in (1, 100, len(whole) // 2):
        path.write_bytes(whole[:length])
        refusal(path)
    path.write_bytes(whole.decode("utf-8", "replace").encode())
    assert "re-encoded" in refusal(path).message


def test_gzip_that_expands_past_the_limit_is_refused_before_it_is_read_whole(tmp_path, monkeypatch):
    monkeypatch.setattr(chrome, "MAX_EXPANDED_BYTES", 1_000_000)
    path = tmp_path / "bomb.trace.json.gz"
    path.write_bytes(gzip.compress(bytes(50_000_000)))
    assert "1.00 MB" in refusal(path).message


def test_host_events_alone_are_refused(tmp_path):
    path = write_trace(tmp_path, [span("aten::mm", 0, 10, "cpu_op"), span("main.py(3): run", 0, 20, "python_function")])
    assert "neither a device" in refusal(path).message
