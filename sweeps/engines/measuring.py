"""One task at one K and one number of requests in flight: load between two scrapes, and what follows from both.

The time of a step is what its request sees: time from the first token to the last over the steps in between. The server counts drafts
only, and a drafter by n-grams sits steps out; so steps are read off the stream where it carries one piece each.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from decoding.prompts import Prompt
from perfmodel.records import Finding, ImportedRun, ServedPoint, ServedRequest

from .client import Client
from .counters import Scrape, block_size_of, difference, knows_speculation, scrape, settled_scrape, since_start, speculates
from .dialect import Dialect, answer
from .load import run_load, work


@dataclass(frozen=True)
class Scene:
    """What is asked of a server: prompts of a task, so many in flight, up to so many tokens each."""

    task: str
    prompts: Sequence[Prompt]
    concurrency: int
    max_new_tokens: int


def measure(
    client: Client, dialect: Dialect, model: str, scene: Scene, asked: int | None, folder: Path, key: str, method: str
) -> ServedPoint:
    """The point of a scene; scrapes are kept below `folder`. Raises `EngineError` when any answer fails."""
    before = settled_scrape(client, folder / f"{key}-before.txt")
    begin = time.perf_counter()
    requests = run_load(
        work(scene.prompts, scene.concurrency),
        scene.concurrency,
        lambda prompt: answer(client, dialect, model, prompt, scene.max_new_tokens),
    )
    wall_s = time.perf_counter() - begin
    after = settled_scrape(client, folder / f"{key}-after.txt") if before is not None else None
    counters = _counters(before, after, model, scene, method)
    return point_of(scene, asked, requests, wall_s, counters, _is_plain(after))


def _counters(before: Scrape | None, after: Scrape | None, model: str, scene: Scene, method: str) -> ImportedRun | None:
    if before is None or after is None or not speculates(after.text):
        return None
    run = difference(before, after, model)
    return msgspec.structs.replace(
        run, task=scene.task, target=model, draft=method, batch=float(scene.concurrency), num_requests=None
    )


def _is_plain(after: Scrape | None) -> bool:
    return after is not None and knows_speculation(after.text) and not speculates(after.text)


def point_of(
    scene: Scene,
    asked: int | None,
    requests: Sequence[ServedRequest],
    wall_s: float,
    counters: ImportedRun | None,
    is_plain: bool,
) -> ServedPoint:
    """The point that answers and counters give, with a finding for everything that does not fit together."""
    block_size = 1 if is_plain else block_size_of(counters) if counters is not None else 1 if asked == 1 else None
    point = ServedPoint(
        task=scene.task,
        concurrency=scene.concurrency,
        asked=asked,
        block_size=block_size,
        requests=tuple(requests),
        wall_s=wall_s,
        counters=counters,
    )
    findings = _findings(point)
    num_steps = _num_steps(point)
    if num_steps and block_size is not None:
        per_step = point.num_decoded / num_steps
        if 1.0 <= per_step <= block_size:
            decode_s = sum(request.decode_s for request in requests)
            point = msgspec.structs.replace(point, num_steps=num_steps, step_s=decode_s / num_steps, tokens_per_step=per_step)
        else:
            text = f"{num_steps:,} steps and {point.num_decoded:,} tokens do not fit K={block_size}: {per_step:.3f} tokens a step"
            findings.append(_finding(point, "steps-do-not-fit", "warning", text, "was somebody else using the server?"))
    return msgspec.structs.replace(point, findings=tuple(findings))


def _num_steps(point: ServedPoint) -> int | None:
    """Steps of single requests: by the streams where they tell, else by the counters; None where neither does.

    A fixed drafter drafts in every step; one that sits steps out leaves them uncounted, and they are the tokens that no draft brought.
    """
    if point.block_size == 1:
        return point.num_decoded
    counters = point.counters
    if counters is None or counters.num_steps is None or counters.num_accepted is None:
        return None
    streamed = steps_by_answer(point)
    if streamed is not None:
        return sum(map(len, streamed))
    return max(counters.num_steps, point.num_decoded - counters.num_accepted)


def steps_by_answer(point: ServedPoint) -> list[tuple[int, ...]] | None:
    """Committed tokens of every step, answer by answer; None where an answer does not tell, or tells less than was counted.

    A slow reader gets several steps in one piece: there are then fewer pieces than drafts, or one above K.
    """
    answers = [request.committed for request in point.requests if request.num_decoded > 0]
    known = [steps for steps in answers if steps]
    if point.block_size is None or not known or len(known) < len(answers):
        return None
    least = point.counters.num_steps if point.counters is not None and point.counters.num_steps else 0
    return known if sum(map(len, known)) >= least and max(map(max, known)) <= point.block_size else None


def _findings(point: ServedPoint) -> list[Finding]:
    found = []
    counters, size = point.counters, point.block_size
    if size is None:
        text = "the server shows no counters of speculation, so K, τ and steps are unknown; times per token stand"
        if counters is not None:
            text = "nothing was drafted while the requests ran, so K and τ are unknown; times per token stand"
        hint = "vLLM and TPU-inference show them at /metrics; others may need an option"
        found.append(_finding(point, "acceptance-unknown", "warning", text, hint))
    if size is not None and point.asked is not None and size != point.asked:
        text = f"K={point.asked} was asked for, and the counters say K={size}"
        found.append(_finding(point, "other-k", "warning", text, "the counters are believed; check the command of --launch"))
    if counters is not None and counters.num_output_tokens is not None:
        ours = sum(request.num_output_tokens for request in point.requests)
        if counters.num_output_tokens != ours:
            text = f"the server counted {counters.num_output_tokens:,} tokens, and the answers hold {ours:,}"
            hint = "somebody else used it, and steps and acceptance hold their requests too: measure an idle server"
            found.append(_finding(point, "foreign-traffic", "warning", text, hint))
    return found


def _finding(point: ServedPoint, code: str, severity: str, message: str, hint: str) -> Finding:
    size = point.asked or point.block_size
    where = f"{point.task}, K={size or '?'}, {point.concurrency} in flight"
    return Finding(code=code, severity="warning" if severity == "warning" else "info", message=message, hint=hint, where=where)


def running_block_size(client: Client, folder: Path) -> int | None:
    """K of a server as it runs, by the counters since it started; None where they do not tell yet."""
    found = scrape(client, folder / "first-look.txt")
    if found is None:
        return None
    if not speculates(found.text):
        return 1 if knows_speculation(found.text) else None
    return block_size_of(since_start(found))
