"""One claim and what becomes of it."""

from dataclasses import dataclass
from typing import Literal

Verdict = Literal["reproduced here", "agrees with the model", "contradicted", "not testable here"]
Basis = Literal["own measurement", "published measurement", "arithmetic"]


@dataclass(frozen=True)
class Claim:
    """What was said, by whom, under which assumption, and what we find.

    `basis` is what the verdict rests on; `missing` what would settle it where the basis is not an own measurement on the hardware
    named.
    """

    said: str
    source: str
    assumes: str
    verdict: Verdict
    found: str
    basis: Basis
    missing: str = ""


@dataclass(frozen=True)
class Estimate:
    """A value with its 95 % interval."""

    value: float
    low: float
    high: float

    def text(self, digits: int = 2, unit: str = "") -> str:
        """`4.9 (4.4–5.7)`, with the unit after the value."""
        return f"{self.value:.{digits}f}{unit} ({self.low:.{digits}f}–{self.high:.{digits}f})"

    def holds(self, value: float) -> bool:
        """Whether a figure lies in the interval."""
        return self.low <= value <= self.high

    def judged(self, value: float) -> Verdict:
        """The verdict on a figure by the interval."""
        return "agrees with the model" if self.holds(value) else "contradicted"
