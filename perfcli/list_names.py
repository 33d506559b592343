"""`perf list`: what ships."""

import click

from .options import json_option, print_json

KINDS = ("hardware", "models", "acceptance")


@click.command("list", short_help="List the chips, models and acceptance profiles that ship.")
@click.argument("kind", type=click.Choice(KINDS))
@json_option
def command(kind: str, as_json: bool) -> None:
    """List the chips, models or acceptance profiles that ship, by the names other verbs take.

    \b
    Example:
        perf list hardware
    """
    names = _names(kind)
    if as_json:
        print_json("perf.list", 1, {"kind": kind, "names": names})
        return
    for name in names:
        click.echo(name)


def _names(kind: str) -> list[str]:
    from perfmodel import acceptance, hardware, modelspec

    rooms = {"hardware": hardware, "models": modelspec, "acceptance": acceptance}
    return list(rooms[kind].names())
