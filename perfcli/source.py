"""Where timings come from, and what is known about them: shared by `fit`, `check` and `validate`."""

import inspect
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

_TABLE_HELP = """A table has the columns tokens (block size × batch) or block_size, batch (default 1), context (default 0), and
seconds or ms; phase is optional. See docs/formats.md."""


def add_table_help(command: click.Command) -> None:
    """Say in a verb's help what a table looks like."""
    command.help = f"{inspect.cleandoc(command.help or '')}\n\n{_TABLE_HELP}"


@dataclass(frozen=True)
class Source:
    """Timing points with the chip, models and dtype they belong to; None where neither the run nor the user said."""

    points: tuple[Any, ...]
    hardware: Any
    target: Any
    draft: Any
    dtype: str
    findings: tuple[Any, ...] = ()


def read_source(source: Path, hardware: str | None, target: str | None, draft: str | None, dtype: str | None) -> Source:
    """The timings at a path. What the user names wins over what the run recorded."""
    from perfmodel.hardware import load_hardware
    from perfmodel.modelspec import load_model
    from sweeps.tables import read_run, read_timings

    times = read_timings(source)
    run = read_run(source) if source.is_dir() and (source / "run.json").is_file() else None
    return Source(
        points=times.points,
        hardware=load_hardware(hardware) if hardware else run and run.machine,
        target=load_model(target) if target else run and run.target,
        draft=load_model(draft) if draft else run and run.draft,
        dtype=dtype or (run.spec.dtype if run else "bfloat16"),
        findings=times.findings,
    )
