"""The server's own counters around a piece of work: scraped before and after, kept as files, read as their difference.

K is what the counters say was drafted, not what a flag asked for. Where every step drafts the same number, drafted over drafts
is K − 1; a drafter that sometimes has less to propose (n-gram) keeps it below, and then the positions that were counted tell.
"""

import time
from dataclasses import dataclass
from pathlib import Path

from perfmodel.errors import InputError
from perfmodel.records import ImportedRun

from ..importers import vllm_prometheus
from ..importers.source import Source
from .client import Client
from .failure import EngineError

PATH = "/metrics"
SETTLE_LIMIT_S = 5.0
SETTLE_POLL_S = 0.2


@dataclass(frozen=True)
class Scrape:
    """A scrape and the file it was kept in."""

    path: Path
    text: str


def scrape(client: Client, path: Path) -> Scrape | None:
    """The counters now, kept at `path`; None where the server shows none."""
    reply = client.get(PATH)
    if reply.status != 200:
        return None
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(reply.text, encoding="utf-8")
    return Scrape(path, reply.text)


def settled_scrape(client: Client, path: Path) -> Scrape | None:
    """The counters once two looks in a row agree: a server adds up its last step a moment after it has sent it."""
    until = time.monotonic() + SETTLE_LIMIT_S
    before = scrape(client, path)
    while before is not None and time.monotonic() < until:
        time.sleep(SETTLE_POLL_S)
        after = scrape(client, path)
        if after is None or _counts(after.text) == _counts(before.text):
            return after
        before = after
    return before


def _counts(text: str) -> list[str]:
    wanted = ("spec_decode", "generation_tokens_total")
    return [line for line in text.splitlines() if not line.startswith("#") and any(name in line for name in wanted)]


def difference(before: Scrape, after: Scrape, model: str) -> ImportedRun:
    """What was counted between two scrapes for a model. Raises `EngineError` when the server restarted in between."""
    try:
        runs = vllm_prometheus.join([Source(before.path), Source(after.path)])
    except InputError as error:
        raise EngineError("counters-unusable", error.message, error.hint) from error
    return next((run for run in runs if run.target == model), runs[0])


def since_start(found: Scrape) -> ImportedRun:
    """What was counted since the server started. Raises `EngineError` when the scrape cannot be read."""
    try:
        return vllm_prometheus.read(Source(found.path))[0]
    except InputError as error:
        raise EngineError("counters-unusable", error.message, error.hint) from error


def speculates(text: str) -> bool:
    """Whether a scrape has counters of speculation; a server without speculation has none, not zeros."""
    return any(line.startswith(("vllm:spec_decode_num_", "vllm_spec_decode_num_")) for line in text.splitlines())


def knows_speculation(text: str) -> bool:
    """Whether the scrape is of an engine that would count speculation, so that no such counter means none."""
    return "vllm:" in text


def block_size_of(run: ImportedRun) -> int | None:
    """K by the counters; None where nothing was drafted."""
    drafts, drafted = run.num_steps, run.num_draft_tokens
    if not drafts or not drafted:
        return None
    counted = run.survival or ()
    reached = max((index for index, share in enumerate(counted, start=1) if share > 0), default=0)
    if drafted % drafts == 0 and drafted // drafts >= reached:
        return 1 + drafted // drafts
    return 1 + len(counted) if counted else run.block_size
