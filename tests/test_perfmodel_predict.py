"""Predictions: arithmetic in the open, laws, published speedups, intervals, tables of measured step times."""

import time

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfmodel import acceptance, codec
from perfmodel.choice import Candidates, choose
from perfmodel.errors import InputError
from perfmodel.predict import predict
from perfmodel.steptime import StepSeconds

PAIR = "qwen3-4b-dflash-b16"
NAMES = {"hardware": "chip", "target": "T", "draft": "D", "batch": 1, "context": 256}


def steps(block_sizes, verify_s, draft_s=1.0, host_s=1.0, *, num_draws=400, spread=0.0, seed=0, bound="memory", extrapolated=()):
    """Step times of the given parts in seconds, with draws that scale each K by its own normal factor."""
    blocks = np.array(block_sizes)
    verify = np.broadcast_to(np.asarray(verify_s, dtype=float), blocks.shape)
    draft = np.where(blocks == 1, 0.0, draft_s)
    host = np.full(len(blocks), host_s)
    factor = 1 + spread * np.random.default_rng(seed).standard_normal((num_draws, len(blocks)))
    return StepSeconds(
        block_sizes=blocks,
        draft_s=draft,
        verify_s=verify,
        host_s=host,
        draft_draws=draft * np.ones_like(factor),
        verify_draws=verify * factor,
        host_draws=host * np.ones_like(factor),
        bound=(bound,) * len(blocks),
        extrapolated=np.isin(blocks, extrapolated),
        source="measured",
    )


def curve(*survival, num_steps=400, **options):
    return acceptance.from_survival(survival, num_steps=num_steps, target="T", draft="D", **options)


def codes(prediction):
    return [finding.code for finding in prediction.findings]


# arithmetic -------------------------------------------------------------------------------------------------------------------


def test_a_prediction_by_hand():
    # τ: 1, 1.9, 2.7, 3.2; plain step 10 + 1 = 11 s; step at K: 1 + verify + 1
    found = predict(steps([1, 2, 3, 4], [10, 11, 12, 14]), curve(0.9, 0.8, 0.5), **NAMES)
    assert [row.tau for row in found.rows] == pytest.approx([1.0, 1.9, 2.7, 3.2])
    assert [row.speedup for row in found.rows] == pytest.approx([1.0, 1.9 * 11 / 13, 2.7 * 11 / 14, 3.2 * 11 / 16])
    assert [row.tpot_s for row in found.rows] == pytest.approx([11.0, 13 / 1.9, 14 / 2.7, 16 / 3.2])
    assert (found.best.block_size, found.best.num_speculative_tokens) == (4, 3)
    assert found.worth_it is True
    assert found.break_even_tau == pytest.approx(16 / 11)
    assert found.ceiling == pytest.approx(4 * 11 / 16)
    assert found.source == "measured"
    assert found.reach == {"0.90": 3, "0.95": 3, "0.99": 4}  # 2.121 of 2.2 is 96.4 %
    assert (found.rows[3].draft_s, found.rows[3].verify_s, found.rows[3].host_s) == (1.0, 14.0, 1.0)
    assert (found.hardware, found.target, found.draft, found.task, found.batch, found.context) == (
        "chip", "T", "D", "given", 1, 256)  # fmt: skip


def test_the_plain_row_is_exactly_one():
    times = steps([1, 4], [10, 11], spread=0.05)
    plain = predict(times, curve(0.9, 0.8, 0.5), **NAMES).rows[0]
    assert (plain.tau, plain.speedup, plain.speedup_low, plain.speedup_high, plain.draft_s) == (1.0, 1.0, 1.0, 1.0, 0.0)


def test_a_draft_time_at_k_1_is_not_counted():
    times = steps([1, 2], [10, 10])
    noisy = StepSeconds(**{**vars(times), "draft_s": np.array([5.0, 1.0]), "draft_draws": times.draft_draws + 5.0})
    found = predict(noisy, curve(0.5), **NAMES)
    assert found.rows[0].tpot_s == pytest.approx(11.0)
    assert found.rows[0].speedup_high == 1.0


def test_without_a_plain_step_there_is_no_speedup():
    found = predict(steps([2, 4], [10, 11]), curve(0.9, 0.8, 0.5), **NAMES)
    assert [row.speedup for row in found.rows] == [None, None]
    assert (found.worth_it, found.break_even_tau, found.ceiling, found.cost_low, found.acceptance_low) == (None,) * 5
    assert found.best.block_size == 4  # 13 / 3.2 s per token beats 12 / 1.9


def test_plain_decoding_wins_when_drafts_are_rejected():
    found = predict(steps([1, 2, 4], [10, 11, 13]), curve(0.1, 0.05, 0.01), **NAMES)
    assert found.best.block_size == 1
    assert found.worth_it is False
    assert found.break_even_tau == pytest.approx(15 / 11)  # at the largest K
    loses = next(finding for finding in found.findings if finding.code == "speculation-loses")
    assert "a step at K=4 takes 1.36 plain steps and commits 1.16 tokens" in loses.message


def test_only_plain_decoding_on_offer_says_nothing_of_speculation():
    found = predict(steps([1], [10]), curve(0.9), **NAMES)
    assert found.worth_it is None
    assert found.break_even_tau is None
    assert found.sensitivity == {}


# training block ---------------------------------------------------------------------------------------------------------------


def test_k_beyond_the_trained_block_is_listed_and_never_recommended():
    survival = [0.99**i for i in range(1, 8)]
    found = predict(steps([1, 4, 8, 16, 64], [10, 10, 10, 10, 10]), curve(*survival), **NAMES)
    assert found.best.block_size == 8
    assert [row.in_training for row in found.rows] == [True, True, True, False, False]
    assert [row.extrapolated for row in found.rows] == [False, False, False, True, True]
    assert [row.tau_source for row in found.rows][-1] == "extrapolated"
    assert found.rows[3].speedup > found.best.speedup  # it would have won, were it trusted
    assert found.plateau[1] <= 8
    assert {"beyond-training", "best-at-edge"} <= set(codes(found))


def test_the_trained_block_may_be_larger_than_the_measured_one():
    survival = [0.95**i for i in range(1, 4)]
    found = predict(steps([1, 4, 8, 16], [10, 10, 10, 10]), curve(*survival), trained_block_size=8, **NAMES)
    assert found.best.block_size == 8
    assert found.best.extrapolated
    assert found.trained_block_size == 8
    assert "best-extrapolated" in codes(found)


def test_a_step_time_outside_the_fitted_range_is_flagged():
    found = predict(steps([1, 2, 4], [10, 10, 10], extrapolated=(4,)), curve(0.9, 0.8, 0.7), **NAMES)
    assert [row.extrapolated for row in found.rows] == [False, False, True]


def test_candidates_limit_what_is_recommended():
    times = steps([1, 2, 4], [10, 10, 10])
    assert predict(times, curve(0.9, 0.8, 0.7), candidates=[1, 2], **NAMES).best.block_size == 2
    with pytest.raises(InputError, match="none of the block sizes"):
        predict(times, curve(0.9, 0.8, 0.7), candidates=[3], **NAMES)


# plateau ----------------------------------------------------------------------------------------------------------------------


def choice_of(gains, step_draws=None, tau_draws=None, eligible=None):
    """Candidates 1, 2, 3, … with unit steps, so that τ is the gain."""
    tau = np.array(gains, dtype=float)
    blocks = np.arange(1, len(tau) + 1)
    usable = np.ones(len(tau), dtype=bool) if eligible is None else np.array(eligible)
    return choose(Candidates(blocks, tau, np.ones(len(tau)), usable, tau, tau_draws, step_draws))


def test_the_plateau_is_contiguous_and_within_two_percent():
    # best 2.00 at K=4; 1.97 and 1.96 are within 2 %, 1.95 is not; K=7 is, but K=6 parts it from the best
    found = choice_of([1.0, 1.95, 1.97, 2.00, 1.96, 1.90, 1.99])
    assert found.best == 3
    assert found.plateau == (3, 5)


def test_the_plateau_widens_to_what_the_error_cannot_tell_apart():
    rng = np.random.default_rng(0)
    gains = [1.0, 1.6, 1.9, 2.0]
    noisy = np.array(gains) * (1 + 0.05 * rng.standard_normal((400, 4)))
    assert choice_of(gains, tau_draws=noisy).plateau == (3, 4)  # 5 % apart with 7 % error
    alike = np.array(gains) * (1 + 0.05 * rng.standard_normal((400, 1)))
    assert choice_of(gains, tau_draws=alike).plateau == (4, 4)  # the same error on both cancels


def test_the_smallest_of_equals_is_best():
    assert choice_of([1.0, 2.0, 2.0]).best == 1


def test_reach_counts_only_what_may_be_recommended():
    found = choice_of([1.0, 1.9, 1.95, 2.0, 9.0], eligible=[True, False, True, True, False])
    assert found.best == 3
    assert found.reach == {"0.90": 3, "0.95": 3, "0.99": 4}


# intervals --------------------------------------------------------------------------------------------------------------------


def test_cost_error_alone_gives_the_ratio_error_of_two_steps():
    # 1 % on each verify step: r = step/plain varies by √((0.01·v/s)² + (0.01·v1/s1)²)
    found = predict(steps([1, 4], [99, 99], num_draws=4000, spread=0.01), curve(0.9, 0.8, 0.5), num_draws=4000, **NAMES)
    relative = np.hypot(0.01 * 99 / 101, 0.01 * 99 / 100)
    assert (found.cost_high - found.cost_low) / (2 * 1.96 * found.best.speedup) == pytest.approx(relative, rel=0.06)
    assert found.cost_low < found.best.speedup < found.cost_high


def test_acceptance_error_alone_is_the_interval_of_tau():
    found = predict(steps([1, 4], [99, 99]), curve(0.9, 0.8, 0.5), **NAMES)
    row = found.best
    assert found.acceptance_low == pytest.approx(row.tau_low * 100 / 101)
    assert found.acceptance_high == pytest.approx(row.tau_high * 100 / 101)
    assert (found.cost_low, found.cost_high) == pytest.approx((row.speedup, row.speedup))
    assert (row.speedup_low, row.speedup_high) == pytest.approx((found.acceptance_low, found.acceptance_high))


def test_both_errors_together_are_wider_than_each():
    found = predict(steps([1, 4], [99, 99], spread=0.02), curve(0.9, 0.8, 0.5), **NAMES)
    width = found.best.speedup_high - found.best.speedup_low
    assert width > found.cost_high - found.cost_low
    assert width > found.acceptance_high - found.acceptance_low


def test_an_unknown_error_gives_no_interval_and_says_whose():
    times = steps([1, 4], [99, 99], spread=0.02)
    found = predict(times, acceptance.from_survival([0.9, 0.8, 0.5]), **NAMES)
    assert (found.best.speedup_low, found.best.tau_low, found.acceptance_low, found.best_block_size_low) == (None,) * 4
    assert found.cost_low is not None
    assert "the error of the acceptance is unknown" in " ".join(finding.message for finding in found.findings)
    certain = steps([1, 4], [99, 99], num_draws=1)
    found = predict(certain, curve(0.9, 0.8, 0.5), **NAMES)
    assert (found.best.speedup_low, found.cost_low) == (None, None)
    assert found.acceptance_low is not None
    assert "the error of the step times is unknown" in " ".join(finding.message for finding in found.findings)


def test_cost_draws_of_another_number_are_resampled():
    few = predict(steps([1, 4], [99, 99], num_draws=50, spread=0.02), curve(0.9, 0.8, 0.5), **NAMES)
    many = predict(steps([1, 4], [99, 99], num_draws=400, spread=0.02), curve(0.9, 0.8, 0.5), **NAMES)
    assert few.cost_high - few.cost_low == pytest.approx(many.cost_high - many.cost_low, rel=0.35)


def test_the_interval_of_the_best_k_holds_the_k_that_win():
    found = predict(steps([1, 2, 3, 4], [10, 10.1, 10.9, 11.9], spread=0.02), curve(0.8, 0.25, 0.21, num_steps=60), **NAMES)
    assert found.best_block_size_low <= found.best.block_size <= found.best_block_size_high
    assert found.best_block_size_low < found.best_block_size_high
    sure = predict(steps([1, 2, 3, 4], [10, 10, 10, 10]), curve(0.9, 0.8, 0.7), **NAMES)
    assert (sure.best_block_size_low, sure.best_block_size_high) == (4, 4)


def test_a_gain_that_may_be_a_loss_is_said():
    found = predict(steps([1, 2], [10, 10], host_s=0.5, spread=0.1), curve(0.2), **NAMES)
    assert found.best.block_size == 2
    assert "gain-uncertain" in codes(found)


def test_a_loss_that_may_be_none_is_said():
    found = predict(steps([1, 2], [10, 10], host_s=0.5, spread=0.1), curve(0.08), **NAMES)
    assert found.best.block_size == 1
    assert found.plateau == (1, 2)
    assert {"speculation-loses", "loss-uncertain"} <= set(codes(found))
    sure = predict(steps([1, 2], [10, 10], host_s=0.5), curve(0.01), **NAMES)
    assert sure.plateau == (1, 1)
    assert "loss-uncertain" not in codes(sure)


def test_predictions_repeat():
    times = steps([1, 2, 4], [10, 11, 12], spread=0.02)
    assert predict(times, curve(0.9, 0.8, 0.5), **NAMES) == predict(times, curve(0.9, 0.8, 0.5), **NAMES)


# what would flip it -----------------------------------------------------------------------------------------------------------


def test_step_time_factor_makes_the_runner_up_equal():
    found = predict(steps([1, 2, 4], [10, 10, 12], draft_s=0.0, host_s=0.0), curve(0.9, 0.8, 0.7), **NAMES)
    # rates: 0.1, 0.19, 3.4/12 = 0.2833; the runner-up outside the plateau is K=2
    assert found.sensitivity["step_time_factor"] == pytest.approx((3.4 / 12) / 0.19)
    assert found.sensitivity["step_time_winner"] == 2.0
    assert "host_s_added" not in found.sensitivity  # nothing longer may be recommended


def test_host_time_that_makes_a_longer_block_win():
    found = predict(steps([1, 2, 4], [10, 10, 24], draft_s=0.0, host_s=0.0), curve(0.9, 0.8, 0.7), **NAMES)
    assert found.best.block_size == 2
    # 1.9 / (10 + h) = 3.4 / (24 + h) → h = (1.9·24 − 3.4·10) / 1.5
    seconds = found.sensitivity["host_s_added"]
    assert seconds == pytest.approx((1.9 * 24 - 3.4 * 10) / 1.5)
    assert found.sensitivity["host_s_winner"] == 4.0
    slower = predict(steps([1, 2, 4], [10, 10, 24], draft_s=0.0, host_s=seconds * 1.01), curve(0.9, 0.8, 0.7), **NAMES)
    assert slower.best.block_size == 4


def test_acceptance_factor_that_flips_the_answer_does_flip_it():
    times = steps([1, 2, 4, 8], [10, 10, 11, 14])
    base = np.array([0.7, 0.5, 0.4, 0.3, 0.2, 0.15, 0.1])
    found = predict(times, curve(*base), **NAMES)
    factor, winner = found.sensitivity["alpha_factor_down"], found.sensitivity["alpha_winner_down"]
    assert factor < 1
    scaled = predict(times, curve(*(base * factor ** np.arange(1, 8))), **NAMES)
    assert scaled.best.block_size == winner != found.best.block_size
    less = predict(times, curve(*(base * (factor * 1.02) ** np.arange(1, 8))), **NAMES)
    assert less.best.block_size != winner


def test_a_falling_tau_has_no_acceptance_factor():
    found = predict(steps([1, 6, 8], [10, 10, 10]), acceptance.from_tau_points([(6, 3.77), (8, 3.47)]), **NAMES)
    assert found.best.block_size == 6
    assert not any(name.startswith("alpha") for name in found.sensitivity)


# laws -------------------------------------------------------------------------------------------------------------------------

problems = st.tuples(
    st.lists(st.floats(0.05, 1.0), min_size=1, max_size=7),
    st.lists(st.floats(0.0, 3.0), min_size=8, max_size=8),
    st.floats(0.0, 2.0),
    st.floats(0.0, 2.0),
)


@given(problems)
@settings(max_examples=80, deadline=None)
def test_laws_of_any_prediction(problem):
    alpha, rises, draft_s, host_s = problem
    survival = np.cumprod(alpha)
    times = steps(range(1, 9), 5.0 + np.cumsum(rises), draft_s=draft_s, host_s=host_s, spread=0.02, num_draws=100)
    found = predict(times, curve(*survival), num_draws=100, **NAMES)
    allowed = [row for row in found.rows if row.in_training]
    assert len(allowed) == len(survival) + 1
    assert found.best.speedup == max(row.speedup for row in allowed)
    assert found.best.speedup >= 1.0
    assert found.best.speedup <= found.ceiling + 1e-9
    assert found.plateau[0] <= found.best.block_size <= found.plateau[1] <= len(survival) + 1
    assert found.worth_it == (found.best.block_size > 1)
    assert found.reach["0.90"] <= found.reach["0.95"] <= found.reach["0.99"] <= found.best.block_size
    for row in found.rows:
        total = row.draft_s + row.verify_s + row.host_s
        assert row.tpot_s == pytest.approx(total / row.tau)
        assert row.speedup == pytest.approx(found.rows[0].tpot_s / row.tpot_s)
        assert row.speedup_low <= row.speedup_high
        assert 1.0 <= row.tau <= row.block_size + 1e-9
        if found.best.block_size == row.block_size > 1:
            assert (row.tau > found.break_even_tau) == (row.speedup > 1.0)


# manners ----------------------------------------------------------------------------------------------------------------------


def test_acceptance_of_another_pair_is_pointed_out():
    found = predict(steps([1, 2], [10, 10]), acceptance.load_profile(f"{PAIR}/gsm8k"), **NAMES)
    assert "foreign-acceptance" in codes(found)
    assert "foreign-acceptance" not in codes(predict(steps([1, 2], [10, 10]), curve(0.9), **NAMES))


@pytest.mark.parametrize(
    ("blocks", "verify", "message"),
    [([], [], "no block size"), ([2, 1], [1, 1], "rising"), ([0, 1], [1, 1], "rising"), ([1, 2], [1, np.nan], "positive"),
     ([1, 2], [1, 0], "positive")],
)  # fmt: skip
def test_impossible_step_times_are_refused(blocks, verify, message):
    with pytest.raises(InputError, match=message):
        predict(steps(blocks, verify), curve(0.9), **NAMES)


def test_predictions_are_records(tmp_path):
    found = predict(steps([1, 2, 4], [10, 11, 12], spread=0.02), curve(0.9, 0.8, 0.5), label="datasheet prediction", **NAMES)
    codec.save(tmp_path / "p.json", found)
    assert codec.load_any(tmp_path / "p.json") == found


@pytest.mark.slow
def test_a_thousand_block_sizes_take_a_moment():
    times = steps(range(1, 1025), 10.0, spread=0.01)
    found = acceptance.load_profile(f"{PAIR}/chat")
    start = time.perf_counter()
    predict(times, found, **NAMES)
    assert time.perf_counter() - start < 5.0


def test_acceptance_is_not_trusted_far_beyond_the_text_it_was_measured_on():
    known = msgspec.structs.replace(curve(0.9, 0.8, 0.7), longest_context=1000)
    asked = NAMES | {"context": 2000}
    assert "acceptance-beyond-context" not in codes(predict(steps([1, 2], [10, 10]), known, **asked))
    assert "acceptance-beyond-context" in codes(predict(steps([1, 2], [10, 10]), known, **(asked | {"context": 2001})))


def test_a_synthetic_pair_is_named():
    known = msgspec.structs.replace(curve(0.9, 0.8, 0.7), synthetic=True)
    assert "synthetic-acceptance" in codes(predict(steps([1, 2], [10, 10]), known, **NAMES))
