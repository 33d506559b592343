"""What a million tokens cost on a chip at a list price."""

from .errors import InputError
from .survival import Array

SECONDS_PER_HOUR = 3600.0


def usd_per_million_tokens(step_s: Array, tau: Array, batch: int | Array, usd_per_hour: float) -> Array:
    """Dollars per million generated tokens: a step commits τ tokens for each of `batch` requests; broadcasts.

    `usd_per_hour` is the price of everything that runs the step. Prefill and idle time are not in it. Raises `InputError` for a
    price that is none.
    """
    if not 0.0 < usd_per_hour < float("inf"):
        raise InputError(f"{usd_per_hour:g} dollars an hour is no price", "give the price of the chip per hour, above 0")
    return 1e6 * usd_per_hour / SECONDS_PER_HOUR * step_s / (batch * tau)
