"""Options that several verbs share, and the one way to print a JSON document."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from .app import PROGRAM_VERSION

F = TypeVar("F", bound=Callable[..., Any])

LARGEST = 1_000_000_000
"""Largest size that is taken: far above any batch or context, and its products still fit 64 bits."""

json_option = click.option("--json", "as_json", is_flag=True, help="Print exactly one JSON document on stdout.")
quiet_option = click.option("-q", "--quiet", is_flag=True, help="No progress on stderr.")

target_option = click.option(
    "--target", default="smollm2-135m", show_default=True, help="Target model: a shipped name, a Hugging Face folder or a hub id."
)
draft_option = click.option(
    "--draft", default=None, help="Drafter: a shipped name, a folder or a hub id.  [default: the target's own]"
)
weights_option = click.option(
    "--weights",
    type=click.Choice(["checkpoint", "random"]),
    default="checkpoint",
    show_default=True,
    help="random: right shapes, no download; times are real, text and acceptance are not. Then a config.json or any listed model will do.",
)


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
            low, high = int(first), int(last if colon else first)
        except ValueError:
            raise click.BadParameter(f"{part.strip()[:40]!r} is not a number or a range like 1:16", param_hint=name) from None
        if not 1 <= low <= high <= LARGEST:
            raise click.BadParameter(f"{text[:40]!r} must hold numbers from 1 to {LARGEST:,}, ranges upwards", param_hint=name)
        if len(values) + high - low >= 100_000:
            raise click.BadParameter("more than 100,000 values", param_hint=name)
        values += range(low, high + 1)
    return tuple(dict.fromkeys(values))


def document_bytes(schema: str, version: int, body: dict[str, Any]) -> bytes:
    """One JSON document: schema, version and perf_version first; `findings` always present."""
    from perfmodel.codec import encode

    document = {"schema": schema, "version": version, "perf_version": PROGRAM_VERSION, **body}
    document.setdefault("findings", [])
    return encode(document)


def print_json(schema: str, version: int, body: dict[str, Any]) -> None:
    """Print one JSON document on stdout."""
    click.echo(document_bytes(schema, version, body), nl=False)  # bytes: JSON is UTF-8 whatever the terminal speaks


def print_record(record: Any) -> None:
    """Print a record as its own JSON document."""
    from perfmodel.codec import to_document

    body = to_document(record)
    print_json(body.pop("schema"), body.pop("version"), body)
