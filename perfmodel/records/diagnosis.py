"""What is wrong with somebody's numbers or configuration, and what to do next."""

import msgspec

from .base import Finding, Record


class Diagnosed(Finding):
    """A finding in its parts: `evidence` is what was seen, in figures, `cause` what most likely made it, `next_step` what to try.

    `message` holds evidence and cause, `hint` the next step, so that it reads like any other finding.
    """

    evidence: str = ""
    cause: str = ""
    next_step: str = ""


class Diagnosis(Record):
    """The findings about some files, the worst first. `checked` names the rules that had what they need."""

    files: tuple[str, ...]
    findings: tuple[Diagnosed, ...]
    checked: tuple[str, ...] = ()
    not_checked: dict[str, str] = msgspec.field(default_factory=dict)
