"""What long work tells of itself: shares of the work that is done, rising within a stage, from 0 up."""

import gzip
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import pytest
from report_steps import DRAFT, MACHINE, TARGET, step_times
from test_sweeps_importers_formats import LINE

from perfcli.progress import shares
from perfmodel.fit import fit
from perfmodel.flatness import flat_table
from profiling.calibrate import measure
from sweeps.importers import source
from sweeps.importers.merging import import_files
from sweeps.validation import cross_validate


class Told:
    """Keeps what is told: stage → shares in order, and the messages."""

    def __init__(self) -> None:
        self.shares: dict[str, list[float]] = defaultdict(list)
        self.messages: list[str] = []

    def __call__(self, stage: str, share: float, message: str) -> None:
        self.shares[stage].append(share)
        self.messages.append(message)

    def check(self) -> None:
        for stage, told in self.shares.items():
            assert all(0.0 <= share <= 1.0 for share in told), stage
            assert all(a <= b for a, b in pairwise(told)), stage


def test_a_fit_tells_its_choice_of_terms_and_its_draws():
    told = Told()
    model = fit(step_times().points, TARGET, DRAFT, MACHINE, "float32", num_draws=20, progress=shares(told))
    told.check()
    assert told.shares["terms"][0] == 0.0
    assert told.shares["errors"] == pytest.approx([draw / 20 for draw in range(20)])
    rows = flat_table(model, progress=lambda share: told("flat widths", share, ""))
    assert told.shares["flat widths"] == pytest.approx([index / len(rows) for index in range(len(rows))])


def test_a_validation_tells_its_rounds_and_what_each_leaves_out():
    told = Told()
    cross_validate(step_times().points, TARGET, DRAFT, MACHINE, "float32", told)
    told.check()
    num_sizes = len({point.block_size for point in step_times().points if point.samples_s})
    assert len(told.shares["left out"]) == min(8, num_sizes)
    assert told.messages[0].startswith("K = 1")


@pytest.mark.parametrize("packed", [False, True])
def test_an_import_tells_the_share_of_all_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, packed: bool):
    monkeypatch.setattr(source, "LINES_TOLD", 10)
    text = ((LINE.rstrip("\n") + "\n") * 400).encode()
    files = [tmp_path / ("a.log.gz" if packed else "a.log"), tmp_path / "b.log"]
    files[0].write_bytes(gzip.compress(text) if packed else text)
    files[1].write_bytes(text)
    told = Told()
    import_files(files, None, None, told)
    told.check()
    assert told.shares["reading"][0] == 0.0
    assert told.shares["reading"][-1] == pytest.approx(1.0, abs=0.05)
    first = [share for share, message in zip(told.shares["reading"], told.messages, strict=True) if message == files[0].name]
    size = [file.stat().st_size for file in files]
    assert max(first) <= size[0] / sum(size) + 1e-9


def test_a_calibration_tells_the_share_of_its_time():
    told = []
    measure(0.3, told.append)
    assert told[0] == 0.0
    assert told == sorted(told)
    assert told[-1] == 1.0
