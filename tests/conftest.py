"""What every test may use: the folder of real data, where it is at hand."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real traces, configs and published measurements; the test is skipped where it is absent."""
    folder = Path(os.environ.get("PERF_SHARED_DATA", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"real data not at hand ({folder} is absent; set PERF_SHARED_DATA)")
    return folder


@pytest.fixture(scope="session")
def golden() -> Path:
    """The folder of recorded expected results, each with the script that made it."""
    return Path(__file__).parent / "golden"
