"""The sweep over a server: start one per K, measure every task at every number of requests in flight, choose the next K, answer.

Every finished point is on disk before the next begins. What goes wrong with one server becomes a finding and ends that K only; a run
that is resumed tries again what has no point yet, and starts no server for a K that has them all.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from decoding.pair import ASSETS
from decoding.prompts import Prompt, read_prompts
from decoding.tasks import drawn_prompts
from perfmodel.errors import InputError
from perfmodel.modelspec import load_model
from perfmodel.records import (
    AcceptanceProfile,
    AcceptanceSet,
    Audit,
    Finding,
    KPrediction,
    ModelSpec,
    PredictionSet,
    Run,
    RunSpec,
    Served,
    ServedPoint,
    StepTimes,
    TraceSet,
)
from perfmodel.units import format_percent

from ..folder import write_result
from ..progress import Reporter
from ..result import SweepResult
from ..store import RunStore
from . import answering
from .choosing import LEAST_IMPROVEMENT, MAX_SERVERS, choose_next, expected_speedup
from .client import Client, parse_address
from .dialect import Dialect, answer, find_dialect, served_model
from .failure import EngineError
from .launch import Server, launched
from .load import run_load
from .measuring import Scene, measure, running_block_size
from .plan import LAUNCH_LIMIT_S, UNNAMED_TARGET
from .versions import engine_environment, server_versions

SCRAPES = "scrapes"
LOGS = "servers"
WARMUP_TOKENS = 16
LAST_WORDS_S = 2.0
"""How long a server that failed is given to end and to say why: an engine takes its front down a second later."""


@dataclass
class EngineSweep:
    """A sweep under way: the spec, its folder, the prompts, and what was found so far."""

    spec: RunSpec
    store: RunStore
    report: Reporter
    prompts: dict[str, list[Prompt]]
    client: Client
    points: list[ServedPoint] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    order: list[int] = field(default_factory=list)
    model: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    wall_s: dict[str, float] = field(default_factory=dict)

    def scenes(self) -> list[tuple[int, str]]:
        """Requests in flight and task of every point that one server gives."""
        return [(concurrency, task) for concurrency in self.spec.batches for task in self.spec.tasks]

    def key(self, block_size: int | None, concurrency: int, task: str) -> str:
        """The name of a point among the run's parts."""
        return f"served-K{block_size or 'unknown'}-c{concurrency}-{task}"

    def finished(self, block_size: int | None) -> list[ServedPoint]:
        """The points of a K that are on disk."""
        keys = [self.key(block_size, *scene) for scene in self.scenes()]
        return [point for key in keys if (point := self.store.get(key, ServedPoint)) is not None]

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Add up the wall time of a stage."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self.wall_s[name] = self.wall_s.get(name, 0.0) + time.perf_counter() - started


def run_engine_sweep(spec: RunSpec, store: RunStore, report: Reporter) -> SweepResult:
    """Run or finish the sweep over a server; every record is in its folder afterwards."""
    assert spec.base_url is not None
    sweep = EngineSweep(spec, store, report, _prompts(spec), Client(parse_address(spec.base_url)))
    with sweep.timed("servers"):
        if spec.launch is None:
            _measure_running(sweep)
        else:
            _measure_launched(sweep, spec.launch)
    result = _result(sweep)
    write_result(result, store)
    return result


def _prompts(spec: RunSpec) -> dict[str, list[Prompt]]:
    path = None if spec.prompts_file is None else Path(spec.prompts_file)
    return {
        task: (drawn_prompts(task, path) if path else read_prompts(ASSETS / "prompts" / f"{task}.jsonl"))[: spec.num_prompts]
        for task in spec.tasks
    }


def _measure_running(sweep: EngineSweep) -> None:
    """Measure the server that is there, at the K it runs; points of other K that an earlier server gave are kept."""
    sweep.points = _all_finished(sweep)
    try:
        dialect = _meet(sweep)
        size = running_block_size(sweep.client, sweep.store.folder / SCRAPES)
        _measure_all(sweep, dialect, size, None)
    except EngineError as error:
        sweep.findings.append(error.finding(f"server at {sweep.client.address}"))
    sweep.points = _all_finished(sweep)


def _all_finished(sweep: EngineSweep) -> list[ServedPoint]:
    """All points of the run, of whatever K."""
    return [point for key in sweep.store.keys("served-K") if (point := sweep.store.get(key, ServedPoint)) is not None]


def _measure_launched(sweep: EngineSweep, template: str) -> None:
    spec = sweep.spec
    tried: list[int] = []
    while True:
        scenes = answering.scenes_of(sweep.points)
        chosen = choose_next(spec.block_sizes, scenes, tried, exhaustive=not spec.choose)
        if chosen is None:
            sweep.findings += _why_no_more(spec, tried)
            return
        size = chosen.block_size
        tried.append(size)
        sweep.report("servers", (len(tried) - 1) / max(len(tried), len(spec.block_sizes)), f"K={size}: {chosen.reason}")
        done = sweep.finished(size)
        if len(done) == len(sweep.scenes()):
            sweep.points += done
            sweep.order.append(size)
            continue
        failure = _measure_one(sweep, template, size)
        sweep.points += sweep.finished(size)
        sweep.order.append(size)
        if failure is not None:
            sweep.findings.append(failure.finding(f"server for K={size} (num_speculative_tokens {size - 1})"))
            if failure.code == "port-taken":
                return  # no other K would find it free


def _why_no_more(spec: RunSpec, tried: list[int]) -> tuple[Finding, ...]:
    """Why K among the candidates were left out, where the tool chose."""
    left = [size for size in spec.block_sizes if size not in tried]
    if not left:
        return ()
    why = f"{MAX_SERVERS} servers are the most that are started"
    if len(tried) < MAX_SERVERS:
        why = f"none of the others can be expected to gain {format_percent(LEAST_IMPROVEMENT, 1)} on the best of these"
    text = f"of K = {spec.block_sizes[0]} … {spec.block_sizes[-1]} servers were started for {', '.join(map(str, tried))}: {why}"
    return (Finding(code="servers-chosen", severity="info", message=text, hint="--points runs exactly what it names"),)


def _measure_one(sweep: EngineSweep, template: str, size: int) -> EngineError | None:
    """Start the server of one K, measure it and stop it; what went wrong, in the server's own words, or None."""
    log = sweep.store.folder / LOGS / f"K{size}.log"
    limit_s = sweep.spec.launch_limit_s or LAUNCH_LIMIT_S
    try:
        with launched(template, size, sweep.client.address, log, limit_s) as server:
            try:
                dialect = _meet(sweep)
            except EngineError as error:
                return _explained(error, server, "server-fails-first-request", "is healthy and fails at its first request")
            try:
                _measure_all(sweep, dialect, size, size)
            except EngineError as error:
                return _explained(error, server, "server-died", "failed while it was measured")
    except EngineError as error:
        return error
    return None


def _explained(error: EngineError, server: Server, code: str, what: str) -> EngineError:
    status = server.ended(LAST_WORDS_S)
    ended = "" if status is None else f" (the process ended with status {status})"
    return EngineError(code, f"the server {what}{ended}: {error.message}{server.last_words()}", f"its log: {server.log}")


def _meet(sweep: EngineSweep) -> Dialect:
    """Learn the server's model and dialect, and let it run once in every batch that will be asked of it."""
    sweep.model = served_model(sweep.client, sweep.spec.target)
    first = next(iter(sweep.prompts.values()))
    dialect = find_dialect(sweep.client, sweep.model, first[0], WARMUP_TOKENS)
    sweep.versions = server_versions(sweep.client)
    for concurrency in sweep.spec.batches:
        places = [first[index % len(first)] for index in range(concurrency)]
        run_load(places, concurrency, lambda prompt: answer(sweep.client, dialect, sweep.model, prompt, WARMUP_TOKENS))
    return dialect


def _measure_all(sweep: EngineSweep, dialect: Dialect, size: int | None, asked: int | None) -> None:
    """Put every point of the server that runs on disk; finished ones are left as they are."""
    scenes = answering.scenes_of(sweep.points)
    for concurrency, task in sweep.scenes():
        key = sweep.key(size, concurrency, task)
        if not sweep.store.has(key):
            sweep.report("servers", 0.0, f"K={size or '?'}: {task}, {concurrency} in flight")
            scene = Scene(task, sweep.prompts[task], concurrency, sweep.spec.max_new_tokens)
            folder = sweep.store.folder / SCRAPES
            found = measure(sweep.client, dialect, sweep.model, scene, asked, folder, key, sweep.spec.draft)
            expected = expected_speedup(scenes.get((task, concurrency), ()), size) if size else None
            found = msgspec.structs.replace(found, expected_speedup=expected)
            sweep.store.put(key, found)


def _result(sweep: EngineSweep) -> SweepResult:
    spec, points = sweep.spec, sweep.points
    target = sweep.model or spec.target
    where = f"server at {spec.base_url}"
    profiles, here = _answers(sweep, target, where)
    num_tokens, num_answers, num_different = answering.compare_answers(points)
    is_exact = spec.dtype == "float32"
    findings = [*_general_findings(points, here, spec), *answering.comparison_finding(num_answers, num_different, is_exact)]
    served = Served(
        engine=spec.engine or "",
        base_url=spec.base_url or "",
        model=sweep.model,
        points=tuple(points),
        versions=sweep.versions,
        launched=tuple(sweep.order),
        findings=tuple(sweep.findings),
    )
    checks = [
        answering.checks_of([p for p in points if (p.task, p.concurrency) == (task, concurrency)])
        for concurrency, task in sweep.scenes()
    ]
    run = Run(
        spec=msgspec.structs.replace(spec, target=target) if spec.target == UNNAMED_TARGET else spec,
        environment=engine_environment(where, sweep.versions),
        machine=None,
        target=_dimensions(spec.target),
        draft=_dimensions(spec.draft),
        decodes=(),
        checks=tuple(check for found in checks for check in found),
        lossless=num_different == 0 if is_exact and num_answers else None,
        lossless_compared=num_tokens if is_exact else 0,
        profiler_overhead=None,
        wall_s=sweep.wall_s,
        findings=tuple(findings),
    )
    return SweepResult(
        folder=sweep.store.folder,
        run=run,
        step_times=StepTimes(device_kind=where, target=target, draft=spec.draft, dtype=spec.dtype, points=()),
        traces=TraceSet(traces={}),
        audit=Audit(hardware=where, points=()),
        model=None,
        flatness=None,
        acceptance=AcceptanceSet(profiles=profiles),
        predictions=PredictionSet(here=here),
        served=served,
    )


def _answers(sweep: EngineSweep, target: str, where: str) -> tuple[tuple[AcceptanceProfile, ...], tuple[KPrediction, ...]]:
    """Profiles of the tasks, and the predictions: those of the profiles first, in their order."""
    spec = sweep.spec
    profiles: list[AcceptanceProfile] = []
    here: list[KPrediction] = []
    for concurrency, task in sweep.scenes():
        points = answering.usable(sweep.points, task, concurrency)
        by_size = {
            point.block_size: profile
            for point in points
            if point.block_size and (profile := answering.profile_of(point, target, spec.draft, spec.trained_block_size))
        }
        found = answering.predict_scene(points, by_size, where)
        if found is None:
            continue
        here.append(found)
        if concurrency == spec.batches[0]:
            profiles.append(by_size[max(by_size)])
    return tuple(profiles), tuple(here)


def _general_findings(points: list[ServedPoint], here: tuple[KPrediction, ...], spec: RunSpec) -> list[Finding]:
    message = "no cost model is fitted to a server's times: they hold its scheduler and every other request"
    hint = "each K is compared with plain decoding on the server itself; perf sweep-k without --engine fits a roofline"
    found = [Finding(code="not-fitted", severity="info", message=message, hint=hint, where="fit")]
    if points and not any(point.block_size == 1 for point in points):
        text = "plain decoding was not measured, so there are no gains, only times per token"
        hint = "measure the server without speculation too"
        if spec.launch is None:
            hint = "start it without speculation and run again with --resume: points of several servers are kept side by side"
        found.append(Finding(code="no-plain-decoding", severity="warning", message=text, hint=hint, where="servers"))
    if not here:
        text = "no K above 1 was measured with its acceptance, so there is nothing to choose from"
        found.append(Finding(code="no-answer", severity="warning", message=text, hint="see the other findings", where="servers"))
    return found


def _dimensions(name: str) -> ModelSpec | None:
    try:
        return load_model(name)
    except InputError:
        return None
