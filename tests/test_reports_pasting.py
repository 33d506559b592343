"""What is offered to be pasted names models as engines load them, and says what has to be done first."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace
from report_fixture import inputs

from reports.answer import paste_settings
from reports.pasting import EXPORT, loadable, pasted, pasted_settings

VLLM, SGLANG, LLAMA, TENSORRT = "vLLM", "SGLang", "llama.cpp", "TensorRT-LLM"


def snippets(block_size: int, target: str, draft: str) -> dict[str, list[str]]:
    return {one.engine: one.snippet.splitlines() for one in pasted_settings(block_size, target, draft)}


def test_shipped_names_become_hub_ids():
    found = snippets(16, "qwen3-4b", "qwen3-4b-dflash-b16")
    (line,) = found[VLLM]
    words = shlex.split(line)
    assert words[:3] == ["vllm", "serve", "Qwen/Qwen3-4B"]
    config = {"method": "dflash", "model": "z-lab/Qwen3-4B-DFlash-b16", "num_speculative_tokens": 15}
    assert json.loads(words[words.index("--speculative-config") + 1]) == config
    assert "--model-path Qwen/Qwen3-4B " in found[SGLANG][0]


def test_the_embedded_pair_is_written_out_first():
    found = snippets(5, "smollm2-135m", "smollm2-135m-dflash")
    assert found[VLLM][0] == found[SGLANG][0] == EXPORT
    assert found[TENSORRT][0] == f"# first: {EXPORT}"  # a YAML file: the command stands in a comment
    assert "vllm serve embedded-pair/smollm2-135m " in found[VLLM][1]
    assert snippets(1, "smollm2-135m", "smollm2-135m-dflash")[VLLM] == [EXPORT, "vllm serve embedded-pair/smollm2-135m"]


def test_a_name_without_one_checkpoint_is_said_and_not_passed_on():
    found = snippets(4, "qwen3-30b-a3b", "qwen3-30b-a3b-eagle3")[VLLM]
    assert "put one of Qwen/Qwen3-30B-A3B, " in found[0]
    assert "the folder or hub id of your copy" in found[1]
    assert all(line.startswith("#") for line in found[:-1])


def test_llama_cpp_is_given_files_that_must_be_made():
    *before, command = snippets(4, "qwen3-4b", "qwen3-4b-dflash-b16")[LLAMA]
    assert "-m Qwen3-4B.gguf -md Qwen3-4B-DFlash-b16.gguf" in command
    assert before[0].startswith("# Qwen3-4B.gguf: Qwen/Qwen3-4B, made into a GGUF file")
    assert loadable("models/own.gguf", "llama.cpp").before == ()


def test_a_table_by_batch_names_the_drafter_even_where_the_first_batch_needs_none():
    text = pasted(
        "vllm", block_size=1, target="qwen3-4b", draft="qwen3-4b-dflash-b16", why="", method="dflash", by_batch={1: 1, 8: 4}
    )
    assert '"model": "z-lab/Qwen3-4B-DFlash-b16"' in text


def test_a_path_stays_as_it_was_given():
    assert loadable("/models/mine", "vllm").name == "/models/mine"
    assert loadable("Qwen/Qwen3-4B", "vllm").name == "Qwen/Qwen3-4B"


def test_the_tiny_pair_offers_nothing_to_paste():
    clean = inputs()
    assert paste_settings(clean)
    quick = replace(clean.run, spec=replace(clean.run.spec, quick=True))
    assert paste_settings(inputs(run=quick)) == ()


@pytest.mark.slow
def test_the_export_that_is_pasted_writes_the_folders_that_are_named(tmp_path: Path):
    where = {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)}
    command = [sys.executable, *shlex.split(EXPORT)[1:]]
    done = subprocess.run(command, cwd=tmp_path, env=where, capture_output=True, text=True, check=False)
    if done.returncode == 4:
        pytest.skip("the embedded target is not installed")
    assert done.returncode == 0, done.stderr
    for name in ("smollm2-135m", "smollm2-135m-dflash", "smollm2-135m-eagle3"):
        assert (tmp_path / loadable(name, "vllm").name / "config.json").is_file()
