"""Configurations: read from published files, and refused when they ask for what would change the result."""

import json
from pathlib import Path

import pytest

from decoding.config import DraftConfig, TargetConfig, default_feature_layers
from perfmodel.errors import InputError

QWEN3 = {
    "model_type": "qwen3", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 8, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 32, "rms_norm_eps": 1e-6, "rope_theta": 1e6, "vocab_size": 100, "tie_word_embeddings": True,
}  # fmt: skip
DRAFT = QWEN3 | {
    "architectures": ["DFlashDraftModel"], "num_hidden_layers": 2, "num_target_layers": 8, "block_size": 8,
    "dflash_config": {"mask_token_id": 99, "target_layer_ids": [1, 5]},
}  # fmt: skip


def read(folder: Path, name: str) -> dict:
    return json.loads((folder / "configs" / f"{name}.json").read_text())


def test_published_targets(shared_data: Path) -> None:
    qwen = TargetConfig.from_json(read(shared_data, "target_Qwen3-4B"))
    assert (qwen.num_layers, qwen.hidden_size, qwen.num_heads, qwen.num_kv_heads, qwen.head_dim) == (36, 2560, 32, 8, 128)
    assert qwen.head_dim != qwen.hidden_size // qwen.num_heads  # 80: the trap of deriving it
    assert qwen.qk_norm
    assert qwen.tied_embeddings
    llama = TargetConfig.from_json(read(shared_data, "target_Llama-3.1-8B"))
    assert (llama.head_dim, llama.qk_norm, llama.tied_embeddings) == (128, False, False)
    assert llama.rope_scaling is not None
    assert llama.rope_scaling.factor == 8.0


@pytest.mark.parametrize("name", ["target_Qwen3-30B-A3B", "target_DeepSeek-V3", "target_Qwen3.5-27B"])
def test_other_architectures_are_refused(shared_data: Path, name: str) -> None:
    with pytest.raises(InputError, match="not implemented"):
        TargetConfig.from_json(read(shared_data, name))


@pytest.mark.parametrize(
    "name", ["draft_specforge_qwen3-4b-dflash", "draft_angelslim_qwen3_dflash", "draft_specforge_qwen3-8b-dflash"]
)
def test_published_drafters(shared_data: Path, name: str) -> None:
    config = DraftConfig.from_json(read(shared_data, name))
    assert (config.block_size, config.mask_token_id, config.target_layer_ids) == (16, 151669, (1, 9, 17, 25, 33))


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("draft_zlab_dflash_qwen36_35b", "yarn"),
        ("draft_specforge_qwen3-4b-eagle3", "draft"),
        ("draft_specforge_qwen3-8b-dspark", ""),
    ],
)
def test_other_drafters_are_refused(shared_data: Path, name: str, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        DraftConfig.from_json(read(shared_data, name))


@pytest.mark.parametrize(
    ("key", "value"),
    [("attention_bias", True), ("use_sliding_window", True), ("sliding_window", 4096), ("layer_types", ["sliding_attention"] * 8),
     ("hidden_act", "gelu"), ("rope_scaling", {"rope_type": "yarn", "factor": 4.0}), ("rope_scaling", "yarn"), ("num_experts", 8)],
)  # fmt: skip
def test_a_key_that_changes_the_result_is_named(key: str, value: object) -> None:
    TargetConfig.from_json(QWEN3)
    with pytest.raises(InputError, match="yarn" if key == "rope_scaling" else key):
        TargetConfig.from_json(QWEN3 | {key: value})


@pytest.mark.parametrize("key", ["sample_from_anchor", "is_causal", "final_logit_softcapping", "input_embedding_scale"])
def test_drafter_variants_are_refused(key: str) -> None:
    with pytest.raises(InputError, match=key):
        DraftConfig.from_json(DRAFT | {"dflash_config": DRAFT["dflash_config"] | {key: 2}})


def test_qwen3_must_give_its_head_dim_and_llama_need_not() -> None:
    without = {key: value for key, value in QWEN3.items() if key != "head_dim"}
    with pytest.raises(InputError, match="head_dim"):
        TargetConfig.from_json(without)
    assert TargetConfig.from_json(without | {"model_type": "llama"}).head_dim == 16  # 64 / 4


def test_nested_keys_win_and_top_level_keys_work() -> None:
    assert DraftConfig.from_json(DRAFT | {"mask_token_id": 3}).mask_token_id == 99
    flat = {key: value for key, value in DRAFT.items() if key != "dflash_config"} | {"mask_token_id": 3}
    config = DraftConfig.from_json(flat)
    assert (config.mask_token_id, config.target_layer_ids) == (3, (1, 5))  # by the default rule: round(1 + i (8 − 4) / 1)


@pytest.mark.parametrize(("key", "value"), [("target_layer_ids", [1, 8]), ("target_layer_ids", []), ("mask_token_id", 100)])
def test_ids_out_of_range_are_refused(key: str, value: object) -> None:
    with pytest.raises(InputError, match=key):
        DraftConfig.from_json(DRAFT | {"dflash_config": DRAFT["dflash_config"] | {key: value}})


def test_default_feature_layers() -> None:
    assert default_feature_layers(36, 5) == (1, 9, 17, 25, 33)
    assert default_feature_layers(24, 5) == (1, 6, 11, 16, 21)  # 1 + 20/4 i
    assert default_feature_layers(30, 5) == (1, 8, 14, 20, 27)  # 7.5 → 8 and 20.5 → 20: ties to even
    assert default_feature_layers(30, 1) == (15,)


def test_draft_config_round_trip() -> None:
    config = DraftConfig.from_json(DRAFT)
    assert DraftConfig.from_json(config.to_json()) == config
    assert config.spec("x").borrows_head
