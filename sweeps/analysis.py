"""From records to the answer: audit, fit, acceptance, prediction. Pure functions; nothing here touches a device."""

from collections.abc import Sequence

from perfmodel.acceptance import from_committed, load_profile
from perfmodel.audit import audit
from perfmodel.errors import FitError
from perfmodel.fit import fit
from perfmodel.flatness import flatness
from perfmodel.hardware import load_hardware
from perfmodel.modelspec import load_model
from perfmodel.predict import predict
from perfmodel.records import (
    AcceptanceProfile,
    AcceptanceSet,
    Audit,
    DecodeRun,
    Finding,
    FittedModel,
    Flatness,
    Hardware,
    KPrediction,
    ModelSpec,
    StepTimes,
)
from perfmodel.steptime import datasheet_steps, fitted_steps

PUBLISHED_TARGET = "qwen3-4b"
PUBLISHED_DRAFT = "qwen3-4b-dflash-b16"
DATASHEET_DTYPE = "bfloat16"
"""What accelerators decode in; the peaks of the catalogue are looked up for it."""

DATASHEET_LABEL = "datasheet prediction"
MAX_CANDIDATE = 16
"""Every block size up to this is a candidate, not only the measured powers of two."""


def acceptance_of(runs: Sequence[DecodeRun], target: str, draft: str, trained_block_size: int, synthetic: bool) -> AcceptanceSet:
    """One profile per task, measured at the drafter's own block size.

    The last step of an answer is counted as "at least": a stop token or the length limit may have cut it.
    """
    profiles = tuple(
        from_committed(
            run.committed,
            block_size=run.block_size,
            task=run.task,
            target=target,
            draft=draft,
            last_step_cut=[True] * len(run.committed),
            trained_block_size=trained_block_size,
            longest_context=max(n + len(tokens) for n, tokens in zip(run.prompt_tokens, run.tokens, strict=True)),
            synthetic=synthetic,
            source=f"{run.batch} prompts decoded greedily by perf",
        )
        for run in runs
        if any(run.committed)
    )
    return AcceptanceSet(profiles=profiles)


def audit_and_fit(
    times: StepTimes, target: ModelSpec, draft: ModelSpec, machine: Hardware
) -> tuple[Audit, FittedModel | None, tuple[Finding, ...]]:
    """The verdict on every timing, the fitted model, and what kept it from being fitted."""
    audited = audit(times.points, target, draft, machine, times.dtype)
    try:
        return audited, fit(times.points, target, draft, machine, times.dtype), ()
    except FitError as error:
        return audited, None, (Finding(code="not-fitted", severity="error", message=error.message, hint=error.hint, where="fit"),)


def flat_widths(model: FittedModel | None, batch: int, context: int) -> Flatness | None:
    """How wide verification is flat here, and why; None without a model."""
    return None if model is None else flatness(model, batch, context)


def candidates(block_sizes: Sequence[int]) -> tuple[int, ...]:
    """Block sizes a prediction ranges over: the measured ones, and every one up to 16."""
    return tuple(sorted({*block_sizes, *range(1, min(MAX_CANDIDATE, max(block_sizes)) + 1)}))


def predict_here(
    model: FittedModel, acceptance: AcceptanceSet, block_sizes: Sequence[int], batch: int, context: int, host_s: float
) -> tuple[KPrediction, ...]:
    """The prediction of every task on the machine that was measured."""
    steps = fitted_steps(model, candidates(block_sizes), batch, context, host_s=host_s)
    return tuple(
        predict(
            steps,
            profile,
            hardware=model.hardware.name if model.hardware else "this-machine",
            target=profile.target,
            draft=profile.draft,
            batch=batch,
            context=context,
            source="measured",
        )
        for profile in acceptance.profiles
    )


def predict_elsewhere(
    chips: Sequence[str],
    target: ModelSpec,
    draft: ModelSpec,
    acceptance: AcceptanceSet,
    tasks: Sequence[str],
    batch: int,
    context: int,
) -> tuple[KPrediction, ...]:
    """Datasheet predictions: this pair with its measured acceptance, and Qwen3-4B + DFlash b16 with the published curves."""
    published = tuple(load_profile(f"{PUBLISHED_DRAFT}/{task}") for task in tasks)
    pairs = (
        (target, draft, acceptance.profiles),
        (load_model(PUBLISHED_TARGET), load_model(PUBLISHED_DRAFT), published),
    )
    return tuple(
        _elsewhere(chip, one_target, one_draft, batch, context, profile)
        for chip in chips
        for one_target, one_draft, profiles in pairs
        for profile in profiles
    )


def _elsewhere(
    chip: str, target: ModelSpec, draft: ModelSpec, batch: int, context: int, profile: AcceptanceProfile
) -> KPrediction:
    hardware = load_hardware(chip)
    width = draft.block_size or MAX_CANDIDATE
    steps = datasheet_steps(hardware, target, draft, tuple(range(1, width + 1)), batch, context, DATASHEET_DTYPE)
    return predict(
        steps,
        profile,
        hardware=hardware.name,
        target=target.name,
        draft=draft.name,
        batch=batch,
        context=context,
        source="datasheet",
        label=DATASHEET_LABEL,
    )
