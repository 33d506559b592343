"""A roofline fitted to measured times: constants with errors, residuals, and what the data could not see."""

import msgspec

from .base import Finding, Record
from .hardware import Hardware
from .model import ModelSpec
from .prediction import Bound


class Parameter(Record):
    """One fitted constant. `identified` is False when the data cannot see it; then `value` is the labelled prior.

    `low` and `high` bound the fit, or the prior where `value` is one; they are no interval of the value. A constant at a bound
    has no standard error.
    """

    value: float
    stderr: float | None
    unit: str
    identified: bool
    low: float | None = None
    high: float | None = None
    at_bound: bool = False
    note: str = ""


class FittedPoint(Record):
    """One point beside the model: relative `error` = predicted / measured − 1; `held_out` points were not fitted."""

    phase: str
    block_size: int
    batch: int
    context: int
    measured_s: float
    predicted_s: float
    error: float
    held_out: bool


class FittedRange(Record):
    """The range of tokens (K × batch), batch and context that was fitted; outside it a prediction is extrapolated."""

    tokens: tuple[int, int]
    batch: tuple[int, int]
    context: tuple[int, int]


class FittedModel(Record):
    """The fitted step-time model: `model.json`. `draws` are bootstrap draws of the parameters in the order of `parameters`.

    `held_out` is the median relative error of points left out by block size, batch or context, as far as there were several.
    """

    form: str
    hardware: Hardware | None
    target: ModelSpec | None
    draft: ModelSpec | None
    dtype: str
    parameters: dict[str, Parameter]
    median_error: float
    held_out_median_error: float | None
    fitted_range: FittedRange
    num_points: int
    num_rejected: int
    held_out: dict[str, float] = msgspec.field(default_factory=dict)
    points: tuple[FittedPoint, ...] = ()
    draws: tuple[tuple[float, ...], ...] = ()
    correlations: tuple[tuple[float, ...], ...] = ()
    findings: tuple[Finding, ...] = ()


class Flatness(Record):
    """How wide verification stays nearly free: largest K whose time, and that of all smaller K, is within a tolerance of K=1's.

    Keys are tolerances (`"0.05"`, `"0.10"`, `"0.25"`). `widths_from_two` compares with K=2 instead, for chips whose single-token
    step is another kernel. A width equal to `limit` means "at least": the search stops there, at the edge of what was fitted.
    A `what_if` row has another dtype or storage width than the steps that were fitted.
    """

    batch: int
    context: int
    limit: int
    widths: dict[str, int]
    widths_low: dict[str, int]
    widths_high: dict[str, int]
    widths_from_two: dict[str, int]
    knee_tokens: int | None
    knee_low: int | None
    knee_high: int | None
    cause: Bound
    kernel: float | None = None
    extrapolated: bool = False
    dtype: str = ""
    weight_bits: float | None = None
    what_if: bool = False
