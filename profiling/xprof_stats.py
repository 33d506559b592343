"""What XProf's own converters say of a capture's HLO: time, rates, limiting resource and roofline share of every operation.

They are a second opinion, made by other people from the same file, and they know more shapes of work than we price ourselves.
Three traps are put right here. They write a cache beside their input and read it back for other files, so they get a fresh
temporary folder. They return None for failure. And every column of bytes is in GiB/s, the peak included, though its label says
GB/s: a peak of 1,638 GB/s shows as 1,525.
"""

import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from perfmodel.errors import PerfError, UnsupportedError
from perfmodel.records import OperationStatistics

from . import xprof_worker

NUM_KEPT = 10
MAX_BYTES = 64_000_000
"""Largest capture given to XProf: it takes some fifty times the file's size of memory."""

HLO_STATISTICS, ROOFLINE = "hlo_stats", "roofline_model"
_TIMEOUT_S = 300
_GIBI = float(1 << 30)
_GIGA = 1e9
_MICRO = 1e-6


@dataclass(frozen=True, slots=True)
class HloStatistics:
    """The operations that take most time of their own, longest first, and the peaks XProf draws its roofline with (None: unknown)."""

    operations: tuple[OperationStatistics, ...]
    peak_flops_per_s: float | None
    peak_bytes_per_s: float | None


def hlo_statistics(xplane: Path, num_devices: int) -> HloStatistics:
    """XProf's statistics of a capture; seconds are per device.

    Raises `UnsupportedError` when XProf is not installed, `PerfError` when it fails.
    """
    tables = convert(xplane, HLO_STATISTICS, ROOFLINE)
    shares = {
        row["operation"]: _scaled(row.get("roofline_efficiency"), 1.0)
        for row in _rows(tables[ROOFLINE][0])
        if row.get("step") == "Total"
    }
    rows = [row for table in tables[HLO_STATISTICS] for row in _rows(table)]
    facts: dict[str, Any] = tables[ROOFLINE][0].get("p") or {}
    return HloStatistics(
        operations=tuple(_statistics(row, num_devices, shares.get(row.get("hlo_op_name"))) for row in rows[:NUM_KEPT]),
        peak_flops_per_s=_scaled(facts.get("peak_flop_rate"), _GIGA),
        peak_bytes_per_s=_scaled(facts.get("peak_hbm_bw"), _GIBI),
    )


def convert(xplane: Path, *tools: str) -> dict[str, list[dict[str, Any]]]:
    """Tool → its tables, as XProf writes them. Raises like `hlo_statistics`."""
    if find_spec("xprof") is None:
        raise UnsupportedError("xprof is not installed", "pip install tensorboard-plugin-profile")
    with tempfile.TemporaryDirectory(prefix="perf-xprof-") as folder:
        # The converter keys its cache by the folder; a link makes the capture look as if it lay in this one.
        link = Path(folder) / "host.xplane.pb"
        link.symlink_to(xplane.resolve())
        worker = [sys.executable, "-P", str(Path(xprof_worker.__file__)), str(link), *tools]
        try:
            done = subprocess.run(worker, capture_output=True, stdin=subprocess.DEVNULL, timeout=_TIMEOUT_S, check=False)
        except subprocess.TimeoutExpired:
            raise PerfError(f"XProf did not finish with {xplane} within {_TIMEOUT_S} s", "record fewer steps") from None
    if done.returncode != 0:
        raise PerfError(f"XProf failed on {xplane}: {_last_line(done.stderr)}", "what is read without it stands")
    tables: dict[str, list[dict[str, Any]]] = {}
    for tool, answer in json.loads(done.stdout).items():
        if not answer:
            raise PerfError(f"XProf's {tool} gave no answer for {xplane}", "what is read without it stands")
        tables[tool] = answer if isinstance(answer, list) else [answer]
    return tables


def _rows(table: dict[str, Any]) -> list[dict[str, Any]]:
    names = [column["id"] for column in table.get("cols", [])]
    return [dict(zip(names, (cell.get("v") for cell in row["c"]), strict=False)) for row in table.get("rows", [])]


def _statistics(row: dict[str, Any], num_devices: int, roofline_share: float | None) -> OperationStatistics:
    # An asynchronous start is credited with bytes that move after it has ended.
    in_time = not str(row.get("category", "")).endswith("-start")
    return OperationStatistics(
        name=str(row.get("hlo_op_name", "")),
        category=str(row.get("category", "")),
        scope=str(row.get("tf_op_name", "")),
        count=round(float(row.get("occurrences") or 0)),
        self_s=float(row.get("total_self_time") or 0.0) * _MICRO / max(num_devices, 1),
        flops_per_s=_scaled(row.get("model_flop_rate"), _GIGA) if in_time else None,
        bytes_per_s=_scaled(row.get("measured_memory_bw"), _GIBI) if in_time else None,
        bound_by=str(row.get("bound_by") or "unknown"),
        roofline_share=roofline_share if in_time else None,
    )


def _scaled(value: Any, factor: float) -> float | None:
    """A number in base units. XProf writes 0 both for none and for unknown."""
    number = float(value) if value not in (None, "") else 0.0
    return number * factor if number > 0 else None


def _last_line(text: bytes) -> str:
    lines = [line for line in text.decode(errors="replace").splitlines() if line.strip()]
    return lines[-1] if lines else "it ended without a word"
