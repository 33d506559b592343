"""How wide verification stays nearly free on a chip, and why: the K-flat claim as a number.

Weights are read once per step whatever K, so up to the knee, where arithmetic takes as long as reading, more tokens cost little.
The flat width is the largest K whose time is within 5, 10 or 25 % of K=1's. It has a cause: weights (`memory`), cached keys
and values (`kv`) or routed experts (`experts`) set the pace; or launches do (`overhead`), and the chip is not the reason; or
arithmetic does from the start (`compute`), and there is no plateau; or K=1 runs another kernel (`kernel`), and the plateau,
if any, starts at K=2.
"""

import numpy as np

from .errors import InputError
from .phases import VERIFY
from .records import FittedModel, Flatness, StepShape
from .records.prediction import Bound
from .stepmodel import bounds_of, draws_of, model_work, terms, values_of

TOLERANCES = (0.05, 0.10, 0.25)


def flatness(model: FittedModel, batch: int = 1, context: int = 0) -> Flatness:
    """Flat widths in K at one batch and context, each with a 95 % interval, the knee in tokens, and the cause.

    The search ends at the widest step that was fitted: a width equal to `limit` means "at least".
    """
    if batch < 1 or context < 0:
        raise InputError(f"batch {batch}, context {context} is no step", "batch starts at 1, context at 0")
    limit = max(model.fitted_range.tokens[1] // batch, 2)
    blocks = range(1, limit + 1)
    shapes = [StepShape(phase=VERIFY, batch=batch, query_tokens=block, context=context) for block in blocks]
    work = model_work(model, shapes)
    values, draws = values_of(model), draws_of(model)
    parts = terms(values, work, model.hardware, model.dtype)
    spread = terms(draws, work, model.hardware, model.dtype) if draws else parts
    spread_s = np.atleast_2d(spread.total_s)
    widths = {f"{tolerance:.2f}": int(_width(parts.total_s[None], tolerance, 1)[0]) for tolerance in TOLERANCES}
    drawn = {f"{tolerance:.2f}": _width(spread_s, tolerance, 1) for tolerance in TOLERANCES}
    from_two = {f"{tolerance:.2f}": int(_width(parts.total_s[None], tolerance, 2)[0]) for tolerance in TOLERANCES}
    knee = _knee(np.atleast_2d(parts.memory_s), np.atleast_2d(parts.compute_s))
    knees = _knee(np.atleast_2d(spread.memory_s), np.atleast_2d(spread.compute_s))
    bound = bounds_of(values, model_work(model, shapes[1:2]), shapes[1:2], model.target, model.hardware, model.dtype)[0]
    batches, contexts = model.fitted_range.batch, model.fitted_range.context
    return Flatness(
        batch=batch,
        context=context,
        limit=limit,
        widths=widths,
        widths_low={key: int(np.percentile(width, 2.5)) for key, width in drawn.items()},
        widths_high={key: int(np.percentile(width, 97.5)) for key, width in drawn.items()},
        widths_from_two=from_two,
        knee_tokens=_in_tokens(float(knee[0]), limit, batch),
        knee_low=_in_tokens(float(np.percentile(knees, 2.5)), limit, batch),
        knee_high=_in_tokens(float(np.percentile(knees, 97.5)), limit, batch),
        cause=_cause(values, widths, from_two, batch, bound),
        kernel=values.get("kernel"),
        extrapolated=not batches[0] <= batch <= batches[1] or context > 2 * contexts[1],
    )


def _width(times: np.ndarray, tolerance: float, reference: int) -> np.ndarray:
    """Largest K, per row of times over K = 1, 2, …, up to which every time from `reference` on stays within the tolerance."""
    within = times[:, reference - 1 :] <= (1.0 + tolerance) * times[:, reference - 1 : reference]
    first_outside = np.argmin(within, axis=1)
    all_inside = within.all(axis=1)
    return np.where(all_inside, within.shape[1], first_outside) + reference - 1


def _knee(memory_s: np.ndarray, compute_s: np.ndarray) -> np.ndarray:
    """Smallest K, per row, at which arithmetic takes as long as memory; one beyond the last K where it never does."""
    beyond = compute_s >= memory_s
    return np.where(beyond.any(axis=1), np.argmax(beyond, axis=1) + 1, beyond.shape[1] + 1)


def _in_tokens(knee: float, limit: int, batch: int) -> int | None:
    return None if knee > limit else int(knee) * batch


def _cause(values: dict[str, float], widths: dict[str, int], from_two: dict[str, int], batch: int, bound: Bound) -> Bound:
    """Another kernel at K=1 when that alone ends the flatness; else what sets the pace of the narrowest real block."""
    changed = batch == 1 and values.get("kernel", 1.0) < 1.0
    if changed and widths["0.10"] == 1 and from_two["0.10"] > 2:
        return "kernel"
    return bound
