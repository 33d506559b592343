"""Two sides head to head: the arithmetic of every difference in the open, what is refused, and what the page says."""

import dataclasses
import json
import math
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import numpy as np
import pytest
from page_browser import visit
from report_fixture import inputs, poisoned, prediction
from report_others import cycle, drafter
from test_reports_page import POISON, Reader

from perfmodel.errors import InputError
from perfmodel.records import PredictionSet, TimingPoint
from reports.comparison import Comparison, Side, compare, comparison_content, comparison_document, sentence
from reports.difference import ratio, tau_difference, time_ratio
from reports.gathering import gather
from reports.page import html
from reports.plain import markdown

NOW = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)
DFLASH = drafter("qwen3-4b-dflash-b16", (0.8, 0.64, 0.5, 0.4))
EAGLE = drafter("qwen3-4b-eagle3", (0.7, 0.45, 0.25))


def drafters() -> Comparison:
    """DFlash (A) against EAGLE-3 (B): acceptance and a prediction each, on one chip."""
    return compare(*(Side(p.draft, gather([("a.json", p), ("p.json", cycle(p))], NOW)) for p in (DFLASH, EAGLE)))


def faster(factor: float):
    """The fixture's run with every step time divided by a factor."""
    clean = inputs()
    points = tuple(msgspec.structs.replace(p, samples_s=tuple(s / factor for s in p.samples_s)) for p in clean.step_times.points)
    return dataclasses.replace(clean, step_times=msgspec.structs.replace(clean.step_times, points=points))


def test_a_ratio_of_speedups_adds_relative_errors_in_squares():
    a = prediction("math").best
    b = msgspec.structs.replace(a, speedup=2 * a.speedup, speedup_low=2 * a.speedup_low, speedup_high=2 * a.speedup_high)
    found = ratio(a, b)
    assert found.value == pytest.approx(2.0)
    # The fixture's ends are 6 % off: down 1/0.94 on one side against 1.06 on the other.
    down = math.hypot(math.log(1 / 0.94), math.log(1.06))
    assert found.low == pytest.approx(2 * math.exp(-down))
    assert found.high == pytest.approx(2 * math.exp(down))
    assert found.verdict(1.0) == "b"
    assert ratio(b, a).verdict(1.0) == "a"
    assert ratio(a, a).verdict(1.0) == "undecided"
    unknown = ratio(a, msgspec.structs.replace(b, speedup_low=None))
    assert (unknown.value, unknown.low, unknown.verdict(1.0)) == (pytest.approx(2.0), None, "unknown")
    assert ratio(a, msgspec.structs.replace(b, speedup=None)) is None
    assert ratio(msgspec.structs.replace(a, speedup=-1.0), b) is None  # a damaged file


def test_a_difference_of_tau_resamples_both_sides():
    found = tau_difference(DFLASH, EAGLE, 4)
    assert found.a == pytest.approx(1 + 0.8 + 0.64 + 0.5)
    assert found.b == pytest.approx(1 + 0.7 + 0.45 + 0.25)
    assert found.value == pytest.approx(2.40 - 2.94)
    assert found.verdict(0.0) == "a"

    def variance(s):  # of the committed drafts of one step: E[n²] − E[n]², n drafts with P(n ≥ i) = S_i
        return sum((2 * i - 1) * share for i, share in enumerate(s, start=1)) - sum(s) ** 2

    half = 1.96 * math.sqrt((variance((0.8, 0.64, 0.5)) + variance((0.7, 0.45, 0.25))) / 900)
    assert (found.high - found.low) / 2 == pytest.approx(half, rel=0.12)
    bare = msgspec.structs.replace(EAGLE, at_risk=(None, None, None), num_steps=None)
    assert tau_difference(DFLASH, bare, 4).low is None


def test_a_ratio_of_times_resamples_repeats():
    rng = np.random.default_rng(1)
    a, b = (
        TimingPoint(phase="verify", block_size=4, batch=1, context=0, samples_s=tuple(seconds * (1 + 0.01 * rng.standard_normal(30))))
        for seconds in (1e-2, 1.2e-2)
    )  # fmt: skip
    found = time_ratio(a, b)
    assert found.low < b.median_s / a.median_s == found.value < found.high
    assert 1.18 < found.low < found.high < 1.22
    few = msgspec.structs.replace(a, samples_s=a.samples_s[:4])
    assert time_ratio(few, b).low is None


def test_drafters_head_to_head():
    found = drafters()
    (one,) = found.tasks
    assert (one.a.best.block_size, one.b.best.block_size) == (5, 4)
    # speedups τ · 6 / 8: DFlash 3.34, EAGLE-3 2.40
    assert one.speedup.value == pytest.approx(2.40 / 3.34)
    assert "so A gains more" in sentence(one)
    assert [size for size, _ in one.by_block_size] == [1, 2, 3, 4]
    words = " ".join(Reader(html(comparison_content(found, NOW))).text).replace("\u00a0", " ")
    assert "qwen3-4b-eagle3 against qwen3-4b-dflash-b16" in words
    assert "A takes K = 5 (num_speculative_tokens 4)" in words
    assert "−0.54" in words


def test_two_runs_of_one_machine():
    tuesday = faster(2.0)
    profiles = tuple(msgspec.structs.replace(p, survival=(0.9, *p.survival[1:])) for p in tuesday.acceptance.profiles)
    tuesday = dataclasses.replace(tuesday, acceptance=msgspec.structs.replace(tuesday.acceptance, profiles=profiles))
    found = compare(Side("monday", inputs()), Side("tuesday", tuesday))
    assert {round(one.ratio.value, 6) for one in found.times} == {0.5}
    assert all(one.ratio.verdict(1.0) in ("a", "unknown") for one in found.times)
    assert found.unlike == ()
    page = Reader(html(comparison_content(found, NOW)))
    assert {"speedups-0", "ratio-0", "survival-0", "time-ratio"} <= page.json_script("figures").keys()
    names = {a["data-name"] for tag, a in page.elements if tag == "button" and "data-name" in a}
    assert {"A-run.json", "B-run.json"} <= names


def test_fitted_constants_are_told_apart_by_their_errors():
    clean = inputs()
    known = dict(clean.model.parameters)
    first = known["memory_efficiency"]  # 0.630 ± 0.038
    changed = {
        "memory_efficiency": msgspec.structs.replace(
            first, value=first.value + 2 * 1.96 * math.hypot(first.stderr, first.stderr)
        ),
        "compute_efficiency": msgspec.structs.replace(
            known["compute_efficiency"], value=known["compute_efficiency"].value + 0.01
        ),
    }
    model = msgspec.structs.replace(clean.model, parameters=known | changed)
    found = compare(Side("a", clean), Side("b", dataclasses.replace(clean, model=model)))
    table = comparison_content(found, NOW).sections[-1].tables[0]
    words = {row[0]: row[-1] for row in table.rows}
    assert words["memory_efficiency"] == "differs"
    assert words["compute_efficiency"] == "cannot be told apart"
    assert words["commit_overhead_s"] == "not identified on both sides"


def other_machine():
    clean = inputs()
    environment = msgspec.structs.replace(
        clean.run.environment, host_cpu="Another CPU", versions={"jax": "0.9.0", "python": "3.11.2"}
    )
    return dataclasses.replace(clean, run=msgspec.structs.replace(clean.run, environment=environment))


def test_unlike_machines_are_refused_unless_forced():
    sides = Side("here", inputs()), Side("there", other_machine())
    with pytest.raises(
        InputError, match=r"host processor: Example CPU @ 2\.90GHz against Another CPU; version of jax: 0\.10\.2 against 0\.9\.0"
    ):
        compare(*sides)
    found = compare(*sides, forced=True)
    assert len(found.unlike) == 2
    page = comparison_content(found, NOW)
    reader = Reader(html(page))
    words = " ".join(reader.text)
    assert "Compared by force: the two were not measured alike" in words
    assert "differs" in words
    assert page.notices[0] in markdown(page).replace("\\", "")


def test_what_has_nothing_in_common_is_refused():
    other = drafter("x", (0.5,), task="chat")
    with pytest.raises(InputError, match="in common"):
        compare(Side("a", gather([("a", DFLASH)], NOW)), Side("b", gather([("b", other)], NOW)))


def test_chips_by_data_sheet_need_no_force():
    found = compare(*(Side(c, gather([("p", cycle(DFLASH, c, s))], NOW)) for c, s in (("tpu-v5p", 8e-3), ("h200", 6.4e-3))))
    assert found.tasks[0].speedup.value == pytest.approx(8 / 6.4)
    facts = {fact.name: (fact.a, fact.b, fact.differs) for fact in found.facts}
    assert facts["chip"] == ("tpu-v5p", "h200", True)


def test_document_holds_every_difference():
    body = json.loads(msgspec.json.encode(comparison_document(compare(Side("a", inputs()), Side("b", faster(2.0))))))
    assert {"a", "b", "unlike", "tasks", "acceptance", "step_times", "findings"} == body.keys()
    assert body["tasks"][0]["a"]["num_speculative_tokens"] == body["tasks"][0]["a"]["block_size"] - 1
    assert body["step_times"][0]["ratio"] == pytest.approx(0.5)
    assert {"speedup_ratio", "speedup_ratio_low", "speedup_ratio_high"} <= body["tasks"][0].keys()


def hostile() -> Comparison:
    clean = inputs()
    changed = {
        name: poisoned(getattr(clean, name), type(getattr(clean, name)), POISON)
        for name in ("run", "step_times", "model", "acceptance", "predictions")
    }
    bad = dataclasses.replace(clean, **changed)
    return compare(Side("a" + POISON, bad), Side("b" + POISON, bad))


def test_hostile_text_stays_text_in_a_browser_that_asks_for_nothing(tmp_path: Path):
    page = html(comparison_content(hostile(), NOW, ("perf compare " + POISON,)))
    reader = Reader(page)
    assert not [a for _, a in reader.elements if "onclick" in a]
    assert sum("<script>alert(1)</script>" in text for text in reader.text) > 20
    found = visit(page, tmp_path)
    assert found.console == ""
    assert found.requests == ()
    drawn = {a["data-figure"] for _, a in Reader(found.dom).elements if "js-plotly-plot" in (a.get("class") or "")}
    assert drawn == reader.json_script("figures").keys()


def test_an_empty_prediction_set_compares_nothing():
    nothing = dataclasses.replace(inputs(), predictions=PredictionSet(here=()), acceptance=None)
    found = compare(Side("a", nothing), Side("b", nothing))
    assert found.tasks == ()
    assert "step times" in comparison_content(found, NOW).answer.paragraphs[0]
