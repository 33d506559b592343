"""Step times over a whole grid of block sizes, batches and contexts at once: draft, verify and host seconds as arrays.

A table of K per batch and context, or a search over many settings, needs a hundred thousand step times. Every law here is
arithmetic on arrays, so a grid costs as many array operations as a single step. Axes: [block size, batch, context]; draws of
the constants, where asked for, come first.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .bounds import bounds_of
from .cost import Sizes
from .errors import InputError
from .phases import COMMIT, DRAFT, PREFILL, VERIFY, Phase
from .records import FittedModel, Hardware, ModelSpec
from .records.prediction import PredictionSource
from .stepmodel import PRIORS, ROOFLINE, Values, draws_of, model_grid_work, phase_work, seconds, values_of
from .steptime import check_peak, extrapolated, host_mode_s, prior_values


@dataclass(frozen=True)
class StepGrid:
    """Seconds of each part of a step, arrays [block size, batch, context]; `*_draws` have draws in front (None: not asked for).

    `draft_s` is the drafter's pass and its context update, 0 at K=1. `bound` names what holds verification back.
    """

    block_sizes: np.ndarray
    batches: np.ndarray
    contexts: np.ndarray
    draft_s: np.ndarray
    verify_s: np.ndarray
    host_s: np.ndarray
    bound: np.ndarray
    extrapolated: np.ndarray
    source: PredictionSource
    draft_draws: np.ndarray | None = None
    verify_draws: np.ndarray | None = None
    host_draws: np.ndarray | None = None

    @property
    def step_s(self) -> np.ndarray:
        """Seconds of the whole step."""
        return self.draft_s + self.verify_s + self.host_s


def fitted_grid(
    model: FittedModel,
    block_sizes: Sequence[int],
    batches: Sequence[int],
    contexts: Sequence[int],
    host_s: float = 0.0,
    draft_s: float | None = None,
    num_draws: int = 0,
) -> StepGrid:
    """Step times on the chip a model was fitted on, with the first `num_draws` draws of its constants.

    `draft_s` replaces the drafter's modelled time. Raises `InputError` when the model knows no drafter and none is given.
    """
    sizes = _sizes(block_sizes, batches, contexts)
    plain = sizes.queries == 1
    if draft_s is None and (model.draft is None or model.form != ROOFLINE):
        raise InputError(
            "this model knows no drafter, so a step's drafting time is unknown", "give the drafter's time, or fit with --draft"
        )

    def times(phase: Phase, values: Values) -> np.ndarray:
        return seconds(values, model_grid_work(model, phase, sizes), model.hardware, model.dtype)

    def drafting(values: Values) -> np.ndarray:
        made = draft_s if draft_s is not None else times(DRAFT, values) + times(COMMIT, values)
        return np.where(plain, 0.0, made)

    values = values_of(model)
    draws = {name: column[:num_draws, :, None, None] for name, column in draws_of(model).items()} if num_draws else {}
    verify = times(VERIFY, values)
    work = model_grid_work(model, VERIFY, sizes)
    return StepGrid(
        *_axes(sizes),
        draft_s=np.broadcast_to(drafting(values), verify.shape),
        verify_s=verify,
        host_s=np.full(verify.shape, host_s),
        bound=bounds_of(values, work, model.target, model.hardware, model.dtype),
        extrapolated=np.broadcast_to(extrapolated(model, sizes, draft_s is not None), verify.shape),
        source="measured",
        draft_draws=drafting(draws) if draws else None,
        verify_draws=times(VERIFY, draws) if draws else None,
        host_draws=np.full((len(next(iter(draws.values()))), *verify.shape), host_s) if draws else None,
    )


def datasheet_grid(
    hardware: Hardware,
    target: ModelSpec,
    draft: ModelSpec,
    block_sizes: Sequence[int],
    batches: Sequence[int],
    contexts: Sequence[int],
    dtype: str = "bfloat16",
    host_s: float | None = None,
    num_draws: int = 0,
    seed: int = 0,
) -> StepGrid:
    """Step times on a chip known only by its data sheet: the priors' modes, and `num_draws` draws over their range.

    Raises `InputError` where the data sheet has no peak for the dtype.
    """
    check_peak(hardware, dtype)
    sizes = _sizes(block_sizes, batches, contexts)
    plain = sizes.queries == 1

    def times(phase: Phase, values: Values) -> np.ndarray:
        return seconds(values, phase_work(phase, sizes, target, draft, dtype, hardware), hardware, dtype)

    def drafting(values: Values) -> np.ndarray:
        return np.where(plain, 0.0, times(DRAFT, values) + times(COMMIT, values))

    values = prior_values()
    rng = np.random.default_rng(seed)
    names = (*values, "host_s", "drafting_host_s")
    draws = {name: PRIORS[name].sample(rng, num_draws)[:, None, None, None] for name in names} if num_draws else {}
    verify = times(VERIFY, values)
    host = host_mode_s(sizes.queries) if host_s is None else np.full(sizes.queries.shape, host_s)
    return StepGrid(
        *_axes(sizes),
        draft_s=drafting(values),
        verify_s=verify,
        host_s=np.broadcast_to(host, verify.shape),
        bound=bounds_of(values, phase_work(VERIFY, sizes, target, draft, dtype, hardware), target, hardware, dtype),
        extrapolated=np.zeros(verify.shape, dtype=bool),
        source="datasheet",
        draft_draws=drafting(draws) if draws else None,
        verify_draws=times(VERIFY, draws) if draws else None,
        host_draws=_host_draws(draws, plain, host_s, (num_draws, *verify.shape)) if draws else None,
    )


def prefill_share_s(
    prefill_s: np.ndarray, batch: np.ndarray, tau: np.ndarray, output_tokens: float, duty: float = 1.0
) -> np.ndarray:
    """Seconds of prefill that fall on one decode step of a loaded server.

    With `batch` requests in flight, each of which commits `tau` tokens per step and leaves after `output_tokens`, batch · tau /
    output_tokens requests end in a step and as many prompts must be run in their place, each for `prefill_s`. `duty` is the share
    of prompts whose prefill really interrupts decoding (1: one queue; 0: disaggregated).
    """
    if output_tokens < 1 or not 0.0 <= duty <= 1.0:
        raise InputError(
            f"{output_tokens:g} output tokens and a duty of {duty:g} are no load", "tokens start at 1, the duty lies in 0 … 1"
        )
    return duty * batch * np.minimum(tau / output_tokens, 1.0) * prefill_s


def prefill_s(model: FittedModel, prompt_tokens: Sequence[int]) -> np.ndarray:
    """Seconds to run one prompt of each length through a fitted model's target, as far as its verify curve tells."""
    prompts = np.asarray(prompt_tokens, dtype=float)
    sizes = Sizes(np.ones_like(prompts), prompts, np.zeros_like(prompts))
    return seconds(values_of(model), model_grid_work(model, PREFILL, sizes), model.hardware, model.dtype)


def _host_draws(draws: Values, plain: np.ndarray, host_s: float | None, shape: tuple[int, ...]) -> np.ndarray:
    if host_s is not None:
        return np.full(shape, host_s)
    return np.broadcast_to(draws["host_s"] + np.where(plain, 0.0, draws["drafting_host_s"]), shape)


def _sizes(block_sizes: Sequence[int], batches: Sequence[int], contexts: Sequence[int]) -> Sizes:
    axes = [np.asarray(axis, dtype=float).reshape(-1) for axis in (block_sizes, batches, contexts)]
    if any(axis.size == 0 for axis in axes):
        raise InputError("a grid needs at least one block size, batch and context", "K=1 is plain decoding")
    blocks, batch, context = axes
    return Sizes(batch[None, :, None], blocks[:, None, None], context[None, None, :])


def _axes(sizes: Sizes) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return tuple(axis.reshape(-1).astype(np.int64) for axis in (sizes.queries, sizes.batch, sizes.context))  # type: ignore[return-value]
