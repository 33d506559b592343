"""What two sides have in common leaves the error of their ratio: prompts, fitted model, data sheet; and the arithmetic of each ratio."""

import dataclasses
from datetime import UTC, datetime

import msgspec
import numpy as np
import pytest
from report_fixture import inputs, profile

from perfmodel.acceptance import from_committed
from perfmodel.hardware import load_hardware
from perfmodel.modelspec import load_model
from perfmodel.predict import predict
from perfmodel.records import AcceptanceProfile, CheckedK, DecodeRun, PredictionSet
from perfmodel.steptime import datasheet_steps, fitted_steps
from reports.comparison import Side, compare, comparison_content, comparison_document
from reports.difference import answer_time_ratio, ratio, tau_difference
from reports.draws import same_prompts
from reports.gathering import gather
from reports.page import PageInputs, html
from reports.pertoken import lead, verdict
from sweeps.predicting import Question, answer

NOW = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)
HOST_S = 4e-4
DFLASH, DSPARK = "qwen3-4b-dflash-b8/t0", "qwen3-4b-dspark-b8/t0"


def answered(draft: str, per_answer: tuple[int, ...], num_steps: int = 30) -> AcceptanceProfile:
    """Answers of equal length whose every step commits the same: answer i commits `per_answer[i]` tokens a step."""
    committed = [[count] * num_steps for count in per_answer]
    return from_committed(committed, block_size=8, task="math", target="t", draft=draft, trained_block_size=8)


def test_paired_by_prompt_a_constant_difference_has_no_error():
    hard_to_easy = (1, 2, 3, 4, 5, 6)
    a, b = answered("a", hard_to_easy), answered("b", tuple(count + 1 for count in hard_to_easy))
    paired, apart = tau_difference(a, b, 8, paired=True), tau_difference(a, b, 8)
    # Every answer commits one token more: whichever prompts are drawn, the difference of the means is 1.
    assert (paired.value, paired.low, paired.high) == pytest.approx((1.0, 1.0, 1.0))
    # Unpaired the means of six answers scatter by s/√6 each, s² = 3.5 of 1 … 6 (with n − 1): ±1.96·√(2·3.5/6) around 1.
    assert apart.value == pytest.approx(1.0)
    assert apart.high - apart.low == pytest.approx(2 * 1.96 * np.sqrt(2 * 3.5 / 6), rel=0.12)


def checked(seconds: tuple[float, ...], tokens: tuple[int, ...]) -> CheckedK:
    known = {"predicted_speedup": None, "measured_speedup": 1.0}
    return CheckedK(task="math", block_size=4, answer_s=seconds, answer_tokens=tokens, **known)


def test_seconds_of_the_same_answers_are_compared_answer_by_answer():
    a = checked((1.0, 2.0, 3.0, 9.0), (10, 10, 10, 10))
    b = checked((1.1, 2.2, 3.3), (10, 10, 10))
    found = answer_time_ratio(a, b, paired=True)
    assert found.a == pytest.approx(6.0 / 30)  # the fourth prompt was answered by A alone
    assert found.b == pytest.approx(6.6 / 30)
    assert (found.value, found.low, found.high) == pytest.approx((1.1, 1.1, 1.1))
    apart = answer_time_ratio(a, b, paired=False)
    assert apart.a == pytest.approx(15.0 / 40)
    assert apart.low < 0.6 < 1.1 < apart.high
    assert answer_time_ratio(checked((1.0,), (10,)), b, paired=True).low is None


def test_an_older_check_without_single_answers_has_no_interval():
    old = CheckedK(task="math", block_size=4, predicted_speedup=None, measured_speedup=1.2, measured_tpot_s=0.02)
    found = answer_time_ratio(old, msgspec.structs.replace(old, measured_tpot_s=0.03), paired=True)
    assert (found.value, found.low) == (pytest.approx(1.5), None)
    assert answer_time_ratio(old, msgspec.structs.replace(old, measured_tpot_s=None), paired=True) is None


def decoded(one: AcceptanceProfile, lengths: tuple[int, ...]) -> DecodeRun:
    return DecodeRun(
        task=one.task, block_size=8, batch=len(lengths), prompt_tokens=lengths, tokens=(), committed=one.committed, ttft_s=0.1,
        compile_s=0.1, decode_s=1.0, step_wall_s=(),
    )  # fmt: skip


def side_of(one: AcceptanceProfile, lengths: tuple[int, ...] = (60, 71), prompts_file: str | None = None) -> PageInputs:
    clean = inputs()
    spec = msgspec.structs.replace(clean.run.spec, prompts_file=prompts_file)
    run = msgspec.structs.replace(clean.run, spec=spec, decodes=(decoded(one, lengths),))
    return dataclasses.replace(clean, run=run)


def test_prompts_are_the_same_where_source_and_lengths_are():
    a, b = answered("a", (1, 2)), answered("b", (2, 3))
    assert same_prompts(side_of(a), side_of(b), a, b)
    assert not same_prompts(side_of(a), side_of(b, lengths=(60, 72)), a, b)
    assert not same_prompts(side_of(a), side_of(b, prompts_file="mine.jsonl"), a, b)
    assert not same_prompts(side_of(a), side_of(a), a, b)  # no decode run holds B's counts
    assert same_prompts(inputs(), inputs(), a, a)  # one and the same acceptance


def measured_side(one: AcceptanceProfile) -> PageInputs:
    """A run whose predictions are made from its own fitted model."""
    clean = inputs()
    model = msgspec.structs.replace(clean.model, draws=draws(clean.model))
    steps = fitted_steps(model, (1, 2, 4, 8), 1, 256, host_s=HOST_S)
    known = {"hardware": "this-machine", "target": "t", "draft": one.draft, "batch": 1, "context": 256, "source": "measured"}
    made = predict(steps, one, **known)
    return dataclasses.replace(
        side_of(one),
        model=model,
        acceptance=msgspec.structs.replace(clean.acceptance, profiles=(one,)),
        predictions=PredictionSet(here=(made,)),
    )


def draws(model) -> tuple[tuple[float, ...], ...]:
    """Constants that scatter by 10 % in 200 draws."""
    rng = np.random.default_rng(3)
    values = np.array([parameter.value for parameter in model.parameters.values()])
    return tuple(map(tuple, (values * np.exp(0.1 * rng.standard_normal((200, len(values))))).tolist()))


def test_a_side_against_itself_has_no_difference_and_no_error():
    one = measured_side(profile("math"))
    (found,) = compare(Side("a", one), Side("b", one)).tasks
    assert (found.shared.prompts, found.shared.steps) == (True, True)
    assert (found.tpot.value, found.tpot.low, found.tpot.high) == pytest.approx((1.0, 1.0, 1.0))
    assert (found.speedup.value, found.speedup.low, found.speedup.high) == pytest.approx((1.0, 1.0, 1.0))


def test_pairing_makes_the_interval_narrower_and_the_page_says_so():
    counts = profile("math").committed
    longer = tuple(tuple(min(8, count + 1) for count in steps) for steps in counts)
    other = from_committed(longer, block_size=8, task="math", target="t", draft="other", trained_block_size=8)
    a, b = measured_side(profile("math")), measured_side(other)
    (found,) = (whole := compare(Side("a", a), Side("b", b))).tasks
    assert found.tpot.value == pytest.approx(found.b.best.tpot_s / found.a.best.tpot_s)
    assert found.tpot.low < found.tpot.value < found.tpot.high < 1.0
    assert verdict(found) == "a"  # a token takes A longer
    assert lead(whole.tasks) == "Per token, B (other) is faster on math"
    alone = ratio(found.a.best, found.b.best)
    assert found.speedup.high - found.speedup.low < 0.7 * (alone.high - alone.low)
    page = comparison_content(whole, NOW)
    assert "Both sides answered the same prompts" in page.answer.tables[0].caption
    assert [row[-1] for row in page.sections[2].tables[0].rows] == ["yes"]
    (row,) = comparison_document(whole)["tasks"]
    assert (row["same_prompts"], row["tpot_ratio_low"]) == (True, found.tpot.low)


def test_a_prediction_that_its_records_do_not_give_back_has_no_draws():
    one = measured_side(profile("math"))
    (made,) = one.predictions.here
    other = msgspec.structs.replace(made, rows=tuple(msgspec.structs.replace(r, verify_s=2 * r.verify_s) for r in made.rows))
    edited = dataclasses.replace(one, predictions=PredictionSet(here=(other,)))
    (found,) = compare(Side("a", edited), Side("b", edited)).tasks
    assert found.tpot.low is None
    assert not found.shared.steps


def drafter_on(chip: str, name: str) -> PageInputs:
    found = answer(Question(hardware=(chip,), acceptance=(name,), block_sizes=tuple(range(1, 9))))
    return gather((("p.json", PredictionSet(here=found.predictions)), ("a.json", found.profiles[0])), NOW)


def test_two_drafters_on_one_chip_share_what_its_data_sheet_does_not_say():
    a, b = drafter_on("tpu-v5p", DFLASH), drafter_on("tpu-v5p", DSPARK)
    (found,) = compare(Side("a", a), Side("b", b)).tasks
    assert (found.shared.prompts, found.shared.steps) == (False, True)
    alone = ratio(found.a.best, found.b.best)
    assert alone.low < 1.0 < alone.high
    assert 1.0 < found.speedup.low < found.speedup.high < alone.high
    # With one step time on both sides only τ differs: 5.12/4.65 and its error, ±1.5 % each.
    assert found.speedup.value == pytest.approx(5.12 / 4.65, rel=0.002)
    assert (found.speedup.high - found.speedup.low) / found.speedup.value == pytest.approx(2 * np.hypot(0.015, 0.015), rel=0.25)


def test_two_chips_share_the_acceptance_only():
    (found,) = compare(Side("a", drafter_on("tpu-v5p", DFLASH)), Side("b", drafter_on("h200", DFLASH))).tasks
    assert (found.shared.prompts, found.shared.steps) == (True, False)
    assert found.tpot.low < found.tpot.value < found.tpot.high


def test_data_sheet_times_are_the_same_for_the_same_seed():
    pair = load_model("qwen3-4b"), load_model("qwen3-4b-dflash-b16")
    one, again = (datasheet_steps(load_hardware("h100"), *pair, (1, 4), 1, 512, seed=7) for _ in range(2))
    assert np.array_equal(one.verify_draws, again.verify_draws)


def timed_side(drift: float, slower: float) -> PageInputs:
    """A run whose machine took `drift` as long for everything, and whose drafter `slower` as long beside that."""
    clean = measured_side(profile("math"))
    best = clean.predictions.here[0].best.block_size
    rows = []
    for size, factor in ((1, drift), (best, drift * slower)):
        seconds = tuple(factor * s for s in (1.0, 1.3, 0.8, 1.1))
        rows.append(msgspec.structs.replace(checked(seconds, (48, 48, 40, 44)), block_size=size, context=256))
    return dataclasses.replace(clean, run=msgspec.structs.replace(clean.run, checks=tuple(rows)))


def test_the_drift_of_one_machine_is_not_the_drafter():
    found = compare(Side("a", timed_side(1.0, 1.0)), Side("b", timed_side(1.2, 1.0)))
    (one,) = found.tasks
    assert (one.measured.tpot.value, one.measured.tpot.low) == pytest.approx((1.2, 1.2))
    assert one.measured.plain.value == pytest.approx(1.2)
    assert (one.measured.settled.value, one.measured.num_answers) == (pytest.approx(1.0), 4)
    assert lead(found.tasks) == "Per token, they cannot be told apart on math"


def test_the_page_shows_predicted_and_measured_time_per_token():
    found = compare(Side("a", timed_side(1.0, 1.0)), Side("b", timed_side(1.2, 1.1)))
    (one,) = found.tasks
    assert one.measured.settled.value == pytest.approx(1.1)
    assert one.measured.settled.low == pytest.approx(1.1)
    section = comparison_content(found, NOW).sections[0]
    kinds = ["predicted", "measured", "measured as timed", "plain decoding as timed"]
    assert [row[1] for row in section.tables[0].rows] == kinds
    assert section.figures[0].title == "Per token, A is faster on math"
    words = (
        "1.10× (1.10–1.10) as measured on 4 answers (as timed 1.32×; plain decoding beside it 1.20×: the machine&#39;s drift, "
    )
    assert words + "taken out)" in html(comparison_content(found, NOW)).replace("\u00a0", " ")


def test_of_unlike_machines_the_difference_is_kept():
    a, b = timed_side(1.0, 1.0), timed_side(0.5, 1.0)
    environment = msgspec.structs.replace(b.run.environment, host_cpu="a faster one")
    b = dataclasses.replace(b, run=msgspec.structs.replace(b.run, environment=environment))
    (one,) = (found := compare(Side("a", a), Side("b", b), forced=True)).tasks
    assert one.measured.settled is None
    assert lead(found.tasks) == "Per token, B is faster on math"
