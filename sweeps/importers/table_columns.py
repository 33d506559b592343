"""Which column of somebody's table is what: names that tools use → ours, and the user's own mapping over them."""

import re
from collections.abc import Iterator, Mapping, Sequence
from csv import Error, reader

from perfmodel.errors import InputError

from .source import Source

NAMES = {
    "tokens": ("tokens", "num_tokens", "m"),
    "block_size": ("block_size", "k"),
    "batch": ("batch", "num_reqs", "batch_size", "concurrency"),
    "context": ("context", "context_len", "context_length", "ctx"),
    "seconds": ("seconds", "time_s"),
    "ms": ("ms", "median_ms", "latency_ms", "mean_ms", "reported_mean_ms", "time_ms"),
    "phase": ("phase",),
    "position": ("position",),
    "anchor_position": ("position_index_0_is_anchor",),
    "survival": ("survival",),
    "num_steps": ("num_steps", "steps", "rounds", "num_drafts", "drafts"),
    "num_draft_tokens": ("num_draft_tokens", "draft_tokens", "drafted", "proposed"),
    "num_accepted": ("num_accepted", "accepted", "accepted_tokens", "num_accepted_tokens"),
    "committed": ("committed", "committed_tokens", "num_committed"),
    "tau": ("tau", "tau_incl_bonus", "accept_length", "acceptance_length", "mean_acceptance_length"),
    "tpot_ms": ("tpot_ms",),
    "tokens_per_s": ("tps", "tokens_per_s", "throughput"),
    "speedup": ("speedup",),
    "cycle_ms": ("cycle_ms", "t_round_ms_p50", "round_ms", "step_ms"),
    "draft_ms": ("draft_ms", "t_propose_ms_p50"),
    "temperature": ("temperature",),
    "task": ("task", "dataset"),
    "method": ("method", "drafter"),
    "target": ("target", "target_model", "model"),
    "draft": ("draft", "draft_model"),
    "device": ("device", "gpu", "hardware", "system", "chip"),
    "num_requests": ("num_requests", "num_ok", "num_prompts"),
    "verdict": ("verdict",),
    "metric": ("metric",),
    "value": ("value",),
    "request_id": ("request_id", "sample_index"),
    "name": ("name", "run"),
}
"""Ours → what tools call it; the first that is present counts."""

GROUPING = ("name", "device", "target", "draft", "method", "task", "temperature")
"""Columns whose values tell runs apart."""


class Table:
    """A CSV with a header, streamed; rows come with their line and under our names."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.header = _header(source)
        self.columns = _resolve(self.header, source)

    def __contains__(self, name: str) -> bool:
        return name in self.columns

    @property
    def is_matmul(self) -> bool:
        """Whether the table holds single matmuls (n × k against m), not steps."""
        return "matmul_n" in self.columns

    def rows(self) -> Iterator[tuple[int, dict[str, str]]]:
        """(line, values under our names), empty cells left out. Raises `InputError` for a row of another length."""
        for number, cells in _cells(self.source):
            if not any(cell.strip() for cell in cells):
                continue
            if len(cells) != len(self.header):
                self.source.refuse(number, f"{len(cells)} cells under {len(self.header)} columns", "a row may be cut off")
            yield number, {name: cells[index].strip() for name, index in self.columns.items() if cells[index].strip()}


def parse_mapping(text: str) -> dict[str, str]:
    """`OURS=THEIRS,…` as a mapping. Raises `InputError` for a name that is not ours or a part without `=`."""
    mapping = {}
    for part in text.split(","):
        ours, equals, theirs = part.partition("=")
        if not equals or not theirs.strip():
            raise InputError(f"--columns: {part.strip()[:40]!r} is not OURS=THEIRS", "for example --columns tokens=M,ms=latency")
        if ours.strip() not in NAMES:
            raise InputError(f"--columns: there is no column called {ours.strip()[:40]!r} here", f"known: {', '.join(NAMES)}")
        mapping[ours.strip()] = theirs.strip()
    return mapping


def number_of(source: Source, line: int, name: str, text: str, *, whole: bool = False) -> float:
    """A finite number that is not negative. Raises `InputError` naming the line."""
    if not re.fullmatch(r"\d{1,15}(\.0*)?" if whole else r"\d{0,15}(\.\d{1,18})?([eE][+-]?\d{1,2})?", text) or text in ("", "."):
        kind = "a whole number" if whole else "a number"
        source.refuse(line, f"{name} is {text[:40]!r}, and {kind} that is not negative is wanted", "decimal point, no unit")
    return float(text)


def _header(source: Source) -> list[str]:
    for _, cells in _cells(source, skip_header=False):
        if any(cell.strip() for cell in cells):
            return [cell.strip() for cell in cells]
    raise InputError(f"{source}, line 1: the file is empty", "a CSV with a header line is wanted")


def _cells(source: Source, skip_header: bool = True) -> Iterator[tuple[int, list[str]]]:
    position = 0

    def lines() -> Iterator[str]:
        nonlocal position
        for number, line in source.lines():
            position = number
            yield line + "\n"

    rows = reader(lines(), strict=True)
    try:
        for index, cells in enumerate(rows):
            if index or not skip_header:
                yield position, cells
    except Error as error:
        raise InputError(
            f"{source}, line {position}: not a CSV: {error}", "a header line, then one row per measurement"
        ) from error


def _resolve(header: Sequence[str], source: Source) -> dict[str, int]:
    """Ours → the index of its column."""
    lower = [name.lower() for name in header]
    repeated = next((name for name in lower if name and lower.count(name) > 1), None)
    if repeated:
        source.refuse(1, f"two columns are called {repeated!r}", "rename one of them")
    found: dict[str, int] = {}
    for ours, names in NAMES.items():
        known = next((name for name in names if name in lower), None)
        if known is not None:
            found[ours] = lower.index(known)
    for ours, theirs in source.columns.items():
        if theirs.lower() not in lower:
            source.refuse(1, f"there is no column called {theirs!r}", f"columns: {', '.join(header)[:200]}")
        found[ours] = lower.index(theirs.lower())
    if {"n", "k", "m"} <= set(lower) and not source.columns:
        del found["block_size"]
        found |= {"matmul_n": lower.index("n"), "matmul_k": lower.index("k")}
    return _without_taken(found, source.columns)


def _without_taken(found: dict[str, int], mapping: Mapping[str, str]) -> dict[str, int]:
    """Drop guesses for a column that the user gave another meaning."""
    taken = {found[ours] for ours in mapping}
    return {ours: index for ours, index in found.items() if ours in mapping or index not in taken}
