"""`perf list`: what ships."""

from typing import Any

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
        body = {"kind": kind, "names": names}
        print_json("perf.list", 1, body | {"profiles": _profiles(names)} if kind == "acceptance" else body)
        return
    if kind == "acceptance":
        _show_profiles(names)
        return
    for name in names:
        click.echo(name)


def _profiles(names: list[str]) -> list[dict[str, Any]]:
    """What each shipped profile is: its mean length and block, how many steps and prompts it rests on, its source."""
    from perfmodel.acceptance import load_profile, tau_interval, tau_pooled

    rows = []
    for name in names:
        profile = load_profile(name)
        low, high = tau_interval(profile, profile.block_size) or (None, None)
        rows.append(
            {
                "name": name,
                "task": profile.task,
                "drafting": profile.drafting,
                "block_size": profile.block_size,
                "num_speculative_tokens": profile.block_size - 1,
                "tau": tau_pooled(profile),
                "tau_low": low,
                "tau_high": high,
                "num_steps": profile.num_steps,
                "num_prompts": profile.num_prompts,
                "source": profile.source,
            }
        )
    return rows


def _show_profiles(names: list[str]) -> None:
    from rich.console import Console

    from reports.terminal import table_of
    from reports.wording import interval_text, number_text

    columns = [("name", "left"), ("K (K − 1)", "right"), ("τ (95 %)", "left"), ("steps", "right"), ("prompts", "right")]
    profiles = _profiles(names)
    rows = [
        (
            row["name"],
            f"{row['block_size']} ({row['num_speculative_tokens']})",
            f"{number_text(row['tau'])} {interval_text(row['tau_low'], row['tau_high'])}".strip(),
            "unknown" if row["num_steps"] is None else f"{row['num_steps']:,}",
            "unknown" if row["num_prompts"] is None else str(row["num_prompts"]),
        )
        for row in profiles
    ]
    by_source: dict[str, list[str]] = {}
    for row in profiles:
        by_source.setdefault(row["source"], []).append(row["name"])
    console = Console()
    console.print(table_of("Published acceptance", columns, rows))
    for source, tasks in by_source.items():
        console.print(f"{', '.join(tasks)}: {source}", markup=False, highlight=False)


def _names(kind: str) -> list[str]:
    from perfmodel import acceptance, hardware, modelspec

    rooms = {"hardware": hardware, "models": modelspec, "acceptance": acceptance}
    return list(rooms[kind].names())
