"""Checkpoints: what is written is read back, and a folder whose parts do not belong together is refused with the reason."""

import json
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from test_decoding_draft import CONFIG as DRAFT
from test_decoding_target import CONFIG as TARGET

from decoding import checkpoint
from perfmodel.errors import InputError

LLAMA_JSON = {
    "model_type": "llama", "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8, "rms_norm_eps": 1e-6, "rope_theta": 1e4, "vocab_size": 31, "tie_word_embeddings": False,
}  # fmt: skip


def write_draft(folder: Path) -> dict:
    params = checkpoint.random_draft(DRAFT, 1, jnp.bfloat16)
    checkpoint.save_draft(folder, DRAFT, params)
    return params


def hf_tensors() -> dict[str, np.ndarray]:
    generator = np.random.default_rng(0)
    shapes = {"model.embed_tokens.weight": (31, 24), "model.norm.weight": (24,), "lm_head.weight": (31, 24)}
    for i in range(3):
        layer = {
            "input_layernorm": (24,), "post_attention_layernorm": (24,), "self_attn.q_proj": (32, 24), "self_attn.k_proj": (16, 24),
            "self_attn.v_proj": (16, 24), "self_attn.o_proj": (24, 32), "mlp.gate_proj": (40, 24), "mlp.up_proj": (40, 24),
            "mlp.down_proj": (24, 40),
        }  # fmt: skip
        shapes |= {f"model.layers.{i}.{name}.weight": shape for name, shape in layer.items()}
    return {name: generator.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def write_target(folder: Path, tensors: dict[str, np.ndarray], config: dict) -> None:
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config))


def test_draft_round_trip_and_names(tmp_path: Path) -> None:
    params = write_draft(tmp_path)
    config, again = checkpoint.load_draft(tmp_path, jnp.bfloat16)
    assert config == DRAFT
    np.testing.assert_array_equal(again["layers"][1]["gate_up"], params["layers"][1]["gate_up"])
    np.testing.assert_array_equal(again["fc"], params["fc"])
    tensors = load_file(tmp_path / "model.safetensors")
    assert len(tensors) == 11 * 2 + 3  # 11 a layer, fc and two norms; no embedding, no head
    assert tensors["fc.weight"].shape == (24, 2 * 24)  # [out, in] in the file
    assert tensors["layers.0.self_attn.k_proj.weight"].shape == (2 * 8, 24)


def test_draft_names_may_have_a_prefix(tmp_path: Path) -> None:
    params = write_draft(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    save_file({f"model.{name}": value for name, value in tensors.items()}, tmp_path / "model.safetensors")
    _, again = checkpoint.load_draft(tmp_path, jnp.bfloat16)
    np.testing.assert_array_equal(again["norm"], params["norm"])


def test_a_drafter_with_more_in_it_is_refused(tmp_path: Path) -> None:
    write_draft(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors") | {"lm_head.weight": np.ones((31, 24), np.float32)}
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(InputError, match=r"lm_head\.weight"):
        checkpoint.load_draft(tmp_path, jnp.float32)


def test_target_weights_land_where_they_belong(tmp_path: Path) -> None:
    tensors = hf_tensors()
    write_target(tmp_path, tensors, LLAMA_JSON)
    config, params = checkpoint.load_target(tmp_path, jnp.float32)
    assert not config.qk_norm
    layer = params["layers"][2]
    q, k, v = np.split(np.asarray(layer["qkv"]), [32, 48], axis=1)
    np.testing.assert_array_equal(q.T, tensors["model.layers.2.self_attn.q_proj.weight"])
    np.testing.assert_array_equal(k.T, tensors["model.layers.2.self_attn.k_proj.weight"])
    np.testing.assert_array_equal(v.T, tensors["model.layers.2.self_attn.v_proj.weight"])
    np.testing.assert_array_equal(np.asarray(layer["gate_up"])[:, 40:].T, tensors["model.layers.2.mlp.up_proj.weight"])
    np.testing.assert_array_equal(np.asarray(params["head"]).T, tensors["lm_head.weight"])


def test_shards_are_followed_and_must_be_whole(tmp_path: Path) -> None:
    tensors = hf_tensors()
    write_target(tmp_path, tensors, LLAMA_JSON)
    _, whole = checkpoint.load_target(tmp_path, jnp.float32)
    names = sorted(tensors)
    parts = {"a.safetensors": names[:10], "b.safetensors": names[10:]}
    (tmp_path / "model.safetensors").unlink()
    for file, members in parts.items():
        save_file({name: tensors[name] for name in members}, tmp_path / file)
    index = {"weight_map": {name: file for file, members in parts.items() for name in members}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    _, again = checkpoint.load_target(tmp_path, jnp.float32)
    np.testing.assert_array_equal(again["layers"][0]["qkv"], whole["layers"][0]["qkv"])
    (tmp_path / "b.safetensors").unlink()
    with pytest.raises(InputError, match=r"b\.safetensors"):
        checkpoint.load_target(tmp_path, jnp.float32)


@pytest.mark.parametrize(
    ("config", "drop", "reason"),
    [
        (LLAMA_JSON | {"vocab_size": 32}, None, "config.json says"),
        (LLAMA_JSON, "model.layers.1.mlp.up_proj.weight", "no tensor"),
        (LLAMA_JSON | {"num_hidden_layers": 2}, None, "not used"),
        (LLAMA_JSON | {"model_type": "qwen3"}, None, "q_norm"),
    ],
)
def test_config_and_weights_must_belong_together(tmp_path: Path, config: dict, drop: str | None, reason: str) -> None:
    write_target(tmp_path, {name: value for name, value in hf_tensors().items() if name != drop}, config)
    with pytest.raises(InputError, match=reason):
        checkpoint.load_target(tmp_path, jnp.float32)


def test_unreadable_folders(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no config\.json"):
        checkpoint.load_target(tmp_path, jnp.float32)
    (tmp_path / "config.json").write_text(json.dumps(LLAMA_JSON))
    with pytest.raises(InputError, match="no safetensors"):
        checkpoint.load_target(tmp_path, jnp.float32)
    (tmp_path / "model.safetensors").write_bytes(b"\x00" * 64)
    with pytest.raises(InputError, match="whole safetensors"):
        checkpoint.load_target(tmp_path, jnp.float32)


def test_random_weights_depend_on_the_seed_only() -> None:
    a, b = checkpoint.random_target(TARGET, 1, jnp.float32), checkpoint.random_target(TARGET, 1, jnp.float32)
    np.testing.assert_array_equal(a["layers"][2]["down"], b["layers"][2]["down"])
    assert np.abs(np.asarray(a["embed"]) - np.asarray(checkpoint.random_target(TARGET, 2, jnp.float32)["embed"])).max() > 0.1
