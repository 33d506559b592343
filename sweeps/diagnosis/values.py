"""Values that cannot be, found while reading: taken over with their cause."""

from perfmodel.records import Diagnosed

from .finding import diagnosed
from .subject import Subject

_KEPT = {
    "rate-above-one",
    "tau-out-of-range",
    "survival-rises",
    "positions-beyond-draft",
    "positions-disagree",
    "anchor-in-survival",
    "zero-drafts",
    "tau-disagrees",
    "async-phases",
    "no-speculation",
    "no-acceptance",
    "accepted-upper-bound",
    "short-proposals",
    "rows-called-invalid",
    "not-measured",
    "failed-requests",
    "steps-unknown",
    "rows-left-out",
}


def impossible_values(subject: Subject) -> list[Diagnosed]:
    """The readers' own findings about values."""
    return [
        diagnosed(finding.code, finding.severity, subject.name, finding.message, "", finding.hint)
        for finding in subject.findings
        if finding.code in _KEPT
    ]
