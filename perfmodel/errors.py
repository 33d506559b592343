"""Errors a person can act on: each says what happened and what to do next.

Only `PerfError` and its children are caught at the command line; anything else is a bug and shows its traceback.
The exit codes are the contract of docs/architecture.md, section 6.
"""


class PerfError(Exception):
    """A failure the user can act on: one line saying what happened, one hint saying what to do."""

    exit_code = 2

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class InputError(PerfError):
    """Wrong use or unreadable input (exit 2)."""


class UntrustedError(PerfError):
    """The result exists and must not be believed: not lossless, or no trustworthy timing (exit 3)."""

    exit_code = 3


class UnsupportedError(PerfError):
    """This machine cannot do it: a package, a device or a platform is missing (exit 4)."""

    exit_code = 4


class FitError(PerfError):
    """The points given cannot determine the model; raised instead of returning a number."""


class NothingTrustedError(FitError, UntrustedError):
    """Every timing given is below the speed of light, so nothing remains to fit or to compare with (exit 3)."""
