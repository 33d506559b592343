"""Checkpoints: what is written is read back, and a folder whose parts do not belong together is refused with the reason."""

import dataclasses
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from test_decoding_draft import CONFIG as DRAFT
from test_decoding_target import CONFIG as TARGET

from decoding import checkpoint, checkpoint_tensors
from decoding.config_draft import Draft2Config
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
    tensors = load_file(tmp_path / "model.safetensors") | {"markov_head.weight": np.ones((31, 24), np.float32)}
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(InputError, match=r"markov_head\.weight"):
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


OWN = {"conv_kernel_size": 2, "conv_group_size": 8, "selector_rank": 3, "selector_top_k": 4}
VARIANTS = {
    "dflash2": Draft2Config(**vars(DRAFT), **OWN),
    "sinks": dataclasses.replace(DRAFT, attention_sinks=True, windows=(5, None), causal=(True, False)),
    "draft vocabulary": dataclasses.replace(DRAFT, draft_vocab_size=7),
    "another width": dataclasses.replace(DRAFT, target_hidden_size=40),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_drafter_variants_round_trip(tmp_path: Path, name: str) -> None:
    config = VARIANTS[name]
    params = checkpoint.random_draft(config, 1, jnp.bfloat16)
    checkpoint.save_draft(tmp_path, config, params)
    again_config, again = checkpoint.load_draft(tmp_path, jnp.bfloat16)
    assert again_config == config
    assert jax.tree.structure(again) == jax.tree.structure(params)
    for ours, theirs in zip(jax.tree.leaves(again), jax.tree.leaves(params), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_a_draft_vocabulary_holds_target_ids_and_must_say_them(tmp_path: Path) -> None:
    config = VARIANTS["draft vocabulary"]
    checkpoint.save_draft(tmp_path, config, checkpoint.random_draft(config, 1, jnp.bfloat16))
    tensors = load_file(tmp_path / "model.safetensors")
    ids = np.array([1, 2, 5, 9, 11, 20, 30])
    used = np.isin(np.arange(31), ids)
    save_file(tensors | {"d2t": ids - np.arange(7), "t2d": used}, tmp_path / "model.safetensors")
    _, params = checkpoint.load_draft(tmp_path, jnp.float32)
    np.testing.assert_array_equal(params["d2t"], ids)
    assert params["head"].shape == (24, 7)
    save_file(tensors | {"d2t": ids - np.arange(7), "t2d": ~used}, tmp_path / "model.safetensors")
    with pytest.raises(InputError, match="t2d and d2t"):
        checkpoint.load_draft(tmp_path, jnp.float32)
    for lost in ("d2t", "lm_head.weight"):
        save_file({key: value for key, value in tensors.items() if key != lost}, tmp_path / "model.safetensors")
        with pytest.raises(InputError, match=lost):
            checkpoint.load_draft(tmp_path, jnp.float32)


def test_a_head_of_its_own_is_used_and_not_overwritten(tmp_path: Path) -> None:
    write_draft(tmp_path)
    head = np.arange(31 * 24, dtype=np.float32).reshape(31, 24)
    tensors = load_file(tmp_path / "model.safetensors") | {"lm_head.weight": head, "mask_embedding": np.ones(24, np.float32)}
    save_file(tensors, tmp_path / "model.safetensors")
    _, params = checkpoint.load_draft(tmp_path, jnp.float32)
    np.testing.assert_array_equal(np.asarray(params["head"]).T, head)
    assert params["mask_embedding"].shape == (24,)


def test_interleaved_rotary_pairs_become_halves(tmp_path: Path) -> None:
    params = write_draft(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    order = np.stack([np.arange(4), np.arange(4, 8)], axis=1).ravel()  # pair (i, i + 4) of a head of 8 side by side
    for name in list(tensors):
        if name.endswith(("q_proj.weight", "k_proj.weight")):
            tensors[name] = np.ascontiguousarray(tensors[name].reshape(-1, 8, 24)[:, order].reshape(-1, 24))
        if name.endswith(("q_norm.weight", "k_norm.weight")):
            tensors[name] = np.ascontiguousarray(tensors[name][order])
    save_file(tensors, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(DRAFT.to_json() | {"is_neox_style": False}))
    config, again = checkpoint.load_draft(tmp_path, jnp.bfloat16)
    assert config == DRAFT
    for name in ("q", "kv", "q_norm", "k_norm"):
        np.testing.assert_array_equal(again["layers"][1][name], params["layers"][1][name])


def test_other_names_of_the_same_tensors(tmp_path: Path) -> None:
    config = VARIANTS["dflash2"]
    params = checkpoint.random_draft(config, 1, jnp.bfloat16)
    checkpoint.save_draft(tmp_path, config, params)
    tensors = load_file(tmp_path / "model.safetensors")
    for ours, theirs in checkpoint_tensors.ALIASES.items():
        tensors[theirs] = tensors.pop(ours)
    save_file(tensors, tmp_path / "model.safetensors")
    _, again = checkpoint.load_draft(tmp_path, jnp.bfloat16)
    np.testing.assert_array_equal(again["fc"], params["fc"])


def test_a_pickled_mask_embedding_is_named_and_not_opened(tmp_path: Path) -> None:
    write_draft(tmp_path)
    (tmp_path / "mask_embedding.pt").write_bytes(b"cos\nsystem\n(S'false'\ntR.")
    with pytest.raises(InputError, match=r"mask_embedding\.pt"):
        checkpoint.load_draft(tmp_path, jnp.float32)


@pytest.mark.parametrize("name", [None, *VARIANTS])
def test_device_weights_have_the_shapes_and_sizes_of_others(name: str | None) -> None:
    config = DRAFT if name is None else VARIANTS[name]
    ours, theirs = checkpoint.device_draft(config, 0, jnp.bfloat16), checkpoint.random_draft(config, 0, jnp.bfloat16)
    assert jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), ours) == jax.tree.map(
        lambda leaf: (leaf.shape, leaf.dtype), theirs
    )
    assert float(jnp.std(ours["fc"].astype(jnp.float32))) == pytest.approx(ours["fc"].shape[0] ** -0.5, rel=0.1)
    again = checkpoint.device_draft(config, 0, jnp.bfloat16)
    np.testing.assert_array_equal(ours["layers"][0]["q"], again["layers"][0]["q"])
    assert np.any(np.asarray(ours["layers"][0]["q"] != ours["layers"][1]["q"]))
