"""The process that compiles: reads one request on stdin, compiles for a topology, writes one JSON document to a file.

    python -m profiling.compile_worker < request.json

libtpu takes the whole process: it reads its environment when it is loaded, holds a lock file, and logs. So compiling happens in a
process of its own, with an environment that asks no metadata server, opens no TPU and shares the lock; JAX itself stays on the
CPU there. A killed worker leaves nothing behind, because the document appears under its final name only when it is whole.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

REFUSALS = (ValueError, NotImplementedError)
"""What lowering raises for a program that a chip cannot run, for example a kernel that cannot tile its heads."""


def main() -> None:
    """Compile the request on stdin and write its document to the path it names."""
    request = json.load(sys.stdin)
    document = _compile(request)
    out = Path(request["out"])
    part = out.with_suffix(".part")
    part.write_text(json.dumps(document))
    part.replace(out)


def _compile(request: dict[str, Any]) -> dict[str, Any]:
    import jax
    from jax.experimental import topologies
    from jax.sharding import use_abstract_mesh

    from perfmodel.errors import PerfError

    from .compile_flops import matmul_flops
    from .compile_program import resolve
    from .hlo import without_kernels

    jax.config.update("jax_platforms", "cpu")
    topology = topologies.get_topology_desc(
        platform="tpu", topology_name=request["topology"], chips_per_host_bounds=tuple(request["bounds"]), **request["options"]
    )
    # A chip may show two devices; a program for one chip runs on one of them.
    devices = topology.devices[:1] if request["num_chips"] == 1 else topology.devices
    facts = {"device_kind": str(getattr(devices[0], "device_kind", "unknown")), "num_devices": len(devices)}
    begin = time.perf_counter()
    try:
        program = resolve(request["factory"])(devices=devices, **request["arguments"])
        abstract, whole = _placement(devices, program.mesh)
        arguments = jax.tree_util.tree_map(lambda leaf: _placed(leaf, whole), program.arguments)
        # Kernels ask the mesh which chip they are for.
        with use_abstract_mesh(abstract):
            traced = program.function.trace(*arguments, **program.options)
            lowered = traced.lower()
        lowered_at = time.perf_counter()
        compiled = lowered.compile(compiler_options=program.compiler_options or None)
    except (*REFUSALS, jax.errors.JaxRuntimeError, PerfError) as error:
        return {"failure": str(error)[:4000], **facts}
    done = time.perf_counter()
    memory = compiled.memory_analysis()
    return {
        "failure": None,
        **facts,
        "lower_s": lowered_at - begin,
        "compile_s": done - lowered_at,
        "flops": matmul_flops(traced.jaxpr) / len(devices),
        "argument_bytes": memory.argument_size_in_bytes,
        "output_bytes": memory.output_size_in_bytes,
        "alias_bytes": memory.alias_size_in_bytes,
        "temporary_bytes": memory.temp_size_in_bytes,
        "hlo": without_kernels(compiled.as_text()),
    }


def _placement(devices: Any, mesh: Any) -> tuple[Any, Any]:
    """The mesh that kernels ask which chip they are for, and where an argument without a sharding lies."""
    from jax.sharding import AbstractDevice, AbstractMesh, NamedSharding, PartitionSpec, SingleDeviceSharding

    if mesh is not None:
        return mesh.abstract_mesh, NamedSharding(mesh, PartitionSpec())
    device = devices[0]
    kind = AbstractDevice(device_kind=device.device_kind, num_cores=getattr(device, "num_cores", None), platform="tpu")
    return AbstractMesh((1,), ("x",), abstract_device=kind), SingleDeviceSharding(device)


def _placed(leaf: Any, sharding: Any) -> Any:
    import jax

    if not isinstance(leaf, jax.ShapeDtypeStruct) or leaf.sharding is not None:
        return leaf
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)


if __name__ == "__main__":
    main()
