"""The roofline: work done per second against arithmetic intensity, under the roof of bandwidth and peak.

Intensity counts FLOP over the bytes that must cross the memory bus (weights and cache), the same bytes as the floor; so a point
above the roof and a point below its floor are the same statement.
"""

import math
from collections.abc import Sequence

from perfmodel.phases import STEP_PHASES, VERIFY, Phase
from perfmodel.records import Audit, TimingPoint
from perfmodel.roofline import peak_flops_per_s, ridge_point
from perfmodel.units import format_bandwidth, format_flop_rate, format_percent, format_seconds

from .chip import Chip, chip_of
from .figure import PHASE_COLORS, Figure, Trace, axis, faded, hover_line, log_range
from .inputs import PageInputs
from .section import Section, absent, shape_text
from .steptime import SYMBOLS, is_invalid, verdict_at
from .wording import block_size_text, number_text

Point = tuple[TimingPoint, float, float]
"""A timing with its intensity, FLOP/B, and its achieved rate, FLOP/s."""


def roofline_section(inputs: PageInputs) -> Section:
    """Section 4: every valid and invalid point under the roof of this machine."""
    title = "Roofline"
    chip = chip_of(inputs)
    timed = [p for p in inputs.step_times.points if p.samples_s] if inputs.step_times else []
    if not timed:
        return absent("roofline", title, "no step times were measured")
    if chip is None:
        return absent("roofline", title, "the model's dimensions, the machine's peaks or the dtype are unknown")
    points = {phase: located(chip, [p for p in timed if p.phase == phase]) for phase in STEP_PHASES}
    known = {phase: found for phase, found in points.items() if found}
    if not known:
        return absent("roofline", title, "no measured phase has a known cost")
    return Section("roofline", title, figures=(roofline_figure(chip, known, inputs.audit),))


def located(chip: Chip, points: Sequence[TimingPoint]) -> list[Point]:
    """Each point with its intensity and achieved rate; points without work are left out."""
    found = []
    for point in sorted(points, key=lambda p: (p.batch, p.context, p.block_size)):
        cost = chip.cost(point.phase, point.block_size, point.batch, point.context)
        if cost is not None:
            found.append((point, cost.flops / cost.floor_bytes, cost.flops / point.median_s))
    return found


def roofline_figure(chip: Chip, points: dict[Phase, list[Point]], audit: Audit | None) -> Figure:
    """Points per phase, the bandwidth slope, the peak and the ridge."""
    bandwidth = chip.hardware.bandwidth_bytes_per_s.value
    peak = peak_flops_per_s(chip.hardware, chip.dtype)
    every = [point for mine in points.values() for point in mine]
    intensities = [intensity for _, intensity, _ in every]
    ridge = ridge_point(chip.hardware, chip.dtype) if peak is not None else None
    low, high = (10**edge for edge in log_range([*intensities, *([ridge] if ridge else [])], 0.04))
    knots = [low, *([ridge] if ridge and low < ridge < high else []), high]
    roof = [min(bandwidth * x, peak or float("inf")) for x in knots]
    roof_text = [f"roof: {format_flop_rate(y)} at {number_text(x)} FLOP/B" for x, y in zip(knots, roof, strict=True)]
    traces: list[Trace] = [hover_line(knots, roof, roof_text, "roof", "@ink", line={"color": "@ink", "width": 2})]
    for phase, mine in points.items():
        traces += point_traces(chip, phase, mine, audit)
    rates = [rate for _, _, rate in every]
    finding = roofline_finding(points.get(VERIFY, []), bandwidth, peak, ridge)
    return Figure(
        key="roofline",
        title=finding,
        reading=f"Slope: memory bandwidth {format_bandwidth(bandwidth)}; ceiling: {chip.dtype} peak {format_flop_rate(peak)} "
        f"({chip.hardware.source}). Left of the ridge a step waits for memory, right of it for arithmetic. "
        "K grows along each line.",
        alt=f"Roofline chart of achieved FLOP per second against arithmetic intensity. {finding}",
        data=tuple(traces),
        layout={
            "xaxis": axis("arithmetic intensity (FLOP/B)", type="log", range=log_range([low, high], 0.0), dtick=1),
            "yaxis": axis("achieved rate", type="log", range=log_range([*rates, *roof], 0.06), **rate_ticks([*rates, *roof])),
            **({} if ridge is None else ridge_mark(ridge)),
        },
        height=460,
    )


def rate_ticks(rates: Sequence[float]) -> dict[str, object]:
    """Tick labels of a logarithmic axis of FLOP/s at powers of ten."""
    ticks = [10.0**power for power in range(3, 19) if min(rates) / 10 <= 10.0**power <= max(rates) * 10]
    return {"tickvals": ticks, "ticktext": [format_flop_rate(tick, 1) for tick in ticks]}


def ridge_mark(ridge: float) -> dict[str, object]:
    """A line at the ridge with its intensity."""
    line = {
        "type": "line",
        "x0": ridge,
        "x1": ridge,
        "yref": "paper",
        "y0": 0,
        "y1": 1,
        "line": {"color": "@muted", "width": 1, "dash": "dot"},
    }
    label = {
        "x": math.log10(ridge),
        "yref": "paper",
        "y": 0.02,
        "yanchor": "bottom",
        "xanchor": "left",
        "text": f" ridge {number_text(ridge)} FLOP/B",
        "showarrow": False,
        "font": {"color": "@muted", "size": 12},
    }
    return {"shapes": [line], "annotations": [label]}


def point_traces(chip: Chip, phase: Phase, points: Sequence[Point], audit: Audit | None) -> list[Trace]:
    """One phase's points joined in order of K, and its invalid ones as crosses."""
    token = f"@{PHASE_COLORS[phase]}"
    good = [point for point in points if not is_invalid(audit, point[0])]
    bad = [point for point in points if is_invalid(audit, point[0])]
    marker = {"symbol": SYMBOLS[phase], "size": 9, "color": token, "line": {"width": 1, "color": "@paper"}}
    line = {"color": faded(token, 0.45), "width": 1.5}
    text = [point_text(chip, point, audit) for point in good]
    traces = [hover_line(*located_xy(good), text, phase, token, mode="lines+markers", marker=marker, line=line, opacity=1)]
    if bad:
        cross = {"symbol": "x-thin", "size": 14, "line": {"width": 3, "color": "@bad"}}
        text = [point_text(chip, point, audit) for point in bad]
        traces.append(hover_line(*located_xy(bad), text, f"{phase}: invalid", "@bad", mode="markers", marker=cross))
    return traces


def located_xy(points: Sequence[Point]) -> tuple[list[float], list[float]]:
    """Intensities and achieved rates."""
    return [intensity for _, intensity, _ in points], [rate for _, _, rate in points]


def point_text(chip: Chip, located_point: Point, audit: Audit | None) -> str:
    """What hovering a point says: rate, intensity and its share of the roof."""
    point, intensity, rate = located_point
    peak = peak_flops_per_s(chip.hardware, chip.dtype) or float("inf")
    roof = min(chip.hardware.bandwidth_bytes_per_s.value * intensity, peak)
    verdict = verdict_at(audit, point)
    return (
        f"<b>{point.phase} · {block_size_text(point.block_size)}</b><br>{shape_text(point.batch, point.context)}<br>"
        f"{format_flop_rate(rate)} at {number_text(intensity)} FLOP/B: {format_percent(rate / roof, 2)} of the roof<br>"
        f"median {format_seconds(point.median_s)}" + (f"<br>verdict: {verdict.verdict}" if verdict else "")
    )


def roofline_finding(verify: Sequence[Point], bandwidth: float, peak: float | None, ridge: float | None) -> str:
    """What share of bandwidth plain decoding reaches, what share of peak the widest verify reaches, and where the ridge lies."""
    if not verify:
        return "Where draft and commit lie under the roof"
    first, last = verify[0], verify[-1]
    share = format_percent(first[2] / (bandwidth * first[1]), 2)
    memory = f"Verify uses {share} of the memory bandwidth at K = {first[0].block_size}"
    if peak is None or ridge is None:
        return memory
    parts = [f"{memory} and {format_percent(last[2] / peak, 2)} of the peak rate at K = {last[0].block_size}"]
    if last[0].block_size > first[0].block_size:
        before = [point.block_size for point, intensity, _ in verify if intensity < ridge]
        beyond = [point.block_size for point, intensity, _ in verify if intensity >= ridge]
        if before and beyond:
            parts.append(f"it passes the ridge between K = {max(before)} and K = {min(beyond)}")
        else:
            parts.append(f"it stays {'left' if before else 'right'} of the ridge")
    return "; ".join(parts)
