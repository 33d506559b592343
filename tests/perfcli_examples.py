"""The examples in a verb's help, as commands."""

import shlex

import click

from perfcli.app import app


def examples(verb: str) -> list[str]:
    """The commands of a verb's help, one text each; a quoted argument may run over several lines."""
    command = app.get_command(click.Context(app), verb)
    lines = [line.strip() for line in ((command.help if command else "") or "").splitlines()]
    found: list[str] = []
    for line in lines:
        if line.startswith("perf "):
            found.append(line)
        elif found and not is_whole(found[-1]):
            found[-1] += f" {line}"
    return found


def is_whole(text: str) -> bool:
    """Whether every quotation of a command is closed."""
    try:
        shlex.split(text)
    except ValueError:
        return False
    return True
