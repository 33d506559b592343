import gzip
import json
import re
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
from profiling_spaces import SpacePlane, write_space

from perfmodel.errors import InputError, UnsupportedError
from profiling import view
from profiling.view import serving, tensorboard_command


@pytest.fixture
def run_dir(tmp_path):
    host = SpacePlane("/host:CPU").line("python", *[("decode_step", 10 * step, 8, {"step_num": step}) for step in range(3)])
    write_space(tmp_path, host, run="toy-k4")
    return tmp_path


def test_the_command_listens_on_this_machine_only(run_dir):
    command = tensorboard_command(run_dir, 6123)
    assert command[command.index("--host") + 1] == "127.0.0.1"
    assert command[command.index("--port") + 1] == "6123"
    assert command[command.index("--logdir") + 1] == str(run_dir)


def test_a_folder_without_a_trace_is_refused(tmp_path):
    with pytest.raises(InputError, match="no trace"):
        tensorboard_command(tmp_path)


@pytest.mark.parametrize("missing", ["tensorboard", "xprof"])
def test_a_missing_package_is_said(run_dir, monkeypatch, missing):
    monkeypatch.setattr(view, "find_spec", lambda name: None if name == missing else object())
    with pytest.raises(UnsupportedError, match=missing):
        tensorboard_command(run_dir)


def test_a_viewer_that_cannot_start_says_why(run_dir):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UnsupportedError, match="ended at once"), serving(run_dir, port):
            pass


def listed_runs(url: str, wanted: str) -> list[str]:
    """The profile plugin's list of runs, asked for until it holds the wanted one or half a minute has passed."""
    deadline = time.monotonic() + 30
    runs: list[str] = []
    while wanted not in runs and time.monotonic() < deadline:
        with urllib.request.urlopen(url + "data/plugin/profile/runs", timeout=20) as answer:
            runs = json.loads(gzip.decompress(answer.read()))
        time.sleep(0.2)
    return runs


def test_runs_are_in_the_profile_plugins_list(run_dir):
    write_space(run_dir / "xprof", SpacePlane("/host:CPU").line("python", ("decode_step", 0, 8, {"step_num": 0})), run="nested")
    with serving(run_dir) as viewer:
        assert "toy-k4" in listed_runs(viewer.url, "toy-k4")
        assert "xprof/nested" in listed_runs(viewer.url, "xprof/nested")
    assert viewer.process.poll() is not None, "stopped at the end of the block"


def test_serving_until_terminated_says_the_address_and_leaves_nothing_behind(run_dir):
    serve = f"serve(Path({str(run_dir)!r}), 0, lambda text: print(text, flush=True))"
    code = f"from pathlib import Path; from profiling.view import serve; {serve}"
    root = Path(__file__).resolve().parent.parent
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=root)
    said = process.stdout.readline()
    url = re.search(r"http://\S+/", said)[0]
    urllib.request.urlopen(url, timeout=20).close()
    process.terminate()
    assert process.wait(timeout=20) == 0
    process.stdout.close()
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(url, timeout=5)
