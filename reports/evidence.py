"""What stands behind the page: findings, environment, versions, the commands that reproduce it, and the records themselves."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import msgspec

from perfmodel.codec import encode, to_document
from perfmodel.records import Environment, Finding, Record, Run
from perfmodel.units import format_bandwidth, format_bytes, format_flop_rate, format_percent, format_seconds

from .inputs import PageInputs
from .section import Table, shape_text

EMBEDDED_BYTES_LIMIT = 800_000
"""Room for embedded records, B: plotly.js takes 4.8 MB of a page that must stay within 6 MB."""

SEVERITIES = ("error", "warning", "info")


@dataclass(frozen=True)
class Embedded:
    """A record in the page: file name, size, and its JSON (`<` escaped), or None when it is too large to embed."""

    name: str
    size: str
    json: str | None


def script_json(data: object) -> str:
    """JSON that cannot end or comment out the script element that holds it: `<` is written as an escape."""
    return msgspec.json.encode(data).decode().replace("<", "\\u003c")


def named_records(inputs: PageInputs) -> Iterator[tuple[str, Record]]:
    """The page's records as they were read, or else under the file names of a run directory."""
    yield from inputs.sources or page_records(inputs)


def page_records(inputs: PageInputs) -> Iterator[tuple[str, Record]]:
    """The records that the page shows, under the file names of a run directory."""
    named = (
        ("run.json", inputs.run),
        ("timings.json", inputs.step_times),
        ("audit.json", inputs.audit),
        ("model.json", inputs.model),
        ("acceptance.json", inputs.acceptance),
        ("prediction.json", inputs.predictions),
        ("compiled.json", inputs.compiled),
        ("served.json", inputs.served),
    )
    yield from ((name, record) for name, record in named if record is not None)
    yield from ((f"trace-{index}.json", trace) for index, trace in enumerate(inputs.traces, start=1))
    yield from ((f"imported-{index}.json", record) for index, record in enumerate(inputs.imported, start=1))


def embedded_records(inputs: PageInputs, limit: int = EMBEDDED_BYTES_LIMIT) -> tuple[Embedded, ...]:
    """All records of the page; see `embed`."""
    return embed(tuple(named_records(inputs)), limit)


def embed(named: Sequence[tuple[str, Record]], limit: int = EMBEDDED_BYTES_LIMIT) -> tuple[Embedded, ...]:
    """Records smallest first into the room there is; one that does not fit is named without its content."""
    texts = {name: (script_json(to_document(record)), len(encode(to_document(record)))) for name, record in named}
    room, kept = limit, set()
    for name in sorted(texts, key=lambda name: len(texts[name][0].encode())):
        size = len(texts[name][0].encode())
        if size <= room:
            kept.add(name)
            room -= size
    return tuple(Embedded(name, format_bytes(size), text if name in kept else None) for name, (text, size) in texts.items())


def all_findings(inputs: PageInputs) -> tuple[Finding, ...]:
    """Findings of every record about this machine, gravest first, equal ones once."""
    own = [finding for _, record in page_records(inputs) for finding in getattr(record, "findings", ())]
    profiles = inputs.acceptance.profiles if inputs.acceptance else ()
    own += [finding for profile in profiles for finding in placed(profile.findings, profile.task)]
    for point in inputs.served.points if inputs.served else ():
        own += placed(point.findings, f"{point.task}, {point.concurrency} in flight")
    known = {finding.code for profile in profiles for finding in profile.findings}
    here = inputs.predictions.here if inputs.predictions else ()
    several = len({(p.batch, p.context) for p in here}) > 1
    for prediction in here:
        new = [finding for finding in prediction.findings if finding.code not in known]  # a prediction repeats its profile's
        own += placed(
            new, f"{prediction.task}, {shape_text(prediction.batch, prediction.context)}" if several else prediction.task
        )
    return gravest_first(own)


def findings_elsewhere(inputs: PageInputs) -> tuple[Finding, ...]:
    """Findings of the predictions for other chips, each with chip, drafter and task."""
    predictions = inputs.predictions.elsewhere if inputs.predictions else ()
    return gravest_first(finding for p in predictions for finding in placed(p.findings, f"{p.hardware}, {p.draft}, {p.task}"))


def placed(findings: Iterable[Finding], where: str) -> list[Finding]:
    """The findings, those without a place at `where`."""
    return [finding if finding.where else msgspec.structs.replace(finding, where=where) for finding in findings]


def gravest_first(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Each finding once, errors before warnings before notes."""
    return tuple(sorted(distinct(findings), key=lambda finding: SEVERITIES.index(finding.severity)))


def distinct(findings: Iterable[Finding]) -> list[Finding]:
    """The findings without repetition, in order; what is said of several places is said once, with all of them."""
    places: dict[Finding, list[str]] = {}
    for finding in findings:
        known = places.setdefault(msgspec.structs.replace(finding, where=None), [])
        if finding.where and finding.where not in known:
            known.append(finding.where)
    return [msgspec.structs.replace(finding, where="; ".join(where) or None) for finding, where in places.items()]


def environment_table(environment: Environment) -> Table:
    """The device, versions and flags that make two runs comparable."""
    rows = [
        ("device", f"{environment.num_devices} × {environment.device_kind} ({environment.platform})"),
        ("host", f"{environment.host_cpu}, {environment.num_cores} cores"),
        ("perf", environment.perf_version),
        ("commit", environment.commit or "unknown"),
        *((f"version of {name}", version) for name, version in sorted(environment.versions.items())),
        *((name, value) for name, value in sorted(environment.flags.items())),
    ]
    return Table("environment", "Environment", ("what", "value"), tuple(rows), text_columns=(0, 1))


def run_table(run: Run) -> Table:
    """What was asked, what the machine reached, and where the time went."""
    spec, machine = run.spec, run.machine
    rows = [
        ("target", spec.target),
        ("drafter", spec.draft),
        ("dtype", spec.dtype),
        ("weights", spec.weights),
        ("tasks", ", ".join(spec.tasks)),
        (
            "prompts per task",
            f"{spec.num_prompts}, up to {spec.max_new_tokens} new tokens"
            + (f", from {spec.prompts_file}" if spec.prompts_file else ""),
        ),
        ("block sizes", ", ".join(str(size) for size in spec.block_sizes)),
        ("batches", ", ".join(str(batch) for batch in spec.batches)),
        ("contexts", ", ".join(str(context) for context in spec.contexts)),
        ("repeats", str(spec.repeats)),
        ("lossless", lossless_text(run)),
        ("profiler overhead", format_percent(run.profiler_overhead, 2)),
    ]
    if machine is not None:
        bandwidth = machine.bandwidth_bytes_per_s
        rows.append(("memory bandwidth", f"{format_bandwidth(bandwidth.value)} ({machine.source}: {bandwidth.source})"))
        rows += [
            (f"{dtype} rate", f"{format_flop_rate(peak.value)} ({peak.source})") for dtype, peak in machine.flops_per_s.items()
        ]
    rows += [(f"wall time, {stage}", format_seconds(seconds)) for stage, seconds in run.wall_s.items()]
    rows += [("failure", failure) for failure in run.failures]
    return Table("run", "The run", ("what", "value"), tuple(rows), text_columns=(0, 1))


def lossless_text(run: Run) -> str:
    """Whether speculative and plain tokens agree, in words."""
    if run.lossless is None:
        return "not checked (tokens are comparable in float32 only)"
    if run.lossless:
        return f"yes: {run.lossless_compared:,} tokens compared, all equal to plain decoding"
    return f"NO: of {run.lossless_compared:,} tokens compared, some differ from plain decoding"
