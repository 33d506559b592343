"""Reading the sweep's own captures back: what the trace says of steps, phases and host gaps."""

from perfmodel.records import Finding, Hardware, TraceTimings
from perfmodel.units import format_percent
from profiling.extract import extract
from profiling.overhead import OVERHEAD_LIMIT, Overhead, profiler_overhead

from .answers import MAX_TRACED_STEPS
from .decodes import Decodes
from .peaks import with_peaks
from .store import RunStore


def read_traces(decodes: Decodes, store: RunStore, machine: Hardware, dtype: str) -> dict[str, TraceTimings]:
    """Timings of every traced decode run by its key, with the machine's peaks, cross-checked with the number of steps that were run."""
    found = {}
    for key, run in decodes.runs.items():
        if run.trace is not None and run.step_wall_s:
            expected = min(len(run.step_wall_s), MAX_TRACED_STEPS)
            found[key] = with_peaks(extract(store.folder / run.trace, expected_steps=expected), machine, dtype)
    return found


def host_gap_s(traces: dict[str, TraceTimings], decodes: Decodes, block_size: int) -> float:
    """Host seconds per step of the single stream at a block size, from its trace; 0 where the trace shows none."""
    key = next((key for key, run in decodes.runs.items() if run is decodes.witness(block_size, traced=True)), None)
    timings = None if key is None else traces.get(key)
    return 0.0 if timings is None or timings.host_gap_s_median is None else timings.host_gap_s_median


def measured_overhead(decodes: Decodes, block_size: int) -> Overhead | None:
    """What recording added to a step of the single stream; None when either run is missing or too short."""
    traced, plain = decodes.witness(block_size, traced=True), decodes.witness(block_size, traced=False)
    if traced is None or plain is None or min(len(traced.step_wall_s), len(plain.step_wall_s)) < 4:
        return None
    recorded = traced.step_wall_s[:MAX_TRACED_STEPS]
    return profiler_overhead(recorded, plain.step_wall_s)


def overhead_findings(overhead: Overhead | None) -> tuple[Finding, ...]:
    """What an overhead above the limit has to say of itself."""
    if overhead is None or not overhead.over_limit:
        return ()
    return (
        Finding(
            code="profiler-overhead",
            severity="warning",
            message=f"recording the trace added {format_percent(overhead.share, 2)} to a step; "
            f"the limit is {format_percent(OVERHEAD_LIMIT, 1)}",
            hint="trust step times taken without the profiler before the trace",
            where="decoding",
        ),
    )
