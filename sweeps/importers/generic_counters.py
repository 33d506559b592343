"""Any JSON that holds draft, draft-token and accepted counters, at any depth, one object or one a line.

Names are compared without prefix, labels and `_total`: `vllm:spec_decode_num_drafts_total{…}` is `num_drafts`. Each object that holds
accepted and draft tokens is a run named by its path, so counters nested by method stay apart; methods that drafted nothing
are listed and not added. Engine-neutral per-request records with a sparse histogram are read too.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from perfmodel.errors import InputError
from perfmodel.records import Finding, ImportedRun

from .counting import run_of
from .fields import Fields
from .reader import Likeness, Reader
from .source import Source

NAME = "generic-counters"
DEFINITION = (
    "counters by name: drafts (steps), draft tokens, accepted tokens (bonus excluded); by position over drafts; histogram by accepted"
    " drafts; τ = 1 + accepted / drafts"
)

_NAMES = {
    "steps": (
        "num_drafts",
        "drafts",
        "num_spec_steps",
        "num_steps",
        "num_verify_steps",
        "verify_steps",
        "verify_ct",
        "rounds",
        "cycles",
    ),
    "drafted": (
        "num_draft_tokens",
        "draft_tokens",
        "drafted_tokens",
        "num_drafted_tokens",
        "drafted",
        "proposed",
        "num_proposed",
        "proposed_tokens",
        "num_proposed_drafts",
    ),
    "accepted": (
        "num_accepted_tokens",
        "accepted_tokens",
        "num_accepted_draft_tokens",
        "accepted_draft_tokens",
        "num_accepted",
        "accepted",
        "num_correct_drafts",
        "accepted_drafts",
    ),
    "positions": ("num_accepted_tokens_per_pos", "accepted_tokens_per_pos", "accepted_per_pos", "accepted_per_position"),
    "rates": ("per_position_acceptance_rates", "acceptance_rate_per_pos", "per_position_acceptance_rate"),
    "histogram": ("acceptance_histogram", "accepted_histogram"),
    "tau": ("mean_acceptance_length", "acceptance_length", "mean_accept_length"),
}
_PREFIX = re.compile(r"^(?:\w+:)?(?:trtllm_)?(?:spec_decode_|spec_)?")
_LABELS = re.compile(r"\{.*\}$")
_MOST_RUNS = 100_000
_DEPTH = 12


def sniff(source: Source) -> Likeness:
    """Whether an object with accepted and draft tokens stands somewhere in the head's JSON."""
    found = source.first_row if source.first_row is not None else source.document_or_none
    if found is None:
        return Likeness.NO
    return (
        Likeness.PERHAPS
        if any(_holds_counters(names) for _, names in _objects(found, "", _DEPTH))
        else _series_only(source, found)
    )


def _series_only(source: Source, found: Any) -> Likeness:
    """A first row without counters may be a plain run among others: look a little further."""
    if source.first_row is None or not isinstance(found, Mapping):
        return Likeness.NO
    return Likeness.PERHAPS if "num_draft_tokens" in source.head and "num_accepted" in source.head else Likeness.NO


def read(source: Source) -> list[ImportedRun]:
    """One run per object that holds counters; objects without drafts are listed."""
    runs: list[ImportedRun] = []
    empty: list[str] = []
    for where, row in source.rows():
        name = row.get("name") if isinstance(row.get("name"), str) else None
        before = len(runs)
        for path, values in _objects(row, "", _DEPTH):
            if not _holds_counters(values):
                continue
            fields = Fields.of_row(where, values)
            label = " ".join(part for part in (name, path) if part) or where.rpartition(", ")[2]
            if not fields.count("drafted") and not fields.count("steps"):
                empty.append(label)
            else:
                runs.append(_run(fields, label))
        if len(runs) == before and name is not None:
            empty.append(name)
        if len(runs) > _MOST_RUNS:
            raise InputError(f"{where}: more than {_MOST_RUNS:,} objects with counters", "import the records of one experiment")
    if not runs:
        raise InputError(
            f"{source}, line 1: no object in it holds draft tokens above zero and accepted tokens", _what_is_needed()
        )
    return _listing(runs, empty)


def _what_is_needed() -> str:
    return "names like num_drafts, num_draft_tokens, num_accepted_tokens are understood; or name the columns of a CSV"


def _listing(runs: list[ImportedRun], empty: list[str]) -> list[ImportedRun]:
    """The runs; the first one says which methods drafted nothing."""
    if not empty:
        return runs
    shown = ", ".join(dict.fromkeys(empty[:8])) + (", …" if len(empty) > 8 else "")
    text = f"without drafts, listed and not added: {shown}"
    finding = Finding(code="methods-without-drafts", severity="info", message=text)
    return [msgspec.structs.replace(runs[0], findings=(*runs[0].findings, finding)), *runs[1:]]


def _objects(value: Any, path: str, depth: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """(path, values under our names) of every object, outermost first; labels with a position become a list."""
    if depth == 0:
        return
    if isinstance(value, Mapping):
        yield path, _renamed(value)
        for key, item in value.items():
            if isinstance(item, Mapping | list) and _short(key) not in _NAMES["positions"]:
                yield from _objects(item, f"{path}.{key}" if path else str(key), depth - 1)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            if isinstance(item, Mapping):
                yield from _objects(item, f"{path}[{index}]", depth - 1)


def _short(key: str) -> str:
    return _PREFIX.sub("", _LABELS.sub("", key)).removesuffix("_total").lower()


def _renamed(value: Mapping[str, Any]) -> dict[str, Any]:
    short: dict[str, Any] = {}
    positions: dict[int, Any] = {}
    for key, item in value.items():
        name = _short(key)
        labelled = re.search(r'position="(\d{1,4})"', key)
        if labelled and name in _NAMES["positions"]:
            positions[int(labelled[1])] = item
        else:
            short.setdefault(name, item)
    found: dict[str, Any] = {}
    for ours, names in _NAMES.items():
        known = next((name for name in names if short.get(name) is not None), None)
        if known is not None:
            found[ours] = short[known]
    if positions:
        found["positions"] = [positions[index] for index in sorted(positions)]
    return found


def _holds_counters(values: Mapping[str, Any]) -> bool:
    return "accepted" in values and "drafted" in values


def _run(fields: Fields, name: str) -> ImportedRun:
    steps = fields.count("steps")
    rates = fields.numbers("rates")
    sparse = fields.values.get("histogram")
    histogram = _dense(fields) if isinstance(sparse, Mapping) else fields.counts("histogram")
    if histogram is not None and steps is not None and sum(histogram) != steps:
        histogram = None
    return run_of(
        name=name,
        source=NAME,
        definition=DEFINITION,
        num_steps=steps,
        num_draft_tokens=fields.count("drafted"),
        num_accepted=fields.count("accepted"),
        accepted_at=fields.counts("positions") if isinstance(fields.values.get("positions"), list) else None,
        histogram=histogram,
        survival=rates or None,
        tau=fields.number("tau"),
    )


def _dense(fields: Fields) -> list[int]:
    """A histogram given as {accepted drafts: steps}."""
    section = fields.section("histogram")
    counts: list[int] = []
    for key in section.values if section else ():
        if not re.fullmatch(r"\d{1,4}", key):
            raise InputError(f"{fields.where(key)}: {key[:40]!r} is no number of accepted drafts", "the file may be edited")
        counts += [0] * (int(key) + 1 - len(counts))
        counts[int(key)] = section.count(key) or 0 if section else 0
    return counts


READER = Reader(
    name=NAME,
    description="any JSON with counters of drafts, draft tokens and accepted tokens, nested or one object a line",
    cannot_know="the tool's own definition of its names: they are taken to leave anchor and bonus out",
    sniff=sniff,
    read=read,
)
