"""Weights from and to Hugging Face folders: `config.json` and safetensors, nothing else (no pickles).

Linear weights are stored there as [out, in]; here they become [in, out], with q, k, v side by side in one matrix and gate, up in
another, so that a decode step makes fewer and larger products.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import ml_dtypes
import msgspec
import numpy as np
from jax.typing import DTypeLike
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from perfmodel.codec import encode, write_atomic
from perfmodel.errors import InputError

from .config import DraftConfig, TargetConfig

Params = dict[str, Any]
Take = Callable[..., np.ndarray]
"""Takes (name, *shape), gives the tensor of that name after checking its shape."""


def load_target(folder: Path, dtype: DTypeLike) -> tuple[TargetConfig, Params]:
    """The target in a checkpoint folder, its weights in `dtype`. Raises `InputError` when the folder is not such a checkpoint."""
    config = TargetConfig.from_json(read_config(folder))
    take = _Tensors(folder)
    params = build_target(config, take, dtype)
    take.finish(allowed=("lm_head.weight",) if config.tied_embeddings else ())
    return config, params


def load_draft(folder: Path, dtype: DTypeLike) -> tuple[DraftConfig, Params]:
    """The DFlash drafter in a checkpoint folder, its weights in `dtype`. Raises `InputError`."""
    config = DraftConfig.from_json(read_config(folder))
    take = _Tensors(folder)
    params = build_draft(config, take, dtype)
    take.finish()
    return config, params


def random_target(config: TargetConfig, seed: int, dtype: DTypeLike) -> Params:
    """A target of random weights, scaled so that activations neither vanish nor explode."""
    return build_target(config, _random_tensors(seed), dtype)


def random_draft(config: DraftConfig, seed: int, dtype: DTypeLike) -> Params:
    """A drafter of random weights."""
    return build_draft(config, _random_tensors(seed), dtype)


def read_config(folder: Path) -> Mapping[str, Any]:
    """The decoded `config.json` of a checkpoint folder."""
    path = folder / "config.json"
    if not path.is_file():
        raise InputError(f"{folder} holds no config.json", "give the folder of a Hugging Face checkpoint")
    try:
        document = msgspec.json.decode(path.read_bytes())
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not JSON: {error}", "the download may be incomplete") from error
    if not isinstance(document, dict):
        raise InputError(f"{path} is not an object", "the download may be incomplete")
    return document


def build_target(config: TargetConfig, take: Take, dtype: DTypeLike) -> Params:
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


def build_draft(config: DraftConfig, take: Take, dtype: DTypeLike) -> Params:
    """The drafter's parameters from tensors under their z-lab names."""
    d, width = config.hidden_size, len(config.target_layer_ids) * config.target_hidden_size
    return {
        "fc": _array(take("fc.weight", d, width).T, dtype),
        "hidden_norm": _array(take("hidden_norm.weight", d), dtype),
        "layers": [_layer(take, f"layers.{i}.", config, True, dtype, fuse_q=False) for i in range(config.num_layers)],
        "norm": _array(take("norm.weight", d), dtype),
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
    """The drafter's tensors under their z-lab names, linear weights as [out, in], in float32."""
    tensors = {
        "fc.weight": _wide(params["fc"]).T,
        "hidden_norm.weight": _wide(params["hidden_norm"]),
        "norm.weight": _wide(params["norm"]),
    }
    for i, layer in enumerate(params["layers"]):
        k, v = np.split(_wide(layer["kv"]), 2, axis=1)
        tensors |= _layer_tensors(f"layers.{i}.", layer, _wide(layer["q"]), k, v)
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
    narrow = {name: np.ascontiguousarray(value).astype(ml_dtypes.bfloat16) for name, value in tensors.items()}
    write_atomic(folder / "model.safetensors", save(narrow, metadata={"format": "pt", **(metadata or {})}))


def _layer(take: Take, prefix: str, config: TargetConfig | DraftConfig, qk_norm: bool, dtype: DTypeLike, fuse_q: bool) -> Params:
    d, f, h = config.hidden_size, config.intermediate_size, config.head_dim
    q_width, kv_width = config.num_heads * h, config.num_kv_heads * h
    q = take(f"{prefix}self_attn.q_proj.weight", q_width, d).T
    k = take(f"{prefix}self_attn.k_proj.weight", kv_width, d).T
    v = take(f"{prefix}self_attn.v_proj.weight", kv_width, d).T
    gate, up = take(f"{prefix}mlp.gate_proj.weight", f, d).T, take(f"{prefix}mlp.up_proj.weight", f, d).T
    weights = {"qkv": np.concatenate([q, k, v], axis=1)} if fuse_q else {"q": q, "kv": np.concatenate([k, v], axis=1)}
    weights |= {
        "attn_norm": take(f"{prefix}input_layernorm.weight", d),
        "o": take(f"{prefix}self_attn.o_proj.weight", d, q_width).T,
        "mlp_norm": take(f"{prefix}post_attention_layernorm.weight", d),
        "gate_up": np.concatenate([gate, up], axis=1),
        "down": take(f"{prefix}mlp.down_proj.weight", d, f).T,
    }
    if qk_norm:
        weights |= {"q_norm": take(f"{prefix}self_attn.q_norm.weight", h), "k_norm": take(f"{prefix}self_attn.k_norm.weight", h)}
    return {name: _array(value, dtype) for name, value in weights.items()}


def _array(value: np.ndarray, dtype: DTypeLike) -> jnp.ndarray:
    return jnp.asarray(np.ascontiguousarray(value), dtype=dtype)


def _random_tensors(seed: int) -> Take:
    generator = np.random.default_rng(seed)

    def take(name: str, *shape: int) -> np.ndarray:
        if len(shape) == 1:
            return 1.0 + 0.1 * generator.standard_normal(shape, dtype=np.float32)
        scale = 1.0 if "embed" in name else shape[1] ** -0.5
        return scale * generator.standard_normal(shape, dtype=np.float32)

    return take


class _Tensors:
    """Tensors of a folder by name, with or without the `model.` prefix; remembers which were never asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        files = sorted(folder.glob("*.safetensors"))
        if not files:
            raise InputError(
                f"{folder} holds no safetensors file", "other weight formats are not read; convert the checkpoint first"
            )
        index = folder / "model.safetensors.index.json"
        if index.is_file():
            try:
                wanted = set(json.loads(index.read_bytes())["weight_map"].values())
            except (ValueError, LookupError, TypeError, AttributeError) as error:
                raise InputError(f"{index} is not an index of weights: {error!r}", "the download may be incomplete") from error
            missing = wanted - {path.name for path in files}
            if missing:
                raise InputError(f"{folder} lacks {', '.join(sorted(map(str, missing)))}", "the download may be incomplete")
            files = [path for path in files if path.name in wanted]
        self.handles: dict[str, Any] = {}
        for path in files:
            try:
                handle = safe_open(path, framework="numpy")
            except (SafetensorError, OSError) as error:
                raise InputError(f"{path} is not a whole safetensors file: {error}", "the download may be incomplete") from error
            self.handles |= dict.fromkeys(handle.keys(), handle)
        self.left = set(self.handles)

    def __call__(self, name: str, *shape: int) -> np.ndarray:
        found = next((n for n in (name, f"model.{name}", name.removeprefix("model.")) if n in self.handles), None)
        if found is None:
            raise InputError(f"{self.folder} has no tensor {name}", "config.json and weights do not belong together")
        tensor = self.handles[found].get_tensor(found)
        if tensor.shape != shape:
            raise InputError(
                f"{self.folder}: {name} has shape {list(tensor.shape)}, config.json says {list(shape)}",
                "config.json and weights do not belong together",
            )
        self.left.discard(found)
        return tensor

    def finish(self, allowed: tuple[str, ...] = ()) -> None:
        ignored = {name for name in self.left if name.endswith("rotary_emb.inv_freq") or name in allowed}
        if self.left - ignored:
            names = sorted(self.left - ignored)
            raise InputError(
                f"{self.folder} holds {len(names)} tensors that are not used, such as {names[0]}",
                "the network would be another one without them; the checkpoint is of another kind",
            )
