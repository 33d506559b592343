"""Terminal tables of documents that are no records: what `perf validate` and `perf doctor` print."""

from collections.abc import Mapping
from typing import Any

import msgspec
from rich.console import Group, RenderableType

from perfmodel.records import Finding
from perfmodel.units import format_bandwidth, format_flop_rate, format_percent, format_seconds

from .terminal import findings_list, lines_of, table_of
from .wording import signed_percent


def _findings(document: Mapping[str, Any]) -> RenderableType:
    return findings_list([msgspec.convert(finding, Finding) for finding in document.get("findings", [])])


def validation_table(document: Mapping[str, Any]) -> RenderableType:
    """Predicted against measured seconds of every point, and the errors in one line."""
    rows = [
        (
            row["phase"],
            str(row["block_size"]),
            str(row["batch"]),
            str(row["context"]),
            format_seconds(row["measured_s"]),
            format_seconds(row["predicted_s"]),
            signed_percent(row["error"]),
        )
        for row in document["points"]
    ]
    errors = [format_percent(document[f"{which}_error"], 2) for which in ("median", "mean", "max")]
    title = f"Error {errors[0]} in the median, {errors[1]} on average, {errors[2]} at most"
    columns = [("phase", "left"), ("K", "right"), ("batch", "right"), ("context", "right")]
    columns += [("measured", "right"), ("predicted", "right"), ("error", "right")]
    return Group(table_of(title, columns, rows), _findings(document))


def doctor_table(document: Mapping[str, Any]) -> RenderableType:
    """What this machine is, which perf this is, and the measured limits where they are known."""
    rates = document["flops_per_s"]
    facts = [
        ("perf", document["program"]),
        ("device", f"{document['num_devices']} × {document['device_kind']} ({document['platform']})"),
        ("host", f"{document['host_cpu']}, {document['num_cores']} cores"),
        ("versions", ", ".join(f"{name} {version}" for name, version in document["versions"].items())),
        ("flags", " ".join(f"{name}={value}" for name, value in document["flags"].items()) or "none that change numbers"),
    ]
    if rates is None:
        facts.append(("limits", "not measured yet: perf doctor --calibrate"))
    else:
        facts += [
            ("bandwidth", format_bandwidth(document["bandwidth_bytes_per_s"])),
            ("matmul", ", ".join(f"{dtype} {format_flop_rate(rate)}" for dtype, rate in rates.items())),
            ("dispatch", format_seconds(document["dispatch_s"])),
        ]
    return Group(lines_of(facts), _findings(document))
