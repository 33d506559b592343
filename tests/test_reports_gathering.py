"""Any mix of records makes a page, and its Markdown, CSV and JSON say the same."""

import csv
import io
import json
from datetime import UTC, datetime

import pytest
from report_fixture import inputs, poisoned
from report_others import compiled, cycle, drafter, imported
from test_reports_page import POISON, Reader

from perfmodel.errors import InputError
from perfmodel.records import ModelSpec
from reports.evidence import script_json
from reports.gathering import gather
from reports.page import content, render
from reports.plain import COLUMNS, csv_text, document, markdown

NOW = datetime(2026, 1, 2, tzinfo=UTC)
DFLASH = drafter("qwen3-4b-dflash-b16", (0.8, 0.64, 0.5, 0.4))
EAGLE = drafter("qwen3-4b-eagle3", (0.7, 0.45, 0.25))


def test_compiled_and_imported_records_get_their_sections():
    page = Reader(render(gather([("c.json", compiled()), ("i.json", imported())], NOW)))
    figures = page.json_script("figures")
    assert {"compiled-0", "imported-times", "survival", "tau"} <= figures.keys()  # imported acceptance is drawn as any other
    words = " ".join(page.text).replace("\u00a0", " ")
    assert "verify is flat (within 10 %) at least to K" in words
    assert "does not fit: 120 GB" in words
    assert "Imported step times run from" in words
    assert "an eagle3 head" in words
    names = {a["data-name"] for tag, a in page.elements if tag == "button" and "data-name" in a}
    assert names == {"c.json", "i.json"}


def test_two_drafters_on_one_task_are_told_apart():
    found = gather([("d", DFLASH), ("e", EAGLE), ("p", cycle(DFLASH)), ("q", cycle(EAGLE))], NOW)
    assert [p.task for p in found.acceptance.profiles] == ["math · qwen3-4b-dflash-b16", "math · qwen3-4b-eagle3"]
    assert [card.task for card in content(found).cards] == [p.task for p in found.acceptance.profiles]
    settings = content(found).settings
    assert [one.engines[0].snippet.count('"method": "eagle3"') for one in settings] == [0, 1]
    one = gather([("d", DFLASH)], NOW)
    assert [p.task for p in one.acceptance.profiles] == ["math"]


def test_two_chips_share_a_table():
    found = gather([("a", cycle(DFLASH)), ("b", cycle(DFLASH, "h200", 7e-3))], NOW)
    assert [p.hardware for p in found.predictions.here] == ["tpu-v5p"]
    assert [p.hardware for p in found.predictions.elsewhere] == ["h200"]
    assert "h200" in render(found)


def test_embedded_records_are_those_that_were_read():
    found = gather([("d.json", DFLASH), ("e.json", EAGLE)], NOW)
    page = Reader(render(found))
    assert page.json_script("record-1")["task"] == "math"  # named apart on the page, not in the record


def test_a_fit_alone_shows_the_times_it_was_fitted_to():
    model = inputs().model
    found = gather([("model.json", model)], NOW)
    assert found.step_times.points[0].samples_s == (model.points[0].measured_s,)
    assert "steptime-0" in Reader(render(found)).json_script("figures")
    assert found.flatness is not None


def test_one_page_shows_one_run():
    with pytest.raises(InputError, match=r"second perf\.run"):
        gather([("a", inputs().run), ("b", inputs().run)], NOW)
    spec = ModelSpec(
        name="m", role="target", hidden_size=1, num_layers=1, num_heads=1, num_kv_heads=1, head_dim=1, intermediate_size=1,
        vocab_size=1, tied_embeddings=True,
    )  # fmt: skip
    with pytest.raises(InputError, match="no page shows"):
        gather([("m", spec)], NOW)


def everything():
    return inputs(compiled=compiled(), imported=(imported(),))


def test_csv_holds_every_number_once_in_si():
    rows = list(csv.DictReader(io.StringIO(csv_text(everything()))))
    assert tuple(rows[0]) == COLUMNS
    assert {row["record"] for row in rows} == {"prediction", "check", "timings", "acceptance", "model", "compiled", "imported"}
    clean = inputs()
    best = clean.predictions.here[0].best
    mine = [
        r
        for r in rows
        if r["quantity"] == "speedup" and r["task"] == "math" and "best" in r["note"] and r["hardware"] == "this-machine"
    ]
    assert float(mine[0]["value"]) == best.speedup
    assert float(mine[0]["low"]) == best.speedup_low
    assert int(mine[0]["num_speculative_tokens"]) == int(mine[0]["block_size"]) - 1
    bad = [r for r in rows if r["record"] == "timings" and r["note"].startswith("invalid")]
    assert [(r["phase"], r["block_size"], r["unit"]) for r in bad] == [("draft", "2", "s")] * 2  # median and floor
    assert not [r for r in rows if r["value"] in ("", "None", "nan")]


def test_markdown_has_answers_findings_and_tables():
    text = markdown(content(everything()))
    assert text.startswith("# How many tokens")
    assert "math: verify K = 8" in text
    assert "| task | τ pooled (95 %) |" in text
    assert "perf sweep-k --max 1024" in text
    for line in text.splitlines():
        if line.startswith("|---"):
            assert set(line) <= set("|-:")


def test_markdown_shows_hostile_text_as_text():
    run = poisoned(inputs().run, type(inputs().run), POISON + "| `x`")
    text = markdown(content(inputs(run=run)))
    assert "<script" not in text.replace("\\<", "")
    assert "\\<script\\>" in text
    widths = {
        row.count("|") - row.count("\\|") for row in text.splitlines() if row.startswith("| target") or row.startswith("| what")
    }
    assert widths == {3}


def test_json_holds_answers_numbers_and_records():
    body = json.loads(script_json(document(everything())))
    assert body["answers"][0]["block_size"] == 8
    assert body["records"]["model.json"]["schema"] == "perf.model"
    assert len(body["numbers"]) == len(csv_text(everything()).splitlines()) - 1
    assert {figure["figure"] for figure in body["figures"]} >= {"speedup-0", "roofline", "whatif"}


def test_no_number_is_no_table():
    with pytest.raises(InputError, match="no number"):
        csv_text(gather([], NOW))
