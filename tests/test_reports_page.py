"""The page: golden text, nothing from the network, every text escaped, sections that go when their record goes."""

import dataclasses
import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest
from page_browser import visit
from plotly.offline import get_plotlyjs
from report_fixture import GENERATED_AT, inputs, poisoned
from report_others import compiled, imported

import reports
from perfmodel.codec import from_document, to_document
from perfmodel.records import AcceptanceSet, Finding, PredictionSet, Record
from reports.evidence import EMBEDDED_BYTES_LIMIT, embedded_records, gravest_first
from reports.figure import THEMES
from reports.inputs import PageInputs
from reports.page import render

GOLDEN = Path(__file__).parent / "golden" / "report_page.html"
POISON = "<script>alert(1)</script>\"'></script><!-- {{ 7*7 }} &amp; <b onclick=x>"
OPTIONAL = ("run", "step_times", "traces", "audit", "model", "flatness", "acceptance", "predictions", "compiled", "imported")


class Reader(HTMLParser):
    """Collects elements with their attributes, the text of scripts, and everything a reader would see."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.text: list[str] = []
        self.styles: list[str] = []
        self._inside = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._inside = tag if tag in ("script", "style") else ""
        if tag == "script":
            self.scripts.append((dict(attrs), ""))

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside == "script":
            attributes, text = self.scripts[-1]
            self.scripts[-1] = (attributes, text + data)
        elif self._inside == "style":
            self.styles.append(data)
        else:
            self.text.append(data)

    def json_script(self, key: str):
        return json.loads(next(text for attributes, text in self.scripts if attributes.get("id") == key))


@pytest.fixture(scope="module")
def page() -> str:
    return render(inputs())


@pytest.fixture(scope="module")
def reader(page: str) -> Reader:
    return Reader(page)


def masked(page: str) -> str:
    """The page's own content: assets and embedded records named only, date and version masked, floats at four digits."""
    text = page.replace(get_plotlyjs(), "PLOTLY_JS")
    text = text.replace("2026-01-02 03:04 UTC", "DATE").replace("dflash-perf 0.1.0", "VERSION")
    for asset in ("page.css", "page.js", "whatif.js"):
        text = text.replace((Path(reports.__file__).parent / "templates" / asset).read_text(encoding="utf-8"), asset)
    text = re.sub(r'(id="record-\d+">)[^<]*', r"\1RECORD", text)
    text = re.sub(r'(id="whatif-data">)[^<]*', r"\1WHATIF", text)
    text = re.sub(r"(</button> )[\d.]+ [kM]?B", r"\1SIZE", text)
    return re.sub(r"-?\d+\.\d{3,}(?:e-?\d+)?", lambda match: f"{float(match.group()):.4g}", text)


def test_page_equals_the_golden_one(tmp_path):
    clean = inputs()
    assert clean.predictions is not None
    assert clean.acceptance is not None
    fewer = PredictionSet(here=clean.predictions.here[::2], elsewhere=clean.predictions.elsewhere[::4])
    actual = masked(render(inputs(predictions=fewer, acceptance=AcceptanceSet(profiles=clean.acceptance.profiles[::2]))))
    (tmp_path / GOLDEN.name).write_text(actual, encoding="utf-8")
    assert len(actual.encode()) < 150_000
    assert actual == GOLDEN.read_text(encoding="utf-8"), f"if the change is meant, copy {tmp_path / GOLDEN.name} over {GOLDEN}"


def test_page_asks_the_network_for_nothing(reader):
    for tag, attributes in reader.elements:
        for name, value in attributes.items():
            if name in ("src", "srcset", "data", "action", "poster", "background", "formaction", "ping", "xlink:href"):
                assert (value or "").startswith("data:"), (tag, name, value)
            if name == "href" and tag != "a":
                assert (value or "").startswith("data:"), (tag, value)
    assert not [tag for tag, _ in reader.elements if tag in ("iframe", "object", "embed", "base", "form")]
    for style in reader.styles:
        assert "@import" not in style
        assert "url(" not in style


def test_content_security_policy_forbids_fetching(reader):
    policy = next(
        a["content"] for tag, a in reader.elements if tag == "meta" and a.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy == "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"


def test_page_is_small_enough_and_holds_plotly_once(page):
    assert len(page.encode()) <= 6_000_000
    assert page.count(get_plotlyjs()) == 1


def test_page_stays_small_when_records_are_huge():
    run = inputs().run
    big = msgspec.structs.replace(run.decodes[0], tokens=(tuple(range(100_000, 500_000)),))
    page = render(inputs(run=msgspec.structs.replace(run, decodes=(big,))))
    assert len(page.encode()) <= 6_000_000
    assert re.search(r"run\.json, [\d.]+ MB: too large to embed", page)


def test_light_and_dark_have_every_colour(page):
    assert THEMES["light"].keys() == THEMES["dark"].keys()
    assert "@media screen and (prefers-color-scheme: dark)" in page
    assert "@media print" in page
    for theme in THEMES.values():
        assert all(f"--{token}:{value}" in page for token, value in theme.items())


def test_every_colour_token_of_a_figure_is_in_both_themes(reader):
    tokens = set(re.findall(r'"@([a-z]+)(?:/[\d.]+)?"', json.dumps(reader.json_script("figures"))))
    assert tokens
    assert tokens <= THEMES["light"].keys()


def test_every_figure_says_what_it_shows(reader):
    figures = reader.json_script("figures")
    plots = [a for tag, a in reader.elements if tag == "div" and "data-figure" in a]
    assert {a["data-figure"] for a in plots} == figures.keys()
    assert len(plots) == len(figures) >= 10
    for attributes in plots:
        assert attributes["role"] == "img"
        assert len(attributes["aria-label"] or "") > 40
    for key, figure in figures.items():
        assert "title" in figure["layout"]["xaxis"], key
        assert key == "breakdown" or figure["layout"]["yaxis"]["title"]["text"], key
        assert any(trace.get("hoverinfo") == "text" or "hovertemplate" in trace for trace in figure["data"]), key


def hostile_inputs() -> PageInputs:
    """All records with the poison behind every free text."""
    clean = inputs(compiled=compiled(), imported=(imported(),))
    changed = {}
    for name in OPTIONAL:
        value = getattr(clean, name)
        changed[name] = (
            tuple(poisoned(v, type(v), POISON) for v in value)
            if isinstance(value, tuple)
            else poisoned(value, type(value), POISON)
        )
    return dataclasses.replace(clean, **changed, title=clean.title + POISON, commands=tuple(c + POISON for c in clean.commands))


def test_hostile_text_stays_text(reader):
    hostile = render(hostile_inputs())
    found = Reader(hostile)
    assert "<script>alert" not in hostile.replace(get_plotlyjs(), "")
    assert len(found.scripts) == len(reader.scripts) + 2  # two records more
    assert not [a for _, a in found.elements if "onclick" in a]
    assert sum("<script>alert(1)</script>" in text for text in found.text) > 50  # shown, as text
    assert "49" not in {text.strip() for text in found.text}  # templates are not evaluated twice
    for attributes, text in found.scripts:
        if attributes.get("type") == "application/json":
            json.loads(text)


def test_hostile_text_is_escaped_inside_plotly():
    figures = Reader(render(hostile_inputs())).json_script("figures")

    def texts(value, key=""):
        if isinstance(value, str) and key in ("text", "name", "y", "ticktext"):
            yield value
        elif isinstance(value, dict):
            for name, item in value.items():
                yield from texts(item, name)
        elif isinstance(value, list):
            for item in value:
                yield from texts(item, key)

    found = list(texts(figures))
    assert any("&lt;script&gt;" in text for text in found)
    for text in found:
        assert "<" not in re.sub(r"</?b>|<br>", "", text), text


@pytest.mark.parametrize("name", OPTIONAL)
def test_a_missing_record_leaves_its_section_out(name):
    page = render(inputs(**{name: () if name in ("traces", "imported") else None}))
    expected = {
        "run": "Left out",
        "step_times": "no step times were measured",
        "traces": "no trace was captured",
        "audit": None,
        "model": None,
        "flatness": None,
        "acceptance": "no acceptance was measured",
        "predictions": "there is no prediction",
        "compiled": None,
        "imported": None,
    }[name]
    if name == "run":
        assert "Environment" not in Reader(page).text
    elif expected is None:
        assert "Left out" not in page
    else:
        assert f"Left out: {expected}" in page


def test_a_page_from_nothing_says_why_everything_is_missing():
    page = render(PageInputs(generated_at=GENERATED_AT))
    assert page.count("Left out: ") == 8
    assert Reader(page).json_script("figures") == {}


@pytest.mark.parametrize("name", OPTIONAL)
def test_a_page_from_one_record(name):
    clean = inputs(compiled=compiled(), imported=(imported(),))
    page = render(PageInputs(generated_at=GENERATED_AT, **{name: getattr(clean, name)}))
    assert "<h1>" in page


def test_embedded_records_are_the_records(reader):
    clean = inputs()
    buttons = {a["data-name"]: a["data-record"] for tag, a in reader.elements if tag == "button" and "data-name" in a}
    assert set(buttons) >= {"run.json", "timings.json", "model.json", "acceptance.json", "prediction.json", "trace-1.json"}
    for name, record in (("run.json", clean.run), ("model.json", clean.model), ("prediction.json", clean.predictions)):
        document = reader.json_script(buttons[name])
        assert document == json.loads(msgspec.json.encode(to_document(record)))
        assert from_document(document) == record


def test_records_that_do_not_fit_are_named_not_dropped():
    clean = inputs()
    everything = embedded_records(clean, EMBEDDED_BYTES_LIMIT)
    few = embedded_records(clean, 2_000)
    assert [e.name for e in few] == [e.name for e in everything]
    assert all(e.json is not None for e in everything)
    assert any(e.json is None for e in few)
    assert sum(len(e.json.encode()) for e in few if e.json) <= 2_000


def test_findings_are_said_once_with_every_place_gravest_first():
    def at(where, code="A", severity="info"):
        return Finding(code=code, severity=severity, message="same", where=where)

    found = gravest_first([at("math"), at("code"), at("math"), at(None, "B", "error")])
    assert [(f.code, f.where) for f in found] == [("B", None), ("A", "math; code")]


def test_lossless_verdict_is_on_top():
    run = inputs().run
    assert "Lossless: 4,608 tokens compared" in render(inputs())
    assert "Do not trust the speedups" in render(inputs(run=msgspec.structs.replace(run, lossless=False)))
    unknown = render(inputs(run=msgspec.structs.replace(run, lossless=None)))
    assert "Lossless:" not in unknown
    assert "Not lossless" not in unknown


def test_a_synthetic_pair_is_labelled():
    run = inputs().run
    spec = msgspec.structs.replace(run.spec, quick=True)
    assert "Synthetic:" not in render(inputs())
    assert "Synthetic: a tiny pair made for tests" in render(inputs(run=msgspec.structs.replace(run, spec=spec)))
    profiles = tuple(msgspec.structs.replace(p, synthetic=True) for p in inputs().acceptance.profiles)
    assert "Synthetic: acceptance is assumed" in render(inputs(acceptance=AcceptanceSet(profiles=profiles)))


def test_datasheet_predictions_are_labelled(reader):
    labels = [a for tag, a in reader.elements if tag == "span" and a.get("class") == "label"]
    assert len(labels) == 2  # one table per pair
    assert reader.text.count("datasheet prediction") == 2


def test_predictions_elsewhere_alone_still_answer():
    page = render(
        PageInputs(generated_at=GENERATED_AT, predictions=PredictionSet(here=(), elsewhere=inputs().predictions.elsewhere))
    )
    assert "On tpu-v5p by its datasheet" in page
    assert "On this machine" not in page


def test_poison_reaches_every_record():
    """The test of the test: the helper changes free text in each kind of record, and leaves literals alone."""
    clean = inputs()
    for name in ("run", "step_times", "audit", "model", "acceptance", "predictions"):
        record = getattr(clean, name)
        assert isinstance(record, Record)
        changed = poisoned(record, type(record), POISON)
        assert b"alert(1)" in msgspec.json.encode(changed)
        assert from_document(json.loads(msgspec.json.encode(to_document(changed)))) == changed


def test_chromium_without_a_network_draws_every_open_figure_and_asks_for_nothing(page, reader, tmp_path):
    found = visit(page, tmp_path)
    assert found.console == ""
    assert found.requests == ()
    drawn = {a["data-figure"] for _, a in Reader(found.dom).elements if "js-plotly-plot" in (a.get("class") or "")}
    assert drawn | {"heat-1", "heat-2"} == reader.json_script("figures").keys()  # those two are folded


def test_chromium_would_report_a_request(page, tmp_path):
    """The test of the test: what the policy stops is on the console, and without the policy the request is in the network log."""
    asking = page.replace("<main>", '<main><img src="http://127.0.0.1:9/x.png">')
    (tmp_path / "stopped").mkdir()
    assert "Content Security Policy" in visit(asking, tmp_path / "stopped").console
    (tmp_path / "free").mkdir()
    free = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", asking)
    assert visit(free, tmp_path / "free").requests == ("http://127.0.0.1:9/x.png",)


def test_no_report_module_imports_jax():
    names = [f"reports.{path.stem}" for path in Path(reports.__file__).parent.glob("*.py") if path.stem != "__init__"]
    code = f"import sys, {', '.join(names)}; print(sorted({{'jax', 'decoding', 'profiling'}} & set(sys.modules)))"
    root = Path(reports.__file__).parent.parent
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=root)
    assert done.stdout.strip() == "[]"
