"""Verify time against K and context: the TPU harness's and its GPU companion's JSON, results[context][K] with a mean in ms.

These are latency tables, so they become cost points: K query tokens, batch 1. The TPU ones of the published repository were taken
with a timer that does not wait for the device; `perf check` holds them against the speed of light.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from perfmodel.errors import InputError
from perfmodel.records import CostPoint, ImportedRun

from .counting import run_of
from .fields import Fields
from .reader import Likeness, Reader, likeness
from .source import Source

NAME = "tpu-verify-sweep"
DEFINITION = "time of one verify pass over K query tokens at batch 1 and the given context; a mean over trials"


def sniff(source: Source) -> Likeness:
    """Whether results stand under contexts and K."""
    found = source.document_or_none
    results = found.get("results") if isinstance(found, Mapping) else None
    if not isinstance(found, Mapping) or not isinstance(results, Mapping):
        return Likeness.NO
    cells = [cell for row in results.values() if isinstance(row, Mapping) for cell in row.values()]
    return likeness("k_values" in found or any(isinstance(cell, Mapping) and "mean_ms" in cell for cell in cells))


def read(source: Source) -> list[ImportedRun]:
    """One run that holds cost points only."""
    fields = Fields.of_document(source, source.document)
    metadata = fields.section("metadata")
    device = fields.text("device") if isinstance(fields.values.get("device"), str) else None
    label = device or (metadata.text("gpu", "device") if metadata else None) or ""
    points = tuple(_points(source, fields, label))
    if not points:
        raise InputError(
            f"{source}, line {source.line_of('results')}: no timing in it", "results[context][K] with mean_ms is wanted"
        )
    return [
        run_of(
            name=source.path.stem,
            source=NAME,
            definition=DEFINITION,
            target=metadata.text("model") if metadata else fields.text("model", "target_model"),
            engine=label or None,
            cost_points=points,
        )
    ]


def _points(source: Source, fields: Fields, label: str) -> Iterator[CostPoint]:
    results = fields.need(fields.section("results"), "results")
    for context_text, row in results.items():
        context = _whole(source, context_text)
        for size_text, cell in row.items() if isinstance(row, Mapping) else _wrong(source, context_text):
            values = Fields(cell, fields.where) if isinstance(cell, Mapping) else _wrong(source, size_text)
            mean = values.number("mean_ms", "median_ms")
            if mean is None or mean <= 0:
                source.refuse(source.line_of(size_text), f"context {context}, K {size_text} has no time above zero")
            yield CostPoint(tokens=_whole(source, size_text), batch=1, context=context, seconds=mean / 1e3, label=label)


def _whole(source: Source, text: str) -> int:
    found = re.search(r"\d{1,9}$", text)
    if found is None or (text != found[0] and not re.fullmatch(r"(K|k|L|ctx|context)[=_]?\d{1,9}", text)) or int(found[0]) < 1:
        source.refuse(source.line_of(text), f"{text[:40]!r} is no context length and no K")
    return int(found[0])


def _wrong(source: Source, key: str) -> Any:
    source.refuse(source.line_of(key), f"the entry {key[:40]!r} is not an object", "results[context][K] is wanted")


READER = Reader(
    name=NAME,
    description="verify sweeps of the TPU harness and its GPU companion: results[context][K] in ms",
    cannot_know="whether the timer waited for the device; single trials",
    sniff=sniff,
    read=read,
)
