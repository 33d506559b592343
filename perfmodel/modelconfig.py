"""Dimensions of a target or drafter from a Hugging Face style config.json: every layout and kind of layer that is priced.

Targets: dense and mixture-of-experts decoders with grouped heads (Llama, Mistral, Qwen2, Qwen3), hybrids whose layers are mostly
gated delta rule (Qwen3-Next, Qwen3.5), latent attention (DeepSeek-V3), and windowed attention with pooled rows (DeepSeek-V4).
Drafters: DFlash in four layouts, DFlash 2, their relatives DFlare, Domino and DSpark, EAGLE-3 and P-EAGLE. Vision towers and multi-token
prediction heads that a config also lists take no part in a target's text step and are not counted.
"""

from typing import Any

from .configkeys import Config, count, count_or_zero, counts, section, storage_bits
from .errors import InputError
from .records import ModelSpec
from .records.model import BlockMixing, CompressedAttention, DrafterKind, LatentAttention, LinearAttention

_HEAD_DIM_BY_DEFINITION = ("LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "LlamaForCausalLMEagle3")
"""Architectures that define head_dim as hidden size over heads when their config leaves it out."""

_TARGETS = {
    "LlamaForCausalLM": False,
    "MistralForCausalLM": False,
    "Qwen2ForCausalLM": False,
    "Qwen3ForCausalLM": True,
    "Qwen3MoeForCausalLM": True,
    "Qwen3NextForCausalLM": True,
    "Qwen3_5ForConditionalGeneration": True,
    "Qwen3_5MoeForConditionalGeneration": True,
}
"""Target architectures with grouped heads → whether queries and keys are normalised per head."""

_GATED = ("Qwen3NextForCausalLM", "Qwen3_5ForConditionalGeneration", "Qwen3_5MoeForConditionalGeneration")
"""Architectures whose attention output is gated by a second half of the query projection."""

_LATENT = ("DeepseekV2ForCausalLM", "DeepseekV3ForCausalLM")
_COMPRESSED = ("DeepseekV4ForCausalLM",)

_BLOCK_DRAFTERS: dict[str, DrafterKind] = {
    "DFlashDraftModel": "dflash",
    "QwenDFlashDraftModel": "dflash",
    "DFlash2DraftModel": "dflash2",
    "QwenDFlareDraftModel": "dflare",
    "DFlareDraftModel": "dflare",
    "DominoDraftModel": "domino",
    "DSparkDraftModel": "dspark",
}
_EAGLES: dict[str, DrafterKind] = {
    "LlamaForCausalLMEagle3": "eagle3",
    "Eagle3LlamaForCausalLM": "eagle3",
    "PEagleDraftModel": "peagle",
}

_INDEXED_RATIO = 4
"""DeepSeek-V4 layers that pool 4 tokens pick rows with an indexer; others read all pooled rows."""

_UNPRICED = {
    "mamba_d_state": "state-space layers",
    "conv_L_cache": "convolution layers",
}
"""Config keys that announce work this model does not price → what they stand for."""

_DFLASH2 = {
    "conv_kernel_size": "the DFlash 2 convolution",
    "conv_group_size": "the DFlash 2 convolution",
    "selector_rank": "the DFlash 2 selector",
    "selector_top_k": "the DFlash 2 selector",
}
"""Keys of DFlash 2, which belong to a DFlash drafter alone → what they stand for."""

_LATENT_SPARSE = {"index_topk": "sparse attention with an indexer"}


def from_config(config: Config, name: str, source: str = "config.json") -> ModelSpec:
    """The dimensions that a config.json describes. Raises `InputError` naming the key or architecture that is wrong or not priced."""
    architecture = _architecture(config)
    nested = section(config, "dflash_config")
    unpriced = _UNPRICED if architecture in _COMPRESSED else _UNPRICED | _LATENT_SPARSE
    if _BLOCK_DRAFTERS.get(architecture) not in ("dflash", "dflash2"):
        unpriced = unpriced | _DFLASH2
    for part in (config, nested, section(config, "text_config")):
        for key, meaning in unpriced.items():
            if part.get(key) not in (None, False, 0):
                raise InputError(
                    f"{name} has {meaning} (`{key}`), which this cost model does not price", "use a model with priced layers"
                )
    if architecture in _BLOCK_DRAFTERS:
        return _block_drafter(config, nested, name, source, architecture)
    if architecture in _EAGLES:
        return _eagle(config, name, source, architecture)
    if architecture in _TARGETS:
        return _grouped_target(config, name, source, architecture)
    if architecture in _LATENT:
        return _latent_target(config, name, source)
    if architecture in _COMPRESSED:
        return _compressed_target(config, name, source)
    known = ", ".join((*_TARGETS, *_LATENT, *_COMPRESSED, *_BLOCK_DRAFTERS, *_EAGLES))
    raise InputError(f"{name} is a {architecture}, which this cost model does not price", f"priced: {known}")


def _architecture(config: Config) -> str:
    listed = config.get("architectures")
    if not isinstance(listed, list) or len(listed) != 1 or not isinstance(listed[0], str):
        raise InputError(f"the config names no single architecture (`architectures` is {listed!r})", "give a model's config.json")
    return listed[0]


def _head_dim(config: Config, name: str, architecture: str) -> int:
    if config.get("head_dim") is not None:
        return count(config, "head_dim", name)
    hidden, heads = count(config, "hidden_size", name), count(config, "num_attention_heads", name)
    if architecture in _HEAD_DIM_BY_DEFINITION and hidden % heads == 0:
        return hidden // heads
    raise InputError(f"{name} has no `head_dim`, and {architecture} does not define it", "add head_dim to the config")


def _body(config: Config, name: str, head_dim: int) -> dict[str, Any]:
    """The dimensions every architecture shares. A mixture without dense layers may leave `intermediate_size` out."""
    heads = count(config, "num_attention_heads", name)
    kv_heads = count(config, "num_key_value_heads", name) if "num_key_value_heads" in config else heads
    if heads % kv_heads:
        raise InputError(f"{name}: {heads} heads cannot share {kv_heads} key-value heads", "the config may be damaged")
    only_experts = config.get("intermediate_size") is None and bool(config.get("moe_intermediate_size"))
    return {
        "hidden_size": count(config, "hidden_size", name),
        "num_layers": count(config, "num_hidden_layers", name),
        "num_heads": heads,
        "num_kv_heads": kv_heads,
        "head_dim": head_dim,
        "intermediate_size": 0 if only_experts else count(config, "intermediate_size", name),
        "vocab_size": count(config, "vocab_size", name),
        "tied_embeddings": bool(config.get("tie_word_embeddings", False)),
    }


def _layer_types(config: Config, num_layers: int, name: str) -> list[str] | None:
    """What kind each layer is; None where all see the whole context."""
    layer_types = config.get("layer_types")
    interval = config.get("full_attention_interval")
    if layer_types is None and interval:
        every = count(config, "full_attention_interval", name)
        layer_types = ["linear_attention" if (i + 1) % every else "full_attention" for i in range(num_layers)]
    if layer_types is None:
        if config.get("use_sliding_window") and config.get("sliding_window"):
            raise InputError(f"{name} uses a sliding window without `layer_types`", "say which layers are windowed")
        return None
    if not isinstance(layer_types, list):
        raise InputError(f"{name}: `layer_types` must be a list, one entry per layer", "the config may be damaged")
    unknown = sorted(set(map(str, layer_types)) - {"full_attention", "sliding_attention", "linear_attention"})
    if unknown:
        raise InputError(f"{name} has layers of type {', '.join(unknown)}, not priced here", "use a model with plain attention")
    if len(layer_types) != num_layers:
        raise InputError(f"{name}: {len(layer_types)} layer types for {num_layers} layers", "the config may be damaged")
    return list(layer_types)


def _mixers(config: Config, num_layers: int, name: str) -> dict[str, Any]:
    """How many layers see everything, how far the others see, and which keep a recurrent state."""
    kinds = _layer_types(config, num_layers, name)
    if kinds is None or kinds.count("full_attention") == num_layers:
        return {}
    found: dict[str, Any] = {"num_full_attention_layers": kinds.count("full_attention")}
    if "sliding_attention" in kinds:
        found["sliding_window"] = count(config, "sliding_window", name)
    if "linear_attention" in kinds:
        found["linear"] = LinearAttention(
            num_layers=kinds.count("linear_attention"),
            num_key_heads=count(config, "linear_num_key_heads", name),
            num_value_heads=count(config, "linear_num_value_heads", name),
            key_dim=count(config, "linear_key_head_dim", name),
            value_dim=count(config, "linear_value_head_dim", name),
            conv_kernel=count(config, "linear_conv_kernel_dim", name),
        )
    return found


def _experts(config: Config, name: str) -> dict[str, Any]:
    """Routed and shared experts as Qwen and DeepSeek write them; nothing for a dense model."""
    routed = "n_routed_experts" if config.get("n_routed_experts") else "num_experts"
    if not config.get(routed):
        return {}
    for key in ("decoder_sparse_step", "moe_layer_freq"):
        if config.get(key, 1) != 1:
            raise InputError(f"{name}: `{key}` other than 1 is not priced here", "list dense layers in mlp_only_layers")
    width = count(config, "moe_intermediate_size", name)
    shared = count_or_zero(config, "shared_expert_intermediate_size", name) or width * count_or_zero(
        config, "n_shared_experts", name
    )
    dense = len(counts(config, "mlp_only_layers", name)) if config.get("mlp_only_layers") else 0
    return {
        "num_experts": count(config, routed, name),
        "num_experts_per_token": count(config, "num_experts_per_tok", name),
        "moe_intermediate_size": width,
        "shared_expert_intermediate_size": shared,
        "num_dense_layers": dense + count_or_zero(config, "first_k_dense_replace", name),
    }


def _grouped_target(config: Config, name: str, source: str, architecture: str) -> ModelSpec:
    text = section(config, "text_config")
    # Models with a vision tower keep the decoder's dimensions in a section of their own, the tie and storage beside it.
    outside = {key: config[key] for key in ("tie_word_embeddings", "quantization_config") if key in config}
    network = {**text, **outside} if text else config
    body = _body(network, name, _head_dim(network, name, architecture))
    return ModelSpec(
        name=name,
        role="target",
        qk_norm=_TARGETS[architecture],
        attention_gate=architecture in _GATED,
        source=source,
        **body,
        **_mixers(network, body["num_layers"], name),
        **storage_bits(network, name),
        **_experts(network, name),
    )


def _latent_target(config: Config, name: str, source: str) -> ModelSpec:
    latent = LatentAttention(
        q_rank=count(config, "q_lora_rank", name),
        kv_rank=count(config, "kv_lora_rank", name),
        nope_dim=count(config, "qk_nope_head_dim", name),
        rope_dim=count(config, "qk_rope_head_dim", name),
        value_dim=count(config, "v_head_dim", name),
    )
    return ModelSpec(
        name=name,
        role="target",
        latent=latent,
        source=source,
        **_body(config, name, latent.nope_dim + latent.rope_dim),
        **storage_bits(config, name),
        **_experts(config, name),
    )


def _compressed_target(config: Config, name: str, source: str) -> ModelSpec:
    body = _body(config, name, count(config, "head_dim", name))
    ratios = counts(config, "compress_ratios", name)[: body["num_layers"]]  # entries beyond belong to prediction heads
    if len(ratios) != body["num_layers"]:
        raise InputError(f"{name}: {len(ratios)} `compress_ratios` for {body['num_layers']} layers", "the config may be damaged")
    compressed = CompressedAttention(
        ratios=ratios,
        window=count(config, "sliding_window", name),
        q_rank=count(config, "q_lora_rank", name),
        output_rank=count(config, "o_lora_rank", name),
        output_groups=count(config, "o_groups", name),
        indexed_ratio=_INDEXED_RATIO,
        index_heads=count(config, "index_n_heads", name),
        index_dim=count(config, "index_head_dim", name),
        index_top_k=count(config, "index_topk", name),
        num_streams=count(config, "hc_mult", name),
    )
    return ModelSpec(
        name=name, role="target", compressed=compressed, source=source,
        **body, **storage_bits(config, name), **_experts(config, name),
    )  # fmt: skip


def _block_drafter(config: Config, nested: Config, name: str, source: str, architecture: str) -> ModelSpec:
    """z-lab and SpecForge keep the network at the top level, speculators under `transformer_layer_config`.

    speculators counts hidden states with the embedding as entry 0, so its layer ids are one too high for us. A shifted drafter
    (`sample_from_anchor`; Domino says `shift_label`; DSpark always is) makes as many drafts as its config's block size, so its
    K, anchor included, is one more.
    """
    kind = _BLOCK_DRAFTERS[architecture]
    own = {key: nested.get(key, config.get(key)) for key in _DFLASH2}
    if any(value is not None for value in own.values()):
        kind = "dflash2"
    network = section(config, "transformer_layer_config") or config
    listed = {"target_layer_ids": nested.get("target_layer_ids", config.get("target_layer_ids"))}
    if listed["target_layer_ids"] is None and config.get("aux_hidden_state_layer_ids") is not None:
        layer_ids = tuple(layer - 1 for layer in counts(config, "aux_hidden_state_layer_ids", name, 1))
    else:
        layer_ids = counts(listed, "target_layer_ids", name) if listed["target_layer_ids"] else ()
    if not layer_ids:
        raise InputError(f"{name} names no target layers (`target_layer_ids`)", "the drafter's feature width depends on them")
    block_size = nested.get("block_size", config.get("block_size"))
    stated = nested.get("sample_from_anchor", config.get("sample_from_anchor", nested.get("shift_label", False)))
    shifted = bool(stated) or kind == "dspark"
    body = _body(network, name, _head_dim(network, name, architecture))
    draft_vocab = count_or_zero(config, "draft_vocab_size", name) or None
    return ModelSpec(
        name=name,
        role="draft",
        drafter=kind,
        qk_norm=True,
        block_size=count({"block_size": block_size}, "block_size", name) + shifted,
        target_layer_ids=layer_ids,
        target_hidden_size=count_or_zero(config, "target_hidden_size", name) or body["hidden_size"],
        draft_vocab_size=draft_vocab if draft_vocab != body["vocab_size"] else None,
        borrows_head=draft_vocab is None or draft_vocab == body["vocab_size"],
        sample_from_anchor=shifted,
        source=source,
        **body,
        **_mixers(network, body["num_layers"], name),
        **storage_bits(config, name),
        **_correction({**nested, **own}, kind, name, body["hidden_size"]),
    )


def _correction(nested: Config, kind: DrafterKind, name: str, hidden_size: int) -> dict[str, Any]:
    """Widths of what a relative of DFlash adds to its logits from left to right, and of DFlash 2's convolutions."""
    if kind == "dflash2":
        taps, group_size, rank, num_candidates = (count(nested, key, name) for key in _DFLASH2)
        if hidden_size % group_size:
            raise InputError(f"{name}: conv_group_size {group_size} does not divide {hidden_size}", "the config may be damaged")
        mixing = BlockMixing(taps=taps, group_size=group_size, num_candidates=num_candidates)
        return {"correction_rank": rank, "mixing": mixing}
    if kind == "dspark":
        if nested.get("markov_head_type", "vanilla") != "vanilla":
            raise InputError(f"{name}: a {nested['markov_head_type']!r} Markov head is not priced here", "priced: vanilla")
        return {"correction_rank": count(nested, "markov_rank", name)}
    if kind == "domino":
        return {"correction_rank": count(nested, "emb_dim", name), "correction_state": count(nested, "gru_hidden_dim", name)}
    return {}


def _eagle(config: Config, name: str, source: str, architecture: str) -> ModelSpec:
    """EAGLE-3: one layer on [embedding, fused features], its own head over a reduced vocabulary; P-EAGLE: several, in one pass."""
    eagle = section(config, "eagle_config")
    layer_ids = counts(eagle, "eagle_aux_hidden_state_layer_ids", name) if eagle.get("eagle_aux_hidden_state_layer_ids") else ()
    body = _body(config, name, _head_dim(config, name, architecture))
    return ModelSpec(
        name=name,
        role="draft",
        drafter=_EAGLES[architecture],
        target_layer_ids=layer_ids,
        target_hidden_size=count_or_zero(config, "target_hidden_size", name) or body["hidden_size"],
        draft_vocab_size=count(config, "draft_vocab_size", name),
        borrows_head=False,
        source=source,
        **body,
        **_mixers(config, body["num_layers"], name),
        **storage_bits(config, name),
    )
