"""Rows of anyone's table, a CSV or a JSON list, under our own column names; whatever is odd is refused with its row.

Other tools call the same thing by other names (`ALIASES`). Where a table has our own name and an alias, ours counts; of two aliases the
one named first, so a median before a mean.
"""

import csv
import io
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfmodel import codec
from perfmodel.errors import InputError

ALIASES = {
    "num_tokens": "tokens",
    "k": "block_size",
    "num_reqs": "batch",
    "context_len": "context",
    "median_ms": "ms",
    "mean_ms": "ms",
    "reported_mean_ms": "ms",
    "latency_ms": "ms",
}
"""Column names that other tools use → ours; case does not matter."""

LARGEST = 1_000_000_000
"""Largest count of anything that is taken."""

SHORTEST_S, LONGEST_S = 1e-9, 1e6
"""No step takes less than a clock tick, and nobody waits longer than days."""

_WANTED = "a header line, then one row per measurement"
_TIME_TOLERANCE = 0.01


@dataclass(frozen=True)
class Row:
    """One row: where it stands, for messages, and its values by our column names."""

    where: str
    values: Mapping[str, Any]

    def number(self, name: str) -> float | None:
        """A finite number; None where the column is absent or empty. Raises `InputError`."""
        value = self.values.get(name)
        if value in (None, ""):
            return None
        try:
            number = float(value)
        except (TypeError, ValueError, OverflowError):
            raise InputError(f"{self.where}: {name} is {_shown(value)}, not a number", "decimal point, no unit") from None
        if not math.isfinite(number) or isinstance(value, bool):
            raise InputError(
                f"{self.where}: {name} is {_shown(value)}, not a finite number", "leave out rows that were not measured"
            )
        return number

    def count(self, name: str, least: int) -> int | None:
        """A whole number of at least `least`; None where the column is absent or empty. Raises `InputError`."""
        value = self.number(name)
        if value is None:
            return None
        if not least <= value <= LARGEST or value != int(value):
            raise InputError(
                f"{self.where}: {name} is {value:g}, not a whole number from {least} to {LARGEST:,}", "check the column"
            )
        return int(value)

    def seconds(self) -> float:
        """The time of a step, from `seconds` or `ms`, seconds. Raises `InputError`."""
        seconds, ms = self.number("seconds"), self.number("ms")
        if seconds is None and ms is None:
            raise InputError(f"{self.where} has no time: columns are {self.columns}", "name one column `seconds` or `ms`")
        if seconds is not None and ms is not None and abs(seconds - ms / 1e3) > _TIME_TOLERANCE * abs(seconds):
            raise InputError(f"{self.where}: {seconds:g} s and {ms:g} ms are two times", "leave out the column that is not meant")
        found = seconds if seconds is not None else (ms or 0.0) / 1e3
        if not SHORTEST_S <= found <= LONGEST_S:
            raise InputError(
                f"{self.where}: a step of {found:g} s is not a measurement",
                f"times lie between {SHORTEST_S:g} and {LONGEST_S:g} s",
            )
        return found

    def block_size(self, batch: int) -> int:
        """K, from `block_size`, or from `tokens` over a batch. Raises `InputError`."""
        size, tokens = self.count("block_size", 1), self.count("tokens", 1)
        if size is not None and tokens not in (None, size * batch):
            raise InputError(
                f"{self.where}: {tokens} tokens are not a block of {size} × a batch of {batch}", "tokens = block size × batch"
            )
        if size is not None:
            return size
        if tokens is None:
            raise InputError(f"{self.where} has no size: columns are {self.columns}", "name one column `tokens` or `block_size`")
        if tokens % batch:
            raise InputError(
                f"{self.where}: {tokens} tokens do not divide over a batch of {batch}", "tokens = block size × batch"
            )
        return tokens // batch

    @property
    def columns(self) -> str:
        """The names of the columns, for a message."""
        return ", ".join(self.values)[:200] or "none"


def read_rows(path: Path) -> list[Row]:
    """The rows of a CSV, or of a JSON list of objects. Raises `InputError` naming what is wrong, and for a table without rows."""
    if path.suffix.lower() == ".json":
        return rows_of(codec.read_json(path), path)
    data = codec.read_file(path)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} cannot be read as text: {error}", "a CSV in UTF-8 with a header line is wanted") from error
    try:
        return _checked(list(_csv_rows(text, path)), path)
    except csv.Error as error:
        raise InputError(f"{path} is not a CSV: {error}", _WANTED) from error


def rows_of(document: Any, path: Path) -> list[Row]:
    """The rows of a decoded JSON list of objects. Raises `InputError`."""
    if not isinstance(document, list):
        raise InputError(f"{path} holds neither a record nor a list of rows", f"a JSON list of objects; {codec.FOREIGN}")
    rows = []
    for number, row in enumerate(document, start=1):
        if not isinstance(row, dict):
            raise InputError(f"{path}, row {number} is not an object", "a JSON list of objects, one per measurement")
        rows.append(Row(f"{path}, row {number}", _named(row)))
    return _checked(rows, path)


def _csv_rows(text: str, path: Path) -> Iterator[Row]:
    lines = csv.reader(io.StringIO(text, newline=""), strict=True)
    header = [name.strip() for name in next(lines, [])]
    twice = {name for name in header if name and header.count(name) > 1}
    if twice:
        raise InputError(f"{path} has two columns called {min(twice)}", "give each column its own name")
    for number, fields in enumerate(lines, start=2):
        if not any(field.strip() for field in fields):
            continue
        if len(fields) > len(header):
            raise InputError(f"{path}, row {number} has {len(fields)} fields for {len(header)} columns", _WANTED)
        yield Row(f"{path}, row {number}", _named(dict(zip(header, fields, strict=False))))


def _named(row: Mapping[Any, Any]) -> dict[str, Any]:
    """A row's values by our names: our own before aliases, and of these the first that holds something."""
    lower = {str(key).strip().lower(): value for key, value in row.items()}
    ours = {name: value for name, value in lower.items() if name not in ALIASES}
    for alias, name in ALIASES.items():
        if lower.get(alias) not in (None, "") and ours.get(name) in (None, ""):
            ours[name] = lower[alias]
    return ours


def _checked(rows: list[Row], path: Path) -> list[Row]:
    if not rows:
        raise InputError(f"{path} holds no rows", _WANTED)
    if {"m", "n"} <= rows[0].values.keys():
        raise InputError(f"{path} holds matrix products (columns m, n), not steps of a decoder", "give times of whole steps")
    return rows


def _shown(value: Any) -> str:
    text = repr(value) if not isinstance(value, int) or isinstance(value, bool) or abs(value) < 10**40 else "a huge integer"
    return text if len(text) <= 60 else f"{text[:60]}…"
