"""What a TPU wants of programs beside their arithmetic: room near its units, and matrices in tiles that suit a loop.

A TPU's compiler lets one operation use 16 MiB of on-chip memory unless told otherwise. A step reads each matrix once, and how quickly
depends on how much of it is in flight: with half of the memory or more to use, a step of Qwen3-4B takes 5 to 10 % less on most chips
by the compiler's own estimate, without any rearrangement of the program. A v7x wants the weights of a loop in tiles of 16 rows; handed
over in the usual tiles of 8 they are all copied in front of every loop, and need their room twice.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental.layout import Format, Layout
from jax.sharding import Sharding

VMEM_KIB = {
    "TPU v5 lite": 64 << 10, "TPU v5e": 64 << 10, "TPU v5": 48 << 10, "TPU v5p": 48 << 10, "TPU v6 lite": 64 << 10,
    "TPU v6e": 64 << 10, "TPU7x": 56 << 10,
}  # fmt: skip
"""On-chip memory that one operation may use, KiB, by `device_kind`: what makes a step's estimate least. A v4 gains nothing."""

TALL_TILES_ON = ("TPU7x",)
"""Devices whose loops want bfloat16 matrices in tiles of 16 rows."""

TALL_TILES = Layout((0, 1), ((16, 128), (2, 1)))


def compiler_options(device_kind: str) -> dict[str, str | bool]:
    """What XLA is to be told when it compiles for the device."""
    limit = VMEM_KIB.get(device_kind)
    return {} if limit is None else {"xla_tpu_scoped_vmem_limit_kib": str(limit)}


def placed(value: Any, sharding: Sharding | None, device_kind: str) -> Any:
    """An array where `sharding` says, in the tiles the device wants; of an abstract array an abstract one."""
    is_tall = sharding is not None and device_kind in TALL_TILES_ON and value.dtype == jnp.bfloat16 and value.ndim == 2
    where = Format(TALL_TILES, sharding) if is_tall else sharding
    if isinstance(value, jax.ShapeDtypeStruct):
        return jax.ShapeDtypeStruct(value.shape, value.dtype, sharding=where)
    return jax.device_put(value, where)
