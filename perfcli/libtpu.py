"""Keeping libtpu quiet on a machine without a TPU: it may be installed for `perf compile` alone."""

import os
from importlib.util import find_spec
from pathlib import Path

SETTINGS = {
    "TPU_ACCELERATOR_TYPE": "v5p-8",
    "TPU_LOG_DIR": "disabled",
    "TPU_MIN_LOG_LEVEL": "3",
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_WORKER_HOSTNAMES": "localhost",
}
"""What libtpu would otherwise ask a metadata server for, and complain about when there is none."""

DEVICES = Path("/dev")


def has_tpu(devices: Path = DEVICES) -> bool:
    """Whether a TPU's device files are there."""
    return any(devices.glob("accel[0-9]*")) or any((devices / "vfio").glob("[0-9]*"))


def settle_libtpu() -> None:
    """Tell an installed libtpu that it has no TPU to look for, before JAX loads it. Leaves a TPU machine, and what is set, alone."""
    if find_spec("libtpu") is not None and not has_tpu():
        for name, value in SETTINGS.items():
            os.environ.setdefault(name, value)
