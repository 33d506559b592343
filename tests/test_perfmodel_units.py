"""Numbers as a person reads them: base units in, a prefix and sensible digits out."""

import pytest

from perfmodel import units


@pytest.mark.parametrize(
    ("function", "value", "text"),
    [
        (units.format_seconds, 0.0263, "26.3 ms"),
        (units.format_seconds, 3.42, "3.42 s"),
        (units.format_seconds, 540, "540 s"),
        (units.format_seconds, 42e-6, "42.0 µs"),
        (units.format_seconds, 5e-9, "5.00 ns"),
        (units.format_seconds, 999.6e-6, "1.00 ms"),
        (units.format_seconds, 9.996, "10.0 s"),
        (units.format_seconds, 0, "0 s"),
        (units.format_seconds, None, "unknown"),
        (units.format_seconds, float("nan"), "unknown"),
        (units.format_bytes, 538e6, "538 MB"),
        (units.format_bytes, 12, "12.0 B"),
        (units.format_bytes, 999.7e6, "1.00 GB"),
        (units.format_bytes, None, "unknown"),
        (units.format_bandwidth, 2.765e12, "2.77 TB/s"),
        (units.format_bandwidth, None, "unknown"),
        (units.format_flop_rate, 459e12, "459 TFLOP/s"),
        (units.format_flop_rate, None, "unknown"),
        (units.format_ratio, 3.1349, "3.13×"),
        (units.format_ratio, None, "unknown"),
        (units.format_percent, 0.9, "90.0 %"),
        (units.format_percent, float("inf"), "unknown"),
        (units.format_seconds, 0.0, "0 s"),
        (units.format_bytes, 0, "0 B"),
    ],
)
def test_formats(function: object, value: float | None, text: str) -> None:
    assert function(value) == text  # type: ignore[operator]


def test_a_column_that_names_its_unit_shows_numbers_alone() -> None:
    assert units.format_in("ms", 0.01658) == "16.6"
    assert units.format_in("GB", 9.488e9) == "9.49"
    assert units.format_in("Mcycles", 123.45e6) == "123"
    assert units.format_in("ms", None) == "–"
