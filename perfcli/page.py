"""The HTML page of a run folder, shared by the verbs that write one."""

import os
import shlex
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from .options import document_bytes


def page_inputs(result: Any, page: Path | None = None) -> Any:
    """What the page of a sweep is made from. `page` is where it will stand, the run folder if None."""
    from reports.inputs import PageInputs

    away = None if page is None else os.path.relpath(result.folder, page.parent)
    return PageInputs(
        generated_at=datetime.now(UTC),
        run=result.run,
        step_times=result.step_times if result.served is None else None,
        traces=tuple(result.traces.traces.values()),
        audit=result.audit if result.served is None else None,
        model=result.model,
        acceptance=result.acceptance,
        predictions=result.predictions,
        flatness=result.flatness,
        served=result.served,
        captures="" if away in (None, ".") else f"{away}/",
        commands=(
            command_line(result.run.spec),
            *((f"perf view {result.folder}",) if result.served is None else ()),
            f"perf report {result.folder}",
        ),
    )


def command_line(spec: Any) -> str:
    """The `perf sweep-k` command that asks for this spec."""
    if spec.engine is not None:
        return _engine_command(spec)
    parts = ["perf sweep-k"]
    if spec.quick:
        parts.append("--quick")
    else:
        parts += [f"--target {spec.target}", f"--draft {spec.draft}"]
    parts += [
        f"--points {','.join(map(str, spec.block_sizes))}",
        f"--task {','.join(spec.tasks)}",
        f"--batch {','.join(map(str, spec.batches))}",
        f"--context {','.join(map(str, spec.contexts))}",
        f"--dtype {spec.dtype}",
        f"--repeats {spec.repeats}",
        f"--hardware {','.join(spec.hardware)}",
    ]
    if spec.prompts_file is not None:
        parts.append(f"--prompts {spec.prompts_file}")
    return " ".join(parts)


def _engine_command(spec: Any) -> str:
    parts = [
        f"perf sweep-k --engine {spec.engine} --base-url {spec.base_url}",
        f"--target {spec.target}",
        f"--draft {spec.draft}",
    ]
    if spec.launch is not None:
        sizes = ",".join(map(str, spec.block_sizes))
        parts += [
            f"--launch {shlex.quote(spec.launch)}",
            f"--max {max(spec.block_sizes)}" if spec.choose else f"--points {sizes}",
        ]
    parts += [f"--task {','.join(spec.tasks)}", f"--concurrency {','.join(map(str, spec.batches))}"]
    if spec.dtype != "unknown":
        parts.append(f"--dtype {spec.dtype}")
    if spec.prompts_file is not None:
        parts.append(f"--prompts {spec.prompts_file}")
    return " ".join(parts)


def write_page(inputs: Any, path: Path, form: str = "html") -> None:
    """Write the page in one of its forms, whole or not at all."""
    from perfmodel.codec import write_atomic

    write_atomic(path, page_bytes(inputs, form))


def page_bytes(inputs: Any, form: str) -> bytes:
    """The page as `html`, `md`, `csv` or `json`."""
    from reports.page import content, html
    from reports.plain import csv_text, document, markdown

    if form == "json":
        return document_bytes("perf.report", 1, document(inputs))
    if form == "csv":
        return csv_text(inputs).encode()
    return (markdown if form == "md" else html)(content(inputs)).encode()


def records_inputs(paths: tuple[Path, ...], options: str = "") -> Any:
    """What a page is made from when files and folders of records are given, in any mix. Raises `InputError`."""
    from reports.gathering import gather

    commands = (f"perf report {' '.join(map(str, paths))}{options}",)
    return replace(gather(tuple(read_records(paths)), datetime.now(UTC), commands), captures=None)


RUN_RECORDS = (
    "run.json",
    "timings.json",
    "traces.json",
    "audit.json",
    "model.json",
    "acceptance.json",
    "prediction.json",
    "served.json",
)
"""The records of a run folder, in the order of work."""


def read_records(paths: tuple[Path, ...]) -> Iterator[tuple[str, Any]]:
    """The records of files and run folders by name; a folder's carry its name where there are several sources."""
    from perfmodel.codec import load_any
    from sweeps.folder import read_result

    for path in paths:
        if not path.is_dir():
            yield path.name, load_any(path)
            continue
        read_result(path)  # refuses what is no finished run, with the reason
        for name in RUN_RECORDS:
            if (path / name).is_file():
                yield name if len(paths) == 1 else f"{path.name}-{name}", load_any(path / name)
