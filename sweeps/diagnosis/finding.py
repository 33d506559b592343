"""How a finding of a diagnosis is made: evidence in figures, likely cause, next step."""

from perfmodel.records import Diagnosed, Severity

ORDER: tuple[Severity, ...] = ("error", "warning", "info")
"""Worst first."""


def diagnosed(code: str, severity: Severity, where: str | None, evidence: str, cause: str, next_step: str) -> Diagnosed:
    """A finding in its parts, which also reads as a plain one: message = evidence and cause, hint = next step."""
    return Diagnosed(
        code=code,
        severity=severity,
        message=f"{evidence}: {cause}" if cause else evidence,
        hint=next_step,
        where=where,
        evidence=evidence,
        cause=cause,
        next_step=next_step,
    )
