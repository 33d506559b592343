"""Headless Chromium without a network: a page's DOM after its scripts ran, its console, and every request it tried."""

import json
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
    "--host-resolver-rules=MAP * ~NOTFOUND",  # the network is off: no name resolves
    "--virtual-time-budget=8000",
)


@dataclass(frozen=True)
class Visit:
    """What a browser found: the DOM, console lines, and the addresses the page tried to fetch."""

    dom: str
    console: str
    requests: tuple[str, ...]


def chromium() -> str:
    """The browser's path; the test is skipped where there is none."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("Chromium is not installed")
    return browser


def visit(page: str, folder: Path) -> Visit:
    """Open a page from disk and let its scripts run."""
    path, log = folder / "page.html", folder / "net.json"
    path.write_text(page, encoding="utf-8")
    done = subprocess.run(
        [chromium(), *FLAGS, f"--user-data-dir={folder / 'profile'}", "--enable-logging=stderr", f"--log-net-log={log}",
         "--dump-dom", path.as_uri()],
        capture_output=True, text=True, timeout=240, check=True,
    )  # fmt: skip
    console = "\n".join(line for line in done.stderr.splitlines() if "CONSOLE" in line)
    return Visit(done.stdout, console, requested(log))


def requested(log: Path) -> tuple[str, ...]:
    """Addresses in the network log that a page asked for; what the browser asks for itself has no origin as its initiator."""
    text = log.read_text(encoding="utf-8")
    try:
        document = json.loads(text)
    except json.JSONDecodeError:  # a browser that ends at once leaves the list open
        document = json.loads(text.rstrip().rstrip(",") + "]}")
    asked = (event.get("params", {}) for event in document["events"])
    return tuple(dict.fromkeys(p["url"] for p in asked if "url" in p and p.get("initiator", "not an origin") != "not an origin"))


def dumped(page: str, folder: Path) -> str:
    """The DOM of a page after its scripts ran."""
    return visit(page, folder).dom
