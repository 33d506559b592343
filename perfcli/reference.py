"""`docs/cli.md` out of the help texts: `python -m perfcli.reference docs/cli.md`."""

import sys
from pathlib import Path

import click

from .app import VERBS, app

_HEAD = """# The command line

Made by `make docs` from the help texts; a test holds the two together.

Exit codes: 0 done; 1 a bug (with its traceback); 2 wrong use or unreadable input; 3 not to be trusted (tokens were lost, a timing
is impossible, or nothing could be fitted); 4 this machine cannot. People read stderr and tables; with `--json` stdout holds exactly
one JSON document (docs/formats.md). Ctrl-C ends with 130 and leaves a run that `--resume` finishes.
"""


def page() -> str:
    """The page as Markdown text."""
    root = click.Context(app, info_name="perf", terminal_width=100, **app.context_settings)
    sections = [_HEAD, _section("perf", app.get_help(root))]
    for verb in VERBS:
        command = app.get_command(root, verb)
        if command is None:
            raise ValueError(f"{verb} is listed and does not exist")
        sections.append(_section(f"perf {verb}", command.get_help(click.Context(command, info_name=verb, parent=root))))
    return "\n".join(sections)


def _section(name: str, text: str) -> str:
    return f"## {name}\n\n```\n{text}\n```\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), encoding="utf-8")
