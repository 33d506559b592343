"""Model dimensions from names and from real config files; what is not priced is refused."""

import json
from pathlib import Path

import pytest

from perfmodel import codec, modelspec
from perfmodel.errors import InputError

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 16,
    "vocab_size": 32,
}


def test_what_ships():
    assert {"qwen3-4b", "qwen3-8b", "llama-3.1-8b", "smollm2-135m", "qwen3-30b-a3b", "deepseek-v3"} <= set(
        modelspec.names("target")
    )
    assert {"qwen3-4b-dflash-b16", "qwen3-8b-dflash-b16", "smollm2-135m-dflash", "llama-3.1-8b-eagle3"} <= set(
        modelspec.names("draft")
    )
    assert all(modelspec.load_model(name).name == name for name in modelspec.names())


@pytest.mark.parametrize(
    ("hub_id", "name"),
    [
        ("Qwen/Qwen3-4B", "qwen3-4b"),
        ("z-lab/Qwen3-4B-DFlash-b16", "qwen3-4b-dflash-b16"),
        ("qwen/qwen3-8b", "qwen3-8b"),
        ("HuggingFaceTB/SmolLM2-135M-Instruct", "smollm2-135m"),
        ("QWEN3-4B", "qwen3-4b"),
    ],
)
def test_hub_ids_resolve(hub_id, name):
    assert modelspec.load_model(hub_id).name == name


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("target_Qwen3-4B.json", "qwen3-4b"),
        ("target_Qwen3-8B.json", "qwen3-8b"),
        ("target_Llama-3.1-8B.json", "llama-3.1-8b"),
        ("draft_specforge_qwen3-8b-dflash.json", "qwen3-8b-dflash-b16"),
        ("target_Qwen3-32B.json", "qwen3-32b"),
        ("target_Qwen3-30B-A3B.json", "qwen3-30b-a3b"),
        ("target_Qwen3-30B-A3B-FP8.json", "qwen3-30b-a3b-fp8"),
        ("target_qwen3-next-80B-A3B.json", "qwen3-next-80b-a3b"),
        ("target_Qwen3.5-27B.json", "qwen3.5-27b"),
        ("target_Qwen3.5-35B-A3B.json", "qwen3.5-35b-a3b"),
        ("target_Meta-Llama-3.1-70B.json", "llama-3.1-70b"),
        ("target_DeepSeek-V3.json", "deepseek-v3"),
        ("target_DeepSeek-V4-Flash.json", "deepseek-v4-flash"),
        ("draft_zlab_dflash_qwen36_35b.json", "qwen3.5-35b-a3b-dflash"),
        ("draft_specforge_qwen3.6-27b-dflash.json", "qwen3.6-27b-dflash"),
        ("draft_specforge_llama3-8B-eagle3.json", "llama-3.1-8b-eagle3"),
        ("draft_specforge_qwen3-4b-eagle3.json", "qwen3-4b-eagle3"),
        ("draft_angelslim_qwen3-8b-eagle3.json", "qwen3-8b-eagle3"),
        ("draft_specforge_qwen3-30B-A3B-eagle3.json", "qwen3-30b-a3b-eagle3"),
    ],
)
def test_shipped_dimensions_equal_the_published_configs(shared_data, file, name):
    import msgspec

    read = modelspec.load_model(str(shared_data / "configs" / file))
    shipped = modelspec.load_model(name)
    assert msgspec.structs.replace(read, name=name, hub_ids=shipped.hub_ids, source=shipped.source) == shipped


def test_head_dim_is_read_not_derived():
    assert modelspec.load_model("qwen3-4b").head_dim == 128  # 2560 / 32 would be 80
    assert modelspec.from_config(LLAMA | {"head_dim": 6}, "toy").head_dim == 6
    assert modelspec.from_config(LLAMA, "toy").head_dim == 2  # Llama defines it as 8 / 4
    with pytest.raises(InputError, match="head_dim"):
        modelspec.from_config(LLAMA | {"architectures": ["Qwen3ForCausalLM"]}, "toy")


def test_mixture_of_experts_and_quantised_weights(shared_data):
    spec = modelspec.load_model(str(shared_data / "configs" / "target_Qwen3-30B-A3B-FP8.json"))
    assert (spec.num_experts, spec.num_experts_per_token, spec.moe_intermediate_size) == (128, 8, 768)
    assert (spec.weight_bits, spec.head_bits, spec.kv_bits) == (8 + 32 / 128**2, 16.0, 16.0)  # a scale per 128 x 128 block
    assert spec.num_dense_layers == 0


def test_drafter_layouts(shared_data):
    folder = shared_data / "configs"
    speculators = modelspec.load_model(str(folder / "draft_issue613_speculators_dflash_qwen36_35b.json"))
    assert speculators.target_layer_ids == (0, 9, 18, 27, 36)  # listed as hidden states 1, 10, … with the embedding as 0
    assert (speculators.num_layers, speculators.head_dim, speculators.block_size) == (8, 256, 16)
    windowed = modelspec.load_model(str(folder / "draft_specforge_qwen3.6-27b-dflash.json"))
    assert (windowed.num_full_attention_layers, windowed.sliding_window) == (1, 2048)
    eagle = modelspec.load_model(str(folder / "draft_specforge_llama3-8B-eagle3.json"))
    assert (eagle.drafter, eagle.draft_vocab_size, eagle.borrows_head) == ("eagle3", 32000, False)


def dflash(**changes):
    config = LLAMA | {
        "architectures": ["DFlashDraftModel"],
        "head_dim": 2,
        "block_size": 7,
        "dflash_config": {"target_layer_ids": [1]},
    }
    return config | changes


def test_a_shifted_drafter_verifies_one_more_than_its_block_size():
    assert modelspec.from_config(dflash(), "toy").block_size == 7
    assert modelspec.from_config(dflash(sample_from_anchor=True), "toy").block_size == 8


def test_nested_block_size_wins():
    nested = {"target_layer_ids": [1], "block_size": 5}
    assert modelspec.from_config(dflash(dflash_config=nested), "toy").block_size == 5


def test_four_bit_weights_count_their_scales():
    quantised = LLAMA | {"quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 128}}
    assert modelspec.from_config(quantised, "toy").weight_bits == pytest.approx(4 + (16 + 4) / 128)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"architectures": ["A", "B"]}, "no single architecture"),
        ({"architectures": ["GptOssForCausalLM"]}, "GptOssForCausalLM"),
        ({"hidden_size": None}, "hidden_size"),
        ({"vocab_size": True}, "vocab_size"),
        ({"num_key_value_heads": 3}, "share"),
        ({"layer_types": ["full_attention", "rwkv"]}, "rwkv"),
        ({"layer_types": ["full_attention"]}, "layer types"),
        ({"use_sliding_window": True, "sliding_window": 4}, "layer_types"),
        ({"quantization_config": {"quant_method": "nvfp4"}}, "nvfp4"),
        ({"num_experts": 4, "decoder_sparse_step": 2}, "decoder_sparse_step"),
        ({"dflash_config": 3}, "must be an object"),
    ],
)
def test_bad_configs_name_the_key(changes, said):
    with pytest.raises(InputError) as caught:
        modelspec.from_config(LLAMA | changes, "toy")
    assert said in caught.value.message


def test_a_drafter_needs_its_feature_layers():
    with pytest.raises(InputError, match="target_layer_ids"):
        modelspec.from_config(dflash(dflash_config={}), "toy")


def test_files_folders_and_records(tmp_path: Path):
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    from_folder = modelspec.load_model(str(tmp_path))
    assert from_folder.name == tmp_path.name
    record = tmp_path / "record.json"
    codec.save(record, from_folder)
    assert modelspec.load_model(str(record)) == from_folder
    (tmp_path / "list.json").write_text("[1]")
    with pytest.raises(InputError, match="not a JSON object"):
        modelspec.load_model(str(tmp_path / "list.json"))


def test_wrong_role_and_unknown_names_are_refused():
    with pytest.raises(InputError, match="is a draft"):
        modelspec.load_model("qwen3-4b-dflash-b16", role="target")
    with pytest.raises(InputError) as caught:
        modelspec.load_model("Qwen/Qwen3-4")
    assert "qwen3-4b" in caught.value.hint
    with pytest.raises(InputError) as caught:
        modelspec.load_model("~~~")
    assert "config.json" in caught.value.hint
