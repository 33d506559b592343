"""A model fitted on one chip, used for another: peaks from the other's data sheet, efficiencies kept, certainty lost.

An efficiency says how well a program uses a chip, so it moves with the program better than a time does; but kernels are tuned per
chip. Whole-step fits of two published tables reach η_m = 0.79 and 0.95 of the bandwidth; fits of matrix-product tables on A100, H200
and L40S 0.80, 0.85, 0.80 of it and 0.91, 0.83, 0.73 of the peak, with a launch of 11, 4 and 29 µs. A carried-over efficiency is
therefore off by about 12 % (memory) and 15 % (compute), one standard deviation of its logarithm; a fixed overhead belongs to host and
runtime and is off by a factor e. The draws of the fit are spread by that, so the interval is wider than on the chip itself, and the
prediction is labelled. Moved between these three chips with the other's own launch, products are met within 8 to 13 % in the mean.
"""

import msgspec
import numpy as np

from .errors import InputError
from .records import Finding, FittedModel, Hardware, Parameter
from .roofline import peak_flops_per_s
from .stepmodel import DENSE, PRIORS
from .steptime import known_peaks
from .survival import Array

SPREAD = {"memory_efficiency": 0.12, "compute_efficiency": 0.15, "exponent": 0.35}
"""Standard deviation of the logarithm of a constant from one chip to another."""

OVERHEAD_SPREAD = 1.0
"""The same for launches and other fixed times."""

NUM_DRAWS = 200
_IN_UNIT = ("memory_efficiency", "compute_efficiency")


def transfer(model: FittedModel, hardware: Hardware, seed: int = 0) -> FittedModel:
    """The fitted model with another chip's peaks and draws widened for the move. Raises `InputError` where that cannot be done.

    Where the chip it was fitted on has no known peak, its compute efficiency is unknown, and the prior of a data sheet is used.
    """
    if model.form == DENSE or model.hardware is None or model.target is None:
        raise InputError(
            "this model knows no chip and no target, so it cannot be moved to another chip", "fit with --hardware and --target"
        )
    if peak_flops_per_s(hardware, model.dtype) is None:
        raise InputError(f"{hardware.name} has no known {model.dtype} peak", known_peaks(hardware))
    rng = np.random.default_rng(seed)
    names = list(model.parameters)
    table = (
        np.asarray(model.draws, dtype=float)
        if model.draws
        else np.tile([p.value for p in model.parameters.values()], (NUM_DRAWS, 1))
    )
    columns = {name: moved(name, table[:, i], rng) for i, name in enumerate(names)}
    parameters = dict(model.parameters)
    prior_used = "compute_flops_per_s" in parameters
    if prior_used:
        del parameters["compute_flops_per_s"], columns["compute_flops_per_s"]
        prior = PRIORS["compute_efficiency"]
        columns["compute_efficiency"] = prior.sample(rng, len(table))
        parameters["compute_efficiency"] = Parameter(
            value=prior.mode, stderr=None, unit="1", identified=False, low=prior.low, high=prior.high, note=prior.source
        )
    origin = model.hardware.name
    note = "; its peak there is unknown, so the compute efficiency is a prior" if prior_used else ""
    return msgspec.structs.replace(
        model,
        hardware=hardware,
        parameters=parameters,
        draws=tuple(zip(*(columns[name].tolist() for name in parameters), strict=True)),
        correlations=(),
        findings=(
            *model.findings,
            Finding(
                code="transferred",
                severity="warning",
                message=f"fitted on {origin}, moved to {hardware.name} by its data sheet; the interval is widened{note}",
                hint=f"measure a few step times on {hardware.name} and fit there",
            ),
        ),
    )


def label_of(model: FittedModel, hardware: Hardware) -> str:
    """What a transferred prediction is called wherever it is shown."""
    return f"moved from {model.hardware.name if model.hardware else 'another chip'} to {hardware.name}, not measured there"


def moved(name: str, draws: Array, rng: np.random.Generator) -> Array:
    """Draws of one constant spread by what it may change from chip to chip; efficiencies stay at 1 or below."""
    spread = OVERHEAD_SPREAD if name.endswith("overhead_s") else SPREAD.get(name, 0.0)
    moved = draws * np.exp(spread * rng.standard_normal(len(draws)))
    if name in _IN_UNIT:
        return np.minimum(moved, 1.0)  # nothing beats its peak
    return np.maximum(moved, 1.0) if name == "exponent" else moved
