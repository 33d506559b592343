"""A sweep killed at any moment leaves a readable folder, and `--resume` finishes it without repeating what was done."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from perfmodel import codec
from perfmodel.records import FittedModel, Run

ROOT = Path(__file__).resolve().parent.parent
SWEEP = [sys.executable, "-m", "perfcli", "sweep-k", "--json", "--quiet"]
QUICK = [*SWEEP, "--quick", "--max", "16", "--task", "math", "--repeats", "3", "--hardware", "tpu-v5p"]


def parts(folder: Path) -> dict[str, int]:
    """Finished parts and when each was written."""
    return {path.name: path.stat().st_mtime_ns for path in (folder / "parts").glob("*.json") if not path.name.startswith(".")}


def start(folder: Path, resume: bool) -> subprocess.Popen[str]:
    command = [*SWEEP, "--resume"] if resume else QUICK
    return subprocess.Popen([*command, "--out", str(folder)], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for_part(process: subprocess.Popen[str], folder: Path, more_than: int) -> None:
    """Wait until the sweep has finished one more part."""
    deadline = time.monotonic() + 120
    while len(parts(folder)) <= more_than and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)


@pytest.mark.timeout(600)
def test_killed_at_random_moments_then_finished(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    seed = int(os.environ.get("PERF_TEST_SEED", "20261129"))
    moments = random.Random(seed)
    done: dict[str, int] = {}
    for attempt, kill in enumerate((signal.SIGKILL, signal.SIGINT, signal.SIGKILL)):
        with start(folder, resume=attempt > 0) as process:
            wait_for_part(process, folder, len(done))
            time.sleep(moments.uniform(0, 2))
            process.send_signal(kill)
            _, stderr = process.communicate(timeout=60)
            finished = process.returncode == 0
        if kill == signal.SIGINT and not finished:
            assert process.returncode == 130, stderr
            assert "--resume" in stderr
        now = parts(folder)
        assert {name: now[name] for name in done} == done, "a finished part was done again"
        for name in now:
            codec.load_any(folder / "parts" / name)  # whole and readable
        done = now
    with start(folder, resume=True) as process:
        stdout, stderr = process.communicate(timeout=300)
    assert process.returncode == 0, stderr
    now = parts(folder)
    assert {name: now[name] for name in done} == done, "a finished part was done again"
    document = json.loads(stdout)
    assert document["lossless"] is True
    assert {row["block_size"] for row in document["step_times"]} == {1, 2, 4, 8, 16}
    assert codec.load(folder / "run.json", Run).lossless is True
    assert codec.load(folder / "model.json", FittedModel).num_points > 0
    assert (folder / "report.html").stat().st_size > 1_000_000


def test_the_second_sweep_into_one_folder_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with start(folder, resume=False) as first:
        deadline = time.monotonic() + 60
        while not (folder / "spec.json").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        with start(folder, resume=True) as second:
            _, stderr = second.communicate(timeout=120)
        first.kill()
    assert second.returncode == 2
    assert "another perf is writing" in stderr
