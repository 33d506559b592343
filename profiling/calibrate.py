"""What this machine reaches: memory bandwidth, matrix rate, and the price of a call.

A datasheet exists for accelerators; for the machine at hand two micro-benchmarks stand in. Bandwidth: stream an array several
times the last-level cache through a matrix–vector product, the access pattern of a decode step. Rate: multiply matrices large
enough to reuse what they load. Peaks are limits, so the best sample counts, over kernels and rounds: whatever else ran can only
have slowed it down. The rounds visit all kernels in turn, so that a busy second does not spoil one of them for good.
"""

import hashlib
import math
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp

from perfmodel import codec
from perfmodel.errors import InputError
from perfmodel.records import Hardware, Peak
from perfmodel.units import format_bandwidth, format_bytes, format_flop_rate, format_percent

from .environment import cpu_model, num_cores
from .timer import compile_call, empty_call_s, time_once

Resource = Literal["bandwidth", "float32", "bfloat16"]

DEFAULT_BUDGET_S = 20.0
_PATHOLOGICAL = 10.0
"""A dtype this many times slower than float32 is emulated; its rate would say nothing about the machine."""
_SETTLED_ROUNDS = 12
_GAIN = 1.01
_SHARE_OF_ROUND_S = 0.02
_QUIET_SPREAD = 0.25
BUSY = "samples scatter: the machine was busy or throttled, so these peaks may be too low; measure again when it is quiet"
_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_MEBI = 1 << 20


@dataclass(slots=True)
class Benchmark:
    """One kernel with its traffic in bytes or its work in FLOP, and the seconds of each of its samples."""

    name: str
    resource: Resource
    amount: float
    call: Callable[[], Any]
    samples_s: list[float] = field(default_factory=list)

    @property
    def best(self) -> float:
        """Best rate, B/s or FLOP/s."""
        return self.amount / min(self.samples_s)

    @property
    def spread(self) -> float:
        """Interquartile range over median; infinite for fewer than four samples."""
        if len(self.samples_s) < 4:
            return math.inf
        low, median, high = statistics.quantiles(self.samples_s, n=4)
        return (high - low) / median


def calibrate(
    budget_s: float = DEFAULT_BUDGET_S, refresh: bool = False, progress: Callable[[float], object] = lambda share: None
) -> Hardware:
    """Measured peaks of the device JAX runs on, SI units, from the user's cache or measured now in about `budget_s` at most.

    The cache holds one file per processor, core count, device and JAX version. A file that cannot be read, or that was taken on
    a busy machine, is measured anew. `progress` is told the share of the time it may take that is spent.
    """
    found = None if refresh else read_cache()
    if found is not None and BUSY not in found.notes:
        return found
    hardware = measure(budget_s, progress)
    codec.save(cache_path(), hardware)
    return hardware


def read_cache() -> Hardware | None:
    """This machine's earlier measurement; None when there is none that can be read."""
    path = cache_path()
    if not path.exists():
        return None
    try:
        return codec.load(path, Hardware)
    except InputError:
        return None


def cache_path() -> Path:
    """Where this machine's measurement is kept."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    facts = (cpu_model(), str(num_cores()), jax.devices()[0].device_kind, jax.__version__)
    fingerprint = hashlib.sha256("\n".join(facts).encode()).hexdigest()[:12]
    return Path(base) / "dflash-perf" / f"machine-{fingerprint}.json"


def measure(budget_s: float, progress: Callable[[float], object] = lambda share: None) -> Hardware:
    """Measured peaks, SI units, without the cache."""
    begin = time.perf_counter()
    progress(0.0)
    device = jax.devices()[0]
    stream_bytes = _stream_bytes(device.platform)
    benchmarks, notes = _benchmarks(stream_bytes, device.platform)
    dispatch_s = empty_call_s()
    _run_rounds(benchmarks, begin, budget_s, progress)
    bandwidth = _peak(benchmarks, "bandwidth")
    cache = last_level_cache_bytes() if device.platform == "cpu" else None
    rates = {dtype: _peak(benchmarks, dtype) for dtype in ("float32", "bfloat16") if any(b.resource == dtype for b in benchmarks)}
    memory = _memory_bytes(device)
    return Hardware(
        name="this-machine",
        display_name=f"{cpu_model()} ({num_cores()} cores)" if device.platform == "cpu" else device.device_kind,
        kind=device.platform,
        source="measured",
        bandwidth_bytes_per_s=bandwidth,
        flops_per_s=rates,
        memory_bytes=memory,
        on_chip_bytes=None if cache is None else Peak(value=float(cache), source="last-level cache, as the system reports it"),
        dispatch_s=Peak(value=dispatch_s, source="median of 200 jitted calls that add one to a scalar"),
        device_kinds=(device.device_kind,),
        notes=(*notes, *((BUSY,) if any(map(_scatters, benchmarks)) else ()), *map(_spread_note, benchmarks)),
    )


def _benchmarks(stream_bytes: int, platform: str) -> tuple[list[Benchmark], list[str]]:
    columns = 4096
    rows = stream_bytes // (4 * columns)
    weights, narrow, wide = jnp.ones((rows, columns), jnp.float32), jnp.ones(columns, jnp.float32), jnp.ones(rows, jnp.float32)
    size = format_bytes(weights.nbytes)
    benchmarks = [
        _benchmark(f"matrix-vector product over {size}", "bandwidth", float(weights.nbytes), jnp.matmul, weights, narrow),
        _benchmark(f"vector-matrix product over {size}", "bandwidth", float(weights.nbytes), jnp.matmul, wide, weights),
        _benchmark(f"sum over {size}", "bandwidth", float(weights.nbytes), jnp.sum, weights),
    ]
    sizes = (256, 512, 1024) if platform == "cpu" else (4096, 8192)
    benchmarks += [_matmul("float32", size) for size in sizes]
    lower = [_matmul("bfloat16", size) for size in sizes]
    float32_s, bfloat16_s = (time_once(found.call) for found in (benchmarks[-1], lower[-1]))
    if bfloat16_s > _PATHOLOGICAL * float32_s:
        return benchmarks, [
            f"bfloat16 matrices are emulated here ({bfloat16_s / float32_s:.0f} times slower than float32): no peak"
        ]
    return benchmarks + lower, []


def _matmul(dtype: Resource, size: int) -> Benchmark:
    matrix = jnp.ones((size, size), dtype)
    return _benchmark(f"{dtype} matrix product of {size} cubed", dtype, 2.0 * size**3, jnp.matmul, matrix, matrix)


def _benchmark(name: str, resource: Resource, amount: float, function: Callable[..., Any], *args: jax.Array) -> Benchmark:
    executable = compile_call(jax.jit(function), *args).executable
    found = Benchmark(name, resource, amount, lambda: executable(*args))
    time_once(found.call)
    return found


def _run_rounds(benchmarks: list[Benchmark], begin: float, budget_s: float, progress: Callable[[float], object]) -> None:
    """Sample all benchmarks in turn until they have settled, or the time is up (after at least one round).

    Settled means that a dozen rounds brought no better sample; on a busy machine, whose samples scatter, it is never believed.
    """
    settled = 0
    while settled < _SETTLED_ROUNDS or any(map(_scatters, benchmarks)):
        improved = False
        for benchmark in benchmarks:
            samples = [time_once(benchmark.call)]
            while sum(samples) < _SHARE_OF_ROUND_S:
                samples.append(time_once(benchmark.call))
            improved |= not benchmark.samples_s or min(benchmark.samples_s) > _GAIN * min(samples)
            benchmark.samples_s += samples
        settled = 0 if improved else settled + 1
        spent_s = time.perf_counter() - begin
        progress(min(1.0, spent_s / budget_s))
        if spent_s >= budget_s:
            return


def _scatters(benchmark: Benchmark) -> bool:
    return benchmark.spread > _QUIET_SPREAD


def _peak(benchmarks: list[Benchmark], resource: str) -> Peak:
    best = max((benchmark for benchmark in benchmarks if benchmark.resource == resource), key=lambda benchmark: benchmark.best)
    return Peak(value=best.best, source=f"best of {len(best.samples_s)} samples of a {best.name}")


def _spread_note(benchmark: Benchmark) -> str:
    show = format_bandwidth if benchmark.resource == "bandwidth" else format_flop_rate
    best, median = show(benchmark.best), show(benchmark.amount / statistics.median(benchmark.samples_s))
    spread = f"interquartile range {format_percent(benchmark.spread)} of {len(benchmark.samples_s)} samples"
    return f"{benchmark.name}: best {best}, median {median}, {spread}"


def last_level_cache_bytes() -> int | None:
    """Size of the largest processor cache, B; None where the system does not tell."""
    sizes = [(index / "size").read_text().strip() for index in _CACHES.glob("index*") if (index / "size").is_file()]
    factors = {"K": 1 << 10, "M": _MEBI, "G": 1 << 30}
    return max((int(size[:-1]) * factors[size[-1]] for size in sizes if size[-1:] in factors), default=None)


def _stream_bytes(platform: str) -> int:
    """An array that no cache can hold: four times the last-level cache and at least 256 MiB, at most 1 GiB."""
    if platform != "cpu":
        return 1024 * _MEBI
    return min(max(256 * _MEBI, 4 * (last_level_cache_bytes() or 0)), 1024 * _MEBI)


def _memory_bytes(device: jax.Device) -> Peak | None:
    limit = (device.memory_stats() or {}).get("bytes_limit")
    if limit is not None:
        return Peak(value=float(limit), source="the device's own limit for allocations")
    if device.platform == "cpu" and hasattr(os, "sysconf"):
        return Peak(value=float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")), source="the system's physical memory")
    return None
