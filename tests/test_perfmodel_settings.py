"""Engine settings: every off-by-one, quoting, and plain decoding."""

import json
import re
import shlex

import pytest

from perfmodel.errors import InputError
from perfmodel.settings import engine_settings

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
    assert re.search(rf"--draft-max {block_size - 1}$", found["llama.cpp"].snippet)


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
