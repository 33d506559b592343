"""Options that several verbs share, and the one way to print a JSON document."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from .app import PROGRAM_VERSION

F = TypeVar("F", bound=Callable[..., Any])

json_option = click.option("--json", "as_json", is_flag=True, help="Print exactly one JSON document on stdout.")
quiet_option = click.option("-q", "--quiet", is_flag=True, help="No progress on stderr.")


def out_option(help_text: str) -> Callable[[F], F]:
    """The option `-o/--out` with the verb's own words."""
    return click.option("-o", "--out", type=click.Path(path_type=Path), default=None, help=help_text)


def integers(text: str, name: str) -> tuple[int, ...]:
    """Positive integers from `1,2,4` or `1:16` (both ends included), in order and without repeats.

    Raises `click.BadParameter` naming the option.
    """
    values: list[int] = []
    for part in text.split(","):
        first, colon, last = part.strip().partition(":")
        try:
            values += range(int(first), int(last) + 1) if colon else [int(first)]
        except ValueError:
            raise click.BadParameter(f"{part.strip()!r} is not a number or a range like 1:16", param_hint=name) from None
        if len(values) > 100_000:
            raise click.BadParameter("more than 100,000 values", param_hint=name)
    if not values or min(values) < 1:
        raise click.BadParameter(f"{text!r} must hold numbers from 1 upwards", param_hint=name)
    return tuple(dict.fromkeys(values))


def print_json(schema: str, version: int, body: dict[str, Any]) -> None:
    """Print one JSON document: schema, version and perf_version first; `findings` always present."""
    from perfmodel.codec import encode

    document = {"schema": schema, "version": version, "perf_version": PROGRAM_VERSION, **body}
    document.setdefault("findings", [])
    sys.stdout.write(encode(document).decode())


def print_record(record: Any) -> None:
    """Print a record as its own JSON document."""
    from perfmodel.codec import to_document

    body = to_document(record)
    print_json(body.pop("schema"), body.pop("version"), body)
