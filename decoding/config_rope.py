"""Rotary position embedding as a config asks for it: the angle per position of every rotated pair.

RoPE turns pair i of a head by position x frequency, frequency = θ^(−2i/h). A model that is to read further than it was trained
turns its slow pairs slower still, since their angles would leave the range it has seen; the fast pairs stay. Which pairs, and by
how much, is the "scaling", and a drafter may have another one than its target.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from jaxtyping import Float

from perfmodel.errors import InputError

from .config_reader import NEUTRAL_VALUES, ConfigReader


@dataclass(frozen=True)
class Llama3Scaling:
    """Llama 3's rule: wavelengths above the original context divided by `factor`, a smooth ramp between."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_position_embeddings: int

    @property
    def amplitude(self) -> float:
        """What cosines and sines are multiplied by: nothing."""
        return 1.0

    def frequencies(self, head_dim: int, theta: float) -> Float[np.ndarray, " h_half"]:
        """Radians per position of each pair."""
        plain = plain_frequencies(head_dim, theta)
        ratio = self.original_max_position_embeddings * plain / (2 * math.pi)
        ramp = np.clip((ratio - self.low_freq_factor) / (self.high_freq_factor - self.low_freq_factor), 0.0, 1.0)
        return (1 - ramp) * plain / self.factor + ramp * plain

    def to_json(self) -> dict[str, Any]:
        """The `rope_scaling` entry of a config.json."""
        return {"rope_type": "llama3", **vars(self)}


@dataclass(frozen=True)
class LinearScaling:
    """All frequencies divided by `factor`: positions are squeezed."""

    factor: float

    @property
    def amplitude(self) -> float:
        """What cosines and sines are multiplied by: nothing."""
        return 1.0

    def frequencies(self, head_dim: int, theta: float) -> Float[np.ndarray, " h_half"]:
        """Radians per position of each pair."""
        return plain_frequencies(head_dim, theta) / self.factor

    def to_json(self) -> dict[str, Any]:
        """The `rope_scaling` entry of a config.json."""
        return {"rope_type": "linear", **vars(self)}


@dataclass(frozen=True)
class YarnScaling:
    """YaRN: pairs that turn fewer than `beta_slow` times over the original context are divided by `factor`, those that turn more
    than `beta_fast` times stay, a ramp over the pair's index between; scores grow by `attention_factor` squared.

    Source: YaRN, arXiv 2309.00071, equations 22 and 23 and section 3.4. The ramp's ends are rounded outwards to whole pairs, as in
    the authors' code, when `truncate`.
    """

    factor: float
    original_max_position_embeddings: int
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    attention_factor: float = 1.0
    truncate: bool = True

    @property
    def amplitude(self) -> float:
        """What cosines and sines are multiplied by."""
        return self.attention_factor

    def frequencies(self, head_dim: int, theta: float) -> Float[np.ndarray, " h_half"]:
        """Radians per position of each pair."""
        plain = plain_frequencies(head_dim, theta)
        low, high = (self._pair_turning(turns, head_dim, theta) for turns in (self.beta_fast, self.beta_slow))
        if self.truncate:
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, head_dim - 1)
        if low == high:
            high += 0.001
        ramp = np.clip((np.arange(head_dim // 2) - low) / (high - low), 0.0, 1.0)
        return ramp * plain / self.factor + (1 - ramp) * plain

    def _pair_turning(self, turns: float, head_dim: int, theta: float) -> float:
        """Index (not whole) of the pair that turns so many times over the original context."""
        return head_dim * math.log(self.original_max_position_embeddings / (turns * 2 * math.pi)) / (2 * math.log(theta))

    def to_json(self) -> dict[str, Any]:
        """The `rope_scaling` entry of a config.json."""
        return {"rope_type": "yarn", **vars(self)}


RopeScaling: TypeAlias = Llama3Scaling | LinearScaling | YarnScaling
"""How the plain frequencies are changed."""


def plain_frequencies(head_dim: int, theta: float) -> Float[np.ndarray, " h_half"]:
    """θ^(−2i/h), radians per position of each pair."""
    return 1.0 / theta ** (np.arange(0, head_dim, 2) / head_dim)


def take_rope(reader: ConfigReader) -> tuple[float, RopeScaling | None]:
    """The base θ and the scaling (None: plain) of a config: `rope_parameters` or `rope_scaling`, and `rope_theta` in or beside it.

    Where the entry and the config both give `rope_theta`, the entry's counts, as in transformers. Raises `InputError`.
    """
    parameters, scaling = reader.entry("rope_parameters"), reader.entry("rope_scaling")
    if parameters and scaling and parameters != scaling:
        raise InputError(
            f"{reader.where}: rope_parameters and rope_scaling differ", "keep the one the checkpoint was trained with"
        )
    entry = parameters or scaling
    if "rope_theta" in entry:
        reader.left["rope_theta"] = entry.pop("rope_theta")
    theta = reader.number("rope_theta")
    old_name = entry.pop("type", "default")
    kind = entry.pop("rope_type", old_name)
    entry = {key: value for key, value in entry.items() if value not in NEUTRAL_VALUES.get(key, ())}
    if "partial_rotary_factor" in entry:
        # `speculators` copied the key from the target's config and trained with whole heads turned; vLLM turns a part.
        raise InputError(
            f"{reader.where}: RoPE with partial_rotary_factor {entry['partial_rotary_factor']}: whole heads are turned here",
            "take the key out if the drafter was trained on whole heads in spite of it, as early speculators ones were",
        )
    if kind == "default" and not entry:
        return theta, None
    makers = {"llama3": _llama3, "linear": _linear, "yarn": _yarn}
    if kind not in makers:
        raise InputError(
            f"{reader.where}: RoPE of kind {kind!r} with {entry} is not implemented",
            f"plain RoPE and {', '.join(makers)} run here",
        )
    entry_reader = ConfigReader(entry, f"{reader.where}: RoPE of kind {kind}")
    found = makers[kind](entry_reader, reader.left)
    entry_reader.finish()
    return theta, found


def _original_context(entry: ConfigReader, config: Mapping[str, Any]) -> int:
    # Left out, it is the model's own context: transformers' rule.
    fallback = config.get("max_position_embeddings")
    return entry.count("original_max_position_embeddings", **({} if fallback is None else {"default": fallback}))


def _llama3(entry: ConfigReader, config: Mapping[str, Any]) -> RopeScaling:
    found = Llama3Scaling(
        factor=entry.number("factor"),
        low_freq_factor=entry.number("low_freq_factor"),
        high_freq_factor=entry.number("high_freq_factor"),
        original_max_position_embeddings=_original_context(entry, config),
    )
    if not found.high_freq_factor > found.low_freq_factor:
        raise InputError(f"{entry.where}: high_freq_factor must lie above low_freq_factor", "check the file")
    return found


def _linear(entry: ConfigReader, config: Mapping[str, Any]) -> RopeScaling:
    return LinearScaling(factor=entry.number("factor"))


def _yarn(entry: ConfigReader, config: Mapping[str, Any]) -> RopeScaling:
    factor = entry.number("factor")
    mscale, mscale_all = (entry.take(key, default=None) for key in ("mscale", "mscale_all_dim"))
    implied = _mscale(factor, mscale) / _mscale(factor, mscale_all) if mscale and mscale_all else _mscale(factor, 1.0)
    return YarnScaling(
        factor=factor,
        original_max_position_embeddings=_original_context(entry, config),
        beta_fast=entry.number("beta_fast", default=32.0),
        beta_slow=entry.number("beta_slow", default=1.0),
        attention_factor=entry.number("attention_factor", default=implied),
        truncate=bool(entry.flag("truncate", True)),
    )


def _mscale(factor: float, weight: float) -> float:
    """0.1 · weight · ln(factor) + 1: how much attention sharpens as the context grows by `factor` (YaRN, equation 24)."""
    return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1.0
