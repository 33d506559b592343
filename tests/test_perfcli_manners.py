"""How the command line behaves at a terminal: bars on stderr only when somebody watches, colours off on request, quick to start."""

import gzip
import os
import pty
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from report_fixture import inputs
from test_sweeps_importers_formats import LINE

from perfcli.app import VERBS, app
from perfmodel import codec

ROOT = Path(__file__).resolve().parent.parent
PREDICT = ("predict", "--hardware", "tpu-v5p", "--acceptance", "qwen3-4b-dflash-b16/math")


def perf(*args: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command with changed environment variables."""
    known = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR", "TERM")}
    return subprocess.run(
        [sys.executable, "-m", "perfcli", *args],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**known, **environment},
        check=False,
    )


def at_a_terminal(*args: str) -> tuple[int, str, str]:
    """Exit status, stdout, and what a terminal on stderr was sent."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "perfcli", *args], stdout=subprocess.PIPE, stderr=theirs, text=True, cwd=ROOT
    )
    os.close(theirs)
    seen = b""
    while True:
        try:
            data = os.read(ours, 65536)
        except OSError:  # the other side is closed
            break
        if not data:
            break
        seen += data
    os.close(ours)
    out, _ = process.communicate()
    return process.returncode, out, seen.decode(errors="replace")


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A packed server log that takes a few seconds to read."""
    path = tmp_path_factory.mktemp("manners") / "server.log.gz"
    with gzip.open(path, "wb", compresslevel=1) as stream:
        stream.write((LINE.rstrip("\n") + "\n").encode() * 120_000)
    return path


def test_a_bar_with_the_time_left_while_a_terminal_watches(log: Path) -> None:
    status, out, seen = at_a_terminal("import", str(log), "--json")
    assert status == 0
    assert out.startswith("{")
    drawn = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen)
    # the stage, its bar, the time so far, the time left, the file
    assert re.search(r"reading +[━╸╺ ]+ 0:00:0\d 0:00:0\d server\.log", drawn), drawn
    assert drawn.rstrip().splitlines()[-1].startswith("server.log.gz: taken for")  # the bar is gone at the end


def test_short_work_draws_no_bar(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    path.write_text(LINE)
    status, _, seen = at_a_terminal("import", str(path), "--json")
    assert status == 0
    assert "reading" not in seen


def test_quiet_shows_no_bar(log: Path) -> None:
    status, _, seen = at_a_terminal("import", str(log), "--json", "--quiet")
    assert status == 0
    assert seen.splitlines() == [line for line in seen.splitlines() if line.startswith("server.log.gz: taken for")]
    assert "\x1b" not in seen


def test_nothing_is_drawn_where_nobody_watches(log: Path) -> None:
    result = perf("import", str(log), "--json")
    assert result.returncode == 0
    assert "reading" not in result.stderr
    assert "\x1b" not in result.stderr


def test_a_closed_stderr_is_nobody_watching(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    path.write_text(LINE)
    done = subprocess.run(
        f"{sys.executable} -m perfcli import {path} --json 2>&-",
        shell=True,
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert done.returncode == 0
    assert done.stdout.startswith("{")


@pytest.mark.parametrize("args", [["--help"], ["list", "hardware"], ["list", "hardware", "--json"]])
def test_a_reader_who_leaves_is_no_bug(args: list[str]) -> None:
    ours, theirs = os.pipe()
    os.close(ours)
    done = subprocess.run(
        [sys.executable, "-m", "perfcli", *args], stdout=theirs, stderr=subprocess.PIPE, text=True, cwd=ROOT, check=False
    )
    os.close(theirs)
    assert (done.returncode, done.stderr) == (0, "")


def test_no_color_means_no_colour() -> None:
    painted = perf(*PREDICT, FORCE_COLOR="1", TERM="xterm-256color").stdout
    plain = perf(*PREDICT, FORCE_COLOR="1", TERM="xterm-256color", NO_COLOR="1").stdout
    assert "\x1b[1;32m" in painted  # the best row, bold green
    assert "32m" not in plain
    assert "▸" in plain


GONE = """
import os, sys
from perfcli.__main__ import leave_at_once
sys.stdout.write("a line for nobody")
os.close(1)
sys.stderr = None
leave_at_once()
"""


def test_ctrl_c_ends_quietly_where_nobody_listens_any_more() -> None:
    done = subprocess.run([sys.executable, "-c", GONE], capture_output=True, text=True, cwd=ROOT, check=False)
    assert (done.returncode, done.stderr) == (130, "")


IGNORED = """
import time
from perfcli.__main__ import hear_interrupts

class Held:
    def __del__(self):
        raise KeyboardInterrupt

hear_interrupts()
held = Held()
del held  # Python only prints that it ignores what a destructor raises
try:
    time.sleep(20)
except KeyboardInterrupt:
    print("heard")
"""


def test_ctrl_c_is_heard_even_in_a_destructor() -> None:
    done = subprocess.run([sys.executable, "-c", IGNORED], capture_output=True, text=True, cwd=ROOT, check=False, timeout=60)
    assert done.stdout == "heard\n"
    assert done.stderr == ""


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_can_print_json(verb: str) -> None:
    command = app.get_command(None, verb)  # type: ignore[arg-type]
    assert command is not None
    assert "--json" in {option for parameter in command.params for option in parameter.opts}


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["predict", "--hardware", "tpu-v5q", "--survival", "0.9"], "did you mean tpu-v5p"),
        (["predict", "--hardware", "h100", "--target", "qwen3-4c", "--survival", "0.9"], "qwen3-4b"),
        (["compare", "tpu-v5q", "h200"], "did you mean tpu-v5p"),
        (["compare", "qwen3-4b-dflash-b16/maths", "h200"], "did you mean qwen3-4b-dflash-b16/math"),
        (["compare", "tpu-v5p", "h200"], "no acceptance is assumed"),
        (["predict", "--hardware", "h100", "--acceptance", "qwen3-4b-dflash-b16/mth"], "qwen3-4b-dflash-b16/math"),
        (["compre", "a", "b"], "Did you mean 'compare'"),
    ],
)
def test_a_wrong_name_is_answered_with_the_nearest(args: list[str], words: str) -> None:
    result = perf(*args)
    assert result.returncode == 2
    assert words in result.stderr
    assert "Traceback" not in result.stderr


def least_seconds(*args: str) -> float:
    """The least processor time of three runs, s: what the command costs where the machine has nothing else to do."""
    spent = []
    for _ in range(3):
        before = os.times()
        begin = time.perf_counter()
        assert perf(*args).returncode == 0
        wall, after = time.perf_counter() - begin, os.times()
        spent.append(min(wall, after.children_user + after.children_system - before.children_user - before.children_system))
    return min(spent)


def test_help_is_there_at_once() -> None:
    assert least_seconds("--help") < 0.3


def test_a_prediction_from_a_saved_model_takes_a_moment(tmp_path: Path) -> None:
    codec.save(tmp_path / "model.json", inputs().model)
    codec.save(tmp_path / "acceptance.json", inputs().acceptance)
    spent = least_seconds("predict", "--model", str(tmp_path / "model.json"), "--acceptance", str(tmp_path / "acceptance.json"))
    assert spent < 1.5
