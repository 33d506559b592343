"""How wide verification stays nearly free on a chip, and why: the K-flat claim as a number.

Weights are read once per step whatever K, so up to the knee, where arithmetic takes as long as reading, more tokens cost little.
The flat width is the largest K whose time is within 5, 10 or 25 % of K=1's. It has a cause: weights (`memory`), cached keys
and values (`kv`) or routed experts (`experts`) set the pace; or launches do (`overhead`), and the chip is not the reason; or
arithmetic does from the start (`compute`), and there is no plateau; or K=1 runs another kernel (`kernel`), and the plateau,
if any, starts at K=2.
"""

from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from .bounds import bounds_of
from .cost import DTYPE_BYTES, Sizes
from .errors import InputError
from .phases import VERIFY
from .records import FittedModel, Flatness
from .records.prediction import Bound
from .roofline import peak_flops_per_s
from .stepmodel import ROOFLINE, draws_of, model_grid_work, terms, values_of

TOLERANCES = (0.05, 0.10, 0.25)

WEIGHT_BITS = (16.0, 8.0, 4.5)
"""Widths at which weights are stored in practice: as computed, one byte, four bits with their scales."""

WIDEST = 65_536
"""Largest K that is looked at: wider than any block, and few enough to price each."""

_BATCHES = (1, 2, 4, 8, 16, 32, 64)


def flatness(model: FittedModel, batch: int = 1, context: int = 0) -> Flatness:
    """Flat widths in K at one batch and context, each with a 95 % interval, the knee in tokens, and the cause.

    The search ends at the widest step that was fitted, `WIDEST` at most: a width equal to `limit` means "at least".
    """
    if batch < 1 or context < 0:
        raise InputError(f"batch {batch}, context {context} is no step", "batch starts at 1, context at 0")
    limit = min(max(model.fitted_range.tokens[1] // batch, 2), WIDEST)
    sizes = Sizes(np.asarray(float(batch)), np.arange(1.0, limit + 1.0), np.asarray(float(context)))
    work = model_grid_work(model, VERIFY, sizes)
    values, draws = values_of(model), draws_of(model)
    parts = terms(values, work, model.hardware, model.dtype)
    spread = terms(draws, work, model.hardware, model.dtype) if draws else parts
    spread_s = np.atleast_2d(spread.total_s)
    widths = {f"{tolerance:.2f}": int(_width(parts.total_s[None], tolerance, 1)[0]) for tolerance in TOLERANCES}
    drawn = {f"{tolerance:.2f}": _width(spread_s, tolerance, 1) for tolerance in TOLERANCES}
    from_two = {f"{tolerance:.2f}": int(_width(parts.total_s[None], tolerance, 2)[0]) for tolerance in TOLERANCES}
    knee = _knee(np.atleast_2d(parts.memory_s), np.atleast_2d(parts.compute_s))
    knees = _knee(np.atleast_2d(spread.memory_s), np.atleast_2d(spread.compute_s))
    bound = bounds_of(values, work, model.target, model.hardware, model.dtype)[1].item()
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
        dtype=model.dtype,
        weight_bits=None if model.target is None else _stored_bits(model),
    )


def flat_table(
    model: FittedModel,
    batches: Sequence[int] = (),
    contexts: Sequence[int] = (),
    dtypes: Sequence[str] = (),
    weight_bits: Sequence[float] = WEIGHT_BITS,
    progress: Callable[[float], object] = lambda share: None,
) -> tuple[Flatness, ...]:
    """How flat width and knee move: one row per batch, per context, per dtype and per weight width, all else as first fitted.

    Where nothing is named, batches are powers of two while at least two block sizes remain within what was fitted, contexts the
    fitted range's ends and four times the longest, dtypes all that the chip has a peak for. Rows that change dtype or storage keep the
    fitted efficiencies and are marked `what_if`: no step of that kind was measured. `progress` is told the share of the rows that is
    done.
    """
    known = model.fitted_range
    batch, context = known.batch[0], known.context[0]
    rows = [(batch, context)]
    rows += [(other, context) for other in batches or [b for b in _BATCHES if 2 * b <= known.tokens[1]]]
    rows += [(batch, other) for other in contexts or sorted({known.context[1], 4 * max(known.context[1], 256)})]
    asked = [(model, *row) for row in dict.fromkeys(rows)]
    num_measured = len(asked)
    asked += [(other, batch, context) for other in _otherwise(model, dtypes, weight_bits)]
    found = []
    for index, one in enumerate(asked):
        progress(index / len(asked))
        found.append(msgspec.structs.replace(flatness(*one), what_if=index >= num_measured))
    return tuple(found)


def _otherwise(model: FittedModel, dtypes: Sequence[str], weight_bits: Sequence[float]) -> list[FittedModel]:
    """The model in other dtypes that the chip has a peak for, and with weights stored narrower; none where its bytes are unknown."""
    target, hardware = model.target, model.hardware
    others: list[FittedModel] = []
    if model.form != ROOFLINE or target is None or hardware is None or peak_flops_per_s(hardware, model.dtype) is None:
        return others
    for dtype in dtypes or hardware.flops_per_s:
        if dtype != model.dtype and dtype in DTYPE_BYTES and peak_flops_per_s(hardware, dtype) is not None:
            others.append(msgspec.structs.replace(model, dtype=dtype))
    for bits in weight_bits:
        stored = msgspec.structs.replace(target, weight_bits=bits)
        if target.weight_bits >= 16.0 > bits:  # a model that is stored narrow already has no wider weights to read
            others.append(msgspec.structs.replace(model, target=stored))
    return others


def _stored_bits(model: FittedModel) -> float:
    """Bits per weight as stored: the spec's where it is quantised, else the dtype's."""
    if model.target is not None and model.target.weight_bits < 16.0:
        return model.target.weight_bits
    return 8.0 * DTYPE_BYTES.get(model.dtype, 2.0)


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
