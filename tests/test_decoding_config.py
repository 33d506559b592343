"""Configurations: read from published files, and refused when they ask for what would change the result."""

import json
import math
from pathlib import Path

import pytest

from decoding.config import TargetConfig
from decoding.config_draft import Draft2Config, DraftConfig, default_feature_layers
from decoding.config_rope import YarnScaling
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


def test_a_published_windowed_drafter_and_one_with_yarn(shared_data: Path) -> None:
    windowed = DraftConfig.from_json(read(shared_data, "draft_specforge_qwen3.6-27b-dflash"))
    assert windowed.windows == (2048,) * 4 + (None,)
    assert windowed.causal == (True,) * 4 + (False,)  # windowed layers are causal inside the block, full ones are not
    yarn = DraftConfig.from_json(read(shared_data, "draft_zlab_dflash_qwen36_35b"))
    assert yarn.rope_scaling == YarnScaling(64.0, 4096, 32.0, 1.0, 0.1 * math.log(64.0) + 1)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("draft_specforge_qwen3-4b-eagle3", "LlamaForCausalLMEagle3"),
        ("draft_specforge_qwen3-8b-dspark", "DSparkDraftModel"),
        ("draft_specforge_qwen3-8b-domino", "DominoDraftModel"),
        ("draft_angelslim_qwen3_dflare", "QwenDFlareDraftModel"),
        ("draft_issue613_speculators_dflash_qwen36_35b", "partial_rotary_factor"),
    ],
)
def test_other_drafters_are_refused(shared_data: Path, name: str, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        DraftConfig.from_json(read(shared_data, name))


@pytest.mark.parametrize(
    ("key", "value"),
    [("attention_bias", True), ("use_sliding_window", True), ("sliding_window", 4096), ("layer_types", ["sliding_attention"] * 8),
     ("layer_types", 5), ("layer_types", [[]]),
     ("hidden_act", "gelu"), ("rope_scaling", {"rope_type": "yarn"}), ("rope_scaling", "yarn"), ("num_experts", 8)],
)  # fmt: skip
def test_a_key_that_changes_the_result_is_named(key: str, value: object) -> None:
    TargetConfig.from_json(QWEN3)
    with pytest.raises(InputError, match="yarn" if key == "rope_scaling" else key):
        TargetConfig.from_json(QWEN3 | {key: value})


@pytest.mark.parametrize("nested", [True, False])
@pytest.mark.parametrize(
    ("key", "value", "field", "expected"),
    [
        ("input_embedding_scale", 2, "input_embedding_scale", 2.0),
        ("output_multiplier", 0.5, "output_multiplier", 0.5),
        ("final_logit_softcapping", 30.0, "final_logit_softcapping", 30.0),
        ("final_logit_softcapping", 0, "final_logit_softcapping", None),
        ("logit_scale", 2.0, "logit_scale", 2.0),
        ("sample_from_anchor", True, "trained_block_size", 9),  # 8 slots that all predict, and the anchor
        ("draft_vocab_size", 40, "num_head_rows", 40),
        ("is_causal", True, "layer_causality", (True, True)),
        ("causal", True, "layer_causality", (True, True)),
        ("attention_sink_bias", True, "attention_sinks", True),
        ("add_swa_attention_sink_bias", True, "attention_sinks", True),
        ("attention_value_scale", 0.707, "value_scale", 0.707),
        ("target_hidden_size", 128, "target_hidden_size", 128),
        ("use_aux_hidden_state", True, "attention_sinks", False),
        ("is_neox_style", False, "rope_interleaved", True),
    ],
)
def test_keys_of_the_variants(key: str, value: object, field: str, expected: object, nested: bool) -> None:
    own = {"dflash_config": DRAFT["dflash_config"] | {key: value}} if nested else {key: value}
    config = DraftConfig.from_json(DRAFT | own)
    assert getattr(config, field) == expected
    assert DraftConfig.from_json(config.to_json()) == config


@pytest.mark.parametrize(
    ("keys", "windows", "causal"),
    [
        ({"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 5, "use_sliding_window": True},
         (5, None), (True, False)),
        ({"layer_types": ["sliding_attention"] * 2, "sliding_window": 5, "use_sliding_window": True, "is_causal": False},
         (5, 5), (False, False)),
        ({"sliding_window": 5, "use_sliding_window": True, "max_window_layers": 1}, (None, 5), (False, True)),
        ({"sliding_window": 5, "use_sliding_window": False}, (None, None), (False, False)),
        ({"use_swa": True, "swa_window_size": 6}, (6, 6), (False, False)),
        ({"use_swa": True, "sliding_window": 7, "layer_types": ["full_attention"] * 2}, (7, 7), (False, False)),
    ],
)  # fmt: skip
def test_windows_and_their_causal_rule(keys: dict, windows: tuple, causal: tuple) -> None:
    config = DraftConfig.from_json(DRAFT | keys)
    assert (config.layer_windows, config.layer_causality) == (windows, causal)
    again = DraftConfig.from_json(config.to_json())
    assert (again.layer_windows, again.layer_causality) == (windows, causal)
    assert config.spec("x").sliding_window == next((w for w in windows if w), None)


@pytest.mark.parametrize(
    ("keys", "named"),
    [
        ({"layer_types": ["sliding_attention"] * 2, "sliding_window": 5}, "use_sliding_window"),
        ({"layer_types": ["sliding_attention"] * 2, "use_sliding_window": True}, "sliding_window"),
        ({"layer_types": ["chunked_attention"] * 2}, "chunked_attention"),
        ({"layer_types": ["full_attention"]}, "1 layer_types for 2"),
        ({"layer_types": 5}, "layer_types is 5, not a list"),
        ({"is_causal": True, "causal": False}, "more than once"),
        ({"use_aux_hidden_state": False}, "use_aux_hidden_state"),
        ({"attention_value_scale": -0.5}, "attention_value_scale"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
        ({"attention_bias": True}, "attention_bias"),
        ({"mask_hidden": True}, "mask_hidden"),
        ({"draft_vocab_size": 101}, "draft_vocab_size 101"),
        ({"output_multiplier": -1.0}, "output_multiplier"),
        ({"dflash_config": {"mask_token": "<MASK>", "target_layer_ids": [1, 5]}}, "mask_token is '<MASK>'"),
        ({"selector_rank": 4}, "conv_kernel_size"),
        ({"architectures": ["DFlash2DraftModel"]}, "conv_kernel_size"),
    ],
)
def test_what_a_drafter_asks_for_in_vain_is_named(keys: dict, named: str) -> None:
    with pytest.raises(InputError, match=named):
        DraftConfig.from_json(DRAFT | keys)


SPECULATORS = {
    "architectures": ["DFlashSpeculator"], "aux_hidden_state_layer_ids": [2, 6], "block_size": 8, "draft_vocab_size": 40,
    "mask_token_id": 99, "max_anchors": 512, "sliding_window_non_causal": True, "speculators_model_type": "dflash",
    "speculators_version": "0.7", "speculators_config": {"algorithm": "dflash"}, "target_hidden_size": None,
    "transformer_layer_config": QWEN3 | {
        "num_hidden_layers": 2, "layer_types": ["sliding_attention", "full_attention"], "sliding_window": 5, "use_sliding_window": True,
    },
}  # fmt: skip


def test_the_speculators_layout() -> None:
    config = DraftConfig.from_json(SPECULATORS)
    assert config.target_layer_ids == (1, 5)  # its numbers count the embedding as 0
    assert (config.num_target_layers, config.draft_vocab_size, config.vocab_size) == (None, 40, 100)
    assert (config.windows, config.layer_causality) == ((5, None), (False, False))
    causal = DraftConfig.from_json(SPECULATORS | {"sliding_window_non_causal": False})
    assert causal.layer_causality == (True, False)
    without = {key: value for key, value in SPECULATORS.items() if key != "block_size"}
    assert DraftConfig.from_json(without).block_size == 8  # the format's default


@pytest.mark.parametrize(
    ("keys", "named"),
    [
        ({"speculators_model_type": "dspark"}, "dspark"),
        ({"projector_type": "domino"}, "domino"),
        ({"shift_label": True}, "shift_label"),
        ({"aux_hidden_state_layer_ids": [0, 4]}, "aux_hidden_state_layer_ids"),
        ({"fusion_gate": 1}, "fusion_gate"),
        ({"sliding_window_non_causal": None}, "sliding_window_non_causal"),
    ],
)
def test_speculators_configs_of_other_networks_are_refused(keys: dict, named: str) -> None:
    with pytest.raises(InputError, match=named):
        DraftConfig.from_json(SPECULATORS | keys)


def test_dflash2() -> None:
    own = {"conv_kernel_size": 2, "conv_group_size": 16, "selector_rank": 4, "selector_top_k": 6}
    config = DraftConfig.from_json(DRAFT | {"dflash_config": DRAFT["dflash_config"] | own})
    assert isinstance(config, Draft2Config)
    assert DraftConfig.from_json(config.to_json()) == config
    assert (config.spec("x").drafter, config.spec("x").correction_rank) == ("dflash2", 4)
    with pytest.raises(InputError, match="conv_group_size"):
        DraftConfig.from_json(DRAFT | own | {"conv_group_size": 7})
    with pytest.raises(InputError, match="selector"):
        DraftConfig.from_json(DRAFT | own | {"draft_vocab_size": 40})


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
