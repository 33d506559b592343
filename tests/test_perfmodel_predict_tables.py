"""Predictions from measured step times alone, and published speedups predicted from acceptance curves."""

import numpy as np
import pytest

from perfmodel import acceptance
from perfmodel.errors import InputError
from perfmodel.predict import CycleTime, predict_table

PAIR = "qwen3-4b-dflash-b16"


def codes(prediction):
    return [finding.code for finding in prediction.findings]


# published --------------------------------------------------------------------------------------------------------------------

# TPU v5p, raw result files: plain TPOT ms, DFlash TPOT ms, speedup; K=16
V5P = {
    "math500": (6.37, 1.29, 4.93),
    "aime24": (6.31, 1.77, 3.57),
    "aime25": (6.38, 1.88, 3.39),
    "gsm8k": (6.35, 2.12, 3.00),
    "humaneval": (6.31, 1.99, 3.17),
    "mbpp": (6.40, 1.96, 3.27),
    "mt-bench": (6.27, 2.74, 2.29),
    "alpaca": (6.29, 3.86, 1.63),
    "swe-bench": (6.32, 3.40, 1.86),
}


def test_published_step_ratios_are_the_same_for_every_task():
    # c = τ / speedup is a step in units of a plain step: 1.69 … 1.89 whatever the data set, so acceptance explains the rest
    ratios = {t: acceptance.tau_pooled(acceptance.load_profile(f"{PAIR}/{t}")) / s for t, (_, _, s) in V5P.items()}
    assert 1.685 <= min(ratios.values()) <= max(ratios.values()) <= 1.89
    assert np.std(list(ratios.values())) / np.mean(list(ratios.values())) < 0.035


def test_nine_published_speedups_from_curves_and_two_constants_held_out():
    """Each task's speedup from its own curve and the plain and speculative step of the other eight: 2 % off on average."""
    taus = {task: acceptance.tau_pooled(acceptance.load_profile(f"{PAIR}/{task}")) for task in V5P}
    errors = []
    for task, (_, _, speedup) in V5P.items():
        others = [name for name in V5P if name != task]
        plain_s = float(np.mean([V5P[name][0] for name in others])) * 1e-3
        step_s = float(np.median([V5P[name][1] * taus[name] for name in others])) * 1e-3
        found = predict_table([CycleTime(1, plain_s), CycleTime(16, step_s)], acceptance.load_profile(f"{PAIR}/{task}"))
        assert found.best.block_size == 16
        errors.append(abs(found.best.speedup / speedup - 1))
    assert np.mean(errors) <= 0.025
    assert np.max(errors) <= 0.07


@pytest.mark.parametrize(
    ("tau_16", "tau_8"),
    # paper's ablation, one drafter trained at 16 and tested at 16 and at 8 (8 layers): Math500, HumanEval, MT-Bench
    [(6.33, 5.09), (5.29, 4.44), (3.50, 3.18)],
)
def test_published_block_ablation_from_one_mean_length(tau_16, tau_8):
    assert acceptance.tau(acceptance.from_tau_points([(16, tau_16)]), 8) == pytest.approx(tau_8, rel=0.035)


# tables of step times ---------------------------------------------------------------------------------------------------------


def test_a_table_with_tau_needs_nothing_else():
    found = predict_table([CycleTime(16, 0.0114, 5.4), CycleTime(1, 0.0067), CycleTime(8, 0.0110, 4.5)], hardware="h", batch=2)
    assert [row.block_size for row in found.rows] == [1, 8, 16]  # exactly the table's, sorted
    assert [row.speedup for row in found.rows] == pytest.approx([1.0, 4.5 * 6.7 / 11.0, 5.4 * 6.7 / 11.4])
    assert found.best.block_size == 16
    assert (found.best.draft_s, found.best.verify_s, found.best.host_s) == (None, None, None)
    assert [row.tau_source for row in found.rows] == ["measured"] * 3
    assert found.break_even_tau == pytest.approx(11.4 / 6.7)
    assert found.ceiling == pytest.approx(16 * 6.7 / 11.4)
    assert (found.source, found.batch, found.best.speedup_low) == ("measured", 2, None)


def test_a_table_without_plain_decoding_minimises_time_per_token():
    found = predict_table([CycleTime(8, 0.0110, 4.5), CycleTime(16, 0.0150, 5.4)])
    assert found.best.block_size == 8  # 2.44 ms against 2.78 ms per token
    assert [row.speedup for row in found.rows] == [None, None]
    assert (found.worth_it, found.break_even_tau) == (None, None)


def test_a_table_with_acceptance_beside_it():
    known = acceptance.load_profile(f"{PAIR}/gsm8k")
    found = predict_table([CycleTime(1, 0.006), CycleTime(8, 0.010), CycleTime(32, 0.012)], known)
    assert found.rows[1].tau == pytest.approx(acceptance.tau(known, 8))
    assert found.best.block_size == 8  # 32 is beyond the trained block
    assert not found.rows[2].in_training
    assert found.acceptance_low < found.best.speedup < found.acceptance_high
    assert "no-interval" in codes(found)


def test_tau_beside_the_time_beats_the_profile_even_beyond_its_block():
    # a b16 drafter run at larger blocks: 8.30 tokens at 16, 5.24 at 32 (6.38 and 9.92 ms per token)
    table = [CycleTime(16, 8.30 * 6.38e-3, 8.30), CycleTime(32, 5.24 * 9.92e-3, 5.24)]
    found = predict_table(table, acceptance.load_profile(f"{PAIR}/math500"))
    assert [row.tau for row in found.rows] == [8.30, 5.24]
    assert [row.in_training for row in found.rows] == [True, True]
    assert found.best.block_size == 16


def test_a_partial_tau_column_is_filled_and_flagged():
    found = predict_table([CycleTime(1, 0.006), CycleTime(4, 0.008), CycleTime(8, 0.010, 4.5)])
    assert [row.tau_source for row in found.rows] == ["measured", "estimated", "measured"]
    assert "curve-estimated" in codes(found)


def test_repeated_rows_use_the_median_time_and_mean_tau():
    found = predict_table([CycleTime(1, 1.0), CycleTime(4, 2.0, 2.0), CycleTime(4, 2.2, 3.0), CycleTime(4, 9.0)])
    assert found.rows[1].tau == pytest.approx(2.5)
    assert found.rows[1].tpot_s == pytest.approx(2.2 / 2.5)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ([], "table is empty"),
        ([CycleTime(1, 1.0), CycleTime(4, 2.0)], "do not tell a gain"),
        ([CycleTime(4, 0.0, 2.0)], "0 s per step"),
        ([CycleTime(0, 1.0)], "block size 0"),
        ([CycleTime(4, 1.0, 5.0)], "5 at block size 4"),
    ],
)
def test_impossible_tables_are_refused(table, message):
    with pytest.raises(InputError, match=message):
        predict_table(table)


def test_a_table_wholly_beyond_the_block_is_refused():
    with pytest.raises(InputError, match="within the drafter's block"):
        predict_table([CycleTime(32, 0.01), CycleTime(64, 0.01)], acceptance.load_profile(f"{PAIR}/gsm8k"))
