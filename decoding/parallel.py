"""Tensor parallelism: a pair's weights split over the devices of a one-axis mesh, so that each step reads a share of them per device.

A decode step is bound by reading weights, so n devices that hold a share each can be n times as fast, less what they tell each other.
The classic split needs two sums per layer (Shoeybi et al. 2019, arXiv 1909.08053): matrices that make heads or MLP channels are split
by columns, the matrices that consume them by rows. Query heads are split evenly; KV heads too, or kept whole on every device when
there are fewer of them than devices. Vocabulary rows of embedding and head are split where they divide.

Programs stay as they are: the compiler follows the weights' shardings and inserts the sums. Only matrices that stand side by side are
taken apart first, since a cut across their seam would send heads from device to device.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from perfmodel.errors import InputError

from . import tpu
from .attention import MESH_AXIS, Kernel
from .layers import Paired, Turned
from .pair import Pair

Params = dict[str, Any]

COLUMNS, ROWS, WHOLE = PartitionSpec(None, MESH_AXIS), PartitionSpec(MESH_AXIS, None), PartitionSpec()


def device_mesh(devices: Sequence[jax.Device]) -> Mesh:
    """A mesh of one axis over these devices."""
    return Mesh(np.asarray(devices), (MESH_AXIS,))


def split_pair(pair: Pair, mesh: Mesh) -> Pair:
    """The pair with its weights laid out over the mesh. Raises `InputError` where query heads do not divide over it."""
    num_devices = mesh.shape[MESH_AXIS]
    if pair.target_config.num_heads % num_devices:
        raise InputError(
            f"{pair.target_config.num_heads} query heads do not divide over {num_devices} devices", "use fewer devices"
        )
    return dataclasses.replace(
        pair,
        target_params=split_params(pair.target_params, pair.target_config, mesh),
        draft_params=None if pair.draft_params is None else split_params(pair.draft_params, pair.draft_config, mesh),
    )


def split_kernel(kernel: Kernel, mesh: Mesh) -> Kernel:
    """The kernel for a cache whose KV heads are split over the mesh where they divide."""
    return dataclasses.replace(kernel, mesh=mesh)


def split_params(params: Params, config: Any, mesh: Mesh) -> Params:
    """The weights of a target or drafter on the mesh. What has no known split (norms, a drafter's `fc`) is whole on every device."""
    num_devices = mesh.shape[MESH_AXIS]
    placed: Params = {}
    for name, value in params.items():
        if name == "layers":
            placed[name] = [_split_layer(layer, config, mesh) for layer in value]
        elif name in ("embed", "head"):
            value = _in_out(value)
            vocabulary = 0 if name == "embed" else 1
            spec = (ROWS if name == "embed" else COLUMNS) if value.shape[vocabulary] % num_devices == 0 else WHOLE
            placed[name] = _place(value, spec, mesh)
        else:
            placed[name] = _place(value, WHOLE, mesh)
    return placed


def _split_layer(layer: Params, config: Any, mesh: Mesh) -> Params:
    num_devices = mesh.shape[MESH_AXIS]
    q_width, kv_width = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    heads = (COLUMNS, ROWS) if config.num_heads % num_devices == 0 else (WHOLE, WHOLE)
    kv = COLUMNS if config.num_kv_heads % num_devices == 0 else WHOLE
    channels = (COLUMNS, ROWS) if config.intermediate_size % num_devices == 0 else (WHOLE, WHOLE)
    seams = {"qkv": [q_width, q_width + kv_width], "kv": [kv_width], "gate_up": [config.intermediate_size]}
    specs: dict[str, Any] = {
        "qkv": (heads[0], kv, kv), "q": heads[0], "kv": (kv, kv), "o": heads[1], "gate_up": (channels[0], channels[0]),
        "down": channels[1],
    }  # fmt: skip
    placed: Params = {}
    for name, weight in layer.items():
        weight = _in_out(weight)
        if name in seams:
            parts = _cut(weight, seams[name])
            placed[name] = tuple(_place(part, spec, mesh) for part, spec in zip(parts, specs[name], strict=True))
        else:
            placed[name] = _place(weight, specs.get(name, WHOLE), mesh)
    return placed


def _in_out(weight: Any) -> Any:
    """The weight as [in, out], which is how rows and columns are told apart here."""
    return weight.as_built if isinstance(weight, Turned | Paired) else weight


def _cut(weight: Any, seams: list[int]) -> Sequence[Any]:
    """The matrices that stand side by side, apart; of an abstract array abstract ones."""
    if isinstance(weight, tuple):
        return weight
    if isinstance(weight, jax.ShapeDtypeStruct):
        return jax.eval_shape(lambda whole: tuple(jnp.split(whole, seams, axis=1)), weight)
    return np.split(np.asarray(weight), seams, axis=1)


def _place(value: Any, spec: PartitionSpec, mesh: Mesh) -> Any:
    return tpu.placed(value, NamedSharding(mesh, spec), mesh.devices.flat[0].device_kind)
