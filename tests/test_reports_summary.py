"""Terminal tables: within 80 columns, no markup from records, every kind of record describable; and the README's SVG."""

import xml.etree.ElementTree as ElementTree

import msgspec
import pytest
from report_fixture import inputs, poisoned, prediction, trace
from report_steps import DRAFT, MACHINE, flatness, step_times
from rich.console import Console

from perfmodel.records import TraceSet
from reports.description import describe
from reports.documents import doctor_table, validation_table
from reports.figure_svg import sweep_svg
from reports.summary import sweep_summary
from reports.tables import prediction_table, step_times_table


def shown(renderable) -> str:
    """What a person sees at 80 columns; no line may be wider."""
    console = Console(width=80, color_system=None, force_terminal=False)
    with console.capture() as capture:
        console.print(renderable)
    text = capture.get()
    assert max(len(line.rstrip()) for line in text.splitlines()) <= 80
    return text


def test_sweep_summary_says_everything():
    text = shown(sweep_summary(inputs(), "runs/example/report.html"))
    words = " ".join(text.split())
    assert "math 3.64" in words
    assert "8 (7)" in words
    assert "1.69× (1.59–1.80) 1.64× yes" in words
    assert "chat" in words
    assert "1 (off) plain decoding – no" in words
    assert "verification is flat only from K = 2" in words
    assert "4,608 tokens compared, all equal" in words
    assert "runs/example/report.html" in words
    assert "do not speculate here" in words


def test_sweep_summary_rows_stay_on_one_line():
    text = shown(sweep_summary(inputs(), "report.html"))
    assert any(line.startswith("math") and line.rstrip().endswith("yes") for line in text.splitlines())


def test_sweep_summary_without_anything():
    bare = inputs(run=None, model=None, flatness=None, predictions=None, acceptance=None)
    text = shown(sweep_summary(bare, "report.html"))
    assert "flat width unknown" in text


def test_lost_tokens_are_shouted():
    run = msgspec.structs.replace(inputs().run, lossless=False)
    assert "NO: of 4,608 tokens compared" in shown(sweep_summary(inputs(run=run), "report.html"))


def test_step_times_table_keeps_failures_and_verdicts():
    text = shown(step_times_table(step_times(), inputs().audit))
    assert "invalid" in text
    assert "failed: out of memory" in text
    assert sum(line.startswith(("draft", "verify", "commit")) for line in text.splitlines()) == 33


def test_prediction_table_marks_the_best():
    text = shown(prediction_table(prediction("math")))
    assert "▸ 8 (7)" in text
    assert "1024 (1023)*†" in text
    assert "16 (15)†" in text


@pytest.mark.parametrize(
    "record",
    [
        inputs().run,
        inputs().step_times,
        inputs().audit,
        inputs().model,
        inputs().acceptance,
        inputs().acceptance.profiles[0],
        inputs().predictions,
        prediction("code"),
        trace("math", 8),
        TraceSet(traces={"math-K8": trace("math", 8)}),
        MACHINE,
        DRAFT,
        flatness(),
    ],
    ids=lambda record: type(record).__name__,
)
def test_every_record_can_be_described(record):
    assert len(shown(describe(record)).splitlines()) > 3


def test_describe_shows_schema_and_findings():
    text = " ".join(shown(describe(inputs().run)).split())
    assert "perf.run, version 1" in text
    assert "warning: The draft step at K = 2 is faster than its weights can be read" in text


def test_markup_in_records_is_text():
    run = poisoned(inputs().run, type(inputs().run), "[bold]x[/bold][/]")
    assert "[bold]x[/bold][/]" in shown(describe(run)).replace("\n", "").replace(" ", "")


def test_validation_table_gives_errors():
    document = {
        "points": [
            {
                "phase": "verify",
                "block_size": 8,
                "batch": 1,
                "context": 256,
                "measured_s": 0.05,
                "predicted_s": 0.055,
                "error": 0.1,
            }
        ],
        "median_error": 0.1,
        "mean_error": 0.1,
        "max_error": 0.1,
        "findings": [{"severity": "warning", "message": "one left out", "hint": "look", "code": "X", "where": None}],
    }
    text = shown(validation_table(document))
    assert "+10 %" in text
    assert "50.0 ms" in text
    assert "warning: one left out (look)" in text


def test_doctor_table_names_what_was_not_measured():
    document = {
        "device_kind": "cpu",
        "platform": "cpu",
        "num_devices": 1,
        "host_cpu": "Example",
        "num_cores": 2,
        "versions": {"jax": "0.10.2"},
        "flags": {},
        "program": "perf",
        "bandwidth_bytes_per_s": None,
        "flops_per_s": None,
        "dispatch_s": None,
        "findings": [],
    }
    assert "perf doctor --calibrate" in shown(doctor_table(document))
    calibrated = {**document, "bandwidth_bytes_per_s": 23e9, "flops_per_s": {"float32": 118e9}, "dispatch_s": 2e-5}
    text = shown(doctor_table(calibrated))
    assert "23.0 GB/s" in text
    assert "float32 118 GFLOP/s" in text


def test_svg_is_small_and_well_formed():
    clean = inputs()
    svg = sweep_svg(clean.predictions.here, clean.step_times, clean.audit, clean.run)
    root = ElementTree.fromstring(svg)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert len(svg) < 20_000
    assert "prefers-color-scheme:dark" in svg
    assert "url(" not in svg
    paths = root.findall(".//{http://www.w3.org/2000/svg}path[@class='l d']")
    assert len(paths) == 3  # one dotted tail per task


def test_svg_escapes_and_leaves_invalid_points_out():
    clean = inputs()
    poison = "<script>alert(1)</script>"
    hostile = tuple(poisoned(p, type(p), poison) for p in clean.predictions.here)
    root = ElementTree.fromstring(sweep_svg(hostile, poisoned(clean.step_times, type(clean.step_times), poison)))
    assert not root.findall(".//{http://www.w3.org/2000/svg}script")
    with_audit = sweep_svg(clean.predictions.here, clean.step_times, clean.audit)
    without = sweep_svg(clean.predictions.here, clean.step_times)
    assert without.count('r="3.2"') == with_audit.count('r="3.2"') + 1
