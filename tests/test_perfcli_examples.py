"""Every example of every verb's help is run, in a folder that holds the files it names.

What would take minutes is run with fewer points, or only planned (`SHORTENED`), and those that decode or compile are slow tests.
"""

import json
import re
import shlex
import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner
from perfcli_examples import examples
from profiling_spaces import SpacePlane, write_space
from report_fixture import inputs
from test_profiling_chrome import torch_events, write_trace
from test_sweeps_importers import scrape
from test_sweeps_importers_formats import LINE

from perfcli.app import VERBS, app
from perfmodel import codec
from perfmodel.errors import InputError
from perfmodel.modelspec import load_model
from perfmodel.records import FittedModel, TraceSet

SHORTENED = {
    "perf sweep-k --max 1024": "--dry-run",
    "perf sweep-k --target qwen3-4b --weights random --dtype bfloat16": "--dry-run",
    "perf sweep-k --quick --out quick-run": "--max 16 --repeats 3",
    "perf capture --task code --num-prompts 2": "--max-new-tokens 4",
    "perf capture --prompt-ids prompts.json --no-trace --dump-tokens answers.json": "--max-new-tokens 4",
    "perf compile --hardware tpu-v5p,tpu-v6e --k 1,16,128": "--hardware tpu-v5p --k 16 --phase verify",
    "perf compile --hardware v5p:2x2x1 --target qwen3-8b --draft qwen3-8b-dflash-b16 --k 16 --phase step": "",
}
"""Example → options that make it short; the last of an option given twice wins."""

SLOW = ("perf capture", "perf compile", "perf doctor --calibrate", "perf sweep-k --quick", "perf sweep-k --resume")

ELSEWHERE = {
    "perf view": "tests/test_perfcli_view.py serves a run and opens it in a browser",
    "perf sweep-k --engine": "tests of sweeps.engines run it against a server of their own",
}
"""Examples that a test of their own runs, because they need a server or do not end."""


def save_run(folder: Path) -> None:
    """A finished run folder out of the report's records, with one small capture."""
    clean = inputs()
    codec.save(folder / "timings.json", clean.step_times)
    codec.save(folder / "traces.json", TraceSet(traces={"math-K8": clean.traces[0]}))
    codec.save(folder / "audit.json", clean.audit)
    codec.save(folder / "model.json", clean.model)
    codec.save(folder / "acceptance.json", clean.acceptance)
    codec.save(folder / "prediction.json", clean.predictions)
    codec.save(folder / "run.json", clean.run)
    steps = [("decode_step", 10 * number, 8, {"step_num": number}) for number in range(4)]
    inside = [("verify", 10 * number + 1, 6) for number in range(4)]
    write_space(folder / "xprof", SpacePlane("/host:CPU").line("python", *steps, *inside), run="math-K8")


def write_table(path: Path, tokens_name: str, ms_name: str) -> None:
    """Step times of a made-up chip: flat at 5 ms up to some 64 tokens, then rising."""
    rows = [
        f"{tokens},{5 * (1 + (tokens / 400) ** 2) ** 0.5 + 0.01 * tokens:.4f}"
        for tokens in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
    ]
    path.write_text("\n".join([f"{tokens_name},{ms_name}", *rows]))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with every file that an example names."""
    root = tmp_path_factory.mktemp("examples")
    for name in ("demo", "monday", "tuesday"):
        save_run(root / "runs" / name)
    shutil.copy(root / "runs" / "demo" / "model.json", root / "model.json")
    shutil.copy(root / "runs" / "demo" / "acceptance.json", root / "acceptance.json")
    write_table(root / "table.csv", "tokens", "ms")
    write_table(root / "published.csv", "tokens", "ms")
    write_table(root / "timings.csv", "M", "latency")
    (root / "server.log").write_text("\n".join([LINE] * 4))
    (root / "before.prom").write_text(scrape(100, 300, 150, [80, 50, 20], created=1.7e9))
    (root / "after.prom").write_text(scrape(300, 900, 400, [200, 130, 70], created=1.7e9))
    (root / "prompts.json").write_text(json.dumps([[1, 4093, 198], [1, 520]]))
    modules = [("jit_forward.1", 10 * number, 8) for number in range(4)]
    made = write_space(root / "made", SpacePlane("/device:TPU:0").line("XLA Modules", *modules))
    shutil.copy(made, root / "other.xplane.pb")
    write_trace(root, torch_events(), "vllm.trace.json.gz", deviceProperties=[{"id": 0, "name": "NVIDIA H100"}])
    for name in ("qwen3-4b", "qwen3-4b-dflash-b16"):
        path = root / {"qwen3-4b": "Qwen3-4B", "qwen3-4b-dflash-b16": "Qwen3-4B-DFlash-b16"}[name] / "config.json"
        path.parent.mkdir()
        path.write_text(json.dumps(config_of(name)))
    return root


def config_of(name: str) -> dict:
    """A config.json as the hub has it, from the dimensions that ship."""
    spec = load_model(name)
    body = {
        "model_type": "qwen3",
        "architectures": ["Qwen3ForCausalLM" if spec.role == "target" else "DFlashDraftModel"],
        "hidden_size": spec.hidden_size,
        "num_hidden_layers": spec.num_layers,
        "num_attention_heads": spec.num_heads,
        "num_key_value_heads": spec.num_kv_heads,
        "head_dim": spec.head_dim,
        "intermediate_size": spec.intermediate_size,
        "vocab_size": spec.vocab_size,
        "tie_word_embeddings": True,
        "rope_theta": 1_000_000,
        "max_position_embeddings": 40960,
        "rms_norm_eps": 1e-6,
        "torch_dtype": "bfloat16",
    }
    if spec.role == "target":
        return body
    ids = {"target_layer_ids": list(spec.target_layer_ids), "mask_token_id": 151669}
    return {**body, "block_size": spec.block_size, "num_target_layers": 36, "dflash_config": ids}


def cases() -> Iterator:
    for verb in VERBS:
        for text in examples(verb):
            slow = any(text.startswith(start) for start in SLOW)
            yield pytest.param(
                text,
                marks=[pytest.mark.slow, pytest.mark.timeout(1200)] if slow else [],
                id=re.sub(r"[^a-z0-9.-]+", "_", text)[:60],
            )


@pytest.mark.parametrize("text", list(cases()))
def test_an_example_runs(text: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for start, where in ELSEWHERE.items():
        if text.startswith(start):
            pytest.skip(where)
    if text.startswith("perf compile") and find_spec("libtpu") is None:
        pytest.skip("libtpu is not installed")
    monkeypatch.chdir(folder)
    if "--resume" in text and not Path("quick-run").exists():
        test_an_example_runs("perf sweep-k --quick --out quick-run", folder, monkeypatch)
    arguments = [*shlex.split(text)[1:], *shlex.split(SHORTENED.get(text, ""))]
    result = CliRunner().invoke(app, arguments)
    assert result.exception is None or isinstance(result.exception, SystemExit), (result.exception, result.output)
    allowed = (0, 3) if arguments[0] in ("check", "sweep-k") else (0,)  # 3: the fixture holds a point below its floor
    assert result.exit_code in allowed, result.output


def first_quick_examples() -> list:
    """Per verb the first example that neither decodes nor compiles nor serves."""
    found = []
    for verb in VERBS:
        mine = [text for text in examples(verb) if text.startswith(f"perf {verb}") and "--emit" not in text]
        quick = [
            text for text in mine if not any(text.startswith(start) for start in (*SLOW, *ELSEWHERE)) and text not in SHORTENED
        ]
        found += [pytest.param(quick[0], id=verb)] if quick else []
    return found


@pytest.mark.parametrize("text", first_quick_examples())
def test_with_json_an_example_prints_one_document(text: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    result = CliRunner().invoke(app, [*shlex.split(text)[1:], "--json"])
    document = json.loads(result.stdout)
    assert document["schema"].startswith("perf.")
    assert {"version", "perf_version", "findings"} <= document.keys()


@pytest.mark.parametrize("text", first_quick_examples())
def test_tables_fit_eighty_columns(text: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "80")
    result = CliRunner().invoke(app, shlex.split(text)[1:])
    wide = [line for line in result.stdout.splitlines() if len(line.rstrip()) > 80]
    assert not [line for line in wide if not line.startswith(PASTED)], wide


PASTED = ("# ", "vllm serve", "python -m", "llama-server", "trtllm-serve")
"""Settings are printed whole, to be copied."""


def test_unlike_runs_are_compared_by_force_only(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    run = inputs().run
    other = msgspec.structs.replace(run, environment=msgspec.structs.replace(run.environment, num_cores=64))
    save_run(folder / "runs" / "elsewhere")
    codec.save(folder / "runs" / "elsewhere" / "run.json", other)
    asked = ["compare", "runs/demo", "runs/elsewhere", "--out", "forced.html"]
    refused = CliRunner().invoke(app, asked)
    assert isinstance(refused.exception, InputError)
    assert "cores: 2 against 64" in refused.exception.message
    assert not Path("forced.html").exists()
    forced = CliRunner().invoke(app, [*asked, "--force"])
    assert forced.exit_code == 0, forced.output
    assert "Compared by force" in forced.output
    assert "Compared by force" in Path("forced.html").read_text(encoding="utf-8")


def test_the_example_files_are_what_they_say(folder: Path) -> None:
    """The test of the fixture: a run folder of its own records, readable by name."""
    model = codec.load(folder / "runs" / "demo" / "model.json", FittedModel)
    assert model == inputs().model
    assert msgspec.json.decode((folder / "runs" / "demo" / "run.json").read_bytes())["schema"] == "perf.run"


def test_every_verb_has_an_example_and_every_example_its_verb() -> None:
    for verb in VERBS:
        assert any(text.startswith(f"perf {verb}") for text in examples(verb)), verb
    known = [text for verb in VERBS for text in examples(verb)]
    assert set(SHORTENED) <= set(known)
    for start in (*SLOW, *ELSEWHERE):
        assert any(text.startswith(start) for text in known), start
