"""FLOP of a traced function, counted from its jaxpr: 2 per multiply-add of every matrix product, loops multiplied out.

The compiler's own `flops` counts a loop's body once and cannot look into kernels. A jaxpr still holds every product with its shapes
and every scan with its length, so counting is arithmetic. Elementwise work is left out, as in `perfmodel.cost`.
"""

import math
from typing import Any

CALLS = ("jaxpr", "call_jaxpr", "fun_jaxpr")


def matmul_flops(jaxpr: Any) -> float:
    """FLOP of all matrix products. A `while` whose trip count data decide counts once; of branches the dearest counts."""
    return sum(_equation_flops(equation) for equation in getattr(jaxpr, "jaxpr", jaxpr).eqns)


def _equation_flops(equation: Any) -> float:
    parameters = equation.params
    name = equation.primitive.name
    if name == "dot_general":
        (contracted, _), _ = parameters["dimension_numbers"]
        left = equation.invars[0].aval
        return 2.0 * math.prod(equation.outvars[0].aval.shape) * math.prod(left.shape[axis] for axis in contracted)
    if name == "scan":
        return float(parameters["length"]) * matmul_flops(parameters["jaxpr"])
    if name == "while":
        return matmul_flops(parameters["body_jaxpr"])
    if name == "cond":
        return max((matmul_flops(branch) for branch in parameters["branches"]), default=0.0)
    if name == "shard_map":
        return math.prod(parameters["mesh"].shape.values()) * matmul_flops(parameters["jaxpr"])
    if name == "pallas_call":
        steps = [size for size in parameters["grid_mapping"].grid if isinstance(size, int)]
        return math.prod(steps) * matmul_flops(parameters["jaxpr"])
    return sum(matmul_flops(parameters[key]) for key in CALLS if key in parameters and hasattr(parameters[key], "eqns"))
