"""What makes two runs comparable: device, versions, and the switches that change numbers."""

import os
import platform
from importlib import metadata
from pathlib import Path

import jax

from perfmodel.records import Environment

PACKAGES = ("jax", "jaxlib", "libtpu", "jax-cuda12-plugin", "jax-cuda13-plugin", "jax-rocm60-plugin", "xprof", "numpy", "scipy")
FLAG_VARIABLES = ("XLA_FLAGS", "LIBTPU_INIT_ARGS", "OMP_NUM_THREADS", "TF_CPP_MIN_LOG_LEVEL")
_NOT_NUMBERS = ("JAX_LOG", "JAX_DEBUG_LOG", "JAX_TRACEBACK")
DISTRIBUTION = "dflash-perf"


def environment() -> Environment:
    """Facts of this process and machine, gathered without running another program."""
    device = jax.devices()[0]
    return Environment(
        device_kind=device.device_kind,
        platform=device.platform,
        num_devices=jax.device_count(),
        host_cpu=cpu_model(),
        num_cores=num_cores(),
        versions=_versions(device),
        flags=_flags(),
        commit=commit(Path(__file__).resolve().parent),
        perf_version=_version(DISTRIBUTION) or "unknown",
    )


def cpu_model() -> str:
    """The host processor's name; the architecture where the system does not tell."""
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    named = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor() or platform.machine())


def num_cores() -> int:
    """Processor cores this process may use (a container may own fewer than the machine has)."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def commit(folder: Path) -> str | None:
    """Commit of the checkout that a folder lies in, read from its git directory; None outside one or before its first commit."""
    for parent in (folder, *folder.parents):
        entry = parent / ".git"
        if not entry.exists():
            continue
        git = entry if entry.is_dir() else parent / entry.read_text().removeprefix("gitdir:").strip()
        return _head(git)
    return None


def _head(git: Path) -> str | None:
    common = git / (git / "commondir").read_text().strip() if (git / "commondir").is_file() else git
    head = (git / "HEAD").read_text().strip() if (git / "HEAD").is_file() else ""
    if not head.startswith("ref:"):
        return head or None
    reference = head.removeprefix("ref:").strip()
    for folder in (git, common):
        if (folder / reference).is_file():
            return (folder / reference).read_text().strip()
    packed = common / "packed-refs"
    lines = packed.read_text().splitlines() if packed.is_file() else []
    return next((line.split()[0] for line in lines if line.endswith(f" {reference}")), None)


def _versions(device: jax.Device) -> dict[str, str]:
    versions = {"python": platform.python_version(), DISTRIBUTION: _version(DISTRIBUTION)}
    versions |= {package: _version(package) for package in PACKAGES}
    versions["platform"] = one_line(device.client.platform_version) if device.platform != "cpu" else None
    return {name: version for name, version in versions.items() if version is not None}


def one_line(platform_version: str) -> str:
    """A backend's own words on its version. Its first line only says that it is a plug-in; CUDA's, ROCm's and libtpu's follow."""
    return "; ".join(line.strip() for line in platform_version.splitlines() if line.strip())


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _flags() -> dict[str, str]:
    names = {name for name in os.environ if name.startswith("JAX_") and not name.startswith(_NOT_NUMBERS)}
    flags = {name: os.environ[name] for name in sorted(names.union(FLAG_VARIABLES) & set(os.environ))}
    # Set in code as often as by variable, and each changes results or speed.
    flags["matmul_precision"] = str(jax.config.values["jax_default_matmul_precision"])
    flags["enable_x64"] = str(jax.config.values["jax_enable_x64"])
    return flags
