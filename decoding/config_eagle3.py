"""Dimensions of an EAGLE-3 drafter: one decoder layer over the target's features and its own previous output.

Two layouts are in use. The original one (`LlamaForCausalLMEagle3`) keeps everything at the top level; `speculators` nests the
layer's dimensions in `transformer_layer_config`. Feature layers are counted as "the residual stream that *enters* layer i" in both, so
an id stands for the output of the layer before it; a file that lists none means the layers 2, L/2 and L − 3 of its target.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from perfmodel.errors import InputError
from perfmodel.records import ModelSpec

from .config import TargetConfig, take_attention_kinds
from .config_reader import ConfigReader, check_heads
from .config_rope import RopeScaling, take_rope

ARCHITECTURES = ("LlamaForCausalLMEagle3", "Eagle3LlamaForCausalLM", "Eagle3Speculator", "Eagle3DraftModel")
"""Names under which the network of this module is published."""

_SPECULATORS_KEYS = ("speculators_config", "speculators_model_type", "speculators_version", "has_no_defaults_at_init")
_TRAINING_KEYS = ("embed_requires_grad", "target_model_type")
"""What was trained and for whom; the layer itself is of the Llama kind whatever its target is."""
_UNUSED_VARIANTS = ("norm_before_fc", "fc_norm", "norm_output")
"""Variants of the network that other engines know; false or absent in the checkpoints that run here."""

_DEFAULT_ROPE_THETA = 1e4
"""Llama's own default: the first EAGLE-3 checkpoints do not write it."""


@dataclass(frozen=True)
class Eagle3Config:
    """Dimensions of an EAGLE-3 drafter. `target_layer_ids` are outputs of 0-indexed layers; empty: its target's default ones."""

    vocab_size: int
    draft_vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rms_norm_eps: float
    rope_theta: float
    target_hidden_size: int
    target_layer_ids: tuple[int, ...] = ()
    norm_before_residual: bool = False
    rope_scaling: RopeScaling | None = None

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "Eagle3Config":
        """The configuration in a decoded `config.json` of either layout. Raises `InputError` for other networks and unknown keys."""
        reader = ConfigReader(_flat(document), "EAGLE-3 config.json")
        for key in (*_SPECULATORS_KEYS, *_TRAINING_KEYS):
            reader.take(key, default=None)
        for key in _UNUSED_VARIANTS:
            if value := reader.take(key, default=None):
                raise InputError(f"{reader.where}: {key} is {value!r}", "only the plain EAGLE-3 network runs here")
        if reader.count("num_hidden_layers", default=1) != 1:
            raise InputError(f"{reader.where}: more than one layer", "EAGLE-3 chains of one layer run here")
        hidden_size, num_heads = reader.count("hidden_size"), reader.count("num_attention_heads")
        vocab_size = reader.count("vocab_size")
        take_attention_kinds(reader)
        if not any(key in reader.left for key in ("rope_theta", "rope_parameters")):
            reader.left["rope_theta"] = _DEFAULT_ROPE_THETA
        rope_theta, rope_scaling = take_rope(reader)
        reader.take("tie_word_embeddings", default=None)
        config = cls(
            vocab_size=vocab_size,
            draft_vocab_size=reader.count("draft_vocab_size", default=vocab_size),
            hidden_size=hidden_size,
            intermediate_size=reader.count("intermediate_size"),
            num_heads=num_heads,
            num_kv_heads=reader.count("num_key_value_heads", default=num_heads),
            head_dim=reader.count("head_dim", default=hidden_size // num_heads),
            rms_norm_eps=reader.number("rms_norm_eps"),
            rope_theta=rope_theta,
            target_hidden_size=reader.count("target_hidden_size", default=hidden_size),
            target_layer_ids=_take_feature_layers(reader),
            norm_before_residual=bool(reader.flag("norm_before_residual", default=False)),
            rope_scaling=rope_scaling,
        )
        reader.finish()
        check_heads(config)
        if config.draft_vocab_size > config.vocab_size:
            raise InputError(
                f"{reader.where}: a draft vocabulary of {config.draft_vocab_size} for a target's of {config.vocab_size}",
                "check the file",
            )
        return config

    def for_target(self, target: TargetConfig) -> "Eagle3Config":
        """This configuration with the feature layers it means for `target`. Raises `InputError` when they do not belong together."""
        hint = "use the drafter that was trained for this target"
        if self.target_hidden_size != target.hidden_size:
            raise InputError(
                f"the drafter reads features of width {self.target_hidden_size}; this target's are {target.hidden_size} wide",
                hint,
            )
        if self.vocab_size != target.vocab_size:
            raise InputError(
                f"the drafter knows a vocabulary of {self.vocab_size} tokens; this target's has {target.vocab_size}", hint
            )
        layers = self.target_layer_ids or default_feature_layers(target.num_layers)
        if max(layers) >= target.num_layers:
            raise InputError(
                f"the drafter reads the outputs of layers {list(layers)} of a target of {target.num_layers} layers", hint
            )
        return replace(self, target_layer_ids=layers)

    def spec(self, name: str) -> ModelSpec:
        """The dimensions that decide a step's cost."""
        return ModelSpec(
            name=name,
            role="draft",
            hidden_size=self.hidden_size,
            num_layers=1,
            num_heads=self.num_heads,
            num_kv_heads=self.num_kv_heads,
            head_dim=self.head_dim,
            intermediate_size=self.intermediate_size,
            vocab_size=self.vocab_size,
            tied_embeddings=False,
            drafter="eagle3",
            target_layer_ids=self.target_layer_ids,
            target_hidden_size=self.target_hidden_size,
            draft_vocab_size=self.draft_vocab_size,
            source="config.json",
        )

    def to_json(self) -> dict[str, Any]:
        """The `config.json` document of this drafter, in the original layout."""
        return {
            "architectures": [ARCHITECTURES[0]],
            "model_type": "llama",
            "attention_bias": False,
            "draft_vocab_size": self.draft_vocab_size,
            "dtype": "bfloat16",
            "eagle_aux_hidden_state_layer_ids": [layer + 1 for layer in self.target_layer_ids],
            "head_dim": self.head_dim,
            "hidden_act": "silu",
            "hidden_size": self.hidden_size,
            "intermediate_size": self.intermediate_size,
            "mlp_bias": False,
            "norm_before_residual": self.norm_before_residual,
            "num_attention_heads": self.num_heads,
            "num_hidden_layers": 1,
            "num_key_value_heads": self.num_kv_heads,
            "rms_norm_eps": self.rms_norm_eps,
            "rope_scaling": None if self.rope_scaling is None else self.rope_scaling.to_json(),
            "rope_theta": self.rope_theta,
            "target_hidden_size": self.target_hidden_size,
            "tie_word_embeddings": False,
            "vocab_size": self.vocab_size,
        }


def default_feature_layers(num_target_layers: int) -> tuple[int, ...]:
    """The 0-indexed target layers whose outputs a drafter reads when its file lists none: 1, L/2 − 1 and L − 4.

    Source: EAGLE-3 (arXiv 2503.01840), reference implementation. Raises `InputError` for a target too shallow to have three such layers.
    """
    layers = (1, num_target_layers // 2 - 1, num_target_layers - 4)
    if not 0 <= layers[0] < layers[1] < layers[2]:
        raise InputError(
            f"the default feature layers of a target of {num_target_layers} layers would be {list(layers)}, not three in order",
            "list eagle_aux_hidden_state_layer_ids in the drafter's config.json",
        )
    return layers


def is_eagle3(document: Mapping[str, Any]) -> bool:
    """Whether a decoded `config.json` describes an EAGLE-3 drafter."""
    architectures = document.get("architectures") or ()
    return document.get("speculators_model_type") == "eagle3" or any(name in ARCHITECTURES for name in architectures)


def _flat(document: Mapping[str, Any]) -> dict[str, Any]:
    """The document with the nested layer's dimensions at the top; keys of the top level win."""
    flat = dict(document)
    own = flat.pop("eagle_config", None) or {}
    if not isinstance(own, Mapping):
        raise InputError("eagle_config is not an object", "see the published checkpoints for the layout")
    if twice := sorted(key for key, value in own.items() if flat.get(key, value) != value):
        raise InputError(f"{', '.join(twice)} inside eagle_config and beside it differ", "keep what the drafter was trained with")
    flat |= own
    if "transformer_layer_config" not in flat:
        return flat
    layer = flat.pop("transformer_layer_config")
    if not isinstance(layer, Mapping):
        raise InputError("transformer_layer_config is not an object", "see the speculators checkpoints for the layout")
    if "norm_before_residual" not in flat:
        # Readers of this layout disagree on the default, and it decides the result.
        raise InputError("the speculators config does not say norm_before_residual", "add the value the drafter was trained with")
    if layer.get("model_type", "llama") != "llama":
        raise InputError(f"the drafter's layer is of model_type {layer['model_type']!r}", "layers of the Llama kind run here")
    return {**layer, **flat}


def _take_feature_layers(reader: ConfigReader) -> tuple[int, ...]:
    ids = reader.take("eagle_aux_hidden_state_layer_ids", default=None)
    num = reader.take("num_aux_hidden_states", default=None)
    if ids is None:
        if num not in (None, 3):
            raise InputError(f"{reader.where}: {num} feature layers, and no list of them", "add eagle_aux_hidden_state_layer_ids")
        return ()
    if not isinstance(ids, list) or not ids or not all(isinstance(i, int) and i >= 1 for i in ids):
        raise InputError(
            f"{reader.where}: eagle_aux_hidden_state_layer_ids is {ids!r}, not a list of layers from 1 on",
            "an id counts the stream that enters a layer; 0 would be the embedding, which does not run here",
        )
    if num not in (None, len(ids)):
        raise InputError(f"{reader.where}: num_aux_hidden_states is {num}, and {len(ids)} layers are listed", "check the file")
    return tuple(i - 1 for i in ids)
