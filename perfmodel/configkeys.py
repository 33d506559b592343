"""Takes dimensions out of a config.json key by key, and refuses what is missing, damaged or not priced, by name."""

from collections.abc import Mapping
from typing import Any, TypeGuard

from .errors import InputError

Config = Mapping[str, Any]

FP4_BLOCK = 32
"""Weights that share one 8-bit scale in block-scaled 4-bit storage (OCP MX)."""

NVFP4_BLOCK = 16
"""Weights that share one 8-bit scale in NVFP4."""

BLOCK_SCALE_BITS = 32.0
"""Width of the scale of a block of FP8 weights, unless the config says `ue8m0` (8 bits)."""


LARGEST = 1_000_000_000
"""No dimension is larger, and products of a few of these still fit a float."""


def section(config: Config, key: str) -> Config:
    """A nested object, empty where the key is absent. Raises `InputError` when it is something else."""
    nested = config.get(key) or {}
    if not isinstance(nested, Mapping):
        raise InputError(f"`{key}` must be an object, not {_shown(nested)}", "the config may be damaged")
    return nested


def count(config: Config, key: str, name: str) -> int:
    """A positive whole number. Raises `InputError` naming model and key."""
    value = config.get(key)
    if not _is_count(value, 1):
        raise InputError(
            f"{name}: `{key}` must be a positive whole number, not {_shown(value)}",
            "the config is incomplete or of another kind",
        )
    return value


def count_or_zero(config: Config, key: str, name: str) -> int:
    """A whole number, 0 where the key is absent. Raises `InputError` naming model and key."""
    value = config.get(key)
    if value is not None and not _is_count(value, 0):
        raise InputError(f"{name}: `{key}` must be a whole number, not {_shown(value)}", "the config may be damaged")
    return value or 0


def counts(config: Config, key: str, name: str, least: int = 0) -> tuple[int, ...]:
    """A list of whole numbers of at least `least`. Raises `InputError` naming model and key."""
    values = config.get(key)
    if not isinstance(values, list) or not all(_is_count(value, least) for value in values):
        raise InputError(f"{name}: `{key}` must be a list of whole numbers, not {_shown(values)}", "the config may be damaged")
    return tuple(values)


def _is_count(value: Any, least: int) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= LARGEST


def _shown(value: Any) -> str:
    return repr(value)[:60]


def storage_bits(config: Config, name: str) -> dict[str, Any]:
    """Storage width of the body's matrices, scales included, of routed experts, and of the LM head, which stays wide."""
    quantization = section(config, "quantization_config")
    bits: dict[str, Any] = {}
    if quantization:
        method = quantization.get("quant_method")
        if method == "mxfp4":
            return {"expert_bits": 4 + 8 / FP4_BLOCK}
        bits = {"weight_bits": _quantised_bits(quantization, method, name), "head_bits": 16.0}
    if config.get("expert_dtype") == "fp4":
        bits["expert_bits"] = 4 + 8 / FP4_BLOCK
    elif config.get("expert_dtype") is not None:
        raise InputError(f"{name}: experts of {config['expert_dtype']!r} are not priced here", "priced: fp4")
    return bits


def _quantised_bits(quantization: Config, method: Any, name: str) -> float:
    """Bits per weight with its share of scales and zero points."""
    if method == "fp8":
        block = quantization.get("weight_block_size")
        if not block:
            return 8.0
        sides = counts(quantization, "weight_block_size", name, 1)
        if len(sides) != 2:
            raise InputError(f"{name}: `weight_block_size` must hold two numbers, not {len(sides)}", "the config may be damaged")
        rows, columns = sides
        scale_bits = 8.0 if quantization.get("scale_fmt") == "ue8m0" else BLOCK_SCALE_BITS
        return 8.0 + scale_bits / (rows * columns)
    if method in ("gptq", "awq"):
        bits, group = count(quantization, "bits", name), count(quantization, "group_size", name)
        # Each group keeps one 16-bit scale and one zero point of the weights' own width.
        return bits + (16 + bits) / group
    if method == "compressed-tensors":
        groups = section(quantization, "config_groups")
        weights = section(section(groups, next(iter(groups), "")), "weights")
        bits = count(weights, "num_bits", name)
        return bits + (16 / count(weights, "group_size", name) if weights.get("group_size") else 0.0)
    if method == "modelopt" and "FP4" in str(quantization.get("quant_algo", "")).upper():
        return 4 + 8 / NVFP4_BLOCK
    if method == "modelopt" and "FP8" in str(quantization.get("quant_algo", "")).upper():
        return 8.0
    known = "fp8, gptq, awq, compressed-tensors, modelopt, mxfp4"
    raise InputError(f"{name} is quantised by {method!r}, which this cost model does not price", f"priced: {known}")
