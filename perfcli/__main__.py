"""Entry point of `perf`, `dflash-perf` and `python -m perfcli`: runs the command and turns errors into exit codes."""

import contextlib
import errno
import io
import os
import signal
import sys
import threading
from typing import Any, NoReturn

import click

from perfmodel.errors import PerfError

from .app import app
from .libtpu import settle_libtpu

INTERRUPTED = 130
"""Exit status after Ctrl-C, as shells count it: 128 + SIGINT."""


OF_THE_SYSTEM = {
    errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.ENAMETOOLONG, errno.ELOOP,
    errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENOENT, errno.ENXIO, errno.ENODEV, errno.EMFILE,
}  # fmt: skip
"""What the system refuses because of a path or a disk: the person's to mend, whichever verb met it."""


def _shortened(name: str) -> str:
    return name if len(name) <= 200 else f"{name[:100]}…{name[-60:]}"


def hear_interrupts() -> None:
    """From now on a Ctrl-C that falls into a callback or a destructor, where Python ignores it, is said again a moment later.

    JAX is called back at every collection of garbage, which happens often while a sweep runs.
    """

    def said_again(ignored: Any) -> None:
        if issubclass(ignored.exc_type, KeyboardInterrupt):
            main_thread = threading.main_thread().ident or 0
            threading.Timer(0.05, signal.pthread_kill, (main_thread, signal.SIGINT)).start()
        else:
            sys.__unraisablehook__(ignored)

    sys.unraisablehook = said_again


def leave_at_once() -> NoReturn:
    """End now, without tearing down: XLA's threads were interrupted in mid-work, and ending them in order can crash."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:  # it is None where the caller closed it
            with contextlib.suppress(OSError):  # its reader was interrupted too, and left
                stream.flush()
    os._exit(INTERRUPTED)


def main() -> None:
    """Run the command line; only errors that a person can act on are caught."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that cannot write τ shows ? in its place
    settle_libtpu()
    hear_interrupts()
    stdout = sys.stdout
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
    except SystemExit as left:
        # Where the reader of our output left, click wraps stdout to keep it quiet, and ends with 1: here the status of a bug.
        sys.exit(left.code if sys.stdout is stdout else 0)
    except BrokenPipeError:
        if sys.stderr is not None:
            sys.stderr.close()  # the reader of our output left; there is nobody to tell
        sys.exit(0)
    except OSError as error:
        if error.errno not in OF_THE_SYSTEM:
            raise
        where = f"{_shortened(str(error.filename2 or error.filename))}: " if error.filename else ""
        click.echo(f"perf: {where}{error.strerror}", err=True)
        click.echo("  hint: check the path, its permissions and the free space", err=True)
        sys.exit(2)
    sys.exit(status if isinstance(status, int) else 0)


if __name__ == "__main__":
    main()
