"""Split over eight devices, a pair decodes what it decodes on one."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent


@pytest.mark.slow
def test_eight_devices_give_the_tokens_of_one_in_both_loops():
    """KV heads as many as devices are split; fewer are whole on each. Needs a process of its own: device counts are fixed early."""
    paths = os.pathsep.join([str(FOLDER.parent), str(FOLDER)])
    done = subprocess.run(
        [sys.executable, str(FOLDER / "parallel_decode.py"), "8", "2"],
        env=os.environ | {"PYTHONPATH": paths}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    split, whole = map(json.loads, done.stdout.splitlines())
    for case in (split, whole):
        assert case["devices"] == 8
        assert case["q_columns_each"] == 8  # one of eight heads
        assert case["same_tokens"] == case["same_counts"] == [True, True]
    assert split["k_columns_each"] == 8  # one of eight heads of 8
    assert whole["k_columns_each"] == 2 * 8  # both heads
