"""Dimensions of target and drafter, read from the `config.json` that a checkpoint carries.

A configuration decides numbers: a key that is ignored although it changes the result (a bias, a sliding window, another RoPE)
gives a network that runs and is wrong. So every key is either used, known not to matter at inference, or refused by name.
DFlash keys live at the top level or inside `dflash_config`; the nested value wins.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from perfmodel.errors import InputError
from perfmodel.records import ModelSpec

INERT_KEYS = frozenset(
    {
        "_name_or_path", "architectures", "attention_dropout", "auto_map", "bos_token_id", "dtype", "eos_token_id",
        "initializer_range", "is_llama_config", "max_position_embeddings", "max_window_layers", "model_type", "num_anchors",
        "loss_decay_gamma", "attention_backend", "pad_token_id", "pretraining_tp", "torch_dtype", "transformers.js_config",
        "transformers_version", "unsloth_fixed", "use_cache",
    }
)  # fmt: skip
"""Keys that change training, bookkeeping or generation defaults, never the network's output."""

NEUTRAL_VALUES: Mapping[str, tuple[Any, ...]] = {
    "attention_bias": (False, None),
    "attention_sink_bias": (False, None),
    "causal": (False, None),
    "d2t": (None,),
    "final_logit_softcapping": (None, 0, 0.0),
    "hidden_act": ("silu",),
    "input_embedding_scale": (None, 1, 1.0),
    "is_causal": (False, None),
    "is_neox_style": (True, None),
    "logit_scale": (None, 1, 1.0),
    "mlp_bias": (False, None),
    "output_multiplier": (None, 1, 1.0),
    "partial_rotary_factor": (None, 1, 1.0),
    "quantization_config": (None,),
    "rope_interleaved": (False, None),
    "sample_from_anchor": (False, None),
    "use_sliding_window": (False, None),
    "use_swa": (False, None),
}
"""Keys that do change the output, and the values with which they do not; any other value is refused."""

TARGET_MODEL_TYPES = ("llama", "qwen3")


@dataclass(frozen=True)
class RopeScaling:
    """Llama 3's frequency scaling: wavelengths above the original context divided by `factor`, a smooth ramp between."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_position_embeddings: int


@dataclass(frozen=True)
class TargetConfig:
    """Dimensions of a dense causal target of the Llama 3 or Qwen3 kind. `head_dim` is read, not derived, where it is given."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rms_norm_eps: float
    rope_theta: float
    qk_norm: bool
    tied_embeddings: bool
    rope_scaling: RopeScaling | None = None

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "TargetConfig":
        """The configuration in a decoded `config.json`. Raises `InputError` for other architectures and unknown keys."""
        reader = _Reader(document, "target config.json")
        model_type = reader.take("model_type")
        if model_type not in TARGET_MODEL_TYPES:
            raise InputError(
                f"the target has model_type {model_type!r}, which is not implemented",
                f"dense targets of model_type {' or '.join(TARGET_MODEL_TYPES)} run here",
            )
        hidden_size, num_heads = reader.count("hidden_size"), reader.count("num_attention_heads")
        _take_attention_kinds(reader)
        rope_theta, rope_scaling = _take_rope(reader)
        config = cls(
            vocab_size=reader.count("vocab_size"),
            hidden_size=hidden_size,
            intermediate_size=reader.count("intermediate_size"),
            num_layers=reader.count("num_hidden_layers"),
            num_heads=num_heads,
            num_kv_heads=reader.count("num_key_value_heads", default=num_heads),
            head_dim=_head_dim(reader, model_type, hidden_size, num_heads),
            rms_norm_eps=reader.number("rms_norm_eps"),
            rope_theta=rope_theta,
            qk_norm=model_type == "qwen3",
            tied_embeddings=bool(reader.take("tie_word_embeddings", default=False)),
            rope_scaling=rope_scaling,
        )
        reader.finish()
        _check_heads(config)
        return config

    def spec(self, name: str) -> ModelSpec:
        """The dimensions that decide a step's cost."""
        return ModelSpec(
            name=name,
            role="target",
            hidden_size=self.hidden_size,
            num_layers=self.num_layers,
            num_heads=self.num_heads,
            num_kv_heads=self.num_kv_heads,
            head_dim=self.head_dim,
            intermediate_size=self.intermediate_size,
            vocab_size=self.vocab_size,
            tied_embeddings=self.tied_embeddings,
            qk_norm=self.qk_norm,
            source="config.json",
        )


@dataclass(frozen=True)
class DraftConfig:
    """Dimensions of a DFlash drafter: Qwen3-type layers over `target_layer_ids` features, no embedding and no head of its own."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rms_norm_eps: float
    rope_theta: float
    block_size: int
    mask_token_id: int
    target_layer_ids: tuple[int, ...]
    num_target_layers: int
    target_hidden_size: int
    rope_scaling: RopeScaling | None = None

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "DraftConfig":
        """The configuration in a decoded `config.json`. Raises `InputError` for other layouts, windows, shifted labels."""
        nested = document.get("dflash_config") or {}
        if not isinstance(nested, Mapping):
            raise InputError("dflash_config is not an object", "see the z-lab checkpoints for the layout")
        merged = {key: value for key, value in document.items() if key != "dflash_config"} | dict(nested)
        reader = _Reader(merged, "draft config.json")
        hidden_size, num_heads = reader.count("hidden_size"), reader.count("num_attention_heads")
        num_layers, num_target_layers = reader.count("num_hidden_layers"), reader.count("num_target_layers")
        vocab_size = reader.count("vocab_size")
        _take_attention_kinds(reader)
        rope_theta, rope_scaling = _take_rope(reader)
        layer_ids = reader.take("target_layer_ids", default=None)
        draft_vocab_size = reader.take("draft_vocab_size", default=None)
        if draft_vocab_size not in (None, vocab_size):
            raise InputError(
                f"the drafter has its own vocabulary of {draft_vocab_size} entries",
                "only drafters that borrow the target's head run here",
            )
        reader.take("tie_word_embeddings", default=None)
        config = cls(
            vocab_size=vocab_size,
            hidden_size=hidden_size,
            intermediate_size=reader.count("intermediate_size"),
            num_layers=num_layers,
            num_heads=num_heads,
            num_kv_heads=reader.count("num_key_value_heads", default=num_heads),
            head_dim=reader.count("head_dim"),
            rms_norm_eps=reader.number("rms_norm_eps"),
            rope_theta=rope_theta,
            block_size=reader.count("block_size"),
            mask_token_id=reader.count("mask_token_id", minimum=0),
            target_layer_ids=tuple(layer_ids) if layer_ids is not None else default_feature_layers(num_target_layers, num_layers),
            num_target_layers=num_target_layers,
            target_hidden_size=reader.count("target_hidden_size", default=hidden_size),
            rope_scaling=rope_scaling,
        )
        reader.finish()
        _check_heads(config)
        _check_draft(config)
        return config

    def to_json(self) -> dict[str, Any]:
        """The `config.json` document of this drafter, in the z-lab layout."""
        return {
            "architectures": ["DFlashDraftModel"],
            "model_type": "qwen3",
            "attention_bias": False,
            "block_size": self.block_size,
            "dflash_config": {"mask_token_id": self.mask_token_id, "target_layer_ids": list(self.target_layer_ids)},
            "dtype": "bfloat16",
            "head_dim": self.head_dim,
            "hidden_act": "silu",
            "hidden_size": self.hidden_size,
            "intermediate_size": self.intermediate_size,
            "layer_types": ["full_attention"] * self.num_layers,
            "num_attention_heads": self.num_heads,
            "num_hidden_layers": self.num_layers,
            "num_key_value_heads": self.num_kv_heads,
            "num_target_layers": self.num_target_layers,
            "rms_norm_eps": self.rms_norm_eps,
            "rope_scaling": None if self.rope_scaling is None else {"rope_type": "llama3", **vars(self.rope_scaling)},
            "rope_theta": self.rope_theta,
            "target_hidden_size": self.target_hidden_size,
            "tie_word_embeddings": False,
            "vocab_size": self.vocab_size,
        }

    def spec(self, name: str) -> ModelSpec:
        """The dimensions that decide a step's cost."""
        return ModelSpec(
            name=name,
            role="draft",
            hidden_size=self.hidden_size,
            num_layers=self.num_layers,
            num_heads=self.num_heads,
            num_kv_heads=self.num_kv_heads,
            head_dim=self.head_dim,
            intermediate_size=self.intermediate_size,
            vocab_size=self.vocab_size,
            tied_embeddings=False,
            qk_norm=True,
            drafter="dflash",
            block_size=self.block_size,
            target_layer_ids=self.target_layer_ids,
            target_hidden_size=self.target_hidden_size,
            borrows_head=True,
            source="config.json",
        )


def default_feature_layers(num_target_layers: int, num_features: int) -> tuple[int, ...]:
    """The 0-indexed target layers a DFlash drafter reads when its config lists none: spread from the second to the third last.

    Source: the reference implementation; one feature is the middle layer, else round(1 + i (L − 4) / (n − 1)), ties to even.
    """
    if num_features == 1:
        return (num_target_layers // 2,)
    return tuple(round(1 + i * (num_target_layers - 4) / (num_features - 1)) for i in range(num_features))


class _Reader:
    """Takes keys out of a document one by one, so that what is left over was not understood."""

    def __init__(self, document: Mapping[str, Any], where: str) -> None:
        self.left = dict(document)
        self.where = where

    def take(self, key: str, **default: Any) -> Any:
        if key in self.left:
            return self.left.pop(key)
        if "default" in default:
            return default["default"]
        raise InputError(f"{self.where} has no {key!r}", "the checkpoint may be of another kind or incomplete")

    def count(self, key: str, minimum: int = 1, **default: Any) -> int:
        value = self.take(key, **default)
        if value is None and "default" in default:
            value = default["default"]
        if not isinstance(value, int) or isinstance(value, bool) or value < minimum:
            raise InputError(f"{self.where}: {key} is {value!r}, not a whole number of at least {minimum}", "check the file")
        return value

    def number(self, key: str, **default: Any) -> float:
        value = self.take(key, **default)
        if not isinstance(value, (int, float)) or isinstance(value, bool) or not value > 0:
            raise InputError(f"{self.where}: {key} is {value!r}, not a positive number", "check the file")
        return float(value)

    def finish(self) -> None:
        refused = []
        for key, value in self.left.items():
            if key in INERT_KEYS or (key in NEUTRAL_VALUES and value in NEUTRAL_VALUES[key]):
                continue
            refused.append(f"{key}={value!r}")
        if refused:
            raise InputError(
                f"{self.where} asks for what is not implemented: {', '.join(sorted(refused))}",
                "running without it would change the result; use another checkpoint",
            )


def _take_attention_kinds(reader: _Reader) -> None:
    windows = set(reader.take("layer_types", default=None) or ()) - {"full_attention"}
    if windows:
        raise InputError(
            f"{reader.where}: layer_types holds {', '.join(sorted(map(str, windows)))}", "only full attention runs here"
        )
    uses_window = reader.left.get("use_sliding_window", True)
    window = reader.take("sliding_window", default=None)
    if window is not None and uses_window:
        raise InputError(f"{reader.where}: sliding_window is {window}", "only full attention runs here")


def _rope_entry(reader: _Reader, name: str) -> dict[str, Any]:
    entry = reader.take(name, default=None) or {}
    if not isinstance(entry, Mapping):
        raise InputError(f"{reader.where}: {name} is {entry!r}, not an object", "check the file")
    return dict(entry)


def _take_rope(reader: _Reader) -> tuple[float, RopeScaling | None]:
    parameters = _rope_entry(reader, "rope_parameters")
    scaling = parameters or _rope_entry(reader, "rope_scaling")
    reader.left.pop("rope_scaling", None)
    if "rope_theta" in scaling:
        reader.left["rope_theta"] = scaling.pop("rope_theta")
    rope_theta = reader.number("rope_theta")
    scaling.pop("type", None) if "rope_type" in scaling else scaling.update(rope_type=scaling.pop("type", "default"))
    kind = scaling.pop("rope_type")
    if kind == "default" and not {k: v for k, v in scaling.items() if v not in NEUTRAL_VALUES.get(k, ())}:
        return rope_theta, None
    if kind == "llama3" and set(scaling) == {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"}:
        if not all(isinstance(value, (int, float)) and value > 0 for value in scaling.values()):
            raise InputError(f"{reader.where}: the RoPE scaling {scaling} is not of positive numbers", "check the file")
        return rope_theta, RopeScaling(
            factor=float(scaling["factor"]),
            low_freq_factor=float(scaling["low_freq_factor"]),
            high_freq_factor=float(scaling["high_freq_factor"]),
            original_max_position_embeddings=int(scaling["original_max_position_embeddings"]),
        )
    raise InputError(
        f"{reader.where}: RoPE of kind {kind!r} with {scaling} is not implemented", "plain RoPE and `llama3` run here"
    )


def _head_dim(reader: _Reader, model_type: str, hidden_size: int, num_heads: int) -> int:
    # Llama's own rule derives a head_dim that is not given. Qwen3's default is 128 whatever the width: there it must be given.
    if model_type == "llama" and reader.left.get("head_dim") is None:
        reader.left.pop("head_dim", None)
        if hidden_size % num_heads:
            raise InputError(f"{reader.where}: no head_dim, and hidden_size is not a multiple of the heads", "check the file")
        return hidden_size // num_heads
    return reader.count("head_dim")


def _check_heads(config: TargetConfig | DraftConfig) -> None:
    if config.num_heads % config.num_kv_heads:
        raise InputError(f"{config.num_heads} query heads do not divide over {config.num_kv_heads} KV heads", "check the config")
    if config.head_dim % 2:
        raise InputError(f"head_dim {config.head_dim} is odd, and RoPE turns pairs", "check the config")


def _check_draft(config: DraftConfig) -> None:
    bad = [i for i in config.target_layer_ids if not isinstance(i, int) or not 0 <= i < config.num_target_layers]
    if bad or not config.target_layer_ids:
        raise InputError(
            f"target_layer_ids {list(config.target_layer_ids)} do not lie in 0…{config.num_target_layers - 1}",
            "they are 0-indexed decoder layers; other formats count the embedding as entry 0",
        )
    if config.mask_token_id >= config.vocab_size:
        raise InputError(f"mask_token_id {config.mask_token_id} has no row in a table of {config.vocab_size}", "check the config")
    if config.hidden_size != config.target_hidden_size:
        raise InputError(
            f"the drafter's width {config.hidden_size} is not the target's {config.target_hidden_size}",
            "it could not borrow the target's embedding and head",
        )
