"""Takes the keys of a checkpoint's `config.json` one by one, so that what is left over at the end was not understood.

A configuration decides numbers: a key that is ignored although it changes the result (a bias, a window, another RoPE) gives a
network that runs and is wrong. So every key is either used, known not to matter at inference, or refused by name.
"""

from collections.abc import Mapping
from typing import Any, Protocol

from perfmodel.errors import InputError

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
    "add_swa_attention_sink_bias": (False, None),
    "attention_value_scale": (None, 1, 1.0),
    "d2t": (None,),
    "final_logit_softcapping": (None, 0, 0.0),
    "hidden_act": ("silu",),
    "input_embedding_scale": (None, 1, 1.0),
    "is_neox_style": (True, None),
    "logit_scale": (None, 1, 1.0),
    "mlp_bias": (False, None),
    "output_multiplier": (None, 1, 1.0),
    "partial_rotary_factor": (None, 1, 1.0),
    "quantization_config": (None,),
    "rope_interleaved": (False, None),
    "sample_from_anchor": (False, None),
    "use_aux_hidden_state": (True, None),
    "use_sliding_window": (False, None),
}
"""Keys that do change the output, and the values with which they do not; any other value is refused."""


class ConfigReader:
    """Takes keys out of a document one by one; `finish` refuses what was never taken."""

    def __init__(self, document: Mapping[str, Any], where: str) -> None:
        self.left = dict(document)
        self.where = where

    def take(self, key: str, **default: Any) -> Any:
        """The value of `key`; `default=` when the document lacks it. Raises `InputError` when there is neither."""
        if key in self.left:
            return self.left.pop(key)
        if "default" in default:
            return default["default"]
        raise InputError(f"{self.where} has no {key!r}", "the checkpoint may be of another kind or incomplete")

    def count(self, key: str, minimum: int = 1, **default: Any) -> int:
        """A whole number of at least `minimum`; null counts as absent."""
        value = self.take(key, **default)
        if value is None and "default" in default:
            value = default["default"]
        if not isinstance(value, int) or isinstance(value, bool) or value < minimum:
            raise InputError(f"{self.where}: {key} is {value!r}, not a whole number of at least {minimum}", "check the file")
        return value

    def number(self, key: str, **default: Any) -> float:
        """A positive number; null counts as absent."""
        value = self.take(key, **default)
        if value is None and "default" in default:
            value = default["default"]
        if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 < value < float("inf"):
            raise InputError(f"{self.where}: {key} is {value!r}, not a positive number", "check the file")
        return float(value)

    def words(self, key: str) -> list[str] | None:
        """A list of words; None when the document lacks it. Null counts as absent."""
        value = self.take(key, default=None)
        if value is not None and not (isinstance(value, list) and all(isinstance(word, str) for word in value)):
            raise InputError(f"{self.where}: {key} is {value!r}, not a list of words", "check the file")
        return value

    def flag(self, key: str, default: bool | None) -> bool | None:
        """True or false; null counts as absent."""
        value = self.take(key, default=default)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise InputError(f"{self.where}: {key} is {value!r}, not true or false", "check the file")
        return value

    def entry(self, key: str) -> dict[str, Any]:
        """A nested object as a dict of its own; empty when absent or null."""
        value = self.take(key, default=None)
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            raise InputError(f"{self.where}: {key} is {value!r}, not an object", "check the file")
        return dict(value)

    def finish(self) -> None:
        """Raises `InputError` naming every key that was neither taken, nor inert, nor of a value that changes nothing."""
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


class Heads(Protocol):
    """Attention heads of any configuration."""

    @property
    def num_heads(self) -> int: ...  # noqa: D102
    @property
    def num_kv_heads(self) -> int: ...  # noqa: D102
    @property
    def head_dim(self) -> int: ...  # noqa: D102


def check_heads(config: Heads) -> None:
    """Raises `InputError` when query heads do not share KV heads evenly or a head cannot be turned in pairs."""
    if config.num_heads % config.num_kv_heads:
        raise InputError(f"{config.num_heads} query heads do not divide over {config.num_kv_heads} KV heads", "check the config")
    if config.head_dim % 2:
        raise InputError(f"head_dim {config.head_dim} is odd, and RoPE turns pairs", "check the config")
