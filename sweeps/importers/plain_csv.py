"""A plain CSV with named columns: survival by position, step times, counters per run, or one step a row; the pipeline tables too.

Which of these it is follows from its columns; `--columns OURS=THEIRS` names those that go by other names. Rows that differ in device,
model, method, task or temperature are runs of their own.
"""

import re
from collections.abc import Callable
from typing import Any

from perfmodel.errors import InputError
from perfmodel.phases import STEP_PHASES
from perfmodel.records import CostPoint, CyclePoint, Finding, ImportedRun

from .counting import WIDEST, run_of
from .reader import Likeness, Reader
from .source import Source
from .table_columns import GROUPING, Table, number_of

NAME = "csv"
MAX_POINTS = 200_000
_POSITION = re.compile(r"pos(?:ition)?_?(\d{1,3})$")

_Group = dict[str, Any]
_Key = tuple[str, ...]


def sniff(source: Source) -> Likeness:
    """Whether the header names what one of the kinds of table needs."""
    first = source.head.lstrip("\n\r").partition("\n")[0]
    if source.looks_like_json or "," not in first or "\x00" in source.head:
        return Likeness.NO
    if source.columns:
        return Likeness.LIKELY
    try:
        table = Table(source)
    except InputError:
        return Likeness.NO
    return Likeness.LIKELY if _kind(table) is not None else Likeness.NO


def read(source: Source) -> list[ImportedRun]:
    """One run per group of rows that belong together."""
    table = Table(source)
    kind = _kind(table)
    if kind is None:
        raise InputError(
            f"{source}, line 1: the columns do not say what the table holds: {', '.join(table.header)[:200]}",
            "name them: --columns tokens=…,ms=… for times; position=…,survival=… or num_steps=…,num_accepted=… for acceptance",
        )
    return kind(source, table)


def _kind(table: Table) -> Callable[[Source, Table], list[ImportedRun]] | None:
    if "survival" in table and ("position" in table or "anchor_position" in table):
        return _survival
    if "metric" in table and "value" in table:
        return _metrics
    if "tpot_ms" in table and ("method" in table or "speedup" in table):
        return _pipeline
    if ("seconds" in table or "ms" in table) and ("tokens" in table or "block_size" in table):
        return _times
    if "num_accepted" in table and ("num_steps" in table or "num_draft_tokens" in table):
        return _counters if "num_steps" in table else _steps
    if "committed" in table:
        return _steps
    return None


def _groups(source: Source, table: Table) -> dict[_Key, list[tuple[int, dict[str, str]]]]:
    """Rows by what tells runs apart, in order; bounded."""
    columns = [name for name in GROUPING if name in table]
    found: dict[_Key, list[tuple[int, dict[str, str]]]] = {}
    for count, (number, row) in enumerate(table.rows(), start=1):
        if count > MAX_POINTS:
            source.refuse(number, f"more than {MAX_POINTS:,} rows", "import the rows of one experiment")
        found.setdefault(tuple(row.get(name, "") for name in columns), []).append((number, row))
    if not found:
        raise InputError(f"{source}, line 1: no row under the header", "the file may be cut off")
    return found


def _facts(source: Source, key: _Key, rows: list[tuple[int, dict[str, str]]]) -> dict[str, Any]:
    """Name and provenance of a group."""
    line, row = rows[0]
    temperature = row.get("temperature")
    return {
        "name": ", ".join(part for part in key if part) or source.path.stem,
        "source": NAME,
        "method": row.get("method"),
        "target": row.get("target"),
        "draft": row.get("draft"),
        "task": row.get("task"),
        "temperature": None if temperature is None else number_of(source, line, "temperature", temperature),
        "engine": row.get("device"),
    }


def _same(source: Source, rows: list[tuple[int, dict[str, str]]], name: str, whole: bool = False) -> float | None:
    """The one value of a column within a group; None where it is absent or differs."""
    values = {number_of(source, line, name, row[name], whole=whole) for line, row in rows if name in row}
    return values.pop() if len(values) == 1 else None


def _survival(source: Source, table: Table) -> list[ImportedRun]:
    runs = []
    for key, rows in _groups(source, table).items():
        column = "anchor_position" if "anchor_position" in table else "position"
        values = {
            int(number_of(source, line, column, row.get(column, ""), whole=True)): number_of(
                source, line, "survival", row.get("survival", "")
            )
            for line, row in rows
        }
        positions = sorted(values)
        if len(positions) != len(rows) or positions[0] > 1 or positions != list(range(positions[0], positions[-1] + 1)):
            source.refuse(rows[0][0], "positions are missing or repeated", "one row per position, from the first on")
        has_anchor = column == "anchor_position" or (positions[0] == 0 and values[0] == 1.0)
        survival = [values[position] for position in positions if not (has_anchor and position == 0)]
        definition = "survival by position: P(at least i drafts accepted)" + (
            "; entry 0 is the anchor and is dropped" if has_anchor else ", first draft first; anchor and bonus excluded"
        )
        steps, cycle, tau = (
            _same(source, rows, "num_steps", whole=True),
            _same(source, rows, "cycle_ms"),
            _same(source, rows, "tau"),
        )
        draft = _same(source, rows, "draft_ms")
        size = len(survival) + 1
        runs.append(
            run_of(
                definition=definition,
                num_steps=None if steps is None else int(steps),
                num_draft_tokens=None,
                survival=survival,
                block_size=size,
                tau=1 + sum(survival) if tau is None else tau,
                cycles=(CyclePoint(block_size=size, batch=None, context=None, seconds=cycle / 1e3),) if cycle else (),
                phases_s={"draft": draft / 1e3} if draft else {},
                **_facts(source, key, rows),
            )
        )
    return runs


def _times(source: Source, table: Table) -> list[ImportedRun]:
    runs = []
    for key, rows in _groups(source, table).items():
        points = tuple(_point(source, table, line, row) for line, row in rows)
        judged = sum(row.get("verdict", "").lower().startswith(("impossible", "invalid")) for _, row in rows)
        findings = []
        if judged:
            text = f"the table itself calls {judged} of {len(rows)} rows impossible"
            findings.append(
                Finding(code="rows-called-invalid", severity="warning", message=text, hint="perf check judges them anew")
            )
        if table.is_matmul:
            text = "single matmuls, not steps of a model: the label of each point tells n × k"
            findings.append(Finding(code="matmul-times", severity="info", message=text))
        runs.append(
            run_of(
                definition="time of one matmul of m tokens"
                if table.is_matmul
                else "time of one step at the given tokens and context",
                cost_points=points,
                findings=tuple(findings),
                **_facts(source, key, rows),
            )
        )
    return runs


def _point(source: Source, table: Table, line: int, row: dict[str, str]) -> CostPoint:
    column = "seconds" if "seconds" in row else "ms"
    seconds = number_of(source, line, column, row.get(column, "")) / (1 if column == "seconds" else 1e3)
    if seconds <= 0:
        source.refuse(line, f"a time of {row.get(column)}", "times are above zero; leave out rows that were not measured")
    batch = int(number_of(source, line, "batch", row.get("batch", "1"), whole=True))
    if "tokens" in row or table.is_matmul:
        tokens = int(number_of(source, line, "tokens", row.get("tokens", ""), whole=True))
    else:
        tokens = batch * int(number_of(source, line, "block_size", row.get("block_size", ""), whole=True))
    if tokens < 1 or batch < 1:
        source.refuse(line, f"{tokens} tokens at batch {batch}", "both start at 1")
    phase = row.get("phase", "verify")
    if phase not in STEP_PHASES:
        source.refuse(line, f"phase {phase[:40]!r}", f"one of {', '.join(STEP_PHASES)}")
    context = int(number_of(source, line, "context", row["context"], whole=True)) if "context" in row else None
    label = f"{row.get('matmul_n', '?')} × {row.get('matmul_k', '?')}" if table.is_matmul else row.get("device", "")
    return CostPoint(tokens=tokens, batch=batch, context=context, seconds=seconds, phase=phase, label=label)


def _counters(source: Source, table: Table) -> list[ImportedRun]:
    runs = []
    for key, rows in _groups(source, table).items():
        sums = {
            name: sum(int(number_of(source, line, name, row.get(name, ""), whole=True)) for line, row in rows)
            for name in ("num_steps", "num_draft_tokens", "num_accepted")
            if name in table
        }
        runs.append(run_of(definition="counters summed over rows; bonus excluded", **sums, **_facts(source, key, rows)))  # type: ignore[arg-type]
    return runs


def _steps(source: Source, table: Table) -> list[ImportedRun]:
    runs = []
    for key, rows in _groups(source, table).items():
        answers: dict[str, list[int]] = {}
        lengths = []
        for line, row in rows:
            if "committed" in table:
                committed = int(number_of(source, line, "committed", row.get("committed", ""), whole=True))
            else:
                committed = 1 + int(number_of(source, line, "num_accepted", row.get("num_accepted", ""), whole=True))
            if not 1 <= committed <= WIDEST:
                source.refuse(line, f"a step committed {committed} tokens", "every step commits its bonus at least")
            answers.setdefault(row.get("request_id", ""), []).append(committed)
            if "num_draft_tokens" in row:
                lengths.append(int(number_of(source, line, "num_draft_tokens", row["num_draft_tokens"], whole=True)))
        flat = [count for steps in answers.values() for count in steps]
        runs.append(
            run_of(
                definition="one row per step: committed tokens (bonus included), or accepted drafts + 1",
                histogram=[flat.count(value) for value in range(1, max(flat) + 1)],
                committed=list(answers.values()) if "request_id" in table else (),
                proposal_lengths=lengths if len(lengths) == len(flat) else None,
                num_requests=len(answers) if "request_id" in table else None,
                **_facts(source, key, rows),
            )
        )
    return runs


def _pipeline(source: Source, table: Table) -> list[ImportedRun]:
    """Time per token of each method and data set; rates only."""
    runs = []
    for key, rows in _groups(source, table).items():
        tpot, rate = _same(source, rows, "tpot_ms"), _same(source, rows, "tokens_per_s")
        requests = _same(source, rows, "num_requests", whole=True)
        finding = Finding(code="no-acceptance", severity="info", message="times per token only: no steps and no drafts in it")
        runs.append(
            run_of(
                definition="time per output token of a method, end to end",
                tau=_same(source, rows, "tau"),
                num_requests=None if requests is None else int(requests),
                tokens_per_s=rate if rate is not None else 1e3 / tpot if tpot else None,
                findings=(finding,),
                **_facts(source, key, rows),
            )
        )
    return runs


def _metrics(source: Source, table: Table) -> list[ImportedRun]:
    """A table of metric and value."""
    known = {"tau": "tau", "mean_acceptance_length": "tau", "acceptance_length": "tau"}
    whole = {
        "num_drafts": "num_steps",
        "total_drafts": "num_steps",
        "num_draft_tokens": "num_draft_tokens",
        "num_steps": "num_steps",
    }
    whole |= {"num_accepted_tokens": "num_accepted", "num_accepted": "num_accepted", "total_accepted": "num_accepted"}
    found: dict[str, Any] = {}
    rates: dict[int, float] = {}
    for line, row in table.rows():
        name = row.get("metric", "").lower()
        if position := _POSITION.search(name):
            rates[int(position[1])] = number_of(source, line, name, row.get("value", ""))
        elif name in known:
            found[known[name]] = number_of(source, line, name, row.get("value", ""))
        elif name in whole:
            found[whole[name]] = int(number_of(source, line, name, row.get("value", ""), whole=True))
    if rates:
        if sorted(rates) != list(range(min(rates), min(rates) + len(rates))) or min(rates) > 1:
            source.refuse(2, "positions are missing", "one metric per position, from the first on")
        first = 1 if rates.get(0) == 1.0 else min(rates)  # an entry 0 that is exactly 1 is the anchor
        found["survival"] = [rates[position] for position in sorted(rates) if position >= first]
        found.setdefault("block_size", len(found["survival"]) + 1)
    if not found:
        raise InputError(
            f"{source}, line 2: no metric of acceptance in it", "tau, num_drafts, num_draft_tokens, num_accepted_tokens"
        )
    return [run_of(name=source.path.stem, source=NAME, definition="metrics by name; τ with the bonus", **found)]


READER = Reader(
    name=NAME,
    description="a CSV with named columns (--columns OURS=THEIRS): survival, step times, counters, steps, pipeline tables",
    cannot_know="what a column means beyond its name; samples behind a median",
    sniff=sniff,
    read=read,
)
