"""How a long piece of work tells how far it is."""

from typing import Protocol


class Reporter(Protocol):
    """Told the stage, the share of it that is done (0 … 1), and what is going on."""

    def __call__(self, stage: str, share: float, message: str) -> None:
        """Tell it."""


def silent(stage: str, share: float, message: str) -> None:
    """A reporter that tells nobody."""
