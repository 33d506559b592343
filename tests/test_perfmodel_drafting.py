"""Drafter time in one pass or in K − 1, against published step times of both kinds."""

import numpy as np
import pytest

from perfmodel.drafting import drafting_of, redraft, select
from perfmodel.hardware import load_hardware
from perfmodel.modelspec import load_model
from perfmodel.steptime import datasheet_steps

TARGET, DRAFT = load_model("qwen3-4b"), load_model("qwen3-4b-dflash-b16")
H100 = load_hardware("h100")

# vLLM, EAGLE-3 on one GPU, HumanEval, one request (vllm-project/vllm 32628): drafts → TPOT ms, acceptance by position
EAGLE3_STEPS = {
    3: (2.91, [0.73, 0.52, 0.36]),
    4: (3.02, [0.72, 0.51, 0.35, 0.23]),
    5: (3.20, [0.72, 0.50, 0.34, 0.22, 0.15]),
    6: (3.41, [0.72, 0.50, 0.33, 0.22, 0.14, 0.09]),
    7: (3.63, [0.72, 0.50, 0.33, 0.21, 0.14, 0.09, 0.06]),
    8: (3.86, [0.71, 0.49, 0.32, 0.21, 0.14, 0.09, 0.05, 0.03]),
}


def steps(blocks=(1, 2, 3, 5, 16)):
    return datasheet_steps(H100, TARGET, DRAFT, blocks, 1, 1024)


def test_a_block_drafter_is_one_and_an_eagle_the_other():
    assert drafting_of(DRAFT) == "block"
    assert drafting_of(load_model("llama-3.1-8b-eagle3")) == "sequential"


def test_sequential_drafting_costs_a_pass_per_draft():
    block = steps()
    found = redraft(block, "sequential")
    one = block.draft_s[1]
    assert found.draft_s == pytest.approx([0.0, one, 2 * one, 4 * one, 15 * one])
    assert found.draft_draws[:, 3] == pytest.approx(4 * block.draft_draws[:, 1])
    assert found.verify_s is block.verify_s


def test_block_drafting_costs_one_pass_whatever_k():
    found = redraft(steps(), "block")
    assert found.draft_s == pytest.approx([0.0, *[found.draft_s[1]] * 4])


def test_selecting_keeps_columns_together():
    whole = steps()
    part = select(whole, np.array([1, 5]))
    assert part.block_sizes.tolist() == [1, 5]
    assert part.verify_s == pytest.approx(whole.verify_s[[0, 3]])
    assert part.host_draws.shape == (len(whole.host_draws), 2)
    assert len(part.bound) == 2


def test_published_eagle3_steps_grow_by_one_pass_a_draft():
    drafts = np.array(list(EAGLE3_STEPS))
    step_ms = np.array([tpot * (1 + sum(survival)) for tpot, survival in EAGLE3_STEPS.values()])
    slope, start = np.polyfit(drafts, step_ms, 1)
    assert (start, slope) == pytest.approx((5.14, 0.837), abs=0.01)
    assert np.max(np.abs(np.polyval([slope, start], drafts) / step_ms - 1)) < 0.01


def test_published_block_drafter_passes_hardly_grow():
    # DFlash drafter on H100, published: K = 16, 32, 64, 128 → 2.82, 2.79, 2.87, 2.88 ms; on RTX 2000 Ada 6.74 … 8.22
    h100, ada = np.array([2.82, 2.79, 2.87, 2.88]), np.array([6.74, 6.88, 7.12, 8.22])
    assert h100.max() / h100.min() < 1.04
    assert ada.max() / ada.min() < 1.23
    block = steps((2, 16))
    assert block.draft_s[1] / block.draft_s[0] < 1.04
