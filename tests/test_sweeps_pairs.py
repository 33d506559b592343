"""Pairs as commands name them: random weights need no checkpoint, and say so in every result."""

import json
from pathlib import Path

import jax.numpy as jnp
import pytest
from click.testing import CliRunner
from decoding_pairs import DRAFT

from decoding.config_draft import DraftConfig
from decoding.config_shape import draft_of, target_of
from decoding.pair import ASSETS
from perfcli.capture import command
from perfmodel.errors import InputError
from perfmodel.modelspec import load_model
from sweeps.pairs import OWN_DRAFT, RANDOM_PROMPT_TOKENS, check_name, open_pair, random_prompts, weights_findings
from sweeps.plan import describe, make_spec

CONFIG = {
    "model_type": "qwen3", "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8, "rms_norm_eps": 1e-6, "rope_theta": 1e4, "vocab_size": 61, "tie_word_embeddings": False,
}  # fmt: skip


@pytest.fixture
def configs(tmp_path: Path) -> tuple[str, str]:
    """A target's folder with nothing but a config.json, and a drafter's config by itself."""
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / "config.json").write_text(json.dumps(CONFIG))
    (tmp_path / "draft.json").write_text(json.dumps(DRAFT.to_json()))
    return str(tmp_path / "target"), str(tmp_path / "draft.json")


def test_random_weights_need_only_configs(configs: tuple[str, str]) -> None:
    pair = open_pair(*configs, "bfloat16", "random")
    assert (pair.weights, pair.target, pair.draft) == ("random", *configs)
    assert pair.target_params["embed"].dtype == jnp.bfloat16
    assert pair.target_params["embed"].shape == (61, 32)
    assert pair.draft_config == DRAFT
    assert pair.stop_token_ids == ()
    prompts = random_prompts("math", pair, 3)
    assert [len(prompt) for prompt in prompts] == [RANDOM_PROMPT_TOKENS] * 3
    assert max(max(prompt) for prompt in prompts) < 61
    assert prompts == random_prompts("math", pair, 3)
    assert prompts != random_prompts("code", pair, 3)


def test_a_mask_token_in_words_is_looked_up_for_random_weights_too(tmp_path: Path) -> None:
    document = json.loads((ASSETS / "tiny-dflash" / "config.json").read_text())
    document["dflash_config"] = {"mask_token": "<|mask|>", "target_layer_ids": [1, 2, 3]}
    (tmp_path / "draft.json").write_text(json.dumps(document))
    config = open_pair("tiny", str(tmp_path / "draft.json"), "float32", "random").draft_config
    assert isinstance(config, DraftConfig)
    assert config.mask_token_id == 3


def test_a_checkpoint_is_demanded_where_weights_are_not_random(configs: tuple[str, str]) -> None:
    with pytest.raises(InputError, match="no safetensors"):
        open_pair(configs[0], None, "float32", "checkpoint")
    with pytest.raises(InputError, match="only the dimensions of qwen3-4b ship") as caught:
        check_name("qwen3-4b", "target", "checkpoint")
    assert "--weights random" in caught.value.hint
    assert check_name("qwen3-4b", "target", "random") == "qwen3-4b"
    assert check_name(configs[1], "draft", "random") == configs[1]


@pytest.mark.parametrize("target", ["qwen3-4b", "qwen3-8b", "llama-3.1-8b"])
def test_models_whose_dimensions_ship(target: str) -> None:
    config = target_of(load_model(target, "target"))
    draft = draft_of(load_model(OWN_DRAFT[target], "draft"), config)
    assert (draft.hidden_size, draft.num_target_layers) == (config.hidden_size, config.num_layers)
    assert draft.mask_token_id < config.vocab_size
    assert config.spec("x").num_heads == load_model(target).num_heads


def test_other_networks_are_refused() -> None:
    with pytest.raises(InputError, match="num_experts"):
        target_of(load_model("qwen3-30b-a3b", "target"))
    with pytest.raises(InputError, match="a draft, and a target"):
        target_of(load_model("qwen3-4b-dflash-b16"))


def test_random_weights_are_loud() -> None:
    assert weights_findings("checkpoint") == ()
    (finding,) = weights_findings("random")
    assert finding.severity == "warning"
    assert "mean nothing" in finding.message


@pytest.mark.parametrize("as_json", [True, False])
def test_a_capture_of_random_weights_says_so(configs: tuple[str, str], as_json: bool) -> None:
    target, draft = configs
    arguments = ["--target", target, "--draft", draft, "--weights", "random", "-k", "2", "--no-trace", "--num-prompts", "1",
                 "--max-new-tokens", "3"]  # fmt: skip
    result = CliRunner().invoke(command, [*arguments, *(["--json"] if as_json else [])], catch_exceptions=False)
    assert result.exit_code == 0
    if as_json:
        document = json.loads(result.stdout)
        assert document["weights"] == "random"
        assert [finding["code"] for finding in document["findings"]] == ["random-weights"]
    else:
        assert "WARNING: the weights are random" in result.output


def test_a_sweep_of_random_weights_says_so_before_it_begins(configs: tuple[str, str]) -> None:
    spec = make_spec(
        maximum=2, points=None, target="qwen3-4b", draft=None, tasks=("math",), prompts=None, batches=(1,), contexts=(16,),
        dtype="bfloat16", repeats=3, hardware=(), quick=False, weights="random",
    )  # fmt: skip
    assert (spec.draft, spec.weights) == ("qwen3-4b-dflash-b16", "random")
    assert "WARNING: the weights are random" in describe(spec, Path("run"))
