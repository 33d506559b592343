"""The README's picture out of a run folder: `python tools/readme_figure.py RUN docs/sweep.svg`."""

import sys
from pathlib import Path

from reports.figure_svg import sweep_svg
from sweeps.folder import read_result


def main(run: str, out: str) -> None:
    """Draw the run's speedups and step times."""
    result = read_result(Path(run))
    Path(out).write_text(sweep_svg(result.predictions.here, result.step_times, result.audit, result.run), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
