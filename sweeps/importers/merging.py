"""Several files, several runs, one answer: totals are added where that means something, and stay unknown where it does not.

Runs may be added when they count the same thing (one definition) at one K. Survival is then weighted by steps, which is adding the counts.
Runs without any acceptance (plain decoding, latency tables) do not stand in the way.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from perfmodel import codec
from perfmodel.errors import InputError
from perfmodel.records import Finding, Imported, ImportedRun

from ..progress import Reporter, silent
from .reader import Reader
from .registry import reader_named, recognise, told
from .source import Source
from .table_columns import parse_mapping


def import_files(
    paths: Sequence[Path], format_name: str | None = None, columns: str | None = None, report: Reporter = silent
) -> tuple[Imported, list[str]]:
    """What the files hold, and one line per format saying what they were taken for. Raises `InputError`.

    `report` is told the share of all bytes that is read, of files that are read by lines, and the file.
    """
    if not paths:
        raise InputError("no file to import", "give at least one")
    mapping = parse_mapping(columns) if columns else None
    groups: dict[str, tuple[Reader, list[Source]]] = {}
    runs: list[ImportedRun] = []
    lines: list[str] = []
    progress = _Progress(paths, report)
    for path in paths:
        if is_record(path):
            runs += _earlier(path)
            lines.append(f"{path.name}: an earlier import")
            continue
        source = Source(path, mapping, progress.of(path))
        chosen = reader_named(format_name) if format_name else reader_named("csv") if mapping else recognise(source)
        groups.setdefault(chosen.name, (chosen, []))[1].append(source)
    for chosen, sources in groups.values():
        lines.append(told(chosen, sources))
        if chosen.join is not None and len(sources) > 1:
            runs += chosen.join(sources)
        else:
            runs += [run for source in sources for run in chosen.read(source)]
    return merge(runs, [str(path) for path in paths]), lines


class _Progress:
    """Progress over several files, by bytes. A file that a reader goes through twice stands still the second time."""

    def __init__(self, paths: Sequence[Path], report: Reporter) -> None:
        self._report = report
        self._num_bytes = {path: path.stat().st_size if path.is_file() else 0 for path in paths}
        self._shares = dict.fromkeys(paths, 0.0)
        report("reading", 0.0, "")

    def of(self, path: Path) -> Callable[[float], None]:
        """What one file's share is told to."""

        def tell(share: float) -> None:
            self._shares[path] = max(self._shares[path], share)
            done = sum(self._num_bytes[one] * known for one, known in self._shares.items())
            self._report("reading", done / max(1, sum(self._num_bytes.values())), path.name)

        return tell


def is_record(path: Path) -> bool:
    """Whether a file is one of our own records."""
    try:
        with path.open("rb") as stream:
            return b'"schema": "perf.' in stream.read(200)
    except OSError:
        return False


def _earlier(path: Path) -> tuple[ImportedRun, ...]:
    record = codec.load_any(path)
    if not isinstance(record, Imported):
        raise InputError(
            f"{path} is our own {codec.SCHEMAS[type(record)][0]}, which needs no import", "give it to the verb itself"
        )
    return record.records


def merge(runs: Sequence[ImportedRun], files: Sequence[str]) -> Imported:
    """One record of all runs, with totals over those that may be added."""
    counted = [run for run in runs if holds_acceptance(run)]
    total = pool(counted)
    definitions = list(dict.fromkeys(run.definition for run in counted or runs))
    findings = [finding for run in runs for finding in run.findings]
    if len(counted) > 1 and total is None:
        text = f"{len(counted)} runs of different K or definition: their totals are not added; see `records`"
        findings.append(Finding(code="runs-not-added", severity="info", message=text))
    kinds = {(run.method, run.target, run.draft, run.temperature) for run in counted}
    if total is not None and len(kinds) > 1:
        text = "the totals add runs of different drafters, targets or temperatures; see `records` for each"
        findings.append(Finding(code="unlike-runs-added", severity="warning", message=text))
    return Imported(
        source=" + ".join(dict.fromkeys(run.source for run in runs)),
        definition=definitions[0] if len(definitions) == 1 else None,
        num_steps=total.num_steps if total else None,
        num_draft_tokens=total.num_draft_tokens if total else None,
        num_accepted=total.num_accepted if total else None,
        block_size=total.block_size if total else None,
        tau=total.tau if total else None,
        survival=total.survival if total else None,
        records=tuple(runs),
        cost_points=tuple(point for run in runs for point in run.cost_points),
        files=tuple(files),
        findings=tuple(findings),
    )


def holds_acceptance(run: ImportedRun) -> bool:
    """Whether a run says anything of acceptance."""
    return any(value is not None for value in (run.num_steps, run.num_draft_tokens, run.num_accepted, run.tau, run.survival))


def pool(runs: Sequence[ImportedRun]) -> ImportedRun | None:
    """One run, or the sum of several of one definition and one K; None where they may not be added."""
    if len(runs) <= 1:
        return runs[0] if runs else None
    if len({(run.definition, run.block_size) for run in runs}) != 1 or runs[0].block_size is None:
        return None
    steps, drafted, accepted = (
        _sum([getattr(run, name) for run in runs]) for name in ("num_steps", "num_draft_tokens", "num_accepted")
    )
    return ImportedRun(
        name="pooled",
        source=runs[0].source,
        definition=runs[0].definition,
        num_steps=steps,
        num_draft_tokens=drafted,
        num_accepted=accepted,
        block_size=runs[0].block_size,
        tau=_weighted([run.tau for run in runs], [run.num_steps for run in runs]),
        survival=_survival(runs),
        histogram=_histogram(runs),
        committed=tuple(steps for run in runs for steps in run.committed) if all(run.committed for run in runs) else (),
    )


def _sum(values: Sequence[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def _weighted(values: Sequence[float | None], weights: Sequence[int | None]) -> float | None:
    pairs = [(value, weight) for value, weight in zip(values, weights, strict=True) if value is not None and weight]
    total = sum(weight for _, weight in pairs)
    return sum(value * weight for value, weight in pairs) / total if len(pairs) == len(values) and total else None


def _survival(runs: Sequence[ImportedRun]) -> tuple[float, ...] | None:
    if any(run.survival is None or not run.num_steps for run in runs):
        return None
    longest = max(len(run.survival or ()) for run in runs)
    padded = [[*(run.survival or ()), *[0.0] * (longest - len(run.survival or ()))] for run in runs]
    weights = [run.num_steps for run in runs]
    found = [_weighted([values[index] for values in padded], weights) for index in range(longest)]
    return tuple(value for value in found if value is not None)


def _histogram(runs: Sequence[ImportedRun]) -> tuple[int, ...] | None:
    if any(run.histogram is None for run in runs):
        return None
    longest = max(len(run.histogram or ()) for run in runs)
    return tuple(
        sum((run.histogram or ())[index] for run in runs if index < len(run.histogram or ())) for index in range(longest)
    )
