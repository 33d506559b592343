"""Text for a person from base units: seconds, bytes, FLOP and their ratios. The only place where prefixes exist."""

import math
from typing import Literal

_SI = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def _magnitude(value: float, digits: int) -> float:
    """|value| as it will be shown, so that 999.6 µs is a millisecond and 9.996 has the decimals of 10."""
    return abs(float(f"{value:.{digits - 1}e}"))


def _digits(value: float, digits: int) -> str:
    if value == 0:
        return "0"
    decimals = digits - 1 - math.floor(math.log10(_magnitude(value, digits)))
    return f"{round(value, decimals):,.{max(decimals, 0)}f}"


def _prefixed(value: float, unit: str, digits: int) -> str:
    for factor, prefix in _SI:
        if _magnitude(value, digits) >= factor:
            return f"{_digits(value / factor, digits)} {prefix}{unit}"
    return f"{_digits(value, digits)} {unit}"


def format_seconds(seconds: float | None, digits: int = 3) -> str:
    """A duration as text in s, ms, µs or ns; `unknown` for None."""
    if seconds is None or not math.isfinite(seconds):
        return "unknown"
    magnitude = _magnitude(seconds, digits)
    for factor, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if magnitude >= factor:
            return f"{_digits(seconds / factor, digits)} {unit}"
    return "0 s" if seconds == 0 else f"{_digits(seconds / 1e-9, digits)} ns"


def format_bytes(count: float | None, digits: int = 3) -> str:
    """A size as text with decimal prefixes (1 GB = 1e9 B); `unknown` for None."""
    return "unknown" if count is None else _prefixed(count, "B", digits)


def format_bandwidth(bytes_per_s: float | None, digits: int = 3) -> str:
    """A transfer rate as text, for example `2.77 TB/s`; `unknown` for None."""
    return "unknown" if bytes_per_s is None else _prefixed(bytes_per_s, "B/s", digits)


def format_flop_rate(flops_per_s: float | None, digits: int = 3) -> str:
    """A compute rate as text, for example `459 TFLOP/s`; `unknown` for None."""
    return "unknown" if flops_per_s is None else _prefixed(flops_per_s, "FLOP/s", digits)


def format_ratio(value: float | None, digits: int = 3) -> str:
    """A ratio as text with a multiplication sign, for example `3.13×`; `unknown` for None."""
    return "unknown" if value is None or not math.isfinite(value) else f"{_digits(value, digits)}×"


def format_percent(share: float | None, digits: int = 3) -> str:
    """A share as text in per cent, for example `92.5 %`; `unknown` for None."""
    return "unknown" if share is None or not math.isfinite(100 * share) else f"{_digits(100 * share, digits)} %"


_SCALES = {"ms": 1e-3, "GB": 1e9, "Mcycles": 1e6}


def format_in(unit: Literal["ms", "GB", "Mcycles"], value: float | None, digits: int = 3) -> str:
    """A quantity of s, B or cycles in a given unit, the number alone, for a column whose header names it; `–` for None."""
    return "–" if value is None else _digits(value / _SCALES[unit], digits)
