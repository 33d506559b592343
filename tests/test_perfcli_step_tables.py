"""`fit`, `check` and `validate` on a table: the promised keys, with and without a chip and a model."""

import csv
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from perfcli.app import app

TABLE = "tokens,ms\n1,10\n4,10.2\n16,10.5\n64,12\n256,28\n1024,105\n"


def perf(*args: object) -> dict:
    result = CliRunner().invoke(app, [*map(str, args), "--json"], catch_exceptions=False)
    document = json.loads(result.stdout)
    assert {"schema", "version", "perf_version", "findings"} <= document.keys()
    assert all({"code", "severity", "message", "hint", "where"} <= finding.keys() for finding in document["findings"])
    return document


@pytest.fixture(scope="module")
def ada(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    with (shared_data / "published" / "verify_vs_k.csv").open() as stream:
        rows = [row for row in csv.DictReader(stream) if row["device"] == "RTX 2000 Ada"]
    path = tmp_path_factory.mktemp("tables") / "ada.csv"
    path.write_text("K,context,ms\n" + "".join(f"{row['K']},{row['context']},{row['reported_mean_ms']}\n" for row in rows))
    return path


def test_a_bare_table_is_fitted_with_a_named_form(tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    table.write_text(TABLE)
    model = perf("fit", table)
    assert model["schema"] == "perf.model"
    assert model["form"] == "dense"
    assert {"value", "stderr", "unit", "identified"} <= model["parameters"]["plateau_s"].keys()
    assert (model["num_points"], model["num_rejected"]) == (6, 0)
    assert model["held_out"]["block_size"] == model["held_out_median_error"] is not None
    assert {row["batch"] for row in model["flat"]} >= {1, 8}
    checked = perf("check", table)
    assert [point["floor_s"] for point in checked["points"]] == [None] * 6
    assert [point["tokens"] for point in checked["points"]] == [1, 4, 16, 64, 256, 1024]
    assert {finding["code"] for finding in checked["findings"]} == {"not-audited"}


def test_a_table_with_chip_and_model_is_audited_fitted_and_validated(ada: Path, tmp_path: Path) -> None:
    chip = ("--hardware", "rtx-2000-ada", "--target", "qwen3-4b")
    checked = perf("check", ada, *chip)
    assert checked["schema"] == "perf.check"
    assert (checked["num_invalid"], len(checked["points"])) == (0, 35)
    assert all(point["floor_s"] > 0 and point["verdict"] == "valid" for point in checked["points"])
    assert "no-peak" in {finding["code"] for finding in checked["findings"]}
    path = tmp_path / "model.json"
    model = perf("fit", ada, *chip, "-o", path)
    assert model["form"] == "roofline"
    assert model["held_out_median_error"] < 0.02
    assert model["fitted_range"] == {"tokens": [16, 128], "batch": [1, 1], "context": [64, 1024]}
    validated = perf("validate", path, ada)
    assert validated["schema"] == "perf.validation"
    assert validated["median_error"] < 0.02
    assert {"block_size", "tokens", "batch", "context", "measured_s", "predicted_s", "error"} <= validated["points"][0].keys()


@pytest.mark.parametrize(
    ("device", "chip", "verdict", "num"),
    [
        ("TPU v4", "tpu-v4", "invalid", 12),
        ("TPU v5p", "tpu-v5p", "invalid", 7),
        ("RTX 2000 Ada", "rtx-2000-ada", "valid", 35),
        ("H100 SXM", "h100", "overhead", 19),
    ],
)
def test_published_rows_get_the_verdict_they_deserve(shared_data: Path, tmp_path: Path, device, chip, verdict, num) -> None:
    with (shared_data / "published" / "verify_vs_k.csv").open() as stream:
        rows = [row for row in csv.DictReader(stream) if row["device"] == device]
    path = tmp_path / "rows.json"
    path.write_text(json.dumps([{"K": row["K"], "context": row["context"], "ms": row["reported_mean_ms"]} for row in rows]))
    checked = perf("check", path, "--hardware", chip, "--target", "qwen3-4b")
    assert [point["verdict"] for point in checked["points"]] == [verdict] * num
    assert all(point["cause"] for point in checked["points"] if verdict != "valid")
    assert checked["num_invalid"] == (num if verdict == "invalid" else 0)


def test_a_table_alone_is_validated_by_leaving_sizes_out(ada: Path) -> None:
    validated = perf("validate", ada, "--hardware", "rtx-2000-ada", "--target", "qwen3-4b")
    assert validated["method"] == "left-out block sizes"
    assert validated["median_error"] <= validated["max_error"] < 0.2
    assert validated["mean_error"] < 0.05


def test_a_model_may_be_held_against_another_chip(ada: Path, tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    perf("fit", ada, "--hardware", "rtx-2000-ada", "--target", "qwen3-4b", "-o", path)
    moved = perf("validate", path, ada, "--hardware", "rtx-4090")
    assert "transferred" in {finding["code"] for finding in moved["findings"]}
    assert moved["median_error"] > 0.3  # the table is not that chip's


def test_what_a_sweep_printed_is_read_back(tmp_path: Path) -> None:
    rows = [{"phase": "verify", "block_size": k, "batch": 1, "context": 0, "seconds": s} for k, s in ((1, 0.01), (8, 0.011))]
    rows.append(rows[0] | {"block_size": 64, "seconds": None})
    path = tmp_path / "sweep.json"
    path.write_text(json.dumps({"schema": "perf.sweep", "version": 1, "perf_version": "0", "step_times": rows}))
    assert [point["block_size"] for point in perf("check", path)["points"]] == [1, 8]


@pytest.mark.parametrize("paths", [(), ("a", "b", "c")])
def test_validate_takes_one_or_two_paths(paths: tuple[str, ...]) -> None:
    result = CliRunner().invoke(app, ["validate", *paths])
    assert result.exit_code == 2
    assert "SOURCE" in result.output


def test_a_person_sees_errors_and_flat_widths_beside_the_constants(tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    table.write_text(TABLE)
    result = CliRunner().invoke(app, ["fit", str(table)], catch_exceptions=False)
    assert result.exit_code == 0
    for words in ("never saw", "plateau_s", "Flat width", "knee"):
        assert words in result.output
