"""Pairs by name or folder: what is refused says why, and what ships is found."""

import dataclasses
import json
import shutil

import jax.numpy as jnp
import pytest
from decoding_pairs import DRAFT, TARGET, small_pair
from golden import make_reference

from decoding.checkpoint import load_target
from decoding.loop import Decoder
from decoding.pair import ASSETS, DRAFTS, TARGETS, check_compatible, find_folder, load_pair, stop_tokens
from decoding.tiny import MASK
from decoding.tokenizer import render_chat
from perfmodel.errors import InputError, UnsupportedError


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return make_reference.write_pair(make_reference.CASES["qwen3"], tmp_path_factory.mktemp("pair"))


def test_loads_a_pair_of_folders(folders):
    target, draft = map(str, folders)
    pair = load_pair(target, draft, "float32")
    assert pair.target_config.num_layers == 5
    assert pair.draft_config.target_layer_ids == (3, 1)
    assert pair.trained_block_size == 8
    assert pair.name == f"{target} + {draft}"
    assert pair.tokenizer is None
    assert pair.target_params["embed"].dtype == jnp.float32


@pytest.mark.parametrize(("name", "mask_token_id"), [("MASK", 3), ("<new>", 1024)])
def test_a_mask_token_in_words_is_the_target_s_own_or_the_first_behind_its_vocabulary(tmp_path, name, mask_token_id):
    draft = tmp_path / "draft"
    shutil.copytree(ASSETS / "tiny-dflash", draft)
    config = json.loads((draft / "config.json").read_text())
    config["dflash_config"] = {"mask_token": MASK if name == "MASK" else name, "target_layer_ids": [1, 2, 3]}
    (draft / "config.json").write_text(json.dumps(config))
    if mask_token_id < 1024:
        assert load_pair("tiny", str(draft), "float32").draft_config.mask_token_id == mask_token_id
    else:
        # This table ends with its vocabulary; others have rows to spare.
        with pytest.raises(InputError, match="mask_token_id 1024 has no row in a table of 1024"):
            load_pair("tiny", str(draft), "float32")


def test_a_target_alone_decodes_plainly(folders):
    pair = load_pair(str(folders[0]), None, "bfloat16")
    assert pair.draft_config is None
    assert pair.trained_block_size is None
    assert pair.name == str(folders[0])
    assert pair.target_params["embed"].dtype == jnp.bfloat16


@pytest.mark.parametrize(
    ("name", "known", "hint"),
    [
        ("smollm-135m", TARGETS, "did you mean smollm2-135m"),
        ("smolm2-135m-dflash", DRAFTS, "did you mean smollm2-135m-dflash"),
        ("zzz", TARGETS, "names: smollm2-135m, tiny"),
    ],
)
def test_unknown_names_are_answered_with_the_nearest(name, known, hint):
    with pytest.raises(InputError, match=f"named '{name}'") as caught:
        find_folder(name, known, "target")
    assert hint in caught.value.hint


def test_refuses_unknown_dtypes(folders):
    with pytest.raises(InputError, match="float8"):
        load_pair(str(folders[0]), None, "float8")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_target_layers": 9}, "a target with 9 layers; this target has 2"),
        ({"target_layer_ids": (0, 2)}, r"reads layers \[0, 2\]"),
        ({"target_hidden_size": 48}, "for a target of width 48; this target's is 32"),
        ({"mask_token_id": 61}, "mask token 61 has no row in the target's embedding table of 61"),
    ],
)
def test_refuses_a_drafter_of_another_target(change, message):
    with pytest.raises(InputError, match=message):
        check_compatible(TARGET, dataclasses.replace(DRAFT, **change))


def test_accepts_the_drafter_of_this_target():
    check_compatible(TARGET, DRAFT)
    assert small_pair(0).draft == "random-dflash"


@pytest.mark.parametrize(
    ("config", "generation", "expected"),
    [
        ({"eos_token_id": 2}, None, (2,)),
        ({"eos_token_id": 2}, {"eos_token_id": [5, 6]}, (5, 6)),
        ({"eos_token_id": 2}, {"temperature": 0.7}, (2,)),
        ({"eos_token_id": None}, None, ()),
    ],
)
def test_stop_tokens_come_from_the_generation_config_first(tmp_path, config, generation, expected):
    (tmp_path / "config.json").write_text(json.dumps(config))
    if generation is not None:
        (tmp_path / "generation_config.json").write_text(json.dumps(generation))
    assert stop_tokens(tmp_path) == expected


TOO_DEEP = '{"a":' * 100_000


@pytest.mark.parametrize("text", ["{", TOO_DEEP], ids=["cut off", "too deep"])
@pytest.mark.parametrize("name", ["config.json", "generation_config.json"])
def test_a_damaged_config_is_refused(tmp_path, name, text):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match="not JSON"):
        stop_tokens(tmp_path)


@pytest.mark.parametrize("ids", ["</s>", [2, "x"], -5, {}, 2**40, 1.5])
def test_stop_tokens_that_are_no_ids_are_refused(tmp_path, ids):
    (tmp_path / "config.json").write_text(json.dumps({"eos_token_id": ids}))
    with pytest.raises(InputError, match="eos_token_id"):
        stop_tokens(tmp_path)


def test_more_than_the_machine_has_is_named_before_it_is_asked_for():
    pair = small_pair(seed=0)
    assert pair.shortage(batch=1, num_slots=256, num_queries=8) is None
    assert "this machine has" in (pair.shortage(batch=10**9, num_slots=256, num_queries=8) or "")
    decoder = Decoder(pair, block_size=1, batch=10**9, capacity=256)
    with pytest.raises(UnsupportedError, match="needs"):
        decoder.compile(8)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("tokenizer_config.json", "{", "not a JSON object"),
        ("tokenizer_config.json", "[]", "not a JSON object"),
        pytest.param("tokenizer_config.json", TOO_DEEP, "not a JSON object", id="too deep"),
        ("chat_template.jinja", "{% for %}", "fails"),
        ("chat_template.jinja", "{{ 1 / 0 }}", "fails"),
        ("chat_template.jinja", "{{ messages[9].x.y }}", "fails"),
        ("chat_template.jinja", "{% macro again() %}{{ again() }}{% endmacro %}{{ again() }}", "fails"),
    ],
)
def test_a_damaged_chat_template_is_refused(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=message):
        render_chat(tmp_path, [{"role": "user", "content": "hi"}])


@pytest.mark.parametrize(
    "text", ["{", "{}", '{"weight_map": []}', '{"weight_map": {"a": []}}', pytest.param(TOO_DEEP, id="too deep")]
)
def test_a_damaged_index_of_weights_is_refused(tmp_path, folders, text):
    shutil.copytree(folders[0], tmp_path / "target")
    (tmp_path / "target" / "model.safetensors.index.json").write_text(text)
    with pytest.raises(InputError, match="not an index"):
        load_target(tmp_path / "target", "float32")
