"""Dimensions of a target or a drafter, from a published config.json or from the few that ship.

What a step costs follows from a handful of integers: layers, widths, heads, vocabulary, experts, bits per weight. They are
public facts and are read from the config, never guessed: `head_dim` in particular is often *not* hidden size over heads
(Qwen3-4B: 128, not 80). An architecture whose layers this model does not price (linear attention, latent attention, extra
drafting heads) is refused, because a number that looks right would be worse than none.
"""

import difflib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from . import codec
from .errors import InputError
from .records import ModelSpec
from .records.model import ModelRole

_CATALOGUE = "models"

_HEAD_DIM_BY_DEFINITION = ("LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "LlamaForCausalLMEagle3")
"""Architectures that define head_dim as hidden size over heads when their config leaves it out."""

_TARGETS = {
    "LlamaForCausalLM": False,
    "MistralForCausalLM": False,
    "Qwen2ForCausalLM": False,
    "Qwen3ForCausalLM": True,
    "Qwen3MoeForCausalLM": True,
}
"""Target architectures priced here → whether queries and keys are normalised per head."""

_DFLASH = ("DFlashDraftModel", "QwenDFlashDraftModel")
_EAGLE3 = ("LlamaForCausalLMEagle3", "Eagle3LlamaForCausalLM")

_UNPRICED = {
    "kv_lora_rank": "multi-head latent attention",
    "linear_num_value_heads": "linear attention layers",
    "index_topk": "sparse attention with an indexer",
    "compress_ratios": "compressed attention",
    "hc_mult": "hyper-connections",
    "attn_output_gate": "gated attention output",
    "mamba_d_state": "state-space layers",
    "conv_L_cache": "convolution layers",
    "conv_kernel_size": "the DFlash 2 convolution",
    "selector_rank": "the DFlash 2 selector",
    "markov_rank": "a Markov head",
    "gru_hidden_dim": "a recurrent correction head",
}
"""Config keys that announce work this model does not price → what they stand for."""


@cache
def names(role: ModelRole | None = None) -> tuple[str, ...]:
    """Names of the models that ship, sorted; of one role if given."""
    folder = resources.files(__package__) / _CATALOGUE
    found = sorted(entry.name.removesuffix(".json") for entry in folder.iterdir() if entry.name.endswith(".json"))
    return tuple(name for name in found if role is None or _shipped(name).role == role)


def load_model(name_or_path: str, role: ModelRole | None = None) -> ModelSpec:
    """The dimensions of a model by shipped name, hub id, record file, or config.json (a file or its folder).

    Raises `InputError` when nothing fits, when the config is not priced here, or when `role` is the other one.
    """
    spec = _find(name_or_path)
    if role is not None and spec.role != role:
        raise InputError(f"{name_or_path} is a {spec.role}, and a {role} is wanted here", f"known: {', '.join(names(role))}")
    return spec


def from_config(config: Mapping[str, Any], name: str, source: str = "config.json") -> ModelSpec:
    """The dimensions that a Hugging Face style config.json describes: a dense or mixture-of-experts target, or a drafter.

    Drafter layouts: `dflash_config` nested or top level (z-lab, SpecForge), `transformer_layer_config` (speculators), EAGLE-3.
    Raises `InputError` naming the key or the architecture that is missing, wrong or not priced here.
    """
    architecture = _architecture(config)
    nested = _section(config, "dflash_config")
    for section in (config, nested, _section(config, "text_config")):
        for key, meaning in _UNPRICED.items():
            if section.get(key) not in (None, False, 0):
                raise InputError(
                    f"{name} has {meaning} (`{key}`), which this cost model does not price", "use a model with plain attention"
                )
    if architecture in _DFLASH:
        return _dflash(config, nested, name, source, architecture)
    if architecture in _EAGLE3:
        return _eagle3(config, name, source, architecture)
    if architecture in _TARGETS:
        return _target(config, name, source, architecture)
    known = ", ".join((*_TARGETS, *_DFLASH, *_EAGLE3))
    raise InputError(f"{name} is a {architecture}, which this cost model does not price", f"priced: {known}")


def _find(name_or_path: str) -> ModelSpec:
    name = name_or_path.strip()
    if name.lower() in names():
        return _shipped(name.lower())
    for shipped in names():
        spec = _shipped(shipped)
        if name.lower() in (hub_id.lower() for hub_id in spec.hub_ids):
            return spec
    path = Path(name_or_path)
    if path.is_dir() and (path / "config.json").is_file():
        path = path / "config.json"
    if path.is_file():
        document = codec.read_json(path)
        if isinstance(document, dict) and "schema" in document:
            return codec.load(path, ModelSpec)
        if not isinstance(document, dict):
            raise InputError(f"{path} is not a model config: it is not a JSON object", "give a config.json")
        label = path.parent.name if path.name == "config.json" else path.stem
        return from_config(document, label, str(path))
    near = difflib.get_close_matches(name.lower().rpartition("/")[2], names(), n=3, cutoff=0.5)
    hint = f"did you mean {', '.join(near)}?" if near else f"known: {', '.join(names())}; or a path to a config.json"
    raise InputError(f"no model called {name_or_path!r}", hint)


@cache
def _shipped(name: str) -> ModelSpec:
    folder = resources.files(__package__) / _CATALOGUE
    with resources.as_file(folder / f"{name}.json") as path:
        return codec.load(path, ModelSpec)


def _architecture(config: Mapping[str, Any]) -> str:
    listed = config.get("architectures")
    if not isinstance(listed, list) or len(listed) != 1 or not isinstance(listed[0], str):
        raise InputError(f"the config names no single architecture (`architectures` is {listed!r})", "give a model's config.json")
    return listed[0]


def _section(config: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    section = config.get(key) or {}
    if not isinstance(section, Mapping):
        raise InputError(f"`{key}` must be an object, not {section!r}", "the config may be damaged")
    return section


def _count(config: Mapping[str, Any], key: str, name: str) -> int:
    value = config.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InputError(
            f"{name}: `{key}` must be a positive whole number, not {value!r}", "the config is incomplete or of another kind"
        )
    return value


def _head_dim(config: Mapping[str, Any], name: str, architecture: str) -> int:
    if config.get("head_dim") is not None:
        return _count(config, "head_dim", name)
    hidden, heads = _count(config, "hidden_size", name), _count(config, "num_attention_heads", name)
    if architecture in _HEAD_DIM_BY_DEFINITION and hidden % heads == 0:
        return hidden // heads
    raise InputError(f"{name} has no `head_dim`, and {architecture} does not define it", "add head_dim to the config")


def _body(config: Mapping[str, Any], name: str, architecture: str) -> dict[str, Any]:
    """The dimensions every architecture shares."""
    num_layers = _count(config, "num_hidden_layers", name)
    heads = _count(config, "num_attention_heads", name)
    kv_heads = _count(config, "num_key_value_heads", name) if "num_key_value_heads" in config else heads
    if heads % kv_heads:
        raise InputError(f"{name}: {heads} heads cannot share {kv_heads} key-value heads", "the config may be damaged")
    return {
        "hidden_size": _count(config, "hidden_size", name),
        "num_layers": num_layers,
        "num_heads": heads,
        "num_kv_heads": kv_heads,
        "head_dim": _head_dim(config, name, architecture),
        "intermediate_size": _count(config, "intermediate_size", name),
        "vocab_size": _count(config, "vocab_size", name),
        "tied_embeddings": bool(config.get("tie_word_embeddings", False)),
        **_window(config, num_layers, name),
    }


def _window(config: Mapping[str, Any], num_layers: int, name: str) -> dict[str, Any]:
    """How many layers see everything, and how far the others see."""
    layer_types = config.get("layer_types")
    if layer_types is None:
        if config.get("use_sliding_window") and config.get("sliding_window"):
            raise InputError(f"{name} uses a sliding window without `layer_types`", "say which layers are windowed")
        return {}
    unknown = sorted(set(layer_types) - {"full_attention", "sliding_attention"})
    if unknown:
        raise InputError(
            f"{name} has layers of type {', '.join(map(str, unknown))}, not priced here", "use a model with plain attention"
        )
    if len(layer_types) != num_layers:
        raise InputError(f"{name}: {len(layer_types)} layer types for {num_layers} layers", "the config may be damaged")
    num_full = layer_types.count("full_attention")
    if num_full == num_layers:
        return {}
    return {"num_full_attention_layers": num_full, "sliding_window": _count(config, "sliding_window", name)}


def _bits(config: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Storage width of the body's matrices, scales included, and of the LM head."""
    quantization = _section(config, "quantization_config")
    if not quantization:
        return {}
    method = quantization.get("quant_method")
    if method == "fp8":
        weight_bits = 8.0
    elif method in ("gptq", "awq"):
        bits, group = _count(quantization, "bits", name), _count(quantization, "group_size", name)
        # Each group keeps one 16-bit scale and one zero point of the weights' own width.
        weight_bits = bits + (16 + bits) / group
    else:
        raise InputError(f"{name} is quantised by {method!r}, which this cost model does not price", "priced: fp8, gptq, awq")
    return {"weight_bits": weight_bits, "head_bits": 16.0}


def _experts(config: Mapping[str, Any], name: str, num_layers: int) -> dict[str, Any]:
    if not config.get("num_experts"):
        return {}
    if config.get("decoder_sparse_step", 1) != 1:
        raise InputError(f"{name}: `decoder_sparse_step` other than 1 is not priced here", "list dense layers in mlp_only_layers")
    return {
        "num_experts": _count(config, "num_experts", name),
        "num_experts_per_token": _count(config, "num_experts_per_tok", name),
        "moe_intermediate_size": _count(config, "moe_intermediate_size", name),
        "shared_expert_intermediate_size": int(config.get("shared_expert_intermediate_size") or 0),
        "num_dense_layers": len(config.get("mlp_only_layers") or []),
    }


def _target(config: Mapping[str, Any], name: str, source: str, architecture: str) -> ModelSpec:
    body = _body(config, name, architecture)
    return ModelSpec(
        name=name,
        role="target",
        qk_norm=_TARGETS[architecture],
        source=source,
        **body,
        **_bits(config, name),
        **_experts(config, name, body["num_layers"]),
    )


def _dflash(config: Mapping[str, Any], nested: Mapping[str, Any], name: str, source: str, architecture: str) -> ModelSpec:
    """z-lab and SpecForge keep the network at the top level, speculators under `transformer_layer_config`.

    speculators counts hidden states with the embedding as entry 0, so its layer ids are one too high for us. A shifted drafter
    (`sample_from_anchor`) makes as many drafts as its config's block size, so its K, anchor included, is one more.
    """
    network = _section(config, "transformer_layer_config") or config
    layer_ids = nested.get("target_layer_ids", config.get("target_layer_ids"))
    if layer_ids is None and config.get("aux_hidden_state_layer_ids") is not None:
        layer_ids = [layer - 1 for layer in config["aux_hidden_state_layer_ids"]]
    if not layer_ids:
        raise InputError(f"{name} names no target layers (`target_layer_ids`)", "the drafter's feature width depends on them")
    block_size = nested.get("block_size", config.get("block_size"))
    sample_from_anchor = bool(nested.get("sample_from_anchor", config.get("sample_from_anchor", False)))
    body = _body(network, name, architecture)
    draft_vocab = config.get("draft_vocab_size")
    return ModelSpec(
        name=name,
        role="draft",
        drafter="dflash",
        qk_norm=True,
        block_size=_count({"block_size": block_size}, "block_size", name) + sample_from_anchor,
        target_layer_ids=tuple(layer_ids),
        target_hidden_size=config.get("target_hidden_size") or body["hidden_size"],
        draft_vocab_size=draft_vocab if draft_vocab != body["vocab_size"] else None,
        borrows_head=draft_vocab is None or draft_vocab == body["vocab_size"],
        sample_from_anchor=sample_from_anchor,
        source=source,
        **body,
        **_bits(config, name),
    )


def _eagle3(config: Mapping[str, Any], name: str, source: str, architecture: str) -> ModelSpec:
    """EAGLE-3: one layer on [embedding, fused features], its own head over a reduced vocabulary."""
    layer_ids = _section(config, "eagle_config").get("eagle_aux_hidden_state_layer_ids") or ()
    body = _body(config, name, architecture)
    return ModelSpec(
        name=name,
        role="draft",
        drafter="eagle3",
        target_layer_ids=tuple(layer_ids),
        target_hidden_size=config.get("target_hidden_size") or body["hidden_size"],
        draft_vocab_size=_count(config, "draft_vocab_size", name),
        borrows_head=False,
        source=source,
        **body,
        **_bits(config, name),
    )
