"""Engine settings: every off-by-one, quoting, and plain decoding."""

import json
import re
import shlex

import pytest

from perfmodel.errors import InputError
from perfmodel.settings import ENGINES as NAMES
from perfmodel.settings import engine_settings, snippet

ENGINES = ("vLLM", "tpu-inference", "SGLang", "TensorRT-LLM", "llama.cpp")


def by_engine(block_size, target="org/target", draft="org/draft"):
    return {setting.engine: setting for setting in engine_settings(block_size, target, draft)}


@pytest.mark.parametrize("block_size", [2, 8, 16])
def test_each_engine_gets_its_own_count(block_size):
    found = by_engine(block_size)
    assert tuple(found) == ENGINES
    for engine in ("vLLM", "tpu-inference"):
        words = shlex.split(found[engine].snippet)
        config = json.loads(words[words.index("--speculative-config") + 1])
        assert config == {"method": "dflash", "model": "org/draft", "num_speculative_tokens": block_size - 1}
    words = shlex.split(found["SGLang"].snippet)
    assert words[words.index("--speculative-num-draft-tokens") + 1] == str(block_size)
    assert words[words.index("--speculative-algorithm") + 1] == "DFLASH"
    assert f"max_draft_len: {block_size - 1}\n" in found["TensorRT-LLM"].snippet
    assert re.search(rf"--spec-type draft-dflash --spec-draft-n-max {block_size - 1}$", found["llama.cpp"].snippet)


def test_the_reason_names_both_counts():
    for engine, setting in by_engine(16).items():
        assert "16" in setting.reason
        assert engine == "SGLang" or "15" in setting.reason
        assert str(setting).startswith(f"# {engine}: ")
        assert str(setting).endswith(setting.snippet)
    assert "1 draft;" in by_engine(2)["vLLM"].reason


def test_at_k_1_speculation_is_switched_off():
    found = by_engine(1)
    assert tuple(found) == ENGINES
    for setting in found.values():
        assert "draft" not in setting.snippet
        assert "speculative" not in setting.snippet
        assert "leave speculation off" in setting.reason


def test_names_with_spaces_and_quotes_survive_the_shell():
    draft = "my drafts/it's"
    words = shlex.split(by_engine(4, "a target", draft)["vLLM"].snippet)
    assert words[2] == "a target"
    assert json.loads(words[4])["model"] == draft
    assert shlex.split(by_engine(4, "t", draft)["SGLang"].snippet)[8] == draft


def test_block_size_zero_is_refused():
    with pytest.raises(InputError, match="block size 0"):
        engine_settings(0, "t", "d")


def code(text):
    """The lines to paste, without the comments."""
    return "\n".join(line for line in text.splitlines() if not line.startswith("#"))


@pytest.mark.parametrize("engine", NAMES)
def test_a_snippet_is_its_reason_in_comments_and_the_setting(engine):
    text = snippet(engine.upper(), block_size=8, target="org/target", draft="org/draft", why="best of 1-16\nat batch 1")
    assert text.startswith("# best of 1-16\n# at batch 1\n# ")
    by_name = {setting.engine.lower(): setting for setting in engine_settings(8, "org/target", "org/draft")}
    assert code(text) == by_name[engine].snippet
    assert re.search(r"#.*so (7|8)\b", text)


def test_best_k_by_batch_becomes_ranges_for_vllm_and_upper_ends_for_tensorrt():
    by_batch = {8: 5, 1: 9, 4: 9, 32: 1}
    words = shlex.split(code(snippet("vllm", block_size=9, target="t", draft="d", by_batch=by_batch)))
    config = json.loads(words[-1])
    assert config["num_speculative_tokens"] == 8
    assert config["num_speculative_tokens_per_batch_size"] == [[1, 4, 8], [5, 8, 4], [9, 32, 0]]  # K - 1 in each
    text = snippet("tensorrt-llm", block_size=9, target="t", draft="d", by_batch=by_batch)
    assert "  draft_len_schedule: {4: 8, 8: 4}" in text.splitlines()  # beyond the last end it drafts nothing
    one = snippet("sglang", block_size=9, target="t", draft="d", by_batch=by_batch)
    assert "K=9 (8) at batch 1-4, K=5 (4) at batch 5-8, K=1 (0) at batch 9-32" in one
    assert code(one).endswith("--speculative-num-draft-tokens 9")


def test_a_table_keeps_speculation_where_only_the_asked_batch_wants_none():
    by_batch = {1: 5, 32: 1}
    assert "[[1, 1, 4], [2, 32, 0]]" in snippet("vllm", block_size=1, target="t", draft="d", by_batch=by_batch)
    assert code(snippet("llama.cpp", block_size=1, target="t", draft="d", by_batch=by_batch)) == "llama-server -m t"


def test_one_k_at_every_batch_needs_no_table():
    assert "per_batch_size" not in snippet("vllm", block_size=9, target="t", draft="d", by_batch={1: 9, 8: 9})


def test_eagle_has_its_own_words_and_steps():
    words = shlex.split(code(snippet("sglang", block_size=4, target="t", draft="d", method="eagle3")))
    assert words[words.index("--speculative-algorithm") + 1] == "EAGLE3"
    assert words[words.index("--speculative-num-steps") + 1] == "3"
    assert words[words.index("--speculative-num-draft-tokens") + 1] == "4"
    assert "decoding_type: Eagle3" in snippet("tensorrt-llm", block_size=4, target="t", draft="d", method="eagle3")
    assert '"method": "eagle3"' in snippet("tpu-inference", block_size=4, target="t", draft="d", method="eagle3")


def test_an_unknown_engine_gets_the_nearest_name():
    with pytest.raises(InputError, match="no settings for the engine 'vlm'") as caught:
        snippet("vlm", block_size=4, target="t", draft="d")
    assert "vllm" in caught.value.hint


@pytest.mark.parametrize("by_batch", [{0: 4, 1: 8}, {1: 0, 2: 8}])
def test_impossible_tables_are_refused(by_batch):
    with pytest.raises(InputError, match="impossible"):
        snippet("vllm", block_size=4, target="t", draft="d", by_batch=by_batch)
