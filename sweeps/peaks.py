"""The chip's peaks beside what a trace says was achieved."""

import msgspec

from perfmodel.hardware import from_device_kind
from perfmodel.records import Finding, Hardware, TraceTimings
from perfmodel.units import format_bandwidth, format_flop_rate

TRACE_DTYPE = "bfloat16"
"""Whose peak stands beside a trace of a catalogue chip: a trace does not say its dtype, and this is the one decoders run in."""


def with_peaks(timings: TraceTimings, hardware: Hardware | None = None, dtype: str = TRACE_DTYPE) -> TraceTimings:
    """The same timings with peaks, FLOP/s and bytes/s: those of the chip given or of the catalogue's, else the trace's own.

    A peak that nobody states stays None. A rate above its peak is a finding.
    """
    chip = hardware or from_device_kind(timings.device_kind)
    flops = chip.flops_per_s.get(dtype) if chip else None
    bandwidth = chip.bandwidth_bytes_per_s if chip else None
    beside = msgspec.structs.replace(
        timings,
        peak_flops_per_s=flops.value if flops else timings.peak_flops_per_s,
        peak_bytes_per_s=bandwidth.value if bandwidth else timings.peak_bytes_per_s,
    )
    return msgspec.structs.replace(beside, findings=(*beside.findings, *_above_peak(beside)))


def _above_peak(timings: TraceTimings) -> list[Finding]:
    found = []
    for phase, times in timings.phases.items():
        if _exceeds(times.flops_per_s, timings.peak_flops_per_s):
            rate, peak = format_flop_rate(times.flops_per_s), format_flop_rate(timings.peak_flops_per_s)
            message = f"{phase} reaches {rate}, above the peak of {peak}: its time, its FLOP or the peak is wrong"
            hint = "do not fit to it; the peak is that of one dtype, the program may use another"
            found.append(Finding(code="rate-above-peak", severity="warning", message=message, hint=hint))
        if _exceeds(times.bytes_per_s, timings.peak_bytes_per_s):
            rate, peak = format_bandwidth(times.bytes_per_s), format_bandwidth(timings.peak_bytes_per_s)
            message = f"{phase} reads and writes {rate}, above the memory's {peak}: part of it came from a cache"
            found.append(
                Finding(code="rate-above-peak", severity="info", message=message, hint="no error where a cache is large")
            )
    above = [one.name for one in timings.operations if _exceeds(one.bytes_per_s, timings.peak_bytes_per_s)]
    if above:
        message = f"by XProf's count {', '.join(above)} exceed the memory's {format_bandwidth(timings.peak_bytes_per_s)}"
        hint = "the peak may be wrong (AMD traces state half of it), or a cache served them"
        found.append(Finding(code="rate-above-peak", severity="info", message=message, hint=hint))
    return found


def _exceeds(rate: float | None, peak: float | None) -> bool:
    return rate is not None and peak is not None and rate > peak
