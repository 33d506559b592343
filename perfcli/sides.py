"""What `perf compare` takes as a side: a run folder, a record file, a chip's name, or a shipped acceptance profile."""

import difflib
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from .page import read_records


@dataclass(frozen=True)
class Asked:
    """What is asked of sides that are names: the acceptance for a chip, the chip for a drafter, the target, batch and context."""

    acceptance: tuple[str, ...] = ()
    hardware: str | None = None
    target: str = "qwen3-4b"
    batch: int = 1
    context: int = 1024


def side(text: str, asked: Asked) -> Any:
    """The side a word names. Raises `InputError` with the nearest names where it names nothing."""
    from perfmodel.acceptance import names as profiles
    from perfmodel.errors import InputError
    from perfmodel.hardware import names as chips
    from reports.comparison import Side
    from reports.gathering import gather

    now = datetime.now(UTC)
    if Path(text).exists():
        return Side(text.rstrip("/"), gather(tuple(read_records((Path(text),))), now))
    if text.partition(":")[0] in chips():
        return Side(text, gather(tuple(_of_chip(text, asked)), now))
    if text in profiles():
        return Side(text, gather(tuple(_of_drafter(text, asked)), now))
    near = difflib.get_close_matches(text, (*chips(), *profiles()), n=3, cutoff=0.5)
    hint = (
        f"did you mean {', '.join(near)}?" if near else "give a run folder, a record, a chip (`perf list hardware`) or a profile"
    )
    raise InputError(f"{text} is no file, no chip and no acceptance profile", hint)


def _of_chip(name: str, asked: Asked) -> list[tuple[str, Any]]:
    """A chip by its data sheet: the acceptance given, and the predictions that follow."""
    from perfmodel.errors import InputError

    if not asked.acceptance:
        raise InputError(f"{name} is a chip, and no acceptance is assumed", "give --acceptance, as in qwen3-4b-dflash-b16/math")
    return _predicted(name, asked.acceptance, asked)


def _of_drafter(name: str, asked: Asked) -> list[tuple[str, Any]]:
    """A drafter's published acceptance; with --hardware, also what it gains there."""
    from perfmodel.acceptance import resolve
    from perfmodel.modelspec import names as models

    (profile,) = resolve(name)
    if asked.hardware is None:
        return [("acceptance.json", profile)]
    known = profile.draft if profile.draft in models("draft") else None
    sizes = tuple(range(1, profile.block_size + 1))
    return _predicted(asked.hardware, (name,), asked, draft=known, drafting=profile.drafting, block_sizes=sizes)


def _predicted(chip: str, acceptance: tuple[str, ...], asked: Asked, **drafter: Any) -> list[tuple[str, Any]]:
    """The predictions for one chip by its data sheet, with the acceptance they rest on."""
    from perfmodel.records import AcceptanceSet, PredictionSet
    from sweeps.predicting import Question, answer

    question = Question(
        hardware=(chip,),
        target=asked.target,
        acceptance=acceptance,
        batches=(asked.batch,),
        contexts=(asked.context,),
        **drafter,
    )
    found = answer(question)
    return [
        ("acceptance.json", AcceptanceSet(profiles=found.profiles)),
        ("prediction.json", PredictionSet(here=found.predictions)),
    ]
