"""A chip: what its maker promises, or what a micro-benchmark reached on this machine."""

from typing import Literal

from .base import Record

PeakSource = Literal["datasheet", "measured"]


class Peak(Record):
    """One limit in SI base units with the source of the number (a document, or the micro-benchmark's name)."""

    value: float
    source: str


class Hardware(Record):
    """Peaks of one whole chip. A dtype (JAX name) without an entry is unknown; peaks are never derived from another dtype.

    `devices_per_chip` is how many JAX devices share the chip at run time: one such device owns that fraction of the peaks.
    `on_chip_bytes` is the last memory before main memory (VMEM, L2, last-level cache): data that stays there escapes the
    bandwidth bound. `link_bytes_per_s` is one way, per link.
    """

    name: str
    display_name: str
    kind: Literal["tpu", "gpu", "cpu"]
    source: PeakSource
    bandwidth_bytes_per_s: Peak
    flops_per_s: dict[str, Peak]
    memory_bytes: Peak | None = None
    on_chip_bytes: Peak | None = None
    devices_per_chip: int = 1
    link_bytes_per_s: Peak | None = None
    price_usd_per_hour: Peak | None = None
    dispatch_s: Peak | None = None
    device_kinds: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
