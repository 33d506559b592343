"""Entry point of `perf`, `dflash-perf` and `python -m perfcli`: runs the command and turns errors into exit codes."""

import os
import sys
from typing import NoReturn

import click

from perfmodel.errors import PerfError

from .app import app

INTERRUPTED = 130
"""Exit status after Ctrl-C, as shells count it: 128 + SIGINT."""


def leave_at_once() -> NoReturn:
    """End now, without tearing down: XLA's threads were interrupted in mid-work, and ending them in order can crash."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(INTERRUPTED)


def main() -> None:
    """Run the command line; only errors that a person can act on are caught."""
    try:
        status = app.main(standalone_mode=False)
    except (click.exceptions.Abort, KeyboardInterrupt):
        leave_at_once()
    except click.ClickException as error:
        error.show()
        sys.exit(2)
    except PerfError as error:
        click.echo(f"perf: {error.message}", err=True)
        if error.hint:
            click.echo(f"  hint: {error.hint}", err=True)
        sys.exit(error.exit_code)
    except BrokenPipeError:
        sys.stderr.close()  # the reader of our output left; there is nobody to tell
        sys.exit(0)
    sys.exit(status if isinstance(status, int) else 0)


if __name__ == "__main__":
    main()
