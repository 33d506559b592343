"""What is wrong with a trace, said as findings rather than left for the reader of a number to discover."""

from collections import Counter

import msgspec

from perfmodel.records import Finding, Severity, TraceTimings
from perfmodel.units import format_percent, format_seconds

from .chrome import CHROME_WALL
from .intervals import PS_PER_S, covered, merge, total
from .timeline import Timeline
from .xplane import EVENT_WALLS, Space

COVERAGE_LIMIT = 0.9
_SLACK = 0.02
_SLACK_S = 50e-6


def find_problems(
    timings: TraceTimings, timeline: Timeline, space: Space, dropped: list[bool], expected_steps: int | None
) -> TraceTimings:
    """The same timings with their findings."""
    findings = (
        *timeline.annotations.findings,
        *timeline.findings,
        *_missing(timings),
        *_coverage(timings),
        *_host_bound(timings),
        *_one_gap(timings, timeline),
        *_equal_planes(space),
        *_steps(timings, timeline, dropped, expected_steps),
        *_work_outside_regions(timeline),
        *_launched_only(timings),
        *_busy_over_capture(timeline, space),
        *_truncated(space),
        *(
            _finding("profiler-warning", "warning", f"the profiler said: {text}", "record again if events are missing")
            for text in space.warnings
        ),
    )
    return msgspec.structs.replace(timings, findings=findings)


def _missing(timings: TraceTimings) -> list[Finding]:
    found = []
    if timings.busy_share is None:
        message = "no device and no operation of XLA left an event; only annotations were read"
        found.append(
            _finding("no-device-events", "warning", message, "wait for the result inside the capture (block_until_ready)")
        )
    if timings.steps is None:
        found.append(
            _finding(
                "no-steps",
                "warning",
                "no steps: no annotation, no line of steps, no phase that repeats",
                "annotate the loop, or map programs with --phase",
            )
        )
    if not timings.phases:
        found.append(
            _finding("no-phases", "warning", "no phase was recognised", "map module or kernel names with --phase verify=REGEX")
        )
    return found


def _coverage(timings: TraceTimings) -> list[Finding]:
    if timings.coverage is None or timings.coverage >= COVERAGE_LIMIT:
        return []
    message = (
        f"{format_percent(timings.coverage)} of the busy time belongs to a phase; {format_percent(COVERAGE_LIMIT)} is asked for"
    )
    return [_finding("low-coverage", "warning", message, "see the longest operations; map what they belong to with --phase")]


def _host_bound(timings: TraceTimings) -> list[Finding]:
    if timings.bound != "host":
        return []
    message = f"host-bound: the device was busy for {format_percent(timings.busy_share)} of the time and waited for the rest"
    return [_finding("host-bound", "warning", message, "fit device times, not step times; or give the device more per step")]


def _one_gap(timings: TraceTimings, timeline: Timeline) -> list[Finding]:
    """Without steps the busy share is that of everything recorded, and work long before the rest makes it small."""
    found = []
    for device in timeline.devices if timings.steps is None else ():
        if len(device.busy) < 2:
            continue
        gaps = device.busy[1:, 0] - device.busy[:-1, 1]
        window, longest = int(device.busy[-1, 1] - device.busy[0, 0]), int(gaps.max())
        if 2 * longest <= window:
            continue
        share = total(device.busy) / (window - longest)
        message = (
            f"{device.name}: {format_percent(longest / window)} of its time is one gap of {format_seconds(longest / PS_PER_S)}; "
            f"without it the device was busy for {format_percent(share)}"
        )
        found.append(_finding("one-gap", "info", message, "see which side of the gap is the loop that you want to know about"))
    return found


def _equal_planes(space: Space) -> list[Finding]:
    counts = Counter(plane.name for plane in space.matching("/device:") if plane.num_events)
    return [
        _finding("equal-planes", "warning", f"{count} planes are called {name}; each counts as a device of its own")
        for name, count in counts.items()
        if count > 1
    ]


def _steps(timings: TraceTimings, timeline: Timeline, dropped: list[bool], expected: int | None) -> list[Finding]:
    found = []
    if any(dropped):
        found.append(_finding("partial-step", "info", "the last step was cut off by the end of the capture and is left out"))
    num_devices = max(timings.num_devices, 1)
    if timings.steps is not None and len(timings.step_seconds) != num_devices * timings.steps:
        found.append(
            _finding(
                "uneven-devices",
                "warning",
                "devices show different numbers of steps; the smallest is given",
                "the capture began or ended inside a step",
            )
        )
    if expected is not None and expected != timings.steps:
        found.append(
            _finding(
                "steps-mismatch",
                "error",
                f"{expected} steps were run, {timings.steps} are in the trace",
                "do not fit to it; record again with fewer steps",
            )
        )
    return found


def _work_outside_regions(timeline: Timeline) -> list[Finding]:
    """On the host's clock a phase's region must enclose its work; else its wall time is the time to ask for the work."""
    found = []
    for phase, regions in timeline.annotations.phases.items() if timeline.clock == "host" else ():
        spans = merge([device.runs[phase].spans for device in timeline.devices if phase in device.runs])
        work_s = total(spans) / PS_PER_S
        outside_s = work_s - int(covered(regions, spans).sum()) / PS_PER_S
        if outside_s > _SLACK * work_s + _SLACK_S * len(regions):
            outside, work = format_seconds(outside_s), format_seconds(work_s)
            message = f"{phase}: {outside} of {work} of work lies outside its regions: the loop did not wait"
            found.append(_finding("device-exceeds-wall", "error", message, "block on the phase's result inside its region"))
    return found


def _launched_only(timings: TraceTimings) -> list[Finding]:
    """On a device's clock a region may end before the work it launched: its wall time is then no time of the phase."""
    found = []
    for phase, times in timings.phases.items() if timings.timing == "device" else ():
        device_s, wall_s = times.device_s_median, times.wall_s_median
        if device_s is None or wall_s is None or device_s <= (1 + _SLACK) * wall_s + _SLACK_S:
            continue
        message = (
            f"{phase}: the device worked for {format_seconds(device_s)}, its region on the host lasted {format_seconds(wall_s)}"
        )
        hint = "the host launched the work and went on: take the device's time, not the region's"
        found.append(_finding("device-exceeds-wall", "warning", message, hint))
    return found


def _busy_over_capture(timeline: Timeline, space: Space) -> list[Finding]:
    environment = next((plane.stats for plane in space.matching("Task Environment")), {})
    begin, end = environment.get("profile_start_time"), environment.get("profile_stop_time")
    if not isinstance(begin, int) or not isinstance(end, int):
        return []
    capture_s = (end - begin) / 1e9
    found = []
    for device in timeline.devices:
        busy_s = total(device.busy) / PS_PER_S
        if busy_s > (1 + _SLACK) * capture_s:
            message = f"{device.name} was busy for {format_seconds(busy_s)} in a capture of {format_seconds(capture_s)}"
            found.append(_finding("device-exceeds-capture", "error", message, "the trace's clocks are wrong; record again"))
    return found


def _truncated(space: Space) -> list[Finding]:
    if space.chrome_events is not None:
        if space.chrome_events < CHROME_WALL:
            return []
        message = f"the file holds {space.chrome_events:,} events, where exporters stop: later events were dropped"
        return [_finding("truncated", "error", message, "record fewer steps, or give the .xplane.pb")]
    found = []
    for plane in space.planes:
        if plane.num_events in EVENT_WALLS or any(len(line) in EVENT_WALLS for line in plane.lines):
            message = f"{plane.name} holds {plane.num_events:,} events, the size of a full buffer: later events were dropped"
            found.append(_finding("truncated", "error", message, "record fewer steps"))
    return found


def _finding(code: str, severity: Severity, message: str, hint: str = "") -> Finding:
    return Finding(code=code, severity=severity, message=message, hint=hint)
