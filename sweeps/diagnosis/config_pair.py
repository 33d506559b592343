"""A target's and a drafter's config.json, with every layout's keys under one name.

DFlash keys live at the top level or in `dflash_config`; the speculators format nests the layers and counts hidden states, so its layer ids
are one higher; composite targets keep the language model under `text_config`. Absent stays absent: a check that lacks a key
says so instead of assuming.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfmodel import codec
from perfmodel.errors import InputError

DEFAULT_BYTES = 2
"""Bytes per weight and cached element where a config names no dtype: bfloat16."""


_LAYER_KEYS = dict.fromkeys(("eagle3", "peagle"), "eagle_aux_hidden_state_layer_ids")
"""Where a kind of drafter keeps its feature layers, if not in `target_layer_ids`."""


@dataclass(frozen=True)
class Config:
    """One model's configuration; `values` are its keys flattened, the more special place winning.

    `is_whole` is False for a model known by the dimensions that ship: what such a record lacks is unknown, not absent.
    """

    name: str
    values: Mapping[str, Any]
    raw: Mapping[str, Any]
    is_whole: bool = True

    def count(self, key: str) -> int | None:
        """A whole number, None where absent. Raises `InputError` for anything else."""
        value = self.values.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise InputError(f"{self.name}: `{key}` is {value!r}, and a whole number is wanted", "check the config")
        return value

    def ids(self, key: str) -> list[int]:
        """A token id or a list of them; empty where absent."""
        value = self.values.get(key)
        found = value if isinstance(value, list) else [] if value is None else [value]
        if any(isinstance(item, bool) or not isinstance(item, int) for item in found):
            raise InputError(f"{self.name}: `{key}` is {value!r}, and whole numbers are wanted", "check the config")
        return found

    @property
    def head_dim(self) -> int | None:
        """The stated head size."""
        return self.count("head_dim")

    @property
    def rope_theta(self) -> float | None:
        """The base of the rotation, from wherever it stands."""
        for place in (self.values, self.values.get("rope_parameters"), self.values.get("rope_scaling")):
            if isinstance(place, Mapping) and isinstance(place.get("rope_theta"), int | float):
                return float(place["rope_theta"])
        return None

    @property
    def rope_kind(self) -> str:
        """The kind of scaling: `default` where there is none."""
        for key in ("rope_parameters", "rope_scaling"):
            place = self.values.get(key)
            if isinstance(place, Mapping):
                return str(place.get("rope_type") or place.get("type") or "default")
        return "default"

    @property
    def architectures(self) -> str:
        """The names of its architectures in one text; empty where none is listed."""
        named = self.raw.get("architectures")
        return " ".join(map(str, named)) if isinstance(named, list) else ""

    @property
    def is_eagle(self) -> bool:
        """Whether it is an EAGLE-3 head."""
        listed = self.architectures
        return "eagle" in f"{listed} {self.raw.get('speculators_model_type', '')}".lower()

    @property
    def bytes_per_value(self) -> int:
        """Bytes per weight of the stated dtype."""
        dtype = str(self.values.get("dtype") or self.values.get("torch_dtype") or "")
        return 4 if "float32" in dtype else DEFAULT_BYTES

    @property
    def layer_ids(self) -> tuple[list[int], bool]:
        """Feature layers as 0-indexed decoder layers, and whether the config counts hidden states (one higher)."""
        if "target_layer_ids" in self.values:
            return self.ids("target_layer_ids"), False
        if "aux_hidden_state_layer_ids" in self.values:
            return [value - 1 for value in self.ids("aux_hidden_state_layer_ids")], True
        if "eagle_aux_hidden_state_layer_ids" in self.values:
            return [value - 1 for value in self.ids("eagle_aux_hidden_state_layer_ids")], True
        return [], False


@dataclass(frozen=True)
class Pair:
    """A target and a drafter, with the K and the context that are wanted (None: not said)."""

    target: Config
    draft: Config
    block_size: int | None
    context: int | None


def load_config(name_or_path: str) -> Config:
    """The configuration in a file, a folder, or of a model that ships. Raises `InputError`."""
    path = Path(name_or_path)
    if path.is_dir():
        path = path / "config.json"
    if path.is_file():
        document = codec.read_json(path)
        if not isinstance(document, Mapping):
            raise InputError(f"{path} is not a model config: it is not a JSON object", "give a config.json")
        if "schema" not in document:
            if "num_hidden_layers" not in _flat(document):
                raise InputError(f"{path} is not a model config: it has no `num_hidden_layers`", "give a config.json")
            return Config(path.parent.name if path.name == "config.json" else path.stem, _flat(document), document)
    from perfmodel.modelspec import load_model

    spec = load_model(name_or_path)
    values = {
        "hidden_size": spec.hidden_size,
        "num_hidden_layers": spec.num_layers,
        "num_attention_heads": spec.num_heads,
        "num_key_value_heads": spec.num_kv_heads,
        "head_dim": spec.head_dim,
        "intermediate_size": spec.intermediate_size,
        "vocab_size": spec.vocab_size,
        "block_size": None if spec.block_size is None else spec.block_size - spec.sample_from_anchor,
        "sample_from_anchor": spec.sample_from_anchor or None,
        _LAYER_KEYS.get(spec.drafter or "", "target_layer_ids"): list(spec.target_layer_ids) or None,
        "target_hidden_size": spec.target_hidden_size,
        "draft_vocab_size": spec.draft_vocab_size,
        "num_experts": spec.num_experts or None,
        "sliding_window": spec.sliding_window,
        "architectures": [spec.drafter] if spec.drafter else None,
    }
    known = {key: value for key, value in values.items() if value is not None}
    return Config(spec.name, known, known, is_whole=False)


def _flat(document: Mapping[str, Any]) -> dict[str, Any]:
    """All keys in one mapping: the language model's over the top level's, DFlash's own over both."""
    flat = {key: value for key, value in document.items() if value is not None}
    for part in ("text_config", "transformer_layer_config", "dflash_config"):
        nested = document.get(part)
        if isinstance(nested, Mapping):
            flat |= {key: value for key, value in nested.items() if value is not None}
    return flat
