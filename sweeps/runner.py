"""The main job, in order: calibrate, time steps, decode under capture, read the traces, audit, fit, predict, check.

The runner touches the device and the disk; what follows from the measurements is decided by pure functions of records in
`sweeps.analysis`. Each finished piece is on disk before the next begins, so a sweep that was killed goes on where it stopped.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from decoding.loop import required_capacity
from decoding.pair import Pair
from decoding.programs import PhaseProgram, phase_program
from decoding.tasks import load_prompts
from perfmodel.phases import COMMIT, DRAFT, VERIFY
from perfmodel.records import (
    CheckedK,
    Finding,
    Hardware,
    KPrediction,
    ModelSpec,
    PredictionSet,
    Run,
    RunSpec,
    StepTimes,
    TraceSet,
)
from profiling.calibrate import calibrate
from profiling.environment import environment

from . import analysis
from .answers import Decoders
from .checking import check_task
from .decodes import Decodes, Prompts, decode, loss_findings
from .folder import write_result
from .grid import neighbours
from .pairs import CHAIN_BLOCK_SIZE, CHECKPOINT, open_pair, random_prompts, weights_findings
from .plan import budget
from .progress import Reporter
from .result import SweepResult
from .step_times import Shape, measure
from .store import RunStore
from .traces import host_gap_s, measured_overhead, overhead_findings, read_traces

PROMPT_STEP = 32
"""Prompt capacities are rounded up to this many tokens."""

CHECK_TOKENS = 48

CHECK_BATCH = 1
"""The loop is run again for a single stream; predictions for other batches stay unchecked."""


class Sweep:
    """A sweep under way: what was asked, where it goes, the loaded pair, and the seconds each stage took."""

    def __init__(self, spec: RunSpec, store: RunStore, report: Reporter) -> None:
        self.spec = spec
        self.store = store
        self.report = report
        self.wall_s: dict[str, float] = {}
        with self.stage("loading"):
            self.pair = open_pair(spec.target, spec.draft, spec.dtype, spec.weights)
            self.prompts = _prompts(spec, self.pair)
        with self.stage("calibrating"):
            self.machine: Hardware = calibrate(progress=lambda share: report("calibrating", share, "at most"))
        if self.pair.draft_config is None:
            raise ValueError("a sweep always has a drafter")
        self.target: ModelSpec = self.pair.target_config.spec(spec.target)
        self.draft: ModelSpec = self.pair.draft_config.spec(spec.draft)
        self.block_size: int = self.pair.trained_block_size or CHAIN_BLOCK_SIZE
        longest = max(len(prompt) for prompts in self.prompts.values() for prompt in prompts)
        prompt_capacity = -(-longest // PROMPT_STEP) * PROMPT_STEP
        capacity = required_capacity(prompt_capacity, spec.max_new_tokens, self.block_size)
        self.decoders = Decoders(self.pair, prompt_capacity, capacity)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time a stage and tell of its start and end."""
        started = time.perf_counter()
        self.report(name, 0.0, "")
        yield
        self.wall_s[name] = time.perf_counter() - started
        self.report(name, 1.0, "")


def _prompts(spec: RunSpec, pair: Pair) -> Prompts:
    if pair.weights != CHECKPOINT and pair.tokenizer is None:
        return {task: random_prompts(task, pair, spec.num_prompts) for task in spec.tasks}
    path = None if spec.prompts_file is None else Path(spec.prompts_file)
    return {
        task: tuple(prompt.token_ids for prompt in load_prompts(task, pair, spec.num_prompts, path=path)) for task in spec.tasks
    }


def run_sweep(spec: RunSpec, store: RunStore, report: Reporter) -> SweepResult:
    """Run or finish the sweep; every record is in its folder afterwards."""
    sweep = Sweep(spec, store, report)
    limits = budget(spec)
    with sweep.stage("step times"):
        times = _step_times(sweep, limits.step_times_s)
    with sweep.stage("decoding"):
        decodes = decode(
            sweep.prompts,
            sweep.block_size,
            spec.max_new_tokens,
            sweep.decoders,
            store,
            limits.decode_s,
            report,
            exact=spec.dtype == "float32",
        )
    with sweep.stage("analysis"):
        traces = TraceSet(traces=read_traces(decodes, store, sweep.machine, spec.dtype))
        report("analysis", 0.4, "fitting")
        audited, model, fit_findings = analysis.audit_and_fit(times, sweep.target, sweep.draft, sweep.machine)
        report("analysis", 0.6, "predicting")
        batch, context = spec.batches[0], spec.contexts[0]
        answered = [found for task in spec.tasks if (found := decodes.task(task, sweep.block_size)) is not None]
        acceptance = analysis.acceptance_of(answered, spec.target, spec.draft, sweep.block_size, synthetic=spec.quick)
        here: tuple[KPrediction, ...] = ()
        if model is not None:
            host_s = host_gap_s(traces.traces, decodes, sweep.block_size)
            here = tuple(
                prediction
                for batch in spec.batches
                for context in spec.contexts
                for prediction in analysis.predict_here(model, acceptance, spec.block_sizes, batch, context, host_s)
            )
        elsewhere = analysis.predict_elsewhere(spec.hardware, sweep.target, sweep.draft, acceptance, spec.tasks, batch, context)
        predictions = PredictionSet(here=here, elsewhere=elsewhere)
    with sweep.stage("check"):
        single = [one for one in here if one.batch == CHECK_BATCH and one.context == spec.contexts[0]]
        checks = _check(sweep, tuple(single), limits.check_s)
    run = _assemble(sweep, decodes, checks, fit_findings)
    flat = analysis.flat_widths(model, batch, context)
    result = SweepResult(
        folder=store.folder,
        run=run,
        step_times=times,
        traces=traces,
        audit=audited,
        model=model,
        flatness=flat,
        acceptance=acceptance,
        predictions=predictions,
    )
    write_result(result, store)
    return result


def _step_times(sweep: Sweep, budget_s: float) -> StepTimes:
    spec = sweep.spec
    shapes = [
        Shape(phase, size, batch, context)
        for batch in spec.batches
        for context in spec.contexts
        for size in spec.block_sizes
        for phase in (VERIFY, DRAFT, COMMIT)
        if size > 1 or phase == VERIFY
    ]

    def build(shape: Shape) -> PhaseProgram:
        return phase_program(sweep.pair, shape.phase, shape.block_size, shape.batch, shape.context)

    points = measure(
        shapes, build, sweep.store, budget_s, spec.repeats, lambda share, message: sweep.report("step times", share, message)
    )
    failed = [point for point in points if point.failure]
    findings = tuple(
        Finding(
            code="point-failed",
            severity="warning",
            message=f"{point.phase} at K={point.block_size}, batch {point.batch}, context {point.context} failed: {point.failure}",
            hint="the other points stand; a smaller --max, batch or context may fit",
            where="step times",
        )
        for point in failed
    )
    return StepTimes(
        device_kind=environment().device_kind,
        target=spec.target,
        draft=spec.draft,
        dtype=spec.dtype,
        points=points,
        findings=findings,
    )


def _check(sweep: Sweep, predictions: tuple[KPrediction, ...], budget_s: float) -> tuple[CheckedK, ...]:
    """Run the loop again at each task's predicted best K and its neighbours."""
    checks: list[CheckedK] = []
    for index, prediction in enumerate(predictions):
        rows = {row.block_size: row for row in prediction.rows}
        drafts = [row for row in prediction.rows if row.block_size > 1 and row.in_training]
        drafting = max(drafts, key=lambda row: row.speedup or 0.0, default=prediction.best)
        around = neighbours(prediction.best.block_size, drafting.block_size, sweep.block_size)
        sizes = [size for size in around if size in rows]
        predicted = {size: (rows[size].speedup, rows[size].tpot_s) for size in sizes}
        share = index / len(predictions)
        checks += check_task(
            prediction.task,
            sweep.prompts[prediction.task],
            predicted,
            sweep.decoders,
            sweep.store,
            min(CHECK_TOKENS, sweep.spec.max_new_tokens),
            budget_s / len(predictions),
            lambda message, share=share: sweep.report("check", share, message),  # type: ignore[misc]
            prediction.context,
        )
    return tuple(checks)


def _assemble(sweep: Sweep, decodes: Decodes, checks: tuple[CheckedK, ...], findings: tuple[Finding, ...]) -> Run:
    comparison = decodes.comparison
    overhead = measured_overhead(decodes, sweep.block_size)
    found = (*weights_findings(sweep.spec.weights), *findings, *loss_findings(comparison), *overhead_findings(overhead))
    return Run(
        spec=sweep.spec,
        environment=environment(),
        machine=sweep.machine,
        target=sweep.target,
        draft=sweep.draft,
        decodes=tuple(decodes.runs.values()),
        checks=checks,
        lossless=None if comparison is None else comparison.equal,
        lossless_compared=0 if comparison is None else comparison.num_tokens,
        profiler_overhead=None if overhead is None else overhead.share,
        wall_s=dict(sweep.wall_s),
        findings=found,
    )
