"""Two real runs of the tiny pair held against each other: the prompts are found to be the same, and every ratio has its interval."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from perfmodel.codec import load
from perfmodel.records import Run

ROOT = Path(__file__).parent.parent
SWEEP = ("sweep-k", "--quick", "--task", "math", "--points", "1,2,4,8", "--repeats", "3", "--hardware", "tpu-v5p", "--quiet")


def perf(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    program = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from perfcli.__main__ import main; main()"
    return subprocess.run([sys.executable, "-c", program, *args], cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_two_runs_of_one_drafter_answer_the_same_prompts_and_differ_by_noise_only(tmp_path: Path):
    for name in ("monday", "tuesday"):
        done = perf(tmp_path, *SWEEP, "--out", name)
        assert done.returncode in (0, 3), done.stderr
    checks = load(tmp_path / "monday" / "run.json", Run).checks
    for check in checks:
        assert len(check.answer_s) == len(check.answer_tokens) >= 2
        assert sum(check.answer_tokens) == check.num_tokens
        assert check.measured_tpot_s == pytest.approx(sum(check.answer_s) / check.num_tokens)
    done = perf(tmp_path, "compare", "monday", "tuesday", "--json", "--out", "page.html")
    assert done.returncode == 0, done.stderr
    (task,) = json.loads(done.stdout)["tasks"]
    assert task["same_prompts"]
    assert not task["same_step_times"]  # two fits, each with its own error
    for kind in ("tpot", "measured_tpot", "plain_tpot"):
        low, value, high = (task[f"{kind}_ratio{end}"] for end in ("_low", "", "_high"))
        assert 0.1 < low <= value <= high < 10, kind
    assert json.loads(done.stdout)["acceptance"] == []  # lossless runs of one drafter: the very same counts
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "Both sides answered the same prompts" in page
    assert "plain decoding as timed" in page
