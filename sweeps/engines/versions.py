"""What is known of a server and its machine: what it says of itself, and nothing of the chip, which it does not tell.

This process must not touch an accelerator: the server owns it.
"""

import json
import platform
from importlib import metadata
from pathlib import Path

from perfmodel.records import Environment
from profiling.environment import DISTRIBUTION, commit, cpu_model, num_cores

from .client import Client
from .failure import EngineError


def server_versions(client: Client) -> dict[str, str]:
    """The versions that a server tells at `/version` (vLLM, tpu-inference) or `/get_server_info` (SGLang)."""
    for path in ("/version", "/get_server_info"):
        try:
            document = json.loads(client.get(path, limit_s=10.0).text)
        except (EngineError, ValueError):
            continue
        version = document.get("version") if isinstance(document, dict) else None
        if isinstance(version, str):
            return {"server": version}
    return {}


def engine_environment(where: str, versions: dict[str, str]) -> Environment:
    """This client's machine, with the server in place of the device."""
    try:
        perf_version = metadata.version(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        perf_version = "unknown"
    return Environment(
        device_kind=where,
        platform="server",
        num_devices=1,
        host_cpu=cpu_model(),
        num_cores=num_cores(),
        versions={"python": platform.python_version(), **versions},
        flags={},
        commit=commit(Path(__file__).resolve().parent),
        perf_version=perf_version,
    )
