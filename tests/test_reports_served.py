"""A measured server on the page: its record is embedded, its points are a table, its findings are said, its words stay words."""

import dataclasses

import pytest
from report_fixture import GENERATED_AT, inputs, poisoned
from test_reports_page import POISON, Reader

from perfmodel.errors import InputError
from perfmodel.records import Finding, Served, ServedPoint, ServedRequest, StepTimes
from reports.gathering import gather
from reports.page import PageInputs, content, render


def request(seconds: float, num_tokens: int = 41) -> ServedRequest:
    return ServedRequest(
        prompt="add",
        num_prompt_tokens=12,
        num_output_tokens=num_tokens,
        ttft_s=0.2,
        e2e_s=0.2 + seconds,
        decode_s=seconds,
        text="3",
    )


def served() -> Served:
    """Plain decoding at 50 ms a token, and K = 4 at 25 ms."""
    plain = ServedPoint(task="math", concurrency=1, asked=1, block_size=1, requests=(request(2.0),), wall_s=2.2)
    slow = Finding(code="short-answers", severity="warning", message="answers are short")
    drafted = ServedPoint(
        task="math", concurrency=1, asked=4, block_size=4, requests=(request(1.0),), wall_s=1.2, num_steps=20, step_s=0.05,
        tokens_per_step=2.0, findings=(slow,),
    )  # fmt: skip
    return Served(engine="openai", base_url="http://127.0.0.1:8000", model="m", points=(drafted, plain), launched=(1, 4))


def page_of(record: Served) -> PageInputs:
    empty = StepTimes(device_kind="server", target="t", draft=None, dtype="unknown", points=())
    return gather((("served.json", record), ("timings.json", empty)), GENERATED_AT)


def test_the_record_is_inside_the_page_and_its_points_are_a_table():
    page = Reader(render(page_of(served())))
    assert "served.json" in {a["data-name"] for tag, a in page.elements if tag == "button" and "data-name" in a}
    (section,) = [one for one in content(page_of(served())).sections if one.key == "served"]
    rows = section.tables[0].rows
    assert [row[2] for row in rows] == ["1 (0)", "4 (3)"]
    assert [row[4] for row in rows] == ["50.0 ms", "25.0 ms"]  # 2 s and 1 s over 40 tokens
    assert rows[1][-1] == "2.00×"
    assert section.paragraphs[1] == "servers were started for K = 1, 4, in this order."


def test_what_was_found_at_a_point_is_said():
    (finding,) = [one for one in content(page_of(served())).findings if one.code == "short-answers"]
    assert finding.where == "math, 1 in flight"


def test_a_page_without_a_server_has_no_such_section():
    assert "served" not in [one.key for one in content(inputs()).sections]


def test_two_servers_do_not_share_a_page():
    with pytest.raises(InputError, match=r"second perf\.served"):
        gather((("a.json", served()), ("b.json", served())), GENERATED_AT)


def test_hostile_words_of_a_server_stay_words():
    record = poisoned(served(), Served, POISON)
    clean = page_of(served())
    reader = Reader(render(dataclasses.replace(clean, served=record, sources=(("served.json", record), *clean.sources[1:]))))
    assert POISON in "".join(reader.text)
    assert reader.json_script("record-1")["model"] == record.model
    tags = [[tag for tag, _ in page.elements if tag in ("script", "b")] for page in (reader, Reader(render(clean)))]
    assert tags[0] == tags[1]
