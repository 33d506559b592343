"""Looking at a trace: TensorBoard with XProf's profile plugin, on this machine only."""

import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import IO

from perfmodel.errors import InputError, UnsupportedError

from .capture import PROFILE_FOLDER

HOST = "127.0.0.1"
_ADDRESS = re.compile(r"TensorBoard \S+ at (http://\S+)")


@dataclass(frozen=True, slots=True)
class Viewer:
    """A TensorBoard that answers at `url` for as long as `process` lives."""

    url: str
    process: subprocess.Popen[bytes]


def tensorboard_command(run_dir: Path, port: int = 0) -> list[str]:
    """The command that shows the traces below a folder on a loopback port (0: any free one).

    Raises `UnsupportedError` when TensorBoard or its profile plugin is missing, `InputError` when the folder holds no trace.
    """
    for package in ("tensorboard", "xprof"):
        if find_spec(package) is None:
            raise UnsupportedError(f"{package} is not installed", "pip install tensorboard tensorboard-plugin-profile")
    if not any(run_dir.rglob(f"{PROFILE_FOLDER}/*/*.xplane.pb")):
        raise InputError(f"{run_dir} holds no trace", f"expected {PROFILE_FOLDER}/<run>/<host>.xplane.pb below it")
    options = ["--logdir", str(run_dir), "--host", HOST, "--port", str(port), "--load_fast", "false", "--reload_interval", "5"]
    return [sys.executable, "-m", "tensorboard.main", *options]


def serve(run_dir: Path, port: int, say: Callable[[str], object]) -> None:
    """Serve the traces below a folder until interrupted; `say` gets the address of XProf's pages. Raises like `serving`."""
    # A terminated parent must not leave the viewer behind with its port taken.
    previous = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with serving(run_dir, port) as viewer:
            say(f"{viewer.url}#profile")
            viewer.process.wait()
    except KeyboardInterrupt:
        pass
    finally:
        signal.signal(signal.SIGTERM, previous)


@contextmanager
def serving(run_dir: Path, port: int = 0, timeout_s: float = 60.0) -> Iterator[Viewer]:
    """A running viewer, stopped at the end of the block. Raises `UnsupportedError` when it does not start in time."""
    command = tensorboard_command(run_dir, port)
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
        try:
            yield Viewer(_await_address(process, log, timeout_s), process)
        finally:
            process.terminate()
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _await_address(process: subprocess.Popen[bytes], log: IO[bytes], timeout_s: float) -> str:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        said = _read(log)
        found = _ADDRESS.search(said)
        if found:
            return found[1]
        if process.poll() is not None:
            raise UnsupportedError(f"TensorBoard ended at once: {_last_line(said)}", "the port may be taken; give another --port")
        time.sleep(0.1)
    raise UnsupportedError(
        f"TensorBoard did not start within {timeout_s:.0f} s: {_last_line(_read(log))}", "try again, or run it by hand"
    )


def _read(log: IO[bytes]) -> str:
    log.seek(0)
    return log.read().decode(errors="replace")


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "it said nothing"
