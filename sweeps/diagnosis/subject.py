"""What the rules look at: one run's acceptance and times, whoever measured it.

An imported run and a task of our own sweep become the same thing here. Everything may be unknown (None); a rule that lacks what it needs
says nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median

from perfmodel import codec
from perfmodel.acceptance import tau_pooled
from perfmodel.errors import InputError
from perfmodel.records import (
    AcceptanceProfile,
    AcceptanceSet,
    Environment,
    Finding,
    Imported,
    ImportedRun,
    KPrediction,
    PredictionSet,
    Run,
    StepTimes,
    TraceSet,
    TraceTimings,
)

from ..importers.merging import import_files, is_record
from ..importers.registry import recognise
from ..importers.source import Source
from ..progress import Reporter, silent


@dataclass(frozen=True)
class Subject:
    """One run. Times are seconds per step; `survival[i-1]` is P(at least i drafts accepted).

    `predicted` holds (batch, speedup at that batch's best speculative K) where a sweep predicted several batches.
    """

    name: str
    file: str = ""
    tau: float | None = None
    block_size: int | None = None
    trained_block_size: int | None = None
    survival: tuple[float, ...] = ()
    num_steps: int | None = None
    committed: tuple[tuple[int, ...], ...] = ()
    num_requests: int | None = None
    plain_s: float | None = None
    cycle_s: float | None = None
    draft_s: float | None = None
    verify_s: float | None = None
    host_s: float | None = None
    tokens_per_s: float | None = None
    plain_tokens_per_s: float | None = None
    batch: float | None = None
    context: int | None = None
    facts: dict[str, str] = field(default_factory=dict)
    samples_s: tuple[tuple[float, ...], ...] = ()
    predicted: tuple[tuple[int, float], ...] = ()
    findings: tuple[Finding, ...] = ()

    @property
    def alpha(self) -> tuple[float, ...]:
        """Conditional acceptance by position, as far as survival is above zero."""
        previous = (1.0, *self.survival)[: len(self.survival)]
        return tuple(value / before for value, before in zip(self.survival, previous, strict=True) if before > 0)

    @property
    def is_plain(self) -> bool:
        """Whether nothing was drafted: a baseline."""
        return self.tau is None and not self.survival and self.num_steps is None


def subjects_of(paths: Sequence[Path], report: Reporter = silent) -> list[Subject]:
    """Every run in the files and run folders; `report` is told how far reading is. Raises `InputError` for what cannot be read."""
    found: list[Subject] = []
    foreign: list[Path] = []
    for path in paths:
        if path.is_dir():
            found += _run_folder(path)
        elif is_record(path):
            found += _record(path)
        else:
            foreign.append(path)
    groups = _groups(foreign)
    for index, group in enumerate(groups):
        name = " to ".join(path.name for path in group)

        def tell(stage: str, share: float, message: str, done: int = index) -> None:
            report(stage, (done + share) / len(groups), message)

        found += [of_import(run, name) for run in import_files(group, report=tell)[0].records]
    return found


def with_plain(subjects: Sequence[Subject]) -> list[Subject]:
    """The runs, each with the plain step time and rate of the baseline of the same target and batch where it has none itself."""
    baselines = {(s.batch, s.facts.get("target")): s for s in subjects if s.is_plain and s.batch is not None}
    found = []
    for subject in subjects:
        base = None if subject.batch is None else baselines.get((subject.batch, subject.facts.get("target")))
        if base is not None and not subject.is_plain and subject.plain_s is None and subject.plain_tokens_per_s is None:
            subject = replace(subject, plain_s=base.plain_s, plain_tokens_per_s=base.tokens_per_s)
        found.append(subject)
    return found


def _record(path: Path) -> list[Subject]:
    """The runs of a saved import, or the tasks of an acceptance file."""
    record = codec.load_any(path)
    if isinstance(record, Imported):
        return [of_import(run, path.name) for run in record.records]
    if isinstance(record, AcceptanceSet):
        return [_task(path.name, profile, None, None, None) for profile in record.profiles]
    if isinstance(record, AcceptanceProfile):
        return [_task(path.name, record, None, None, None)]
    schema = codec.SCHEMAS[type(record)][0]
    raise InputError(f"{path} is {schema}, which holds no acceptance", "give an import, an acceptance file, or the run folder")


def _groups(paths: list[Path]) -> list[list[Path]]:
    """Files that are read together (scrapes before and after), and the others each alone."""
    together = [path for path in paths if recognise(Source(path)).join is not None]
    return ([together] if together else []) + [[path] for path in paths if path not in together]


def of_import(run: ImportedRun, file: str = "") -> Subject:
    """An imported run as a subject."""
    plain = [point.seconds for point in run.cycles if point.block_size == 1]
    whole = [point.seconds for point in run.cycles if point.block_size > 1]
    named = {
        "method": run.method,
        "target": run.target,
        "draft": run.draft,
        "task": run.task,
        "temperature": None if run.temperature is None else f"{run.temperature:g}",
        "engine": run.engine,
        "definition": run.definition,
    }
    return Subject(
        name=run.name,
        file=file,
        tau=run.tau,
        block_size=run.block_size,
        trained_block_size=run.trained_block_size,
        survival=run.survival or (),
        num_steps=run.num_steps,
        committed=run.committed,
        num_requests=run.num_requests,
        plain_s=median(plain) if plain else None,
        cycle_s=median(whole) if whole else None,
        draft_s=run.phases_s.get("draft"),
        tokens_per_s=run.tokens_per_s,
        plain_tokens_per_s=run.plain_tokens_per_s,
        batch=run.batch,
        context=run.context,
        facts={name: value for name, value in named.items() if value is not None},
        samples_s=tuple(tuple(samples) for samples in (plain, whole) if len(samples) > 2),
        findings=run.findings,
    )


def _run_folder(folder: Path) -> list[Subject]:
    """The tasks of a finished sweep."""
    path = folder / "acceptance.json"
    if not path.is_file():
        raise InputError(f"{folder} holds no acceptance.json", "give a finished run folder of `perf sweep-k`")
    profiles = codec.load(path, AcceptanceSet).profiles
    run = codec.load(folder / "run.json", Run) if (folder / "run.json").is_file() else None
    times = codec.load(folder / "timings.json", StepTimes) if (folder / "timings.json").is_file() else None
    traces = codec.load(folder / "traces.json", TraceSet).traces if (folder / "traces.json").is_file() else {}
    whole = folder / "prediction.json"
    here = codec.load(whole, PredictionSet).here if whole.is_file() else ()
    tasks = [_task(folder.name, profile, run, times, _trace_of(traces, profile.task)) for profile in profiles]
    return [replace(task, predicted=_by_batch(here, task.name)) for task in tasks]


def _by_batch(predictions: Sequence[KPrediction], task: str) -> tuple[tuple[int, float], ...]:
    """(batch, speedup) of a task at the shortest context predicted, at the best K above 1: also where that loses."""
    mine = [prediction for prediction in predictions if prediction.task == task]
    shortest = min((prediction.context for prediction in mine), default=0)
    found = {}
    for prediction in mine:
        rows = [row.speedup for row in prediction.rows if row.block_size > 1 and row.in_training and row.speedup is not None]
        if prediction.context == shortest and rows:
            found[prediction.batch] = max(rows)
    return tuple(sorted(found.items()))


def _trace_of(traces: dict[str, TraceTimings], task: str) -> TraceTimings | None:
    return next((trace for name, trace in traces.items() if name.startswith(f"{task}-K") and not name.endswith("-K1")), None)


def _task(
    folder: str, profile: AcceptanceProfile, run: Run | None, times: StepTimes | None, trace: TraceTimings | None
) -> Subject:
    shortest = {(phase, size): seconds for phase, size, seconds in _medians(times)}
    size = profile.block_size
    verify, draft = shortest.get(("verify", size)), shortest.get(("draft", size))
    facts = {"target": profile.target, "draft": profile.draft, "task": profile.task}
    if run is not None:
        facts |= _environment(run.environment)
    return Subject(
        name=profile.task,
        file=folder,
        tau=tau_pooled(profile),
        block_size=size,
        trained_block_size=profile.trained_block_size,
        survival=profile.survival,
        num_steps=profile.num_steps,
        committed=profile.committed,
        num_requests=profile.num_prompts,
        plain_s=shortest.get(("verify", 1)),
        cycle_s=trace.step_seconds_median if trace else verify + (draft or 0.0) if verify is not None else None,
        draft_s=draft,
        verify_s=verify,
        host_s=trace.host_gap_s_median if trace else None,
        facts=facts,
        samples_s=tuple(point.samples_s for point in times.points if point.samples_s) if times else (),
        findings=profile.findings,
    )


def _medians(times: StepTimes | None) -> list[tuple[str, int, float]]:
    """(phase, K, seconds) at the smallest batch and context measured."""
    if times is None:
        return []
    known = [point for point in times.points if point.samples_s]
    known.sort(key=lambda point: (-point.batch, -point.context))
    return [(point.phase, point.block_size, point.median_s) for point in known]


def _environment(environment: Environment) -> dict[str, str]:
    return {
        "device": environment.device_kind,
        "versions": ", ".join(f"{name} {version}" for name, version in sorted(environment.versions.items())),
    }
