"""`python -m reports.claims docs`: write claims.md and its figures into a folder that holds records/two-cores."""

import sys
from pathlib import Path

from perfmodel import codec
from perfmodel.records import AcceptanceSet, Run, StepTimes

from .page import FIGURES, claims_page

RECORDS = Path("records") / "two-cores"


def write_claims(folder: Path, out: Path | None = None) -> None:
    """Write claims.md and claims/*.svg to `out` (the folder itself if None), from the records in the folder."""
    records = folder / RECORDS
    acceptance = codec.load(records / "acceptance.json", AcceptanceSet)
    timings, run = codec.load(records / "timings.json", StepTimes), codec.load(records / "run.json", Run)
    text, figures = claims_page(acceptance, timings, run)
    target = out or folder
    codec.write_atomic(target / "claims.md", text.encode())
    for name, figure in figures.items():
        codec.write_atomic(target / FIGURES / name, figure.encode())


if __name__ == "__main__":
    write_claims(Path(sys.argv[1]))
