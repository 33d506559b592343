"""Step times for a choice of block sizes, with draws that carry their uncertainty: what a prediction of K must know of a chip.

Two ways lead here. From a fitted model: its constants, their bootstrap draws, and the law's own misfit, which differs from one
K to the next and so is drawn anew for each. From a data sheet alone: peaks are known, efficiencies and overheads are not, so they
are drawn from wide, named priors, and the interval is honest about it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .bounds import bounds_of
from .cost import Sizes
from .errors import InputError
from .phases import COMMIT, DRAFT, VERIFY, Phase
from .records import FittedModel, Hardware, ModelSpec
from .records.prediction import Bound, PredictionSource
from .roofline import peak_flops_per_s
from .stepmodel import PRIORS, ROOFLINE, Values, draws_of, model_grid_work, phase_work, seconds, values_of

NUM_PRIOR_DRAWS = 1000
"""Draws from the priors of a chip known only by its data sheet."""

MAX_DRAWN = 2_000_000
"""Draws times block sizes: thousands of block sizes get fewer draws each, enough for a 95 % interval."""

LEAST_DRAWS = 200
"""No interval rests on fewer draws than this."""

CONTEXT_REACH = 2
"""Contexts up to this factor beyond the longest fitted are not called extrapolated: cached bytes follow from arithmetic."""


@dataclass(frozen=True)
class StepSeconds:
    """Seconds per step over block sizes: arrays [K], and draws [draws, K] of each part (None when there are none).

    `draft_s` is the drafter's pass and its context update (0 at K=1, which drafts nothing); `host_s` is what no device phase
    covers. `bound` says what holds verification back, `extrapolated` where K, batch or context leave what was measured.
    """

    block_sizes: np.ndarray
    draft_s: np.ndarray
    verify_s: np.ndarray
    host_s: np.ndarray
    draft_draws: np.ndarray | None
    verify_draws: np.ndarray | None
    host_draws: np.ndarray | None
    bound: tuple[Bound, ...]
    extrapolated: np.ndarray
    source: PredictionSource


def fitted_steps(
    model: FittedModel,
    block_sizes: Sequence[int],
    batch: int,
    context: int,
    host_s: float = 0.0,
    draft_s: float | None = None,
    seed: int = 0,
) -> StepSeconds:
    """Seconds per step on the chip the model was fitted on, with draws of its constants and of its misfit.

    `host_s` is time per step between device phases, `draft_s` replaces the drafter's modelled time. Raises `InputError` when the
    model knows no drafter and none is given.
    """
    blocks = _blocks(block_sizes)
    rng = np.random.default_rng(seed)
    values, draws = values_of(model), draws_of(model)
    sizes = _sizes(blocks, batch, context)
    verify, verify_draws = _phase(model, VERIFY, sizes, values, draws, rng)
    plain = blocks == 1
    if draft_s is not None:
        drafting = np.where(plain, 0.0, draft_s)
        drafting_draws = None if verify_draws is None else np.broadcast_to(drafting, verify_draws.shape)
    elif model.draft is None or model.form != ROOFLINE:
        raise InputError(
            "this model knows no drafter, so a step's drafting time is unknown", "give the drafter's time, or fit with --draft"
        )
    else:
        draft, draft_draws = _phase(model, DRAFT, sizes, values, draws, rng)
        commit, commit_draws = _phase(model, COMMIT, sizes, values, draws, rng)
        drafting = np.where(plain, 0.0, draft + commit)
        drafting_draws = None if draft_draws is None or commit_draws is None else np.where(plain, 0.0, draft_draws + commit_draws)
    host = np.full(blocks.size, host_s)
    bound = bounds_of(values, model_grid_work(model, VERIFY, sizes), model.target, model.hardware, model.dtype)
    return StepSeconds(
        block_sizes=blocks,
        draft_s=drafting,
        verify_s=verify,
        host_s=host,
        draft_draws=drafting_draws,
        verify_draws=verify_draws,
        host_draws=None if verify_draws is None else np.broadcast_to(host, verify_draws.shape),
        bound=tuple(bound.tolist()),
        extrapolated=extrapolated(model, sizes, draft_s is not None),
        source="measured",
    )


def datasheet_steps(
    hardware: Hardware,
    target: ModelSpec,
    draft: ModelSpec,
    block_sizes: Sequence[int],
    batch: int,
    context: int,
    dtype: str = "bfloat16",
    host_s: float | None = None,
    seed: int = 0,
) -> StepSeconds:
    """Seconds per step on a chip known only by its data sheet: the mode of the priors, with draws over their whole range.

    `host_s` replaces the priors of host time, of which a step that drafts has more than a plain one. Raises `InputError` where
    the data sheet has no peak for the dtype.
    """
    check_peak(hardware, dtype)
    blocks = _blocks(block_sizes)
    num_draws = min(NUM_PRIOR_DRAWS, max(LEAST_DRAWS, MAX_DRAWN // blocks.size))
    rng = np.random.default_rng(seed)
    values = prior_values()
    draws = {name: PRIORS[name].sample(rng, num_draws)[:, None] for name in values}
    host, host_draws = _host(blocks, host_s, rng, num_draws)
    centre: dict[Phase, np.ndarray] = {}
    spread: dict[Phase, np.ndarray] = {}
    sizes = _sizes(blocks, batch, context)
    for phase in (VERIFY, DRAFT, COMMIT):
        work = phase_work(phase, sizes, target, draft, dtype, hardware)
        centre[phase] = seconds(values, work, hardware, dtype)
        spread[phase] = seconds(draws, work, hardware, dtype)
    plain = blocks == 1
    bound = bounds_of(values, phase_work(VERIFY, sizes, target, draft, dtype, hardware), target, hardware, dtype)
    return StepSeconds(
        block_sizes=blocks,
        draft_s=np.where(plain, 0.0, centre[DRAFT] + centre[COMMIT]),
        verify_s=centre[VERIFY],
        host_s=host,
        draft_draws=np.where(plain, 0.0, spread[DRAFT] + spread[COMMIT]),
        verify_draws=spread[VERIFY],
        host_draws=host_draws,
        bound=tuple(bound.tolist()),
        extrapolated=np.zeros(blocks.size, dtype=bool),
        source="datasheet",
    )


def check_peak(hardware: Hardware, dtype: str) -> None:
    """Raise `InputError` where a chip's data sheet has no peak for the dtype, so that no time can be predicted."""
    if peak_flops_per_s(hardware, dtype) is None:
        raise InputError(
            f"{hardware.name} has no known {dtype} peak, so its step time cannot be predicted", known_peaks(hardware)
        )


def known_peaks(hardware: Hardware) -> str:
    """The dtypes a chip has a peak for, as a hint; where it has none, what to give in place of one."""
    known = ", ".join(hardware.flops_per_s)
    return f"known dtypes: {known}" if known else "it has none here: give measured times (--step-times, or perf fit and --model)"


def prior_values() -> dict[str, float]:
    """The mode of every constant of a step on a chip nobody measured; host time is not among them."""
    return {name: prior.mode for name, prior in PRIORS.items() if not name.endswith("host_s")}


def host_mode_s(block_sizes: np.ndarray) -> np.ndarray:
    """Host seconds per step by the priors' modes: a step that drafts has more than a plain one."""
    return PRIORS["host_s"].mode + PRIORS["drafting_host_s"].mode * (block_sizes > 1)


def misfit(model: FittedModel, phase: Phase) -> float:
    """Relative error of the law at one K of a phase: robust spread of the held-out residuals, else of the fitted ones."""
    points = [point for point in model.points if point.phase == phase] or list(model.points)
    held = [point.error for point in points if point.held_out]
    errors = np.log1p(np.array(held or [point.error for point in points]))
    return float(1.4826 * np.median(np.abs(errors))) if errors.size else 0.0


def _host(blocks: np.ndarray, host_s: float | None, rng: np.random.Generator, num_draws: int) -> tuple[np.ndarray, np.ndarray]:
    """Host seconds per step over block sizes, and draws of them."""
    if host_s is not None:
        return np.full(blocks.size, host_s), np.full((num_draws, blocks.size), host_s)
    base, more = (PRIORS[name].sample(rng, num_draws)[:, None] for name in ("host_s", "drafting_host_s"))
    return host_mode_s(blocks), base + more * (blocks > 1)


def _blocks(block_sizes: Sequence[int]) -> np.ndarray:
    blocks = np.asarray(block_sizes, dtype=np.int64)
    if blocks.size == 0 or np.any(blocks < 1):
        raise InputError(f"block sizes must be whole numbers from 1, not {list(block_sizes)}", "K=1 is plain decoding")
    return blocks


def _sizes(blocks: np.ndarray, batch: int, context: int) -> Sizes:
    return Sizes(np.asarray(float(batch)), blocks.astype(float), np.asarray(float(context)))


def _phase(
    model: FittedModel, phase: Phase, sizes: Sizes, values: Values, draws: Values, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray | None]:
    """A phase's seconds over block sizes, and draws of them."""
    work = model_grid_work(model, phase, sizes)
    centre = seconds(values, work, model.hardware, model.dtype)
    if not draws:
        return centre, None
    spread = seconds(draws, work, model.hardware, model.dtype)
    return centre, spread * np.exp(rng.normal(0.0, misfit(model, phase), spread.shape))


def extrapolated(model: FittedModel, sizes: Sizes, draft_given: bool) -> np.ndarray:
    """Where K, batch or context leave what was fitted, or a drafter nobody measured is needed."""
    known = model.fitted_range
    outside = (sizes.tokens < known.tokens[0]) | (sizes.tokens > known.tokens[1])
    outside = outside | (sizes.batch < known.batch[0]) | (sizes.batch > known.batch[1])
    outside = outside | (sizes.context > CONTEXT_REACH * known.context[1])
    if not draft_given and f"{DRAFT}_overhead_s" not in model.parameters:
        outside = outside | (sizes.queries > 1)
    return outside
