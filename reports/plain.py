"""The page without a browser: Markdown for a paper's draft, tidy CSV for its figures, JSON for scripts.

The CSV has one number per row: which record it is from, where it was measured or predicted (chip, pair, task, phase, batch, context,
K), what it is, its value with its 95 % interval where one is known, and its unit. All in SI base units.
"""

import csv
import io
import re
from collections.abc import Iterator
from dataclasses import astuple, dataclass
from typing import Any

import msgspec

from perfmodel.codec import to_document
from perfmodel.errors import InputError

from .acceptance import conditional_curve, survival_curve, tau_of
from .evidence import named_records
from .inputs import PageInputs
from .page import Content, content
from .section import Section, Table
from .steptime import verdict_at

FORMATS = ("html", "md", "csv", "json")

_MARKUP = re.compile(r"([\\`*_{}\[\]<>#|~$])")


@dataclass(frozen=True)
class Number:
    """One number of a page. Empty or None: does not apply, or unknown."""

    record: str
    quantity: str
    value: float
    unit: str
    hardware: str = ""
    target: str = ""
    draft: str = ""
    task: str = ""
    phase: str = ""
    batch: int | None = None
    context: int | None = None
    block_size: int | None = None
    low: float | None = None
    high: float | None = None
    note: str = ""


COLUMNS = (*Number.__dataclass_fields__, "num_speculative_tokens")


def numbers(inputs: PageInputs) -> Iterator[Number]:
    """Every number behind the page's figures, in the order of its sections."""
    yield from _predictions(inputs)
    yield from _checks(inputs)
    yield from _step_times(inputs)
    yield from _acceptance(inputs)
    yield from _parameters(inputs)
    yield from _compiled(inputs)
    yield from _imported(inputs)


def csv_text(inputs: PageInputs) -> str:
    """All numbers as CSV with a header. Raises `InputError` where the records hold none."""
    rows = list(numbers(inputs))
    if not rows:
        raise InputError("the records hold no number for a table", "give a run folder, or a prediction, model or acceptance")
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in rows:
        drafts = None if row.block_size is None else row.block_size - 1
        writer.writerow(["" if cell is None else cell for cell in (*astuple(row), drafts)])
    return stream.getvalue()


def _predictions(inputs: PageInputs) -> Iterator[Number]:
    known = inputs.predictions
    for p in (*known.here, *known.elsewhere) if known else ():
        place = {"hardware": p.hardware, "target": p.target, "draft": p.draft, "task": p.task}
        for row in p.rows:
            where: dict[str, Any] = {**place, "batch": row.batch, "context": row.context, "block_size": row.block_size}
            flags = [
                *(("best",) if row.block_size == p.best.block_size else ()),
                *(("extrapolated",) if row.extrapolated else ()),
                *(() if row.in_training else ("beyond the drafter's block",)),
            ]
            where["note"] = "; ".join((p.source, *flags))
            parts = (
                ("speedup", row.speedup, "1", row.speedup_low, row.speedup_high),
                ("tau", row.tau, "tokens/step", row.tau_low, row.tau_high),
                *((name, getattr(row, name), "s", None, None) for name in ("draft_s", "verify_s", "host_s", "tpot_s")),
            )
            for name, value, unit, low, high in parts:
                if value is not None:
                    yield Number("prediction", name, value, unit, low=low, high=high, **where)


def _checks(inputs: PageInputs) -> Iterator[Number]:
    for check in inputs.run.checks if inputs.run else ():
        where: dict[str, Any] = {
            "task": check.task,
            "block_size": check.block_size,
            "batch": check.batch,
            "context": check.context,
        }
        if check.measured_speedup is not None:
            yield Number(
                "check",
                "measured_speedup",
                check.measured_speedup,
                "1",
                low=check.measured_low,
                high=check.measured_high,
                **where,
            )
        if check.predicted_speedup is not None:
            yield Number("check", "predicted_speedup", check.predicted_speedup, "1", **where)


def _step_times(inputs: PageInputs) -> Iterator[Number]:
    times = inputs.step_times
    for point in times.points if times else ():
        if times is None or not point.samples_s:
            continue
        verdict = verdict_at(inputs.audit, point)
        word = "" if verdict is None else verdict.verdict + (f": {verdict.cause}" if verdict.cause else "")
        where: dict[str, Any] = {
            "hardware": times.device_kind,
            "target": times.target,
            "draft": times.draft or "",
            "phase": point.phase,
            "batch": point.batch,
            "context": point.context,
            "block_size": point.block_size,
            "note": word,
        }
        yield Number("timings", "median_s", point.median_s, "s", **where)
        if verdict is not None and verdict.floor_s is not None:
            yield Number("timings", "floor_s", verdict.floor_s, "s", **where)


def _acceptance(inputs: PageInputs) -> Iterator[Number]:
    for profile in inputs.acceptance.profiles if inputs.acceptance else ():
        place: dict[str, Any] = {"target": profile.target, "draft": profile.draft, "task": profile.task}
        curves = [("tau", "tokens/step", tau_of(profile), 0)]
        if profile.survival:
            curves += [
                ("survival", "1", survival_curve(profile), 1),
                ("conditional_acceptance", "1", conditional_curve(profile), 1),
            ]
        for name, unit, curve, shift in curves:
            for index, (x, y) in enumerate(zip(curve.x, curve.y, strict=True)):
                low = curve.low[index] if curve.low else None
                high = curve.high[index] if curve.high else None
                note = f"draft {x}" if shift else ""
                yield Number("acceptance", name, y, unit, block_size=x + shift, low=low, high=high, note=note, **place)


def _parameters(inputs: PageInputs) -> Iterator[Number]:
    model = inputs.model
    for name, parameter in model.parameters.items() if model else ():
        note = "" if parameter.identified else "not identified: prior"
        error = parameter.stderr
        low, high = (None, None) if error is None else (parameter.value - 1.96 * error, parameter.value + 1.96 * error)
        yield Number("model", name, parameter.value, parameter.unit or "1", low=low, high=high, note=note)
    for point in model.points if model else ():
        where: dict[str, Any] = {
            "phase": point.phase, "batch": point.batch, "context": point.context, "block_size": point.block_size,
            "note": "held out" if point.held_out else "fitted",
        }  # fmt: skip
        yield Number("model", "predicted_s", point.predicted_s, "s", **where)
        yield Number("model", "error", point.error, "1", **where)


def _compiled(inputs: PageInputs) -> Iterator[Number]:
    for row in inputs.compiled.rows if inputs.compiled else ():
        where: dict[str, Any] = {
            "hardware": row.topology, "target": row.target, "draft": row.draft or "", "phase": row.phase, "batch": row.batch,
            "context": row.context, "block_size": row.block_size, "note": "" if row.fits else "does not fit",
        }  # fmt: skip
        for name, unit in (("estimated_s", "s"), ("floor_s", "s"), ("hbm_bytes", "B"), ("flops", "FLOP")):
            value = getattr(row, name)
            if value is not None:
                yield Number("compiled", name, value, unit, **where)


def _imported(inputs: PageInputs) -> Iterator[Number]:
    for record in inputs.imported:
        for run in record.records:
            if run.tau is not None:
                place: dict[str, Any] = {"target": run.target or "", "draft": run.draft or "", "task": run.task or run.name}
                yield Number("imported", "tau", run.tau, "tokens/step", block_size=run.block_size, note=record.source, **place)
        for point in record.cost_points:
            note = f"{point.tokens} query tokens" + (f", {point.label}" if point.label else "")
            yield Number(
                "imported", "seconds", point.seconds, "s", phase=point.phase, batch=point.batch, context=point.context, note=note
            )


def plain(text: str) -> str:
    """Text that Markdown shows as it is, in one line."""
    return _MARKUP.sub(r"\\\1", " ".join(text.split()))


def markdown(page: Content) -> str:
    """The page as Markdown: answers, findings of every figure, tables, and the commands that reproduce it."""
    parts = [f"# {plain(page.title)}", " · ".join(plain(part) for part in (page.subtitle, page.generated_at) if part)]
    parts += [f"**{plain(notice)}**" for notice in page.notices]
    if page.synthetic:
        parts.append(f"**Synthetic: {plain(page.synthetic)}**")
    parts += [f"- {plain(card.sentence)}" for card in page.cards]
    for section in (page.answer, *page.sections):
        parts += _section(section)
    if page.findings:
        parts += ["## Findings", "\n".join(f"- {f.severity}: {plain(f.message)} {plain(f.hint)}".rstrip() for f in page.findings)]
    parts += [_table(table) for table in page.evidence_tables]
    if page.commands:
        parts += ["## Reproduce", "\n".join(f"    {' '.join(command.split())}" for command in page.commands)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _section(section: Section) -> list[str]:
    lines = [f"## {plain(section.title)}"]
    if section.missing:
        return [*lines, f"*Left out: {plain(section.missing)}.*"]
    lines += [plain(paragraph) for paragraph in section.paragraphs]
    lines += [f"**{plain(figure.title)}.** {plain(figure.reading)}" for figure in section.figures]
    return [*lines, *(_table(table) for table in section.tables)]


def _table(table: Table) -> str:
    def line(cells: tuple[str, ...]) -> str:
        return "| " + " | ".join(plain(cell) or " " for cell in cells) + " |"

    rule = "|" + "|".join("---" if index in table.text_columns else "---:" for index in range(len(table.headers))) + "|"
    label = f"({table.label}) " if table.label else ""
    return "\n".join([f"{plain(label + table.caption)}\n", line(table.headers), rule, *map(line, table.rows)])


def document(inputs: PageInputs) -> dict[str, Any]:
    """The page's answers and numbers as JSON, with the records it rests on."""
    page = content(inputs)
    return {
        "title": page.title,
        "generated_at": page.generated_at,
        "subtitle": page.subtitle,
        "answers": [
            {"task": card.task, "worth": card.worth, "block_size": card.block_size, "sentence": card.sentence}
            for card in page.cards
        ],
        "figures": [
            {"section": section.key, "figure": figure.key, "finding": figure.title}
            for section in page.sections
            for figure in section.figures
        ],
        "missing": {section.key: section.missing for section in (page.answer, *page.sections) if section.missing},
        "numbers": [msgspec.to_builtins(number) for number in numbers(inputs)],
        "records": {name: to_document(record) for name, record in named_records(inputs)},
        "commands": list(page.commands),
        "findings": [msgspec.to_builtins(finding) for finding in page.findings],
    }
