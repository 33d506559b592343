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
    bandwidth bound. `link_bytes_per_s` is one way: per link of a torus, all of the chip's port where chips meet in a switch.
    With `num_chips` above 1 the model is cut over so many such chips (tensor parallel); peaks stay those of one.
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
    num_chips: int = 1
    notes: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """The name as it is asked for: `tpu-v5p`, or `tpu-v5p:4` for four of them."""
        return self.name if self.num_chips == 1 else f"{self.name}:{self.num_chips}"
