"""Imported runs as what the model works with: acceptance profiles.

A histogram or steps by answer give survival with its counts; marginal rates with the number of steps give the same; rates alone
give a curve without a sampling error, and a mean alone one point of it. What cannot be a survival curve (rates above 1, or
rising) was imported as it stood and is refused here.
"""

from itertools import pairwise

from .errors import InputError
from .records import AcceptanceProfile, Finding, Imported, ImportedRun

_FEW_PROMPTS = 8


def imported_profiles(record: Imported, where: str) -> tuple[AcceptanceProfile, ...]:
    """The acceptance of every imported run that tells any. Raises `InputError` where none does, or where a curve is impossible."""
    profiles = tuple(found for run in record.records if (found := _profile(run, where)) is not None)
    if not profiles:
        raise InputError(
            f"{where} holds no usable acceptance: no run in it tells K and τ", "import a source with counts; docs/formats.md"
        )
    return profiles


def _profile(run: ImportedRun, where: str) -> AcceptanceProfile | None:
    if run.tau is None or run.block_size is None:
        return None
    if run.survival:
        _check(run, where)
        return _with_survival(run, run.survival, run.block_size)
    if run.block_size < 2 or not 1 <= run.tau <= run.block_size:
        return None
    return _mean_only(run, run.block_size, run.tau)


def _check(run: ImportedRun, where: str) -> None:
    values = run.survival or ()
    if max(values) > 1 or any(after > before + 1e-9 for before, after in pairwise(values)):
        raise InputError(
            f"{where}: {run.name} has rates above 1 or rising by position, which no survival curve can",
            "see its findings; import again",
        )


def _with_survival(run: ImportedRun, values: tuple[float, ...], block_size: int) -> AcceptanceProfile:
    """Positions beyond the block that nothing ever reached are left off; those that short drafts reached are kept."""
    shown = max((index for index, value in enumerate(values, start=1) if value > 0), default=0)
    survival = values[: max(block_size - 1, shown)]
    length = len(survival)
    steps = run.num_steps
    at_risk = tuple(None if steps is None else steps * share for share in (1.0, *survival[:-1]))
    committed = run.committed if all(1 <= count <= length + 1 for answer in run.committed for count in answer) else ()
    return AcceptanceProfile(
        name=run.name,
        task=run.task or "imported",
        target=run.target or "",
        draft=run.draft or "",
        block_size=length + 1,
        survival=survival,
        at_risk=at_risk[: len(survival)],
        committed=committed,
        num_steps=steps,
        num_prompts=len(committed) or run.num_requests,
        tau_per_answer=run.tau_per_answer,
        trained_block_size=None,
        source=f"imported by {run.source}",
        definition=run.definition,
        findings=_few(run),
    )


def _mean_only(run: ImportedRun, block_size: int, tau: float) -> AcceptanceProfile:
    text = f"only τ({block_size}) = {tau:.3g} is known of {run.name}; τ at other K is estimated"
    finding = Finding(code="curve-estimated", severity="warning", message=text, hint="import a source with rates by position")
    return AcceptanceProfile(
        name=run.name,
        task=run.task or "imported",
        target=run.target or "",
        draft=run.draft or "",
        block_size=block_size,
        survival=(),
        at_risk=(),
        tau_points=((1, 1.0), (block_size, tau)),
        num_steps=run.num_steps,
        num_prompts=run.num_requests,
        source=f"imported by {run.source}",
        definition=run.definition,
        findings=(finding,),
    )


def _few(run: ImportedRun) -> tuple[Finding, ...]:
    answers = len(run.committed) or run.num_requests
    if answers is None or answers >= _FEW_PROMPTS:
        return ()
    text = f"acceptance of {run.name} rests on {answers} answers; its interval is itself uncertain"
    return (Finding(code="few-prompts", severity="info", message=text, hint=f"use {_FEW_PROMPTS} prompts or more"),)
