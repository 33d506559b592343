"""What a pair keeps in memory, against published sizes, and a chip that cannot hold it."""

import pytest

from perfmodel.footprint import footprint_finding, resident_bytes
from perfmodel.hardware import load_hardware
from perfmodel.modelspec import load_model

TARGET, DRAFT = load_model("qwen3-4b"), load_model("qwen3-4b-dflash-b16")


def test_published_sizes():
    """4.022 billion weights with one table for embedding and head; the drafter's 537 million; 147 kB of cache per token."""
    assert resident_bytes(TARGET, None, 1, 0) == pytest.approx(2 * 4.0225e9, rel=1e-4)
    assert resident_bytes(TARGET, DRAFT, 1, 0) - resident_bytes(TARGET, None, 1, 0) == pytest.approx(2 * 537e6, rel=2e-3)
    grown = resident_bytes(TARGET, None, 8, 1000) - resident_bytes(TARGET, None, 8, 0)
    assert grown == 8 * 1000 * 36 * 2 * 8 * 128 * 2
    assert resident_bytes(load_model("qwen3-30b-a3b"), None, 1, 0) == pytest.approx(2 * 30.53e9, rel=1e-3)  # all experts


def test_what_does_not_fit_is_an_error_that_says_how_many_chips_would_do():
    assert footprint_finding(load_hardware("tpu-v5p"), TARGET, DRAFT, 8, 4096) is None
    large = load_model("llama-3.1-70b")
    finding = footprint_finding(load_hardware("tpu-v5e"), large, None, 1, 1024)
    assert (finding.code, finding.severity) == ("does-not-fit", "error")
    assert "tpu-v5e:9" in finding.hint  # 141.1 GB and 0.34 GB of cache over 16 GB
    assert footprint_finding(load_hardware("tpu-v5e:16"), large, None, 1, 1024) is None
