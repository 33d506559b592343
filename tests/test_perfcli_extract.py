import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from profiling_spaces import SpacePlane, write_space

from perfcli.__main__ import main
from perfcli.extract import command
from profiling import chrome

ROOT = Path(__file__).resolve().parent.parent
TPU_TRACE = "traces/xprof_tpu_inference_2.xplane.pb"
VLLM = "traces/tracelens_vllm_decode_full_graph.trace.json.gz"
FOREIGN = (
    TPU_TRACE,
    VLLM,
    "traces/tracelens_sglang_qwen3-8b_decode.trace.json.gz",
    "traces/tracelens_mi300_jax_conv_08.xplane.pb",
)


def perf_extract(*arguments, timeout=60) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "perfcli", "extract", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=timeout, check=False)


def test_promised_keys_of_a_real_tpu_capture(shared_data):
    done = CliRunner().invoke(command, [str(shared_data / TPU_TRACE), "--json", "--phase", "verify=jit_f"])
    document = json.loads(done.stdout)
    assert (document["schema"], document["version"]) == ("perf.timings", 1)
    assert (document["device_kind"], document["num_devices"], document["steps"]) == ("TPU v6 Lite", 4, 100)
    assert (document["step_source"], document["timing"], document["bound"]) == ("modules", "device", "device")
    assert document["step_seconds_median"] == pytest.approx(0.784, abs=1e-4)
    assert set(document["phases"]["verify"]) >= {"count", "device_s_median", "wall_s_median", "flops_per_s", "bytes_per_s"}
    assert document["phases"]["verify"]["wall_s_median"] is None
    assert 0.99 < document["busy_share"] <= 1
    assert document["coverage"] == pytest.approx(1)
    assert document["host_gap_s_median"] >= 0
    assert document["operations"][0]["name"] == "copy-done.4"
    assert isinstance(document["findings"], list)


def test_a_foreign_trace_without_our_phases_is_no_error(shared_data):
    done = CliRunner().invoke(command, [str(shared_data / VLLM), "--json"])
    document = json.loads(done.stdout)
    assert done.exit_code == 0
    assert (document["phases"], document["steps"]) == ({}, None)
    assert {finding["code"] for finding in document["findings"]} >= {"no-phases", "no-steps"}


def test_a_person_reads_busy_share_bound_peaks_and_longest_operations(shared_data):
    done = CliRunner().invoke(command, [str(shared_data / TPU_TRACE), "--phase", "verify=jit_f"])
    assert done.exit_code == 0
    for said in ("device-bound", "918 TFLOP/s", "copy-done.2", "by XProf", "verify"):
        assert said in done.output


@pytest.mark.parametrize("trace", FOREIGN)
def test_a_foreign_trace_reads_well_in_eighty_columns(shared_data, trace, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    done = CliRunner().invoke(command, [str(shared_data / trace)])
    lines = done.output.splitlines()
    assert max(map(len, lines)) <= 80
    assert "…" not in [line.strip() for line in lines]  # no name is so long that its end needs a line
    assert not any(line.startswith("Phases") for line in lines)  # there are none, which is said in words
    assert "no phase was recognised" in done.output
    steps = next(line for line in lines if line.startswith("steps"))
    assert steps.split(maxsplit=1)[1].strip() in ("none found", "100 (from modules), median 784 ms")


def test_a_capture_whose_idle_time_is_one_gap_says_so(shared_data):
    # One kernel, 463 ms of nothing, and a decode step of 10 ms that keeps the GPU busy for 93.5 %.
    done = CliRunner().invoke(command, [str(shared_data / FOREIGN[2]), "--json"])
    findings = {finding["code"]: finding["message"] for finding in json.loads(done.stdout)["findings"]}
    assert "463 ms" in findings["one-gap"]
    assert "93.5 %" in findings["one-gap"]


@pytest.mark.parametrize("pattern", ["verify", "accept=x", "verify=("])
def test_a_wrong_phase_option_is_wrong_use(tmp_path, pattern):
    done = CliRunner().invoke(command, [str(tmp_path), "--phase", pattern])
    assert done.exit_code == 2
    assert "--phase" in done.output


def test_two_patterns_of_one_phase_both_count(shared_data):
    trace = str(shared_data / VLLM)
    counted = []
    for patterns in (["verify=matmul"], ["verify=attention"], ["verify=matmul", "verify=attention"]):
        options = [option for pattern in patterns for option in ("--phase", pattern)]
        done = CliRunner().invoke(command, [trace, "--json", *options])
        counted.append(json.loads(done.stdout)["phases"]["verify"]["device_s_median"])
    assert counted[2] == pytest.approx(counted[0] + counted[1], rel=1e-3)


def bad_inputs(folder: Path, whole: bytes) -> dict[str, Path]:
    """Every kind of input that cannot be read, each in a folder of its own."""

    def file(kind: str, name: str, data: bytes) -> Path:
        (folder / kind).mkdir()
        path = folder / kind / name
        path.write_bytes(data)
        return path

    found = {"empty": file("empty", "a.xplane.pb", b"")}
    found |= {f"cut{length}": file(f"cut{length}", "a.xplane.pb", whole[:length]) for length in (1, 100, 400_000)}
    found["text"] = file("text", "a.xplane.pb", whole.decode("utf-8", "replace").encode())
    found["no-gzip"] = file("no-gzip", "a.trace.json.gz", b"plain")
    found["other-json"] = file("other-json", "a.json", b'{"schema": "perf.run"}')
    found["no-profile"] = file("no-profile", "notes.txt", b"x").parent
    found["host-only"] = write_space(folder / "host-only", SpacePlane("/host:CPU").line("python", ("Session", 0, 5)))
    annotated = SpacePlane("/host:CPU").line("python", ("decode_step", 0, 5, {"step_num": 0}))
    for run in ("one", "two"):
        write_space(folder / "two-runs", annotated, run=run)
    found["two-runs"] = folder / "two-runs"
    found["absent"] = folder / "absent.xplane.pb"
    found["pipe"] = folder / "pipe.xplane.pb"
    os.mkfifo(found["pipe"])
    found["device"] = Path("/dev/zero")
    (folder / "link.xplane.pb").symlink_to("/dev/zero")
    found["link"] = folder / "link.xplane.pb"
    found["sparse"] = file("sparse", "a.xplane.pb", b"")
    os.truncate(found["sparse"], 1 << 40)
    found["bomb"] = file("bomb", "a.trace.json.gz", gzip.compress(bytes(4_000_000)))
    return found


def test_input_that_cannot_be_read_is_exit_2_with_one_line_and_a_hint(shared_data, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(chrome, "MAX_EXPANDED_BYTES", 1_000_000)
    whole = (shared_data / TPU_TRACE).read_bytes()
    inputs = bad_inputs(tmp_path, whole)
    before = sorted((path, path.lstat().st_mtime_ns) for path in tmp_path.rglob("*"))
    for kind, path in inputs.items():
        monkeypatch.setattr(sys, "argv", ["perf", "extract", str(path)])
        with pytest.raises(SystemExit) as left:
            main()
        out, err = capsys.readouterr()
        assert left.value.code == 2, kind
        assert out == "", kind
        lines = err.strip().splitlines()
        assert len(lines) == 2, (kind, err)
        assert lines[0].startswith("perf: "), (kind, err)
        assert lines[1].startswith("  hint: "), (kind, err)
    assert sorted((path, path.lstat().st_mtime_ns) for path in tmp_path.rglob("*")) == before


def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "run.xplane.pb")
    assert perf_extract(tmp_path / "run.xplane.pb").returncode == 2
    assert perf_extract(tmp_path).returncode == 2
