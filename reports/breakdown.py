"""Where a step goes, read out of the XProf traces: draft, verify and commit, and the gap in which the host is waited for."""

import re
from collections.abc import Sequence
from pathlib import PurePath
from urllib.parse import quote

from perfmodel.phases import STEP_PHASES
from perfmodel.records import DecodeRun, Run, TraceTimings
from perfmodel.units import format_percent, format_seconds

from .figure import PHASE_COLORS, Figure, Trace, axis, base_layout, escaped, hover_line
from .inputs import PageInputs
from .section import Section, Table, absent
from .wording import block_size_text

_PLAIN_PATH = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]*(/[A-Za-z0-9_][A-Za-z0-9_.\-]*)*")


def breakdown_section(inputs: PageInputs) -> Section:
    """Section 6: one stacked bar per trace, the captures behind them, and how to open one."""
    title = "Where a step goes"
    traces = [
        trace
        for trace in ordered(inputs.traces, inputs.run)
        if any(phase_seconds(trace, phase) is not None for phase in STEP_PHASES)
    ]
    if not inputs.traces:
        return absent("breakdown", title, "no trace was captured")
    if not traces:
        return absent("breakdown", title, "the traces hold no draft, verify or commit phase")
    clock = (
        "device time"
        if all(trace.timing == "device" for trace in traces)
        else "host time of the annotations (no device plane here)"
    )
    view = next((command for command in inputs.commands if command.startswith("perf view ")), "perf view RUN")
    paragraph = f"Medians per step, {clock}. `{view}` opens these captures in TensorBoard's XProf pages."
    figure = breakdown_figure(traces, [trace_label(trace, inputs.run) for trace in traces])
    tables = (trace_table(traces, inputs.run),)
    return Section(
        "breakdown",
        title,
        paragraphs=(paragraph,),
        figures=(figure,),
        tables=tables,
        links=links(traces, inputs.run, inputs.captures),
    )


def links(traces: Sequence[TraceTimings], run: Run | None, captures: str | None) -> tuple[tuple[str, str], ...]:
    """The captures of a run folder by label, as paths from the page; a path that is no plain relative one gets no link."""
    found: list[tuple[str, str]] = []
    if captures is None:
        return ()
    for trace in traces:
        decode = decode_of(trace, run)
        if decode is not None and decode.trace and _PLAIN_PATH.fullmatch(decode.trace):
            found.append((trace_label(trace, run), f"{quote(captures)}{decode.trace}"))
    return tuple(dict.fromkeys(found))


def ordered(traces: Sequence[TraceTimings], run: Run | None) -> list[TraceTimings]:
    """Traces by task, batch and K where the run knows them, the others after."""
    tasks = list(run.spec.tasks) if run else []

    def place(trace: TraceTimings) -> tuple[int, int, int]:
        decode = decode_of(trace, run)
        if decode is None or decode.task not in tasks:
            return len(tasks), 0, 0
        return tasks.index(decode.task), decode.batch, decode.block_size

    return sorted(traces, key=place)


def phase_seconds(trace: TraceTimings, phase: str) -> float | None:
    """Median time of one phase per step, s: device time where the trace has it, else wall time."""
    times = trace.phases.get(phase)
    if times is None:
        return None
    return times.wall_s_median if times.device_s_median is None else times.device_s_median


def decode_of(trace: TraceTimings, run: Run | None) -> DecodeRun | None:
    """The decode run that a trace recorded: the one whose `trace` names the same file or a folder above it."""
    if run is None or not trace.file:
        return None
    file = PurePath(trace.file)
    for decode in run.decodes:
        if not decode.trace:
            continue
        named = PurePath(decode.trace).parts
        windows = (file.parts[start : start + len(named)] for start in range(len(file.parts) - len(named) + 1))
        if any(window == named for window in windows):
            return decode
    return None


def trace_label(trace: TraceTimings, run: Run | None) -> str:
    """What a bar stands for: task and K where the run says so, else the file's name."""
    decode = decode_of(trace, run)
    if decode is None:
        return PurePath(trace.file).name.removesuffix(".xplane.pb") or trace.device_kind
    return f"{decode.task}, K = {decode.block_size}" + (f", batch {decode.batch}" if decode.batch > 1 else "")


def breakdown_figure(traces: Sequence[TraceTimings], labels: Sequence[str]) -> Figure:
    """Stacked horizontal bars, one per trace, in milliseconds, with the median whole step as a tick."""
    names = [escaped(label) for label in unique(labels)]
    bars: list[Trace] = []
    for phase in (*STEP_PHASES, "host"):
        seconds = [trace.host_gap_s_median if phase == "host" else phase_seconds(trace, phase) for trace in traces]
        if not any(value for value in seconds):
            continue
        label = "host gap" if phase == "host" else phase
        bars.append(
            {
                "type": "bar",
                "orientation": "h",
                "y": names,
                "x": [None if value is None else 1e3 * value for value in seconds],
                "text": [
                    f"<b>{name}</b><br>{label} {format_seconds(value)}{share_text(value, trace)}"
                    for name, value, trace in zip(names, seconds, traces, strict=True)
                ],
                "textposition": "none",
                "hoverinfo": "text",
                "name": label,
                "marker": {
                    "color": f"@{PHASE_COLORS[phase]}",
                    "line": {"color": "@paper", "width": 1},
                    "pattern": pattern(phase),
                },
            }
        )
    steps = [trace.step_seconds_median for trace in traces]
    if any(steps):
        marker = {"symbol": "line-ns", "size": 18, "line": {"width": 2.5, "color": "@ink"}}
        values = [None if s is None else 1e3 * s for s in steps]
        text = [f"<b>{name}</b><br>whole step {format_seconds(s)}" for name, s in zip(names, steps, strict=True)]
        bars.append(hover_line(values, names, text, "whole step", "@ink", mode="markers", marker=marker))
    finding = breakdown_finding(traces, labels)
    return Figure(
        key="breakdown",
        title=finding,
        reading="One bar per trace: median time of each phase. The upright tick is the median whole step; space between bar and "
        "tick is time the phases do not explain.",
        alt=f"Stacked bar chart of time per step by phase. {finding}",
        data=tuple(bars),
        layout={
            "barmode": "stack",
            "legend": {**base_layout()["legend"], "traceorder": "normal"},
            "bargap": 0.35,
            "xaxis": axis("time per step (ms)", rangemode="tozero"),
            "yaxis": axis("", autorange="reversed", showgrid=False, ticksuffix="  ", tickfont={"color": "@ink"}),
        },
        height=120 + 44 * len(traces),
    )


def pattern(phase: str) -> dict[str, object]:
    """The fill pattern that repeats what the colour says: draft and verify plain, commit hatched, host gap dotted."""
    shapes = {"commit": "/", "host": "."}
    return {"shape": shapes.get(phase, ""), "bgcolor": f"@{PHASE_COLORS[phase]}", "fgcolor": "@paper", "solidity": 0.2, "size": 7}


def unique(labels: Sequence[str]) -> list[str]:
    """The labels with a running number where one occurs twice (bars of equal name would fall together)."""
    return [
        label if labels.count(label) == 1 else f"{label} #{labels[: index + 1].count(label)}"
        for index, label in enumerate(labels)
    ]


def share_text(seconds: float | None, trace: TraceTimings) -> str:
    """The phase's share of the median step, as `, 71 % of the step`; empty when unknown."""
    if seconds is None or not trace.step_seconds_median:
        return ""
    return f", {format_percent(seconds / trace.step_seconds_median, 2)} of the step"


def breakdown_finding(traces: Sequence[TraceTimings], labels: Sequence[str]) -> str:
    """Which phase takes most of the last trace that drafts (or of the first trace)."""
    drafting = [index for index, trace in enumerate(traces) if phase_seconds(trace, "draft")]
    index = drafting[0] if drafting else 0
    trace = traces[index]
    parts: dict[str, float] = {phase: phase_seconds(trace, phase) or 0.0 for phase in STEP_PHASES}
    parts["host gap"] = trace.host_gap_s_median or 0.0
    largest = max(parts, key=lambda name: parts[name])
    share = format_percent(parts[largest] / sum(parts.values()), 2)
    others = ", ".join(
        f"{name} {format_percent(value / sum(parts.values()), 2)}" for name, value in parts.items() if name != largest and value
    )
    return f"{largest.capitalize()} takes {share} of a step at {labels[index]}" + (f" ({others})" if others else "")


def trace_table(traces: Sequence[TraceTimings], run: Run | None) -> Table:
    """Per trace: steps, busy share, coverage and the capture's file."""
    rows = []
    for trace in traces:
        decode = decode_of(trace, run)
        rows.append(
            (
                decode.task if decode else trace_label(trace, run),
                block_size_text(decode.block_size) if decode else "unknown",
                "unknown" if trace.steps is None else f"{trace.steps:,}",
                format_seconds(trace.step_seconds_median),
                format_seconds(trace.host_gap_s_median),
                format_percent(trace.busy_share),
                format_percent(trace.coverage),
                trace.timing,
                (decode.trace if decode and decode.trace else trace.file) or "unknown",
            )
        )
    return Table(
        key="traces",
        caption="The XProf captures. Coverage: share of a step's time that its phases explain.",
        headers=("task", "K", "steps", "median step", "host gap", "busy", "coverage", "clock", "capture"),
        rows=tuple(rows),
        text_columns=(0, 1, 7, 8),
        folded=True,
    )
