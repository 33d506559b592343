"""Where a prediction's step times come from: a fitted model, a fitted model moved to another chip, or a data sheet."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from perfmodel.compiled import compiled_steps
from perfmodel.drafting import drafter_for, drafting_of, redraft, redraft_grid, select, with_drafter
from perfmodel.errors import InputError
from perfmodel.flips import constant_flips, datasheet_law, fitted_law
from perfmodel.hardware import load_hardware
from perfmodel.modelspec import load_model
from perfmodel.records import CompiledSet, Finding, FittedModel, Hardware, KPrediction, ModelSpec
from perfmodel.records.acceptance import Drafting
from perfmodel.stepgrid import StepGrid, datasheet_grid, fitted_grid
from perfmodel.steptime import StepSeconds, datasheet_steps, fitted_steps
from perfmodel.transfer import label_of, transfer

from .analysis import DATASHEET_LABEL


@dataclass(frozen=True)
class StepSource:
    """Step times of one pair on one chip, for any block size, batch and context.

    `model` is None where the chip's data sheet is all there is. `drafting` overrides how the drafter works; None leaves it be.
    `pass_s` is a drafter pass's time in place of the modelled one; `drafter_measured` is False where no drafter's pass was timed.
    """

    hardware: Hardware | None
    target: ModelSpec | None
    draft: ModelSpec | None
    dtype: str
    model: FittedModel | None = None
    drafting: Drafting | None = None
    label: str = ""
    findings: tuple[Finding, ...] = ()
    pass_s: float | None = None
    drafter_measured: bool = True
    compiled: CompiledSet | None = None

    @property
    def name(self) -> str:
        """The chip's name, with how many of them share the model where it is more than one: `tpu-v5p:4`."""
        if self.hardware is None:
            return "unknown"
        return self.hardware.name if self.hardware.num_chips == 1 else f"{self.hardware.name}:{self.hardware.num_chips}"

    @property
    def kind(self) -> Drafting | None:
        """How the drafter drafts, or None where nobody says."""
        return self.drafting or (drafting_of(self.draft) if self.draft else None)

    @property
    def is_overridden(self) -> bool:
        """Whether the drafter's time is another than its model's: given, or of the other way to draft."""
        other = self.drafting is not None and self.draft is not None and self.drafting != drafting_of(self.draft)
        return other or self.pass_s is not None

    def steps(self, block_sizes: Sequence[int], batch: int, context: int) -> StepSeconds:
        """Seconds per step over block sizes, with draws where there are any."""
        wanted = np.array(sorted(set(block_sizes)), dtype=np.int64)
        if not self.is_overridden:
            return self._steps(wanted, batch, context)
        found = redraft(self._steps(np.union1d(wanted, [2]), batch, context), self.kind or "block")
        return select(found, wanted)

    def _steps(self, block_sizes: np.ndarray, batch: int, context: int) -> StepSeconds:
        sizes = block_sizes.tolist()
        if self.compiled is not None:
            return compiled_steps(self.compiled, self.name, sizes, batch, context)
        if self.model is None:
            found = datasheet_steps(*self._pair(), sizes, batch, context, self.dtype)
        else:
            found = fitted_steps(self.model, sizes, batch, context, draft_s=self.pass_s)
        if self.pass_s is not None:
            passes = np.where(block_sizes == 1, 0.0, self.pass_s)
            draws = None if found.verify_draws is None else np.broadcast_to(passes, found.verify_draws.shape)
            found = replace(found, draft_s=passes, draft_draws=draws)
        elif not self.drafter_measured:
            found = replace(found, extrapolated=found.extrapolated | (block_sizes > 1))
        return replace(found, source="datasheet") if self.label else found

    def grid(self, block_sizes: Sequence[int], batches: Sequence[int], contexts: Sequence[int]) -> StepGrid:
        """Seconds per step over a whole grid, without draws; the block sizes sorted."""
        wanted = np.array(sorted(set(block_sizes)), dtype=np.int64)
        if not self.is_overridden:
            return self._grid(wanted, batches, contexts)
        whole = self._grid(np.union1d(wanted, [2]), batches, contexts)
        return redraft_grid(whole, self.kind or "block", wanted, self.pass_s)

    def _grid(self, block_sizes: np.ndarray, batches: Sequence[int], contexts: Sequence[int]) -> StepGrid:
        if self.compiled is not None:
            raise InputError("a large grid is not predicted from compiled steps", "ask for fewer chips, batches or contexts")
        if self.model is None:
            return datasheet_grid(*self._pair(), block_sizes.tolist(), batches, contexts, self.dtype)
        return fitted_grid(self.model, block_sizes.tolist(), batches, contexts, draft_s=self.pass_s)

    def flips(self, prediction: KPrediction) -> dict[str, float]:
        """Factors on the cost model's constants at which another K wins; empty where the drafter is overridden."""
        if self.is_overridden or self.compiled is not None:
            return {}
        blocks = np.array([row.block_size for row in prediction.rows], dtype=np.int64)
        shape = (blocks, prediction.batch, prediction.context)
        if self.model is None:
            hardware, target, draft = self._pair()
            law, values = datasheet_law(hardware, target, draft, *shape, self.dtype)
        else:
            law, values = fitted_law(self.model, *shape)
        tau = np.array([row.tau for row in prediction.rows])
        eligible = np.array([row.in_training for row in prediction.rows])
        return constant_flips(law, values, blocks, tau, eligible, prediction.plateau)

    def _pair(self) -> tuple[Hardware, ModelSpec, ModelSpec]:
        if self.hardware is None or self.target is None or self.draft is None:
            raise InputError("a data sheet's step times need a chip, a target and a drafter", "name all three")
        return self.hardware, self.target, self.draft


def model_source(
    model: FittedModel, hardware: str | None, draft: str | None, drafting: Drafting | None, pass_s: float | None
) -> StepSource:
    """Step times of a fitted model, on its own chip or, by data sheet, on another; a missing drafter is priced by its law."""
    findings: tuple[Finding, ...] = ()
    measured = model.draft is not None
    if draft is not None and model.draft is not None and load_model(draft).name != model.draft.name:
        raise InputError(
            f"the model was fitted with {model.draft.name}, not {draft}", "leave --draft out, or fit with the other drafter"
        )
    if model.draft is None and model.target is None and pass_s is None:
        raise InputError("this model knows neither target nor drafter, so a step's drafting time is unknown", "give --draft-ms")
    if model.draft is None and model.target is not None and pass_s is None:
        model = with_drafter(model, drafter_for(model.target, draft))
        findings = (_assumed(model),)
    if hardware is None or (model.hardware is not None and _is_same(load_hardware(hardware), model.hardware)):
        return StepSource(model.hardware, model.target, model.draft, model.dtype, model, drafting, "", findings, pass_s, measured)
    chip = load_hardware(hardware)
    moved = transfer(model, chip)
    findings += tuple(finding for finding in moved.findings if finding.code == "transferred")
    label = label_of(model, chip)
    return StepSource(chip, model.target, model.draft, model.dtype, moved, drafting, label, findings, pass_s, measured)


def _is_same(one: Hardware, other: Hardware) -> bool:
    return (one.name, one.num_chips) == (other.name, other.num_chips)


def _assumed(model: FittedModel) -> Finding:
    name = model.draft.name if model.draft else "the drafter"
    return Finding(
        code="drafter-not-measured",
        severity="warning",
        message=f"the model was fitted without a drafter; {name} is priced by the verify pass's law",
        hint="time its draft phase and fit again, or give --draft-ms",
    )


def datasheet_source(
    hardware: str, target: str, draft: str | None, dtype: str, drafting: Drafting | None, pass_s: float | None
) -> StepSource:
    """Step times of a pair on a chip known only by its data sheet."""
    spec = load_model(target, "target")
    return StepSource(load_hardware(hardware), spec, drafter_for(spec, draft), dtype, None, drafting, DATASHEET_LABEL, (), pass_s)


def compiled_sources(found: CompiledSet, hardware: Sequence[str], drafting: Drafting | None) -> tuple[StepSource, ...]:
    """Step times by the TPU compiler's account, of the chips named or of all that were compiled."""
    chips = dict.fromkeys(hardware) or dict.fromkeys(row.hardware for row in found.rows)
    pairs = dict.fromkeys((row.target, row.draft, row.dtype) for row in found.rows)
    if len(pairs) != 1:
        raise InputError(f"the compiled table holds {len(pairs)} pairs of models", "give the table of one pair")
    ((target, draft, dtype),) = pairs
    specs = load_model(target), None if draft is None else load_model(draft)
    unhosted = Finding(
        code="device-time-only",
        severity="info",
        message="compiled step times are the device's alone, by the compiler's estimate; the host's part is not in them",
    )
    return tuple(
        StepSource(load_hardware(chip), *specs, dtype, None, drafting, "compiled", (unhosted,), compiled=found) for chip in chips
    )
