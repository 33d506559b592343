"""A chip that nobody measured, as a model: peaks from the data sheet, every constant a labelled prior with its draws.

The record has the shape of a fitted model, so that whatever reads one (flat widths, knees, tables) reads this too; but no point was
fitted, no constant is identified, and the draws span what is believed before any measurement.
"""

import numpy as np

from .flatness import flatness
from .records import Finding, FittedModel, FittedRange, Flatness, Hardware, ModelSpec, Parameter
from .stepmodel import PRIORS, ROOFLINE
from .steptime import check_peak, prior_values

NUM_DRAWS = 400

WIDEST = 4096
"""Query tokens up to which a data sheet is taken to say something."""

LONGEST = 131_072


def datasheet_model(
    hardware: Hardware, target: ModelSpec, draft: ModelSpec | None = None, dtype: str = "bfloat16", seed: int = 0
) -> FittedModel:
    """The step-time model of a chip known only by its data sheet. Raises `InputError` where it has no peak for the dtype."""
    check_peak(hardware, dtype)
    rng = np.random.default_rng(seed)
    values = prior_values()
    columns = [PRIORS[name].sample(rng, NUM_DRAWS) for name in values]
    parameters = {
        name: Parameter(
            value=value,
            stderr=None,
            unit="s" if name.endswith("_s") else "1",
            identified=False,
            low=PRIORS[name].low,
            high=PRIORS[name].high,
            note=f"prior from {PRIORS[name].source}",
        )
        for name, value in values.items()
    }
    return FittedModel(
        form=ROOFLINE,
        hardware=hardware,
        target=target,
        draft=draft,
        dtype=dtype,
        parameters=parameters,
        median_error=0.0,
        held_out_median_error=None,
        fitted_range=FittedRange(tokens=(1, WIDEST), batch=(1, WIDEST), context=(0, LONGEST)),
        num_points=0,
        num_rejected=0,
        draws=tuple(zip(*(column.tolist() for column in columns), strict=True)),
        findings=(
            Finding(
                code="not-measured",
                severity="warning",
                message=f"nothing was measured on {hardware.label}: every constant is a prior over its data sheet",
                hint="measure step times there and fit them",
            ),
        ),
    )


def datasheet_flatness(
    hardware: Hardware, target: ModelSpec, batch: int = 1, context: int = 0, dtype: str = "bfloat16"
) -> Flatness:
    """Flat widths and knee of a chip by its data sheet, with the interval of the priors; see `flatness.flatness`."""
    return flatness(datasheet_model(hardware, target, dtype=dtype), batch, context)
