"""Beyond the measured block, the ceiling claim, and curves from mean lengths."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq

from perfmodel import acceptance, catalogue, families, mixture, tails, taucurve
from perfmodel.errors import InputError
from perfmodel.meanlength import check_points, curve_through, geometric_shape, log_shape
from perfmodel.survival import Counts

PAIR = "qwen3-4b-dflash-b16"
TASKS = ("math500", "aime24", "aime25", "gsm8k", "humaneval", "mbpp", "mt-bench", "alpaca", "swe-bench")


def expected_counts(survival, num_steps):
    """Counts that a curve gives in expectation."""
    return Counts(num_steps * np.concatenate([[1.0], survival[:-1]]), num_steps * np.asarray(survival))


def alpha_of_tau(tau, block_size):
    """The single α that gives the mean length τ at a block of K: the inverse of `geometric_tau`."""
    return brentq(lambda alpha: tails.geometric_tau(alpha, block_size) - tau, 0.0, 1.0)


# geometric law ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("alpha", "tau_16", "tau_inf", "share_16"),
    # published table: α, τ(16), τ(∞), share at K=16
    [
        (0.65, 2.85, 2.86, 0.999),
        (0.80, 4.86, 5.00, 0.972),
        (0.86, 6.50, 7.14, 0.910),
        (0.90, 8.15, 10.0, 0.815),
        (0.95, 11.2, 20.0, 0.560),
    ],
)
def test_geometric_table(alpha, tau_16, tau_inf, share_16):
    assert tails.geometric_tau(alpha, 16) == pytest.approx(tau_16, abs=0.05)
    assert 1 / (1 - alpha) == pytest.approx(tau_inf, abs=0.005)
    assert tails.geometric_tau(alpha, 16) * (1 - alpha) == pytest.approx(share_16, abs=6e-4)


def test_share_threshold_is_0_866_for_90_percent_at_16():
    threshold = tails.share_threshold(0.90, 16)
    assert threshold == pytest.approx(0.1 ** (1 / 16))
    assert round(threshold, 3) == 0.866
    assert 1 - threshold**16 == pytest.approx(0.90)


@pytest.mark.parametrize(
    ("task", "alpha"),
    [
        ("math500", 0.913),
        ("aime24", 0.859),
        ("aime25", 0.849),
        ("gsm8k", 0.823),
        ("humaneval", 0.836),
        ("mbpp", 0.850),
        ("mt-bench", 0.744),
        ("alpaca", 0.650),
        ("swe-bench", 0.703),
    ],
)
def test_alpha_of_published_means(task, alpha):
    tau = acceptance.tau_pooled(acceptance.load_profile(f"{PAIR}/{task}"))
    assert alpha_of_tau(tau, 16) == pytest.approx(alpha, abs=7e-4)


@given(st.floats(0.0, 1.0), st.integers(2, 64))
@settings(max_examples=100, deadline=None)
def test_alpha_and_tau_are_inverse(alpha, block_size):
    tau = tails.geometric_tau(alpha, block_size)
    assert 1.0 <= tau <= block_size + 1e-9
    assert tails.geometric_tau(alpha_of_tau(tau, block_size), block_size) == pytest.approx(tau, rel=1e-6)


# tail laws --------------------------------------------------------------------------------------------------------------------


def test_a_geometric_curve_is_recognised_and_continued_exactly():
    alpha = 0.8
    survival = alpha ** np.arange(1, 16)
    tail = tails.fit_tail(expected_counts(survival, 5000))
    assert tail.family == "geometric"
    assert tail.mean_alpha == pytest.approx(alpha)
    assert tail.mixture_weight < 0.5
    assert (tail.easy_alpha, tail.hard_alpha) == pytest.approx((alpha, alpha), abs=0.015)  # two kinds that are one
    found = acceptance.from_survival(survival, num_steps=5000)
    assert acceptance.tau(found, 40) == pytest.approx((1 - alpha**40) / (1 - alpha))
    assert acceptance.ceiling_share(found, 16).value == pytest.approx(1 - alpha**16, rel=1e-6)


def test_a_mixture_is_recognised_and_its_constants_recovered():
    share, easy, hard = 0.3, 0.97, 0.6
    i = np.arange(1, 32)
    survival = share * easy**i + (1 - share) * hard**i
    tail = tails.fit_tail(expected_counts(survival[:15], 5000))
    assert tail.family == "mixture"
    assert (tail.easy_share, tail.easy_alpha, tail.hard_alpha) == pytest.approx((share, easy, hard), abs=0.01)
    found = acceptance.from_survival(survival[:15], num_steps=5000)
    assert acceptance.tau(found, 32) == pytest.approx(1 + survival.sum(), rel=0.005)
    # one α would miss the long runs of the easy steps
    assert tails.geometric_tau(alpha_of_tau(acceptance.tau(found, 16), 16), 32) < 0.95 * (1 + survival.sum())


def test_mixture_conditional_rates_rise_to_the_easy_rate():
    alpha = tails.mixture_alpha(np.arange(1.0, 2000.0), 0.1, 0.95, 0.5)
    assert alpha[0] == pytest.approx(0.1 * 0.95 + 0.9 * 0.5)
    assert np.all(np.diff(alpha) >= -1e-12)
    assert alpha[-1] == pytest.approx(0.95)


def test_few_steps_do_not_buy_three_constants():
    # the same mixture from 20 steps: the evidence does not pay for two more constants
    i = np.arange(1, 16)
    survival = 0.3 * 0.97**i + 0.7 * 0.6**i
    assert tails.fit_tail(expected_counts(survival, 10)).family == "geometric"


def test_the_law_that_predicts_left_out_answers_wins():
    rng = np.random.default_rng(3)

    def answers(kinds):
        return [[int(min(rng.geometric(1 - a), 16)) for _ in range(40)] for a in kinds]

    mixed = acceptance.from_committed(answers([0.55, 0.95] * 12), block_size=16, task="t", target="T", draft="D")
    alike = acceptance.from_committed(answers([0.8] * 24), block_size=16, task="t", target="T", draft="D")
    law = taucurve.tail_law(mixed)
    assert law.family == "mixture"
    assert law.mixture_weight > 0.95
    assert (law.easy_alpha, law.hard_alpha) == pytest.approx((0.95, 0.55), abs=0.06)
    assert taucurve.tail_law(alike).family == "geometric"


def test_held_out_likelihood_by_hand():
    # two answers; the fit to the other is α = 3/4 or α = 1/4, and a mixture of one kind is that α
    counts = Counts(np.array([[4.0], [4.0]]), np.array([[3.0], [1.0]]))
    found = mixture.held_out(counts)
    assert found.gain == pytest.approx(0.0, abs=1e-6)
    assert mixture.log_likelihood(np.array([0.25]), Counts(np.array([4.0]), np.array([3.0]))) == pytest.approx(
        3 * np.log(0.25) + np.log(0.75)
    )


def test_unknown_step_counts_use_the_law_with_one_constant():
    i = np.arange(1, 16)
    found = acceptance.from_survival(0.3 * 0.97**i + 0.7 * 0.6**i)
    curve = acceptance.tau_curve(found, 32)
    increments = np.diff(curve)[15:]
    assert increments[1:] / increments[:-1] == pytest.approx(np.full(len(increments) - 1, increments[1] / increments[0]))


def test_no_rejection_seen_has_no_finite_ceiling():
    found = acceptance.from_survival([1.0, 1.0, 1.0], num_steps=50)
    assert acceptance.tau(found, 10) == pytest.approx(10.0)
    assert acceptance.ceiling_share(found, 4).value == 0.0


def test_no_acceptance_seen_stays_at_plain_decoding():
    found = acceptance.from_survival([0.0, 0.0], num_steps=50)
    assert acceptance.tau(found, 10) == pytest.approx(1.0)
    assert acceptance.ceiling_share(found, 3).value == pytest.approx(1.0)
    draws = acceptance.tau_draws(found, 10)
    assert np.all(np.isfinite(draws))


# the claim that K=16 captures over 90 % -----------------------------------------------------------------------------------------


def test_the_90_percent_claim_per_task():
    shares = {task: acceptance.ceiling_share(acceptance.load_profile(f"{PAIR}/{task}"), 16) for task in TASKS}
    assert all(share.low <= share.value <= share.high for share in shares.values())
    # contradicted on math500 (α = 0.91 > 0.866): even the upper end stays below 90 %
    assert shares["math500"].value == pytest.approx(0.80, abs=0.02)
    assert shares["math500"].high < 0.90
    # alpaca has a few very long runs that never ended within the block
    assert shares["alpaca"].value < 0.90
    # the other seven are above it, two of them surely; humaneval may be far below, since a tenth of its steps fill the block
    assert sum(share.value > 0.90 for share in shares.values()) == 7
    assert shares["humaneval"].low < 0.70
    assert {task for task, share in shares.items() if share.low > 0.90} == {"gsm8k", "swe-bench"}


def test_share_of_the_ceiling_grows_with_k():
    found = acceptance.load_profile(f"{PAIR}/gsm8k")
    values = [acceptance.ceiling_share(found, k).value for k in (1, 4, 8, 16, 32, 128)]
    assert values == sorted(values)
    assert values[-1] == pytest.approx(1.0, abs=1e-6)
    assert acceptance.ceiling_share(acceptance.from_survival([0.5]), 2).low is None


# mean lengths -----------------------------------------------------------------------------------------------------------------


def test_one_mean_length_gives_the_geometric_curve():
    alpha = 0.8
    found = acceptance.from_tau_points([(16, (1 - alpha**16) / (1 - alpha))])
    for block_size in (1, 4, 8, 16, 32):
        assert acceptance.tau(found, block_size) == pytest.approx((1 - alpha**block_size) / (1 - alpha), rel=1e-4)
    assert [acceptance.tau_source(found, k) for k in (1, 8, 16, 17)] == ["measured", "estimated", "measured", "extrapolated"]
    assert [finding.code for finding in found.findings] == ["curve-estimated"]


def test_the_interval_is_the_spread_of_families_and_nothing_at_the_point():
    found = acceptance.from_tau_points([(16, 5.4)])
    assert acceptance.tau_interval(found, 16) == pytest.approx((5.4, 5.4))
    low, high = acceptance.tau_interval(found, 4)
    assert low < acceptance.tau(found, 4) < high
    # the published curve with that very mean lies within
    assert low <= acceptance.tau(acceptance.load_profile(f"{PAIR}/gsm8k"), 4) <= high


@pytest.mark.parametrize(
    ("given_k", "asked_k", "mean_error", "max_error"),
    [(16, 4, 0.020, 0.065), (16, 8, 0.025, 0.060), (8, 16, 0.035, 0.065), (4, 16, 0.050, 0.105)],
)
def test_curves_from_one_mean_against_the_published_curves(given_k, asked_k, mean_error, max_error):
    errors = []
    for task in TASKS:
        known = acceptance.load_profile(f"{PAIR}/{task}")
        guess = acceptance.from_tau_points([(given_k, acceptance.tau(known, given_k))])
        errors.append(abs(acceptance.tau(guess, asked_k) / acceptance.tau(known, asked_k) - 1))
    assert np.mean(errors) <= mean_error
    assert np.max(errors) <= max_error


def test_several_points_are_met_exactly_even_when_tau_falls():
    # DSpark on DeepSeek-V4-Pro: 3.77 at K=6 and 3.47 at K=8
    found = acceptance.from_tau_points([(8, 3.47), (6, 3.77)])
    assert acceptance.tau(found, 6) == pytest.approx(3.77)
    assert acceptance.tau(found, 8) == pytest.approx(3.47)
    assert 3.47 < acceptance.tau(found, 7) < 3.77
    assert acceptance.tau(found, 20) == pytest.approx(3.47)  # no growth is promised after a fall
    draws = acceptance.tau_draws(found, 8)
    assert draws[:, 5] == pytest.approx(np.full(400, 3.77))


points = st.lists(st.integers(2, 40), min_size=1, max_size=4, unique=True).flatmap(
    lambda ks: st.tuples(*[st.tuples(st.just(k), st.floats(1.0, float(k))) for k in ks])
)


@given(points)
@settings(max_examples=60, deadline=None)
def test_curves_through_any_points_are_exact_and_stay_within_the_block(given_points):
    checked = check_points(given_points)
    for shape in (geometric_shape(64), log_shape(np.array([0.7, 0.5, 0.4, 0.35]), 64)):
        curve = curve_through(checked, 64, shape)
        assert np.all(np.isfinite(curve))
        assert [curve[block - 1] for block, _ in checked] == pytest.approx([value for _, value in checked])
        last = checked[-1][0]
        assert np.all(np.diff(curve[last - 1 :]) >= -1e-12)
        assert np.all(np.diff(curve[last - 1 :]) <= 1.0)
        assert np.all(curve >= 1.0 - 1e-12)


def test_a_log_shape_goes_on_with_its_late_slope():
    shape = log_shape(np.array([0.5, 0.4, 0.32, 0.256]), 6)
    # the second half falls by 0.8 a position
    assert np.exp(shape) == pytest.approx([0.5, 0.4, 0.32, 0.256, 0.256 * 0.8, 0.256 * 0.64])


@pytest.mark.parametrize(
    ("given_points", "message"),
    [
        ([], "no mean acceptance length"),
        ([(4, 5.0)], "5 at block size 4 is impossible"),
        ([(4, 0.5)], "0.5 at block size 4"),
        ([(0, 1.0)], "block size 0"),
        ([(1, 1.0)], "says nothing"),
        ([(4, 2.0), (4, 3.0)], "two mean lengths, 2 and 3"),
        ([(4, float("nan"))], "nan at block size 4"),
    ],
)
def test_impossible_points_are_refused(given_points, message):
    with pytest.raises(InputError, match=message):
        acceptance.from_tau_points(given_points)


def test_a_mean_equal_to_the_block_or_to_one_is_met():
    assert acceptance.tau(acceptance.from_tau_points([(8, 8.0)]), 8) == pytest.approx(8.0)
    none = acceptance.from_tau_points([(8, 1.0)])
    assert acceptance.tau_curve(none, 16) == pytest.approx(np.ones(16))


# families ---------------------------------------------------------------------------------------------------------------------


def over_prediction(decay):
    """How far one α fitted at 3 drafts (mean length 2.8) over-predicts 7 drafts of a decaying drafter."""
    truth = curve_through(((1, 1.0), (4, 2.8)), 8, families.decaying_shape(8, decay))
    return tails.geometric_tau(alpha_of_tau(2.8, 4), 8) / truth[7] - 1


def test_decays_are_those_of_the_published_runs():
    assert over_prediction(families.MEAN_DECAY) == pytest.approx(0.055, abs=0.0005)
    assert over_prediction(families.WORST_DECAY) == pytest.approx(0.145, abs=0.0005)


def test_a_decaying_shape_has_a_constant_ratio_of_conditional_rates():
    log_alpha = np.diff(families.decaying_shape(6, 0.2), prepend=0.0)
    assert np.diff(log_alpha) == pytest.approx(np.full(5, -0.2))


def test_a_sequential_drafter_is_expected_to_decay():
    # EAGLE-3 on HumanEval, published: 3 drafts commit 2.61 tokens, 8 drafts 3.04; one α says 3.5
    sequential = acceptance.from_tau_points([(4, 2.61)], drafting="sequential")
    block = acceptance.from_tau_points([(4, 2.61)], drafting="block")
    unknown = acceptance.from_tau_points([(4, 2.61)])
    assert acceptance.tau(block, 9) == pytest.approx(tails.geometric_tau(alpha_of_tau(2.61, 4), 9), rel=1e-6)
    assert acceptance.tau(sequential, 9) < acceptance.tau(block, 9)
    assert abs(acceptance.tau(sequential, 9) - 3.04) < abs(acceptance.tau(block, 9) - 3.04)
    low, high = acceptance.tau_interval(sequential, 9)
    assert low < 3.04 < high
    either = acceptance.tau_interval(unknown, 9)
    assert either[1] - either[0] >= 0.9 * max(high - low, *np.diff(acceptance.tau_interval(block, 9)))


def test_every_kind_of_drafter_has_published_members():
    kinds = [profile.drafting for profile in catalogue.shipped().values()]
    assert kinds.count("block") >= 15
    assert kinds.count("sequential") >= 4
    assert None not in kinds
