"""How matrices that meet the same input are kept: side by side as one, or apart.

Side by side, gate and up are one large product, which suits most machines. A TPU's compiler fetches weights into on-chip memory ahead
of their use where they fit, and of two matrices of half the size it fetches one while it works on the other: by its own estimate a
layer of Qwen3-4B on a v5p takes 8 % less that way; a v6e or v4, bound by its memory bus, gains nothing. Which form a model has is a matter
of its parameters alone; every function takes both.
"""

from typing import Any

import jax
import jax.numpy as jnp

Params = dict[str, Any]

APART_ON = ("TPU v5", "TPU v5p", "TPU v5 lite", "TPU v5e")
"""Devices, by their kind, that keep gate and up apart."""


def laid_out(params: Params, device_kind: str) -> Params:
    """The weights of a target or drafter as the device wants them; abstract arrays stay abstract."""
    if device_kind not in APART_ON or "layers" not in params:
        return params
    return {**params, "layers": [_apart(layer) for layer in params["layers"]]}


def _apart(layer: Params) -> Params:
    joined = layer.get("gate_up")
    if joined is None or isinstance(joined, tuple):
        return layer
    if isinstance(joined, jax.ShapeDtypeStruct):
        return {**layer, "gate_up": jax.eval_shape(_halves, joined)}
    return {**layer, "gate_up": _halves(joined)}


def _halves(joined: Any) -> tuple[Any, Any]:
    gate, up = jnp.split(joined, 2, axis=1)
    return gate, up
