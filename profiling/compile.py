"""Compiling for a TPU that is not there: a program and a topology in, the compiled text and its memory out.

libtpu, XLA's TPU compiler, runs on any x86-64 Linux machine. Each compilation is a process of its own (see `compile_worker`), so
it is safe beside a live JAX, beside another compilation, and after one that was killed; results are kept on disk.
"""

import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from perfmodel.errors import UnsupportedError

from . import compile_cache
from .compile_program import ProgramReference
from .compile_topology import Topology

WORKER_ENVIRONMENT = {
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",  # a lock file of another process, or of a killed one, is no obstacle
    "JAX_PLATFORMS": "cpu",  # nothing tries to open a TPU
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "TPU_ACCELERATOR_TYPE": "v5p-8",  # any valid one; the topology decides
    "TPU_LOG_DIR": "disabled",
    "TPU_MIN_LOG_LEVEL": "3",
    "TPU_SKIP_MDS_QUERY": "1",  # no metadata server is asked
    "TPU_WORKER_HOSTNAMES": "localhost",
}
"""What libtpu must find in its environment when it is loaded without a TPU."""

BYTES_PER_COMPILATION = 5e9
"""Memory to allow for one compilation of a model of some dozens of layers."""


@dataclass(frozen=True)
class CompiledProgram:
    """What came back. Byte counts and FLOP are per device. With a `failure` only the text of it, the device and versions are known.

    `was_cached` tells that nothing was compiled now; `compile_s` is what the compilation took when it ran.
    """

    topology: Topology
    device_kind: str
    num_devices: int
    versions: dict[str, str]
    was_cached: bool
    failure: str | None = None
    hlo: str = ""
    lower_s: float | None = None
    compile_s: float | None = None
    flops: float | None = None
    argument_bytes: float | None = None
    output_bytes: float | None = None
    alias_bytes: float | None = None
    temporary_bytes: float | None = None


def require_compiler() -> None:
    """Raise `UnsupportedError` where no TPU compiler is installed, or none exists for this system."""
    if sys.platform != "linux" or platform.machine().lower() not in ("x86_64", "amd64"):
        raise UnsupportedError(
            f"the TPU compiler does not exist for {sys.platform} on {platform.machine()}",
            "run `perf compile` on x86-64 Linux; everything else works here",
        )
    if find_spec("libtpu") is None:
        raise UnsupportedError("the TPU compiler, libtpu, is not installed", "pip install 'dflash-perf[tpu]'")


def compile_program(program: ProgramReference, topology: Topology, refresh: bool = False) -> CompiledProgram:
    """The program compiled for the topology, from the cache or now. A program the chip cannot hold or run comes back as a failure.

    Raises `UnsupportedError` without a compiler, or when the compiling process was killed.
    """
    require_compiler()
    path = compile_cache.path_of(program, topology)
    document = None if refresh else compile_cache.read(path)
    was_cached = document is not None
    if document is None:
        document = _run_worker(program, topology)
        compile_cache.write(path, document)
    return CompiledProgram(topology=topology, versions=compile_cache.versions(), was_cached=was_cached, **document)


def compile_many(
    programs: Sequence[tuple[ProgramReference, Topology]],
    jobs: int | None = None,
    done: Callable[[int, CompiledProgram], object] = lambda place, compiled: None,
) -> list[CompiledProgram]:
    """Programs compiled, in the order given, several at once as memory allows; `done` is told each as it is ready."""
    require_compiler()
    found: dict[int, CompiledProgram] = {}
    with ThreadPoolExecutor(max_workers=jobs or parallel_compilations()) as pool:
        waiting = {pool.submit(compile_program, *each): place for place, each in enumerate(programs)}
        try:
            for future in as_completed(waiting):
                found[waiting[future]] = future.result()
                done(waiting[future], found[waiting[future]])
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return [found[place] for place in range(len(programs))]


def parallel_compilations() -> int:
    """How many compilations fit this machine's cores and free memory at once; at least one."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores, int(_free_bytes() / BYTES_PER_COMPILATION)))


def _free_bytes() -> float:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return BYTES_PER_COMPILATION
    found = next((line.split()[1] for line in lines if line.startswith("MemAvailable:")), None)
    return BYTES_PER_COMPILATION if found is None else 1024.0 * int(found)


def _run_worker(program: ProgramReference, topology: Topology) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="perf-compile-") as folder:
        out = Path(folder) / "compiled.json"
        request = {
            "factory": program.factory,
            "arguments": program.arguments,
            "topology": topology.name,
            "bounds": topology.bounds,
            "num_chips": topology.num_chips,
            "options": topology.options,
            "out": str(out),
        }
        finished = subprocess.run(
            [sys.executable, "-m", "profiling.compile_worker"],
            input=json.dumps(request),
            env={**os.environ, **WORKER_ENVIRONMENT, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            check=False,
        )
        if finished.returncode < 0:
            raise UnsupportedError(
                f"the compiling process was ended by signal {-finished.returncode}",
                "it may have run out of memory: compile fewer points at a time with --jobs 1",
            )
        if finished.returncode or not out.is_file():
            raise RuntimeError(f"the compiling process failed:\n{finished.stderr[-4000:]}")
        document: dict[str, Any] = json.loads(out.read_text())
        return document
