"""Configurations of models of which only the dimensions are known: enough to run them with random weights.

What a step takes follows from widths, layers and vocabulary. The few values that change numbers but no time (RoPE's base, the norm's
epsilon, which token is the mask) are stood in for, so such a configuration must never be used with trained weights.
"""

from perfmodel.errors import InputError
from perfmodel.records import ModelSpec

from .config import TargetConfig
from .config_draft import DraftConfig, default_feature_layers
from .config_eagle3 import Eagle3Config
from .drafter import AnyDraftConfig

STAND_IN_EPS = 1e-6
STAND_IN_THETA = 1e6

_OTHER_NETWORKS = ("num_experts", "latent", "linear", "compressed", "attention_gate")


def target_of(spec: ModelSpec) -> TargetConfig:
    """A dense target of these dimensions. Raises `InputError` when the spec describes another kind of network."""
    _check(spec, "target")
    if spec.sliding_window is not None:
        raise InputError(f"{spec.name} has windowed layers", "targets with full attention run here")
    return TargetConfig(
        vocab_size=spec.vocab_size,
        hidden_size=spec.hidden_size,
        intermediate_size=spec.intermediate_size,
        num_layers=spec.num_layers,
        num_heads=spec.num_heads,
        num_kv_heads=spec.num_kv_heads,
        head_dim=spec.head_dim,
        rms_norm_eps=STAND_IN_EPS,
        rope_theta=STAND_IN_THETA,
        qk_norm=spec.qk_norm,
        tied_embeddings=spec.tied_embeddings,
    )


def draft_of(spec: ModelSpec, target: TargetConfig) -> AnyDraftConfig:
    """A DFlash or EAGLE-3 drafter of these dimensions for `target`. Raises `InputError` when the spec describes another network."""
    _check(spec, "draft")
    if spec.drafter == "eagle3":
        return _eagle3_of(spec, target)
    if spec.drafter != "dflash" or spec.block_size is None:
        raise InputError(
            f"{spec.name} is a drafter of kind {spec.drafter}, of which the dimensions alone are not enough",
            "give its config.json",
        )
    num_full = spec.num_layers if spec.num_full_attention_layers is None else spec.num_full_attention_layers
    is_windowed = [layer >= num_full for layer in range(spec.num_layers)]
    return DraftConfig(
        vocab_size=spec.vocab_size,
        hidden_size=spec.hidden_size,
        intermediate_size=spec.intermediate_size,
        num_layers=spec.num_layers,
        num_heads=spec.num_heads,
        num_kv_heads=spec.num_kv_heads,
        head_dim=spec.head_dim,
        rms_norm_eps=STAND_IN_EPS,
        rope_theta=STAND_IN_THETA,
        block_size=spec.block_size,
        mask_token_id=spec.vocab_size - 1,
        target_layer_ids=spec.target_layer_ids or default_feature_layers(target.num_layers, spec.num_layers),
        num_target_layers=target.num_layers,
        target_hidden_size=spec.target_hidden_size or target.hidden_size,
        windows=tuple(spec.sliding_window if windowed else None for windowed in is_windowed) if any(is_windowed) else (),
        causal=tuple(is_windowed) if any(is_windowed) else (),
        sample_from_anchor=spec.sample_from_anchor,
        draft_vocab_size=None if spec.draft_vocab_size == spec.vocab_size else spec.draft_vocab_size,
    )


def _eagle3_of(spec: ModelSpec, target: TargetConfig) -> Eagle3Config:
    return Eagle3Config(
        vocab_size=spec.vocab_size,
        draft_vocab_size=spec.draft_vocab_size or spec.vocab_size,
        hidden_size=spec.hidden_size,
        intermediate_size=spec.intermediate_size,
        num_heads=spec.num_heads,
        num_kv_heads=spec.num_kv_heads,
        head_dim=spec.head_dim,
        rms_norm_eps=STAND_IN_EPS,
        rope_theta=STAND_IN_THETA,
        target_hidden_size=spec.target_hidden_size or target.hidden_size,
        target_layer_ids=spec.target_layer_ids,
    )


def _check(spec: ModelSpec, role: str) -> None:
    if spec.role != role:
        raise InputError(f"{spec.name} is a {spec.role}, and a {role} is wanted here", "check the name")
    other = [name for name in _OTHER_NETWORKS if getattr(spec, name)]
    if other:
        raise InputError(
            f"{spec.name} is another kind of network ({', '.join(other)})", "dense Llama and Qwen3 networks run here"
        )
