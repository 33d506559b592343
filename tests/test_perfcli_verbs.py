"""The command line: every verb has help and stands in the docs; each family of errors has its exit code and one clear line."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from perfcli import reference
from perfcli.app import VERBS, app

ROOT = Path(__file__).resolve().parent.parent


def perf(*args: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run the command as a user does."""
    return subprocess.run([sys.executable, "-m", "perfcli", *args], capture_output=True, text=True, cwd=cwd or ROOT, check=False)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help_and_an_example(verb: str) -> None:
    result = CliRunner().invoke(app, [verb, "--help"])
    assert result.exit_code == 0
    assert "Example" in result.output
    assert f"perf {verb}" in result.output


@pytest.mark.parametrize("verb", VERBS)
def test_the_list_of_verbs_says_what_the_verb_says(verb: str) -> None:
    command = app.get_command(None, verb)  # type: ignore[arg-type]
    assert command is not None
    assert command.short_help == VERBS[verb][1]


def test_the_cli_page_is_what_the_help_says() -> None:
    assert (ROOT / "docs" / "cli.md").read_text() == reference.page(), "run `make docs`"


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; from perfcli.app import app\n"
        "try: app.main(['--help'], standalone_mode=False)\n"
        "except SystemExit: pass\n"
        "heavy = {'jax', 'numpy', 'scipy', 'plotly', 'rich', 'msgspec', 'perfmodel'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize(
    ("args", "status", "words"),
    [
        (["swep-k"], 2, ["No such verb 'swep-k'", "Did you mean 'sweep-k'"]),
        (["zzz"], 2, ["No such verb", "lists the verbs"]),
        (["show", "absent.json"], 2, ["absent.json does not exist"]),
        (["list", "chips"], 2, ["chips"]),
        (["predict", "--hardware", "tpu-v5q", "--survival", "0.9"], 2, ["tpu-v5q", "tpu-v5p"]),
        (["predict", "--hardware", "tpu-v5p"], 2, ["no acceptance given"]),
        (["predict", "--survival", "0.9"], 2, ["exactly one of"]),
        (["predict", "--hardware", "tpu-v5p", "--survival", "0.9,1.9"], 2, ["1.9"]),
        (["predict", "--hardware", "tpu-v5p", "--tau", "16"], 2, ["K:VALUE"]),
        (["sweep-k", "--task", "maths", "--dry-run"], 2, ["maths", "math"]),
        (["sweep-k", "--max", "0", "--dry-run"], 2, ["--max 0"]),
        (["sweep-k", "--max", "99999", "--dry-run"], 2, ["8192"]),
        (["sweep-k", "--points", "1,two", "--dry-run"], 2, ["'two'"]),
        (["sweep-k", "--batch", "0", "--dry-run"], 2, ["--batch"]),
        (["sweep-k", "--target", "smollm2", "--dry-run"], 2, ["smollm2"]),
        (["sweep-k", "--prompts", "absent.jsonl", "--dry-run"], 2, ["absent.jsonl"]),
        (["sweep-k", "--hardware", "tpu-v5", "--dry-run"], 2, ["tpu-v5"]),
        (["sweep-k", "--resume"], 2, ["--out"]),
        (["sweep-k", "--resume", "--out", "absent-folder"], 2, ["not a run folder"]),
        (["report", "absent-folder.json"], 2, ["does not exist"]),
        (["extract", "absent.xplane.pb"], 2, ["absent.xplane.pb"]),
        (["extract", "x", "--phase", "verify"], 2, ["PHASE=REGEX"]),
        (["extract", "x", "--phase", "verify=("], 2, ["regular expression"]),
        (["fit", "absent.csv"], 2, ["does not exist"]),
        (["show", "x" * 10_000], 2, ["…", "name too long", "hint"]),
        (["predict", "--hardware", "h100", "--survival", "0.9", "--k", "1:99999999999"], 2, ["1,000,000,000"]),
        (["predict", "--hardware", "h100", "--survival", "0.9", "--k", "5:1"], 2, ["ranges upwards"]),
        (["predict", "--hardware", "h100", "--survival", "0.9", "--k", "9000"], 2, ["above 8192"]),
        (["predict", "--hardware", "h100", "--tau", "99999999999999999999:5"], 2, ["above 8192"]),
    ],
)
def test_wrong_use_is_one_line_a_hint_and_exit_2(args: list[str], status: int, words: list[str]) -> None:
    result = perf(*args)
    assert result.returncode == status, result.stderr
    assert "Traceback" not in result.stderr
    for word in words:
        assert word in result.stderr


def test_a_terminal_without_greek_is_written_to_all_the_same() -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    args = [sys.executable, "-m", "perfcli", "predict", "--hardware", "h100", "--survival", "0.9"]
    result = subprocess.run(args, capture_output=True, text=True, cwd=ROOT, env=environment, check=False)
    assert result.returncode == 0, result.stderr
    assert "?" in result.stdout


def test_impossible_timings_are_exit_3(shared_data: Path, tmp_path: Path) -> None:
    rows = [line.split(",") for line in (shared_data / "published" / "verify_vs_k.csv").read_text().splitlines()]
    header, body = rows[0], [row for row in rows[1:] if row[0] == "TPU v5p"]
    device = {name: header.index(name) for name in ("context", "K", "reported_mean_ms")}
    lines = [f"{row[device['K']]},{row[device['context']]},{row[device['reported_mean_ms']]}" for row in body]
    path = tmp_path / "published.csv"
    path.write_text("\n".join(["block_size,context,ms", *lines]))
    result = perf("check", str(path), "--hardware", "tpu-v5p", "--target", "qwen3-4b", "--json")
    assert result.returncode == 3
    document = json.loads(result.stdout)
    assert document["schema"] == "perf.check"
    assert document["num_invalid"] == len({(row[device["K"]], row[device["context"]]) for row in body})


def test_json_is_exactly_one_document_on_stdout() -> None:
    result = perf("predict", "--hardware", "tpu-v5p", "--acceptance", "qwen3-4b-dflash-b16/math", "--json")
    document = json.loads(result.stdout)
    assert (document["schema"], document["version"]) == ("perf.prediction", 1)
    assert {"rows", "best", "plateau", "worth_it", "break_even_tau", "source", "findings", "perf_version"} <= set(document)
    assert document["source"] == "datasheet"
    assert document["best"]["num_speculative_tokens"] == document["best"]["block_size"] - 1


@pytest.mark.parametrize("kind", ["hardware", "models", "acceptance"])
def test_lists_are_names_that_load(kind: str) -> None:
    from perfmodel.acceptance import load_profile
    from perfmodel.hardware import load_hardware
    from perfmodel.modelspec import load_model

    load = {"hardware": load_hardware, "models": load_model, "acceptance": load_profile}[kind]
    names = json.loads(perf("list", kind, "--json").stdout)["names"]
    assert names
    for name in names:
        assert load(name).name == name


def test_a_table_of_cycle_times_needs_no_model(tmp_path: Path) -> None:
    path = tmp_path / "cycles.csv"
    # 1000·τ/ms tokens per second: 100 at K=1, 2/15 → 133 at K=4, 3/30 → 100 at K=16
    path.write_text("block_size,ms,tau\n1,10,1\n4,15,2\n16,30,3\n")
    document = json.loads(perf("predict", "--step-times", str(path), "--json").stdout)
    assert [row["block_size"] for row in document["rows"]] == [1, 4, 16]
    assert document["best"]["block_size"] == 4
    assert document["best"]["speedup"] == pytest.approx(2 * 10 / 15)


def test_dry_run_says_what_would_run_and_writes_nothing(tmp_path: Path) -> None:
    result = perf("sweep-k", "--max", "8", "--dry-run", "--out", str(tmp_path / "run"))
    assert result.returncode == 0
    assert "K = 1, 2, 4, 8" in result.stderr
    assert not (tmp_path / "run").exists()


def test_dry_run_as_json_is_the_spec_of_the_run(tmp_path: Path) -> None:
    result = perf("sweep-k", "--quick", "--dry-run", "--json", "--out", str(tmp_path / "run"))
    assert result.returncode == 0
    document = json.loads(result.stdout)
    assert (document["schema"], document["target"], document["findings"]) == ("perf.runspec", "tiny", [])
