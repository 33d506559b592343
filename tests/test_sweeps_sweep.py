"""The main job on the tiny pair, once, and every verb on the folder it leaves."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from perfmodel import codec
from perfmodel.records import AcceptanceSet, Run, StepTimes, TraceSet

ROOT = Path(__file__).resolve().parent.parent
TASKS = ("math", "chat")


def perf(*args: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "perfcli", *map(str, args)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A finished quick sweep and its JSON document."""
    folder = tmp_path_factory.mktemp("sweep") / "run"
    result = perf(
        "sweep-k", "--quick", "--max", "32", "--task", ",".join(TASKS), "--repeats", "8", "--hardware", "tpu-v5p", "--out", folder, "--json"
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    return folder, json.loads(result.stdout)


def test_the_document_keeps_its_promises(swept: tuple[Path, dict[str, Any]]) -> None:
    folder, document = swept
    assert (document["schema"], document["version"]) == ("perf.sweep", 1)
    assert document["lossless"] is True
    assert document["lossless_compared"] > 0
    assert Path(document["run_dir"]) == folder
    assert Path(document["report"]).is_file()
    keys = {"phase", "block_size", "batch", "context", "seconds", "seconds_low", "seconds_high", "valid"}
    assert all(keys <= set(row) for row in document["step_times"])
    verify = {row["block_size"]: row for row in document["step_times"] if row["phase"] == "verify"}
    assert set(verify) == {1, 2, 4, 8, 16, 32}
    assert all(row["seconds_low"] <= row["seconds"] <= row["seconds_high"] for row in verify.values())
    assert set(document["flat"]) == {"0.05", "0.10", "0.25", "cause"}
    assert {"parameters", "median_error", "held_out_median_error"} == set(document["fit"])
    for task in document["tasks"]:
        assert 1 <= task["tau_low"] <= task["tau_pooled"] <= task["tau_high"] <= 8
        assert task["num_speculative_tokens"] == task["best_block_size"] - 1
        assert task["plateau"][0] <= task["best_block_size"] <= task["plateau"][1]
        assert task["measured_speedup"] is not None
    assert {row["source"] for row in document["predictions"]} == {"measured", "datasheet"}
    datasheet = [row for row in document["predictions"] if row["source"] == "datasheet"]
    assert {(row["hardware"], row["target"]) for row in datasheet} == {("tpu-v5p", "tiny"), ("tpu-v5p", "qwen3-4b")}


def test_the_trace_agrees_with_the_run(swept: tuple[Path, dict[str, Any]]) -> None:
    folder, _ = swept
    run = codec.load(folder / "run.json", Run)
    traces = codec.load(folder / "traces.json", TraceSet).traces
    traced = [decode for decode in run.decodes if decode.trace]
    assert len(traces) == len(traced)
    for decode in traced:
        files = list((folder / decode.trace).parent.glob("*.xplane.pb"))  # type: ignore[operator]
        assert len(files) == 1
    for timings in traces.values():
        assert timings.steps == len(timings.step_seconds)
        assert timings.timing == "host"
        assert "verify" in timings.phases
        assert sum(times.wall_s_median or 0 for name, times in timings.phases.items() if name != "prefill") <= max(
            timings.step_seconds
        )
        assert all(gap >= 0 for gap in timings.host_gap_s)


def test_acceptance_is_what_was_committed(swept: tuple[Path, dict[str, Any]]) -> None:
    folder, document = swept
    run = codec.load(folder / "run.json", Run)
    profiles = {profile.task: profile for profile in codec.load(folder / "acceptance.json", AcceptanceSet).profiles}
    for task in TASKS:
        decode = next(d for d in run.decodes if d.task == task and d.block_size == 8 and d.batch > 1)
        assert profiles[task].committed == tuple(steps for steps in decode.committed if steps)
        assert profiles[task].synthetic
        for tokens, committed in zip(decode.tokens, decode.committed, strict=True):
            assert len(tokens) == 1 + sum(committed)
    assert [row["task"] for row in document["tasks"]] == list(TASKS)


def test_all_samples_are_kept(swept: tuple[Path, dict[str, Any]]) -> None:
    times = codec.load(swept[0] / "timings.json", StepTimes)
    assert all(3 <= len(point.samples_s) <= 8 for point in times.points if point.phase == "verify")
    assert all(point.compile_s for point in times.points)


@pytest.mark.parametrize("name", ["run", "timings", "traces", "audit", "model", "acceptance", "prediction", "spec"])
def test_every_record_can_be_shown(swept: tuple[Path, dict[str, Any]], name: str) -> None:
    result = perf("show", swept[0] / f"{name}.json")
    assert result.returncode == 0, result.stderr
    assert len(result.stdout) > 100


def test_fit_check_and_validate_take_the_folder(swept: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    folder, document = swept
    fitted = json.loads(perf("fit", folder, "-o", tmp_path / "model.json", "--json").stdout)
    assert fitted["parameters"] == document["fit"]["parameters"]
    checked = perf("check", folder, "--json")
    assert json.loads(checked.stdout)["num_invalid"] == 0
    assert checked.returncode == 0
    validated = json.loads(perf("validate", tmp_path / "model.json", folder, "--json").stdout)
    assert validated["schema"] == "perf.validation"
    errors = [abs(point["predicted_s"] / point["measured_s"] - 1) for point in validated["points"]]
    assert validated["max_error"] == pytest.approx(max(errors))


def test_predict_takes_the_fitted_model_and_the_measured_acceptance(swept: tuple[Path, dict[str, Any]]) -> None:
    folder, _ = swept
    result = perf("predict", "--model", folder, "--acceptance", folder / "acceptance.json", "--context", "256", "--json")
    document = json.loads(result.stdout)
    assert document["source"] == "measured"
    assert [row["block_size"] for row in document["rows"][:8]] == list(range(1, 9))


def test_extract_reads_a_capture_of_the_folder(swept: tuple[Path, dict[str, Any]]) -> None:
    folder, _ = swept
    document = json.loads(perf("extract", folder / "xprof" / "plugins" / "profile" / "witness-K8", "--json").stdout)
    assert document["schema"] == "perf.timings"
    assert set(document["phases"]) >= {"prefill", "draft", "verify", "commit"}


def test_the_page_can_be_made_again(swept: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert perf("report", swept[0], "-o", page).returncode == 0
    assert "tiny" in page.read_text()
    alone = tmp_path / "alone.html"
    assert perf("report", swept[0] / "model.json", "-o", alone).returncode == 0


def test_a_finished_folder_is_not_overwritten(swept: tuple[Path, dict[str, Any]]) -> None:
    result = perf("sweep-k", "--quick", "--out", swept[0])
    assert result.returncode == 2
    assert "already holds a run" in result.stderr


def test_capture_writes_tokens_that_plain_decoding_would_write(tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.json"
    prompts.write_text("[[5, 6, 7, 8], [9, 10]]")
    common = ["capture", "--target", "tiny", "--prompt-ids", prompts, "--max-new-tokens", "12", "--no-trace"]
    plain = perf(*common, "-k", "1", "--dump-tokens", tmp_path / "plain.json")
    block = perf(*common, "--dump-tokens", tmp_path / "block.json")
    assert (plain.returncode, block.returncode) == (0, 0), plain.stderr + block.stderr
    plain_rows, block_rows = (json.loads((tmp_path / name).read_text()) for name in ("plain.json", "block.json"))
    assert [row["tokens"] for row in plain_rows] == [row["tokens"] for row in block_rows]
    assert all(len(row["tokens"]) == 1 + sum(row["committed"]) for row in block_rows)


@pytest.mark.parametrize("text", ["{}", "[]", "[[]]", "[[1, 2.5]]", "[[true]]", "[1]", "[[99999999]]"])
def test_bad_prompt_ids_are_one_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "prompts.json"
    path.write_text(text)
    result = perf("capture", "--target", "tiny", "--prompt-ids", path, "--no-trace")
    assert result.returncode == 2
    assert "Traceback" not in result.stderr
