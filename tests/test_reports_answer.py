"""The answer in words: what is worth it, what limits it, how the numbers are written."""

import msgspec
import pytest
from report_fixture import GENERATED_AT, SURVIVAL, inputs, prediction, profile, row, run
from report_steps import flatness, step_times

from perfmodel.acceptance import load_profile
from perfmodel.audit import audit
from perfmodel.fit import fit
from perfmodel.flatness import flatness as flat_widths
from perfmodel.hardware import load_hardware
from perfmodel.modelspec import load_model
from perfmodel.predict import predict
from perfmodel.records import AcceptanceSet, PredictionSet
from perfmodel.steptime import datasheet_steps, fitted_steps
from reports.acceptance import pooled_text
from reports.answer import answer, chip_cell, limit_text, paste_settings, task_table, worth
from reports.flat import flat_text
from reports.inputs import PageInputs
from reports.page import render
from reports.prose import heading, prose
from reports.wording import block_size_text, interval_text, list_text, range_text, signed_percent, step_ratio


def with_best(**changes):
    """The math prediction with a changed best row."""
    made = prediction("math")
    return msgspec.structs.replace(made, best=msgspec.structs.replace(made.best, **changes))


def test_block_size_is_given_with_the_engines_count():
    assert block_size_text(16) == "K = 16 (num_speculative_tokens 15)"
    assert range_text(8, 8) == "K = 8"
    assert range_text(12, 16) == "K = 12–16"


def test_numbers_carry_interval_and_sign():
    assert interval_text(1.1, 1.3) == "(1.10–1.30)"
    assert interval_text(None, 1.3) == ""
    assert signed_percent(0.042) == "+4.2 %"
    assert signed_percent(-0.1) == "−10 %"
    assert signed_percent(None) == "unknown"
    assert list_text(["a", "b", "c"]) == "a, b and c"
    assert list_text(["a"]) == "a"


def test_step_ratio_is_tau_over_speedup():
    assert step_ratio(msgspec.structs.replace(row("math", 8), tau=3.0, speedup=1.5)) == 2.0
    assert step_ratio(msgspec.structs.replace(row("math", 8), speedup=None)) is None


def test_worth_is_undecided_where_the_interval_reaches_one():
    assert worth(with_best(speedup_low=1.05)) == "yes"
    assert worth(with_best(speedup_low=0.99)) == "undecided"
    assert worth(with_best(speedup=None)) == "unknown"
    assert worth(msgspec.structs.replace(prediction("math"), worth_it=False)) == "no"
    assert worth(msgspec.structs.replace(prediction("math"), worth_it=None)) == "unknown"


def test_the_larger_loss_is_the_limit():
    # K/τ = 8/2 = 4 against r = 2/1.6 = 1.25: acceptance
    by_acceptance = limit_text(with_best(block_size=8, tau=2.0, speedup=1.6))
    assert "the limit is acceptance: τ = 2.00 of 8 possible tokens" in by_acceptance
    assert "4.0×" in by_acceptance
    # K/τ = 8/6.4 = 1.25 against r = 6.4/1.6 = 4: cost
    by_cost = limit_text(with_best(block_size=8, tau=6.4, speedup=1.6, bound="compute"))
    assert by_cost.startswith("the limit is the cost of a step: 4.0× a plain one (arithmetic takes over)")
    assert limit_text(msgspec.structs.replace(prediction("math"), best=row("math", 1))) == ""


def test_the_sentence_has_every_number():
    made = answer(prediction("math"), run(), flat_text(flatness()))
    best = prediction("math").best
    assert made.worth == "yes"
    assert made.sentence.startswith(
        "On this machine (Example CPU @ 2.90GHz, 2 cores), smollm2-135m + smollm2-135m-dflash, math: "
        f"verify K = {best.block_size} (num_speculative_tokens {best.block_size - 1}): "
    )
    for part in (
        "over plain decoding",
        "Measured: ",
        "As good, within 2 % or the error: K = ",
        "Verification is flat",
        "The limit is",
    ):
        assert part in made.sentence


def test_no_gain_is_said_plainly():
    made = answer(prediction("chat"), run(), "")
    assert made.worth == "no"
    assert made.block_size == 1
    assert "do not speculate here" in made.sentence
    assert "break-even needs τ = " in made.sentence
    assert "The limit is" not in made.sentence


def test_a_refusal_with_a_wide_interval_says_so():
    rows = tuple(msgspec.structs.replace(r, speedup_high=1.2) if r.block_size > 1 else r for r in prediction("chat").rows)
    assert "reaches above 1" in answer(msgspec.structs.replace(prediction("chat"), rows=rows), run(), "").sentence
    assert "reaches above 1" not in answer(prediction("chat"), run(), "").sentence


def test_an_uncertain_gain_is_said_so():
    made = answer(with_best(speedup_low=0.97), run(), "")
    assert "the interval reaches 1" in made.sentence
    assert made.block_size > 1


def test_a_prediction_without_plain_decoding_does_not_crash():
    rows = tuple(msgspec.structs.replace(r, speedup=None, speedup_low=None, speedup_high=None) for r in prediction("math").rows)
    made = msgspec.structs.replace(prediction("math"), rows=rows, best=rows[7], worth_it=None, break_even_tau=None)
    assert "no block size above 1 within the drafter's block has a known speedup" in answer(made, run(), "").sentence
    assert "<h1>" in render(inputs(predictions=PredictionSet(here=(made,))))


def test_flat_text_names_width_and_cause():
    flat = msgspec.structs.replace(flatness(), widths={"0.05": 40, "0.10": 90, "0.25": 200}, cause="memory")
    assert flat_text(flat) == "verification is flat to K = 90 (within 10 %) because the step waits for weights"
    assert "K = 512 or more" in flat_text(msgspec.structs.replace(flat, widths={"0.10": 512}))
    assert flat_text(flatness()).startswith(
        "verification is flat only from K = 2, to K = 6 (within 10 %): K = 1 runs on a kernel"
    )
    never = msgspec.structs.replace(flatness(), widths_from_two={"0.10": 2}, cause="compute")
    assert flat_text(never) == "verification is not flat: arithmetic takes over"


def test_chip_cells():
    assert chip_cell(None) == "–"
    assert chip_cell(prediction("chat")) == "do not speculate"
    assert (
        chip_cell(with_best(block_size=16, speedup=3.1, speedup_low=2.7, speedup_high=3.4)) == "3.10× (2.70–3.40) at K = 16 (15)"
    )
    assert chip_cell(with_best(extrapolated=True)).endswith(", extrapolated")
    assert chip_cell(with_best(speedup_low=0.9)).endswith(", uncertain")


def test_task_table_switches_plain_decoding_off():
    table = task_table(inputs())
    cells = {r[0]: dict(zip(table.headers, r, strict=True)) for r in table.rows}
    assert cells["math"]["best K"] == "8"
    assert cells["math"]["num_speculative_tokens"] == "7"
    assert cells["math"]["worth it"] == "yes"
    assert cells["chat"]["num_speculative_tokens"] == "off"
    assert cells["chat"]["worth it"] == "no"
    assert cells["math"]["τ pooled (95 %)"] == pooled_text(profile("math"))


def test_pooled_tau_is_the_mean_over_steps():
    counts = [count for steps in profile("math").committed for count in steps]
    assert pooled_text(profile("math")).startswith(f"{sum(counts) / len(counts):.2f} (")


def test_settings_name_each_block_size_once():
    settings = paste_settings(inputs())
    assert [s.title for s in settings] == [
        "math: K = 8 (num_speculative_tokens 7)",
        "code: K = 6 (num_speculative_tokens 5)",
        "chat: plain decoding",
    ]
    assert '"num_speculative_tokens": 7' in settings[0].engines[0].snippet


def test_prose_escapes_first():
    assert prose("`a<b>` K = 8, 12 ms") == "<code>a&lt;b&gt;</code> K\u00a0=\u00a08, 12\u00a0ms"
    assert heading("a_b<") == "a_<wbr>b&lt;"


@pytest.mark.parametrize("hardware", ["tpu-v5p", "h200"])
def test_records_of_the_real_model_make_a_page(hardware):
    """Fit, flatness, acceptance and prediction as the sweep makes them, into one page."""
    clean = inputs()
    times = step_times()
    fitted = fit(times.points, clean.run.target, clean.run.draft, clean.run.machine, "float32", num_draws=20)
    sizes = (1, 2, 4, 8, 16, 64, 1024)
    here = tuple(
        predict(
            fitted_steps(fitted, sizes, 1, 256, host_s=7e-4),
            profile(task),
            hardware="this-machine",
            target="smollm2-135m",
            draft="smollm2-135m-dflash",
            batch=1,
            context=256,
        )
        for task in SURVIVAL
    )
    target, draft, chip = load_model("qwen3-4b"), load_model("qwen3-4b-dflash-b16"), load_hardware(hardware)
    elsewhere = predict(
        datasheet_steps(chip, target, draft, sizes, 1, 256, "bfloat16"),
        load_profile("qwen3-4b-dflash-b16/math"),
        hardware=hardware,
        target="qwen3-4b",
        draft="qwen3-4b-dflash-b16",
        batch=1,
        context=256,
        label="datasheet prediction",
    )
    page = render(
        PageInputs(
            generated_at=GENERATED_AT,
            run=clean.run,
            step_times=times,
            audit=audit(times.points, clean.run.target, clean.run.draft, clean.run.machine, "float32"),
            model=fitted,
            flatness=flat_widths(fitted, 1, 256),
            acceptance=AcceptanceSet(profiles=tuple(profile(task) for task in SURVIVAL)),
            predictions=PredictionSet(here=here, elsewhere=(elsewhere,)),
        )
    )
    assert "Left out: no trace was captured" in page
    assert page.count("Left out: ") == 1
    assert f'<th scope="row" class="text">{hardware}</th>' in page
