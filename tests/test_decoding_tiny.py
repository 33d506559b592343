"""The tiny synthetic pair: its text is the same everywhere, and it decodes losslessly with drafts that hold."""

import collections
import functools
import re

import numpy as np
import pytest

from decoding.config import TargetConfig
from decoding.loop import Decoder, Generation, generate, required_capacity
from decoding.pair import ASSETS, Pair, load_pair
from decoding.tasks import load_prompts
from decoding.tiny import END, MASK, ROW_TOKENS, TARGET_DOCUMENT, training_rows
from decoding.tiny_text import exchanges

PROMPT_CAPACITY = 96
NEW_TOKENS = 40


@functools.cache
def tiny() -> Pair:
    return load_pair("tiny", "tiny-dflash", "float32")


@functools.cache
def decoded(block_size: int) -> Generation:
    decoder = Decoder(tiny(), block_size, batch=2, capacity=required_capacity(PROMPT_CAPACITY, NEW_TOKENS, block_size))
    decoder.compile(PROMPT_CAPACITY)
    return generate(decoder, [prompt.token_ids for prompt in load_prompts("math", tiny(), 2)], NEW_TOKENS)


def test_speculation_gives_the_tokens_of_plain_decoding():
    assert decoded(8).tokens == decoded(1).tokens


def test_drafts_hold_on_math():
    counts = np.concatenate(decoded(8).committed)
    tau = counts.mean()
    assert tau > 1.2


def test_the_pair_is_small_and_says_what_it_is():
    folders = [ASSETS / "tiny", ASSETS / "tiny-dflash"]
    num_bytes = sum(path.stat().st_size for folder in folders for path in folder.iterdir())
    assert num_bytes <= 4e6
    assert "synthetic" in (ASSETS / "tiny" / "README.md").read_text()
    assert tiny().target_config == TargetConfig.from_json(TARGET_DOCUMENT)


def test_special_tokens_are_where_the_configs_say():
    tokenizer, draft = tiny().tokenizer, tiny().draft_config
    assert tokenizer is not None
    assert draft is not None
    assert tiny().stop_token_ids == (tokenizer.token_to_id(END),)
    assert draft.mask_token_id == tokenizer.token_to_id(MASK)
    assert tokenizer.get_vocab_size() == tiny().target_config.vocab_size


def test_text_depends_on_the_seed_alone():
    assert list(exchanges(60, seed=3)) == list(exchanges(60, seed=3))
    assert list(exchanges(60, seed=3)) != list(exchanges(60, seed=4))


def test_families_take_turns():
    assert collections.Counter(text.family for text in exchanges(60, seed=0)) == {"math": 20, "code": 20, "chat": 20}


def test_solutions_compute_what_they_say():
    num_lines = 0
    for text in exchanges(300, seed=5):
        for left, sign, right, value in re.findall(r"compute (\d+) ([-+*/]) (\d+) = (\d+)\.", text.answer):
            exact = {"+": int(left) + int(right), "-": int(left) - int(right), "*": int(left) * int(right)}
            assert exact.get(sign, int(left) / int(right)) == int(value)
            num_lines += 1
    assert num_lines >= 200  # 100 problems, each of two steps or more


@pytest.mark.parametrize("seed", [0, 1])
def test_written_functions_compile(seed):
    for text in exchanges(120, seed):
        if text.family == "code":
            compile(re.search(r"```python\n(.*)```", text.answer, re.DOTALL).group(1), "answer", "exec")


def test_rows_hold_whole_exchanges_and_mark_the_answers():
    texts = list(exchanges(30, seed=1))
    tokens, is_answer = training_rows(ASSETS / "tiny", texts)
    tokenizer = tiny().tokenizer
    assert tokens.shape == is_answer.shape == (len(tokens), ROW_TOKENS)
    marked = tokenizer.decode(tokens[is_answer].tolist(), skip_special_tokens=False)
    assert marked == "".join(text.answer + END for text in texts)
