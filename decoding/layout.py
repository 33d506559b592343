"""In which form a device wants a model's matrices.

Matrices that meet the same input stand side by side as one, [in, out]: one large product suits most machines. A TPU may want other
tiles (see `tpu`).

On a CPU float32 weights are turned, [out, in]: XLA's library for products of a few rows reads them fastest as the left-hand operand
(see `layers.turned_product`). Its bfloat16 products want them [in, out], a tied head too, which is therefore stored again, and two
rows at least (see `layers.paired_product`).

Which form a model has is a matter of its parameters alone; every function takes all of them.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Sharding

from .layers import Paired, Turned, Weight
from .tpu import TALL_TILES_ON, placed

Params = dict[str, Any]

MATRICES = ("qkv", "q", "kv", "o", "gate_up", "down", "fc")
"""The matrices that a CPU keeps in a form of its own, by their names in a layer and beside the layers."""


def laid_out(params: Params, device_kind: str, sharding: Sharding | None = None) -> Params:
    """The weights of a target or drafter as the device wants them. Abstract arrays stay abstract; `sharding` says where they lie."""
    if device_kind == "cpu":
        return _for_cpu(params)
    if device_kind not in TALL_TILES_ON:
        return params
    tall: Params = jax.tree_util.tree_map(lambda leaf: placed(leaf, leaf.sharding or sharding, device_kind), params)
    return tall


def _for_cpu(params: Params) -> Params:
    kept: Params = {}
    for name, value in params.items():
        if name == "layers":
            kept[name] = [_for_cpu(layer) for layer in value]
        elif name == "layer":  # an EAGLE-3 drafter's only one
            kept[name] = _for_cpu(value)
        else:
            kept[name] = _cpu_form(value) if name in MATRICES or (name == "head" and "layers" in params) else value
    is_tied_target = "layers" in params and "fc" not in params and "head" not in params
    if is_tied_target and params["embed"].dtype == jnp.bfloat16:
        kept["head"] = Paired(_transposed(params["embed"]))
    return kept


def _cpu_form(matrix: Any) -> Weight:
    return Paired(matrix) if matrix.dtype == jnp.bfloat16 else Turned(_transposed(matrix))


def _transposed(matrix: Any) -> Any:
    return jax.eval_shape(jnp.transpose, matrix) if isinstance(matrix, jax.ShapeDtypeStruct) else jnp.transpose(matrix)
