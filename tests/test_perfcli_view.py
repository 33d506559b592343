"""`perf view` for real: TensorBoard serves a run, and a headless browser finds it in the profile tab."""

import gzip
import html
import json
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

from perfmodel.phases import STEP_ANNOTATION, VERIFY
from profiling.capture import capture

ROOT = Path(__file__).resolve().parent.parent
BROWSER = next((found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="no Chromium here; `.ci/run` installs it where it may"),
]


@pytest.fixture
def address(tmp_path) -> Iterator[str]:
    """The address that `perf view` says of a run with one real capture named `toy-k4`."""
    work = jax.jit(lambda values: jnp.tanh(values @ values))
    jax.block_until_ready(work(jnp.ones((64, 64))))
    with capture(tmp_path / "xprof", "toy-k4") as recording:
        for step in range(3):
            with recording.span(STEP_ANNOTATION, step_num=step), recording.span(VERIFY):
                jax.block_until_ready(work(jnp.ones((64, 64))))
    command = [sys.executable, "-m", "perfcli", "view", str(tmp_path / "xprof"), "--port", "0"]
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    try:
        said = process.stderr.readline()
        yield re.search(r"http://\S+/", said)[0]
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(timeout=30)
        process.stderr.close()


def read(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=30) as answer:
        data = answer.read()
    return gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data


def page(url: str, profile: Path) -> str:
    """The document a browser shows once its scripts had time to run."""
    command = [
        BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", f"--user-data-dir={profile}",
        "--virtual-time-budget=15000", "--timeout=45000", "--dump-dom", url,
    ]  # fmt: skip
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout


def test_the_run_is_in_the_profile_tab_and_its_trace_viewer_loads(address, tmp_path):
    plugin = f"{address}data/plugin/profile/"
    deadline = time.monotonic() + 30
    while "toy-k4" not in json.loads(read(f"{plugin}runs")) and time.monotonic() < deadline:
        time.sleep(0.2)
    shown = page(address + "#profile", tmp_path / "browser")
    assert '<iframe src="data/plugin_entry.html?name=profile">' in shown, "TensorBoard offers the profile tab"
    host = next((tmp_path / "xprof").rglob("*.xplane.pb")).name.removesuffix(".xplane.pb")
    chosen = urllib.parse.urlencode({"run": "toy-k4", "tag": "trace_viewer@", "host": host})
    shown = page(f"{plugin}index.html?{chosen}", tmp_path / "browser")
    assert "Sessions (1)" in shown
    assert ">toy-k4</span>" in shown, "the run is the one chosen in the list"
    viewer = re.search(r'<iframe[^>]* src="([^"]*trace_viewer_index\.html[^"]*)"', shown)
    assert viewer, "the trace viewer is on the page"
    asked = urllib.parse.parse_qs(urllib.parse.urlsplit(html.unescape(viewer[1])).query)["trace_data_url"][0]
    trace = read(urllib.parse.urljoin(address, asked))
    assert b"decode_step" in trace
    assert b"verify" in trace
