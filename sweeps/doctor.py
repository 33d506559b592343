"""What this machine can run and measure, as a document."""

import importlib.util
import sys
from typing import Any

import msgspec

from decoding.embedded import find_gguf
from perfmodel.errors import PerfError
from perfmodel.records import Finding, Hardware
from profiling.calibrate import calibrate, read_cache
from profiling.environment import environment

from .progress import Reporter, silent


def examine(measure: bool, report: Reporter = silent) -> dict[str, Any]:
    """The body of `perf.doctor`. `measure` runs the micro-benchmarks now; else figures of an earlier run are shown, or null."""
    found = environment()

    def tell(share: float) -> None:
        report("calibrating", share, "at most")

    machine: Hardware | None = calibrate(refresh=True, progress=tell) if measure else read_cache()
    return {
        "device_kind": found.device_kind,
        "platform": found.platform,
        "num_devices": found.num_devices,
        "host_cpu": found.host_cpu,
        "num_cores": found.num_cores,
        "versions": found.versions,
        "flags": found.flags,
        "program": sys.argv[0],
        "bandwidth_bytes_per_s": None if machine is None else machine.bandwidth_bytes_per_s.value,
        "flops_per_s": None if machine is None else {dtype: peak.value for dtype, peak in machine.flops_per_s.items()},
        "dispatch_s": None if machine is None or machine.dispatch_s is None else machine.dispatch_s.value,
        "findings": [msgspec.to_builtins(finding) for finding in (*_embedded(), *_viewer())],
    }


def _embedded() -> tuple[Finding, ...]:
    try:
        where = find_gguf()
    except PerfError as error:
        return (
            Finding(code="no-embedded-target", severity="warning", message=error.message, hint=error.hint, where="smollm2-135m"),
        )
    return (
        Finding(
            code="embedded-target",
            severity="info",
            message=f"the embedded target's weights are here: {where}",
            where="smollm2-135m",
        ),
    )


def _viewer() -> tuple[Finding, ...]:
    if importlib.util.find_spec("tensorboard_plugin_profile") and importlib.util.find_spec("tensorboard"):
        return ()
    return (
        Finding(
            code="no-viewer",
            severity="warning",
            message="TensorBoard or its profile plugin is not installed, so `perf view` cannot show traces",
            hint="pip install tensorboard tensorboard-plugin-profile",
        ),
    )
