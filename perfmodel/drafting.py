"""What a drafter costs by the way it drafts: one pass whatever K, or one pass per draft.

A block drafter (DFlash) fills all slots of a block in one pass, so its time hardly depends on K. A sequential one (EAGLE, a small
model) needs K − 1 passes, each reading its layers and its head again, so its time grows in step with K and moves the best K down.
Published step times of vLLM with EAGLE-3 on one GPU are 5.1 ms and 0.84 ms per draft, 3 to 8 drafts, within 1 % (docs/model.md).
"""

from dataclasses import replace

import msgspec
import numpy as np

from .errors import InputError
from .modelspec import load_model, names
from .records import FittedModel, ModelSpec, Parameter
from .records.acceptance import Drafting
from .stepgrid import StepGrid
from .steptime import StepSeconds
from .survival import Array, Whole
from .transfer import OVERHEAD_SPREAD

_SEQUENTIAL_KINDS = ("eagle3",)


def drafting_of(draft: ModelSpec) -> Drafting:
    """How a drafter drafts, by its kind."""
    return "sequential" if draft.drafter in _SEQUENTIAL_KINDS else "block"


def select(steps: StepSeconds, block_sizes: Whole) -> StepSeconds:
    """The step times of some of the block sizes."""
    chosen = np.searchsorted(steps.block_sizes, block_sizes)

    def columns(draws: Array | None) -> Array | None:
        return None if draws is None else draws[:, chosen]

    return StepSeconds(
        block_sizes=steps.block_sizes[chosen],
        draft_s=steps.draft_s[chosen],
        verify_s=steps.verify_s[chosen],
        host_s=steps.host_s[chosen],
        draft_draws=columns(steps.draft_draws),
        verify_draws=columns(steps.verify_draws),
        host_draws=columns(steps.host_draws),
        bound=tuple(steps.bound[i] for i in chosen),
        extrapolated=steps.extrapolated[chosen],
        source=steps.source,
    )


def redraft(steps: StepSeconds, drafting: Drafting) -> StepSeconds:
    """The step times of a drafter that works the other way; K = 2, its pass for a single draft, must be among the block sizes.

    Sequential: K − 1 such passes. Block: one, whatever K. The pass includes the update of the drafter's context, so a sequential
    drafter that updates it only once per step is priced a little high.
    """
    one = int(np.flatnonzero(steps.block_sizes == 2)[0])
    drafts = steps.block_sizes - 1
    passes = drafts.astype(np.float64) if drafting == "sequential" else (drafts > 0).astype(np.float64)
    draws = None if steps.draft_draws is None else steps.draft_draws[:, [one]] * passes
    return replace(steps, draft_s=steps.draft_s[one] * passes, draft_draws=draws)


def redraft_grid(grid: StepGrid, drafting: Drafting, block_sizes: Whole, pass_s: float | None = None) -> StepGrid:
    """The grid at `block_sizes` of a drafter that works the other way, or whose pass takes `pass_s`; see `redraft`."""
    one = grid.draft_s[grid.block_sizes == 2] if pass_s is None else pass_s
    drafts = block_sizes - 1
    passes = drafts if drafting == "sequential" else (drafts > 0).astype(np.int64)
    chosen = np.searchsorted(grid.block_sizes, block_sizes)
    return replace(
        grid,
        block_sizes=block_sizes,
        draft_s=np.broadcast_to(one * passes[:, None, None], (len(block_sizes), *grid.verify_s.shape[1:])),
        verify_s=grid.verify_s[chosen],
        host_s=grid.host_s[chosen],
        bound=grid.bound[chosen],
        extrapolated=grid.extrapolated[chosen],
        draft_draws=None,
        verify_draws=None,
        host_draws=None,
    )


def drafter_for(target: ModelSpec, draft: str | None) -> ModelSpec:
    """The drafter by name, or the DFlash drafter that ships for the target where none is named.

    Raises `InputError` where none ships, and where the named one reads features of another width.
    """
    spec = load_model(draft, "draft") if draft is not None else _shipped_for(target)
    if spec.target_hidden_size is not None and spec.target_hidden_size != target.hidden_size:
        raise InputError(
            f"drafter {spec.name} reads features of width {spec.target_hidden_size}, and {target.name} has {target.hidden_size}",
            "name the target's own drafter with --draft",
        )
    return spec


def _shipped_for(target: ModelSpec) -> ModelSpec:
    def shape(spec: ModelSpec) -> tuple[int, int, int]:
        return spec.hidden_size, spec.num_layers, spec.vocab_size

    alike = [name for name in names("target") if name == target.name or shape(load_model(name)) == shape(target)]
    known = [drafter for name in alike for drafter in names("draft") if drafter.startswith(f"{name}-dflash")]
    if not known:
        raise InputError(f"no drafter ships for {target.name}", "name one with --draft; `perf list models`")
    return load_model(known[0])


def with_drafter(model: FittedModel, draft: ModelSpec) -> FittedModel:
    """A model fitted to verify passes alone, with a drafter priced by the same law.

    Its passes keep the verify pass's efficiencies; its fixed time is the verify pass's by number of layers, since where that is
    large it is the launching of each layer's kernels. That is a guess, so its draws are as wide as those of a fixed time that was
    moved to another chip. Raises `InputError` for a model that knows no target.
    """
    if model.target is None:
        raise InputError("this model knows no target, so no drafter can be priced", "give --draft-ms, or fit with --target")
    share = draft.num_layers / model.target.num_layers
    launch = model.parameters["overhead_s"]
    note = f"not measured: the verify pass's fixed time by number of layers ({draft.num_layers} of {model.target.num_layers})"
    parameters, draws = dict(model.parameters), list(model.draws)
    place = list(model.parameters).index("overhead_s")
    spread = np.exp(OVERHEAD_SPREAD * np.random.default_rng(0).standard_normal(len(draws)))
    for name in ("draft_overhead_s", "commit_overhead_s"):
        if name not in parameters:
            parameters[name] = Parameter(value=share * launch.value, stderr=None, unit="s", identified=False, note=note)
            draws = [(*draw, share * draw[place] * factor) for draw, factor in zip(draws, spread.tolist(), strict=True)]
    return msgspec.structs.replace(model, draft=draft, parameters=parameters, draws=tuple(draws), correlations=())
