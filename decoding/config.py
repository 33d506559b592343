"""Dimensions of a target, read from the `config.json` that a checkpoint carries.

Every key is used, known not to matter, or refused by name: see `config_reader`. The drafters' own are `config_draft` (DFlash) and
`config_eagle3`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from perfmodel.errors import InputError
from perfmodel.records import ModelSpec

from .config_reader import ConfigReader, check_heads
from .config_rope import RopeScaling, take_rope

TARGET_MODEL_TYPES = ("llama", "qwen3")


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
    max_position_embeddings: int | None = None
    """Positions the target was made for; an answer ends where they do. None where the configuration names no end."""

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "TargetConfig":
        """The configuration in a decoded `config.json`. Raises `InputError` for other architectures and unknown keys."""
        reader = ConfigReader(document, "target config.json")
        model_type = reader.take("model_type")
        if model_type not in TARGET_MODEL_TYPES:
            raise InputError(
                f"the target has model_type {model_type!r}, which is not implemented",
                f"dense targets of model_type {' or '.join(TARGET_MODEL_TYPES)} run here",
            )
        hidden_size, num_heads = reader.count("hidden_size"), reader.count("num_attention_heads")
        take_attention_kinds(reader)
        rope_theta, rope_scaling = take_rope(reader)
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
            max_position_embeddings=_positions(reader),
        )
        reader.finish()
        check_heads(config)
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


def take_attention_kinds(reader: ConfigReader) -> None:
    """Takes the keys of windowed attention. Raises `InputError` when they ask for a window: full attention only."""
    windows = set(reader.words("layer_types") or ()) - {"full_attention"}
    if windows:
        raise InputError(f"{reader.where}: layer_types holds {', '.join(sorted(windows))}", "only full attention runs here")
    uses_window = reader.left.get("use_sliding_window", True)
    window = reader.take("sliding_window", default=None)
    if window is not None and uses_window:
        raise InputError(f"{reader.where}: sliding_window is {window}", "only full attention runs here")


def _positions(reader: ConfigReader) -> int | None:
    return None if reader.left.get("max_position_embeddings") is None else reader.count("max_position_embeddings")


def _head_dim(reader: ConfigReader, model_type: str, hidden_size: int, num_heads: int) -> int:
    # Llama's own rule derives a head_dim that is not given. Qwen3's default is 128 whatever the width: there it must be given.
    if model_type == "llama" and reader.left.get("head_dim") is None:
        reader.left.pop("head_dim", None)
        if hidden_size % num_heads:
            raise InputError(f"{reader.where}: no head_dim, and hidden_size is not a multiple of the heads", "check the file")
        return hidden_size // num_heads
    return reader.count("head_dim")
