"""Predictions from what the user holds: a model, a chip or a table of cycle times; a profile, a list or mean lengths."""

import csv
from collections.abc import Sequence
from pathlib import Path

from perfmodel import codec
from perfmodel.acceptance import from_survival, from_tau_points, resolve
from perfmodel.errors import InputError
from perfmodel.hardware import load_hardware
from perfmodel.modelspec import load_model
from perfmodel.predict import CycleTime, predict, predict_table
from perfmodel.records import AcceptanceProfile, FittedModel, KPrediction
from perfmodel.steptime import StepSeconds, datasheet_steps, fitted_steps

from .analysis import DATASHEET_LABEL
from .grid import MAX_BLOCK_SIZE

DEFAULT_WIDTH = 16
"""Block sizes range up to this where neither the drafter nor the user says how far."""


def predict_from(
    *,
    model: Path | None,
    hardware: str | None,
    target: str,
    draft: str,
    step_times: Path | None,
    acceptance: str | None,
    survival: Sequence[float] | None,
    taus: Sequence[tuple[int, float]],
    block_sizes: tuple[int, ...] | None,
    batches: tuple[int, ...],
    contexts: tuple[int, ...],
    dtype: str,
) -> tuple[KPrediction, ...]:
    """One prediction per acceptance profile, batch and context. Raises `InputError` when the inputs do not add up to one."""
    if sum(given is not None for given in (model, hardware, step_times)) != 1:
        raise InputError(
            "step times must come from exactly one of --model, --hardware and --step-times", "see perf predict --help"
        )
    _refuse_beyond([*(block_sizes or ()), *(size for size, _ in taus)])
    profiles = _profiles(acceptance, survival, taus, required=step_times is None)
    if step_times is not None:
        table = read_cycles(step_times)
        _refuse_beyond([cycle.block_size for cycle in table])
        return tuple(predict_table(table, profile) for profile in profiles or (None,))
    fitted = None if model is None else codec.load(model / "model.json" if model.is_dir() else model, FittedModel)
    return tuple(
        _one(fitted, hardware, target, draft, profile, block_sizes, batch, context, dtype)
        for profile in profiles
        for batch in batches
        for context in contexts
    )


def _refuse_beyond(block_sizes: Sequence[int]) -> None:
    if max(block_sizes, default=1) > MAX_BLOCK_SIZE:
        raise InputError(f"a block size is above {MAX_BLOCK_SIZE}", "drafters are trained for 4 to 32")


def _profiles(
    acceptance: str | None, survival: Sequence[float] | None, taus: Sequence[tuple[int, float]], required: bool
) -> tuple[AcceptanceProfile, ...]:
    given = [name for name, value in (("--acceptance", acceptance), ("--survival", survival), ("--tau", taus)) if value]
    if len(given) > 1:
        raise InputError(f"acceptance is given twice: {' and '.join(given)}", "give one of them")
    if acceptance:
        return resolve(acceptance)
    if survival:
        return (from_survival(survival),)
    if taus:
        return (from_tau_points(taus),)
    if required:
        raise InputError(
            "no acceptance given, and none is assumed", "give --acceptance, --survival or --tau; `perf list acceptance`"
        )
    return ()


def _one(
    model: FittedModel | None,
    chip: str | None,
    target: str,
    draft: str,
    profile: AcceptanceProfile,
    block_sizes: tuple[int, ...] | None,
    batch: int,
    context: int,
    dtype: str,
) -> KPrediction:
    trained = profile.trained_block_size or (profile.block_size if profile.survival else None)
    steps: StepSeconds
    if model is not None:
        sizes = block_sizes or tuple(range(1, (trained or DEFAULT_WIDTH) + 1))
        steps = fitted_steps(model, sizes, batch, context)
        name = model.hardware.name if model.hardware else "unknown"
        pair = (model.target.name if model.target else "", model.draft.name if model.draft else "")
        label = ""
    else:
        hardware, target_spec, draft_spec = load_hardware(chip or ""), load_model(target), load_model(draft)
        sizes = block_sizes or tuple(range(1, (draft_spec.block_size or trained or DEFAULT_WIDTH) + 1))
        steps = datasheet_steps(hardware, target_spec, draft_spec, sizes, batch, context, dtype)
        name, pair, label = hardware.name, (target_spec.name, draft_spec.name), DATASHEET_LABEL
        trained = draft_spec.block_size or trained
    return predict(
        steps,
        profile,
        hardware=name,
        target=pair[0],
        draft=pair[1],
        batch=batch,
        context=context,
        source=steps.source,
        trained_block_size=trained,
        label=label,
    )


def read_cycles(path: Path) -> tuple[CycleTime, ...]:
    """Measured cycle times: a CSV with `block_size`, `ms` and perhaps `tau`. Raises `InputError` naming the row."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            rows = list(csv.DictReader(stream, strict=True))
    except FileNotFoundError:
        raise InputError(f"{path} does not exist", "check the path") from None
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path} cannot be read as a CSV: {error}", "columns: block_size, ms, perhaps tau") from error
    cycles = []
    for number, row in enumerate(rows, start=2):
        try:
            tau = row.get("tau")
            cycles.append(CycleTime(int(row["block_size"]), float(row["ms"]) / 1e3, float(tau) if tau else None))
        except (KeyError, TypeError, ValueError):
            raise InputError(
                f"{path}, row {number} has no usable block_size and ms", "columns: block_size, ms, perhaps tau"
            ) from None
    return tuple(cycles)
