"""Weights from and to Hugging Face folders: `config.json` and safetensors, nothing else (no pickles).

Linear weights are stored there as [out, in]; here they become [in, out], with q, k, v side by side in one matrix and gate, up in
another, so that a decode step makes fewer and larger products.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import msgspec
import numpy as np
from jax.typing import DTypeLike
from safetensors.numpy import save

from perfmodel.codec import encode, write_atomic
from perfmodel.errors import InputError

from . import eagle3
from .checkpoint_tensors import DeviceTensors, FolderTensors, RandomTensors, Tensors, target_ids
from .config import TargetConfig
from .config_draft import Draft2Config, DraftConfig
from .config_eagle3 import Eagle3Config, is_eagle3
from .config_layout import MaskId
from .drafter import AnyDraftConfig

Params = dict[str, Any]

TRAINING_TENSORS = ("verifier_norm.weight", "verifier_lm_head.weight", "t2d")
"""Tensors that training leaves in some files: copies of the target's, and the inverse of `d2t`."""


def load_target(folder: Path, dtype: DTypeLike) -> tuple[TargetConfig, Params]:
    """The target in a checkpoint folder, its weights in `dtype`. Raises `InputError` when the folder is not such a checkpoint."""
    config = TargetConfig.from_json(read_config(folder))
    take = FolderTensors(folder)
    params = build_target(config, take, dtype)
    take.finish(allowed=("lm_head.weight",) if config.tied_embeddings else ())
    return config, params


def load_draft(folder: Path, dtype: DTypeLike, mask_id: MaskId | None = None) -> tuple[AnyDraftConfig, Params]:
    """The drafter in a checkpoint folder, of any kind and layout that runs here, its weights in `dtype`. Raises `InputError`."""
    config = draft_config(read_config(folder), mask_id)
    pickled = sorted(path.name for path in folder.glob("mask_embedding.*") if path.suffix != ".safetensors")
    if pickled:
        raise InputError(
            f"{folder} keeps its mask's embedding in {pickled[0]}, which is not opened",
            "store it as the tensor mask_embedding in a safetensors file",
        )
    take = FolderTensors(folder)
    params = build_draft(config, take, dtype)
    take.finish(allowed=TRAINING_TENSORS)
    return as_built(config), params


def draft_config(document: Mapping[str, Any], mask_id: MaskId | None = None) -> AnyDraftConfig:
    """The configuration of a drafter from its decoded `config.json`, by the architecture it names. Raises `InputError`.

    `mask_id` is asked for the id of a mask token that the document gives in words.
    """
    return Eagle3Config.from_json(document) if is_eagle3(document) else DraftConfig.from_json(document, mask_id)


def as_built(config: AnyDraftConfig) -> AnyDraftConfig:
    """The configuration that fits parameters as they are built: rotary pairs in halves, and values that need no scaling."""
    return dataclasses.replace(config, rope_interleaved=False, value_scale=1.0) if isinstance(config, DraftConfig) else config


def random_target(config: TargetConfig, seed: int, dtype: DTypeLike) -> Params:
    """A target of random weights, scaled so that activations neither vanish nor explode."""
    return build_target(config, RandomTensors(seed), dtype)


def random_draft(config: AnyDraftConfig, seed: int, dtype: DTypeLike) -> Params:
    """A drafter of random weights."""
    return build_draft(config, RandomTensors(seed, needs_own_vocabulary(config)), dtype)


def device_target(config: TargetConfig, seed: int, dtype: DTypeLike) -> Params:
    """A target of random weights made on the device, tensor by tensor, in `dtype`: for models of any size."""
    return build_target(config, DeviceTensors(seed, dtype), dtype)


def device_draft(config: AnyDraftConfig, seed: int, dtype: DTypeLike) -> Params:
    """A drafter of random weights made on the device, tensor by tensor, in `dtype`."""
    return build_draft(config, DeviceTensors(seed, dtype, needs_own_vocabulary(config)), dtype)


def needs_own_vocabulary(config: AnyDraftConfig) -> bool:
    """Whether the drafter cannot borrow the target's embedding and head: another width, or fewer tokens to choose among."""
    fewer = config.draft_vocab_size not in (None, config.vocab_size)
    return config.hidden_size != config.target_hidden_size or fewer


def read_config(path: Path) -> Mapping[str, Any]:
    """The decoded `config.json` of a checkpoint folder, or of the file itself."""
    path = path if path.is_file() else path / "config.json"
    if not path.is_file():
        raise InputError(f"{path.parent} holds no config.json", "give the folder of a Hugging Face checkpoint")
    try:
        document = msgspec.json.decode(path.read_bytes())
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{path} is not JSON: {error}", "the download may be incomplete") from error
    if not isinstance(document, dict):
        raise InputError(f"{path} is not an object", "the download may be incomplete")
    return document


def build_target(config: TargetConfig, take: Tensors, dtype: DTypeLike) -> Params:
    """The target's parameters from tensors under their Hugging Face names."""
    d, v = config.hidden_size, config.vocab_size
    layers = [_layer(take, f"model.layers.{i}.", config, config.qk_norm, dtype, fuse_q=True) for i in range(config.num_layers)]
    params = {
        "embed": _array(take("model.embed_tokens.weight", v, d), dtype),
        "layers": layers,
        "norm": _array(take("model.norm.weight", d), dtype),
    }
    if not config.tied_embeddings:
        params["head"] = _array(take("lm_head.weight", v, d).T, dtype)
    return params


def build_draft(config: AnyDraftConfig, take: Tensors, dtype: DTypeLike) -> Params:
    """The drafter's parameters from tensors under their published names."""
    if isinstance(config, Eagle3Config):
        return eagle3.params_from(take, config, dtype)
    d, width = config.hidden_size, len(config.target_layer_ids) * config.target_hidden_size
    params = {
        "fc": _array(take("fc.weight", d, width).T, dtype),
        "hidden_norm": _array(take("hidden_norm.weight", d), dtype),
        "layers": [_draft_layer(take, f"layers.{i}.", config, dtype) for i in range(config.num_layers)],
        "norm": _array(take("norm.weight", d), dtype),
    }
    if isinstance(config, Draft2Config):
        params["selector"] = _selector(take, config, dtype)
    return params | _own_vocabulary(take, config, dtype)


def _own_vocabulary(take: Tensors, config: DraftConfig, dtype: DTypeLike) -> Params:
    """What the drafter has instead of the target's embedding and head."""
    d, own = config.hidden_size, {}
    if take.has("embed_tokens.weight"):
        own["embed"] = _array(take("embed_tokens.weight", config.vocab_size, d), dtype)
    if take.has("lm_head.weight"):
        own["head"] = _array(take("lm_head.weight", config.num_head_rows, d).T, dtype)
    if take.has("mask_embedding"):
        own["mask_embedding"] = _array(take("mask_embedding", d), dtype)
    fewer = config.num_head_rows != config.vocab_size
    missing = [
        name
        for name, key, needed in (
            ("embed_tokens.weight", "embed", d != config.target_hidden_size),
            ("lm_head.weight", "head", d != config.target_hidden_size or fewer),
        )
        if needed and key not in own
    ]
    if missing:
        raise InputError(
            f"the drafter of width {d} and {config.num_head_rows} draft tokens lacks {' and '.join(missing)}",
            f"a target of width {config.target_hidden_size} and {config.vocab_size} tokens cannot lend them",
        )
    ids = target_ids(take, config.num_head_rows, config.vocab_size)
    if fewer:
        own["d2t"] = jnp.asarray(ids)
    elif not np.array_equal(ids, np.arange(len(ids))):
        raise InputError("d2t reorders a draft vocabulary as large as the target's", "the checkpoint contradicts itself")
    return own


def _draft_layer(take: Tensors, prefix: str, config: DraftConfig, dtype: DTypeLike) -> Params:
    layer = _layer(
        take, prefix, config, True, dtype, fuse_q=False, interleaved=config.rope_interleaved, value_scale=config.value_scale
    )
    if config.attention_sinks:
        layer["sinks"] = _array(take(f"{prefix}self_attn.attention_sink_bias", config.num_heads), dtype)
    if isinstance(config, Draft2Config):
        layer |= {name: _convolution(take, f"{prefix}{name}.", config, dtype) for name in ("attention_conv", "mlp_conv")}
    return layer


def _convolution(take: Tensors, prefix: str, config: Draft2Config, dtype: DTypeLike) -> Params:
    d, taps = config.hidden_size, config.conv_kernel_size
    outputs = 2 * taps * (d // config.conv_group_size)
    return {
        "base": _array(take(f"{prefix}base_kernel", 2, taps, d), dtype),
        "kernel": _array(take(f"{prefix}kernel_projection.weight", outputs, d).T, dtype),
    }


def _selector(take: Tensors, config: Draft2Config, dtype: DTypeLike) -> Params:
    rank, prefix = config.selector_rank, "candidate_selector."
    return {
        "predecessor": _array(take(f"{prefix}predecessor_codebook", config.vocab_size, rank), dtype),
        "successor": _array(take(f"{prefix}successor_codebook", config.vocab_size, rank), dtype),
        "hidden": _array(take(f"{prefix}hidden_projection.weight", rank, config.hidden_size).T, dtype),
    }


def save_target(folder: Path, config: TargetConfig, params: Params, metadata: Mapping[str, str] | None = None) -> None:
    """Write the target's weights as bfloat16 safetensors in the Hugging Face layout; the file is whole or absent."""
    _save(folder, target_tensors(config, params), metadata)


def save_draft(folder: Path, config: DraftConfig, params: Params, metadata: Mapping[str, str] | None = None) -> None:
    """Write the drafter as bfloat16 safetensors with its `config.json`, in the z-lab layout; each file is whole or absent."""
    _save(folder, draft_tensors(config, params), metadata)
    write_atomic(folder / "config.json", encode(config.to_json()))


def target_tensors(config: TargetConfig, params: Params) -> dict[str, np.ndarray]:
    """The target's tensors under their Hugging Face names, linear weights as [out, in], in float32."""
    tensors = {"model.embed_tokens.weight": _wide(params["embed"]), "model.norm.weight": _wide(params["norm"])}
    if not config.tied_embeddings:
        tensors["lm_head.weight"] = _wide(params["head"]).T
    q_width, kv_width = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    for i, layer in enumerate(params["layers"]):
        q, k, v = np.split(_wide(layer["qkv"]), [q_width, q_width + kv_width], axis=1)
        tensors |= _layer_tensors(f"model.layers.{i}.", layer, q, k, v)
    return tensors


def draft_tensors(config: DraftConfig, params: Params) -> dict[str, np.ndarray]:
    """The drafter's tensors under their z-lab names, linear weights as [out, in], in float32 (`d2t` as offsets)."""
    tensors = {
        "fc.weight": _wide(params["fc"]).T,
        "hidden_norm.weight": _wide(params["hidden_norm"]),
        "norm.weight": _wide(params["norm"]),
    }
    own = {"embed": "embed_tokens.weight", "head": "lm_head.weight", "mask_embedding": "mask_embedding"}
    tensors |= {name: _wide(params[key]).T if key == "head" else _wide(params[key]) for key, name in own.items() if key in params}
    if "d2t" in params:
        tensors["d2t"] = np.asarray(params["d2t"], np.int64) - np.arange(config.num_head_rows)
    for i, layer in enumerate(params["layers"]):
        prefix = f"layers.{i}."
        k, v = np.split(_wide(layer["kv"]), 2, axis=1)
        tensors |= _layer_tensors(prefix, layer, _wide(layer["q"]), k, v)
        if "sinks" in layer:
            tensors[f"{prefix}self_attn.attention_sink_bias"] = _wide(layer["sinks"])
        for name in ("attention_conv", "mlp_conv"):
            if name in layer:
                tensors[f"{prefix}{name}.base_kernel"] = _wide(layer[name]["base"])
                tensors[f"{prefix}{name}.kernel_projection.weight"] = _wide(layer[name]["kernel"]).T
    if selector := params.get("selector"):
        for name in ("predecessor", "successor"):
            tensors[f"candidate_selector.{name}_codebook"] = _wide(selector[name])
        tensors["candidate_selector.hidden_projection.weight"] = _wide(selector["hidden"]).T
    return tensors


def _layer_tensors(prefix: str, layer: Params, q: np.ndarray, k: np.ndarray, v: np.ndarray) -> dict[str, np.ndarray]:
    gate, up = np.split(_wide(layer["gate_up"]), 2, axis=1)
    linears = {
        "self_attn.q_proj": q, "self_attn.k_proj": k, "self_attn.v_proj": v, "self_attn.o_proj": _wide(layer["o"]),
        "mlp.gate_proj": gate, "mlp.up_proj": up, "mlp.down_proj": _wide(layer["down"]),
    }  # fmt: skip
    norms = {
        "input_layernorm": "attn_norm", "post_attention_layernorm": "mlp_norm",
        "self_attn.q_norm": "q_norm", "self_attn.k_norm": "k_norm",
    }  # fmt: skip
    tensors = {f"{prefix}{name}.weight": value.T for name, value in linears.items()}
    return tensors | {f"{prefix}{name}.weight": _wide(layer[key]) for name, key in norms.items() if key in layer}


def _wide(value: Any) -> np.ndarray:
    return np.asarray(value, dtype=np.float32)


def _save(folder: Path, tensors: Mapping[str, np.ndarray], metadata: Mapping[str, str] | None) -> None:
    narrow = {
        name: np.ascontiguousarray(value) if value.dtype == np.int64 else np.ascontiguousarray(value).astype(ml_dtypes.bfloat16)
        for name, value in tensors.items()
    }
    write_atomic(folder / "model.safetensors", save(narrow, metadata={"format": "pt", **(metadata or {})}))


def _layer(
    take: Tensors,
    prefix: str,
    config: TargetConfig | DraftConfig,
    qk_norm: bool,
    dtype: DTypeLike,
    fuse_q: bool,
    interleaved: bool = False,
    value_scale: float = 1.0,
) -> Params:
    """A decoder layer's weights. `interleaved`: the file's rotary pairs lie side by side; they are put into halves.

    Attention is linear in its values, so that their scale is one of the weights that make them.
    """
    d, f, h = config.hidden_size, config.intermediate_size, config.head_dim
    q_width, kv_width = config.num_heads * h, config.num_kv_heads * h
    turned = _halves if interleaved else lambda rows, _: rows
    q = turned(take(f"{prefix}self_attn.q_proj.weight", q_width, d), h).T
    k = turned(take(f"{prefix}self_attn.k_proj.weight", kv_width, d), h).T
    v = take(f"{prefix}self_attn.v_proj.weight", kv_width, d).T
    v = v if value_scale == 1.0 else v.astype(np.float32) * value_scale
    gate, up = take(f"{prefix}mlp.gate_proj.weight", f, d).T, take(f"{prefix}mlp.up_proj.weight", f, d).T
    weights = {"qkv": _joined([q, k, v])} if fuse_q else {"q": q, "kv": _joined([k, v])}
    weights |= {
        "attn_norm": take(f"{prefix}input_layernorm.weight", d),
        "o": take(f"{prefix}self_attn.o_proj.weight", d, q_width).T,
        "mlp_norm": take(f"{prefix}post_attention_layernorm.weight", d),
        "gate_up": _joined([gate, up]),
        "down": take(f"{prefix}mlp.down_proj.weight", d, f).T,
    }
    if qk_norm:
        norms = {name: take(f"{prefix}self_attn.{name}.weight", h) for name in ("q_norm", "k_norm")}
        weights |= {name: turned(norm, h) for name, norm in norms.items()}
    return {name: _array(value, dtype) for name, value in weights.items()}


def _halves(rows: Any, head_dim: int) -> Any:
    """Rows of heads whose rotary pairs are (0, 1), (2, 3), … in the order in which they are (0, h/2), (1, h/2 + 1), …"""
    return rows.reshape(-1, head_dim // 2, 2, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)


def _joined(parts: Sequence[Any]) -> Any:
    """The matrices side by side, where they are: on the host or on the device."""
    return jnp.concatenate(parts, axis=1) if isinstance(parts[0], jax.Array) else np.concatenate(parts, axis=1)


def _array(value: Any, dtype: DTypeLike) -> jax.Array:
    return value.astype(dtype) if isinstance(value, jax.Array) else jnp.asarray(np.ascontiguousarray(value), dtype=dtype)
