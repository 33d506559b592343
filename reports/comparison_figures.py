"""Figures of a comparison: A in blue, B in orange; B over A with its interval and the line of no difference."""

import math
from collections.abc import Sequence
from typing import Any

from perfmodel.phases import STEP_PHASES
from perfmodel.records import KPrediction
from perfmodel.units import format_percent, format_ratio, format_seconds

from .acceptance import Curve, survival_curve
from .difference import Difference, TaskDifference, TauDifference, TimeDifference
from .figure import PHASE_COLORS, Figure, Trace, axis, band, block_size_axis, escaped, hover_line
from .section import shape_text
from .speedup import dashed, widest
from .wording import block_size_text, interval_text, number_text, speedup_text

COLORS = {"A": "@blue", "B": "@orange"}
SYMBOLS = {"A": "circle", "B": "diamond"}


def no_difference(name: str = "no difference") -> dict[str, Any]:
    """The line at 1, with its label."""
    line = {"color": "@ink", "width": 1.2}
    label = {
        "xref": "paper", "x": 1, "xanchor": "right", "y": 1, "yanchor": "bottom", "text": name, "showarrow": False,
        "font": {"color": "@muted", "size": 12}, "bgcolor": "@paper",
    }  # fmt: skip
    return {
        "shapes": [{"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": 1, "y1": 1, "line": line}],
        "annotations": [label],
    }


def speedups_figure(one: TaskDifference, index: int) -> Figure:
    """Both speedups against K with their bands; dotted where τ or time is extrapolated."""
    traces = [trace for letter, prediction in (("A", one.a), ("B", one.b)) for trace in _speedup_traces(letter, prediction)]
    peaks = [
        f"{letter} at K = {p.best.block_size} with {format_ratio(p.best.speedup)}" for letter, p in (("A", one.a), ("B", one.b))
    ]
    plain = one.a.best.block_size == one.b.best.block_size == 1
    finding = f"{one.task}: {'both are best left at plain decoding' if plain else ', '.join(peaks)}"
    shape = shape_text(one.a.batch, one.a.context)
    highs = [row.speedup_high or row.speedup or 0.0 for p in (one.a, one.b) for row in p.rows]
    return Figure(
        key=f"speedups-{index}",
        title=finding[:1].upper() + finding[1:],
        reading=f"{shape.capitalize()}. Lines: predicted; bands: 95 %; stars: best K. Dotted: extrapolated.",
        alt=f"Line chart of speedup over plain decoding against block size K of A and B, {shape}. {finding}",
        data=tuple(traces),
        layout={
            "xaxis": block_size_axis(drawn_sizes(one)),
            "yaxis": axis("speedup over plain decoding (×)", range=[0, max(1.5, 1.15 * max(highs))]),
            **no_difference("break-even"),
        },
        height=400,
        half=True,
    )


def drawn_sizes(one: TaskDifference) -> list[int]:
    """The block sizes that are drawn: beyond a few times the drafters' blocks every curve only falls."""
    return [row.block_size for p in (one.a, one.b) for row in p.rows if row.block_size <= widest((one.a, one.b), ())]


def _speedup_traces(letter: str, prediction: KPrediction) -> list[Trace]:
    rows = [row for row in sorted(prediction.rows, key=lambda row: row.block_size) if row.speedup]
    token, traces = COLORS[letter], []
    bounded = [(row.block_size, row.speedup_low, row.speedup_high) for row in rows if row.speedup_low and row.speedup_high]
    if bounded:
        x, low, high = zip(*bounded, strict=True)
        traces.append(band(x, low, high, token, letter))
    inside = [row for row in rows if not dashed(row, prediction)]
    outside = [*inside[-1:], *(row for row in rows if dashed(row, prediction))]
    for part, dash in ((inside, "solid"), (outside, "dot")):
        if not part or (dash == "dot" and len(part) < 2):
            continue
        text = [
            f"<b>{letter} · {block_size_text(row.block_size)}</b><br>{speedup_text(row.speedup, row.speedup_low, row.speedup_high)}"
            f"<br>τ = {number_text(row.tau)}, {format_seconds(row.tpot_s)} per token"
            for row in part
        ]
        line = {"color": token, "width": 2.5, "dash": dash}
        x_y = [row.block_size for row in part], [row.speedup for row in part]
        traces.append(hover_line(*x_y, text, letter, token, line=line, legendgroup=letter, showlegend=dash == "solid"))
    best = prediction.best
    if best.speedup:
        marker = {"symbol": "star", "size": 15, "color": token, "line": {"color": "@paper", "width": 1}}
        text = [f"<b>{letter}: best · {block_size_text(best.block_size)}</b><br>{format_ratio(best.speedup)}"]
        traces.append(
            hover_line(
                [best.block_size], [best.speedup], text, f"{letter}: best", token, mode="markers", marker=marker, showlegend=False
            )
        )
    return traces


def speedup_ratio_figure(one: TaskDifference, index: int) -> Figure:
    """Speedup of B over that of A at every common K, with its interval."""
    known = [pair for pair in one.by_block_size if pair[0] in drawn_sizes(one)]
    compared = [pair for pair in known if pair[0] > 1] or known
    sizes, differences = [size for size, _ in compared], [difference for _, difference in compared]
    told = [size for size, difference in compared if difference.verdict(1.0) in ("a", "b")]
    size, widest = max(compared, key=lambda pair: abs(pair[1].value - 1.0))
    if told:
        beyond = f"beyond the error at {len(told)} of {len(sizes)} K"
        finding = f"{one.task}: B over A reaches {format_ratio(widest.value)} at K = {size}; {beyond}"
    else:
        finding = f"{one.task}: no difference beyond the error at any of {len(sizes)} K"
    text = [
        f"<b>{block_size_text(size)}</b><br>B over A {speedup_text(d.value, d.low, d.high)}<br>A {format_ratio(d.a)}, B {format_ratio(d.b)}"
        for size, d in compared
    ]
    return Figure(
        key=f"ratio-{index}",
        title=finding[:1].upper() + finding[1:],
        reading="Both sides at the same K. Above 1, B gains more over its own plain decoding. Band: 95 %.",
        alt=f"Line chart of the ratio of speedups, B over A, against block size K. {finding}",
        data=(
            *_ratio_band(sizes, differences),
            hover_line(sizes, [d.value for d in differences], text, "B over A", "@purple", mode="lines+markers"),
        ),
        layout={
            "xaxis": block_size_axis(sizes),
            "yaxis": axis("speedup B over A (×)", range=_around_one(differences)),
            "showlegend": False,
            **no_difference(),
        },
        height=400,
        half=True,
    )


def _around_one(differences: Sequence[Difference]) -> list[float]:
    """The range of a ratio's axis: all values with their intervals, and the line at 1."""
    ends = [end for d in differences for end in (d.value, d.low, d.high) if end is not None] + [1.0]
    low, high = min(ends), max(ends)
    room = max(0.15 * (high - low), 0.05)
    return [max(0.0, low - room), high + room]


def _ratio_band(sizes: Sequence[int], differences: Sequence[Difference]) -> list[Trace]:
    bounded = [
        (size, d.low, d.high) for size, d in zip(sizes, differences, strict=True) if d.low is not None and d.high is not None
    ]
    if not bounded:
        return []
    x, low, high = zip(*bounded, strict=True)
    return [band(x, low, high, "@purple", "ratio")]


def survival_figure(one: TauDifference, index: int) -> Figure:
    """Survival by position of both drafters on one task."""
    traces: list[Trace] = []
    for letter, profile in (("A", one.a), ("B", one.b)):
        curve: Curve = survival_curve(profile)
        if curve.low and curve.high:
            traces.append(band(curve.x, [100 * v for v in curve.low], [100 * v for v in curve.high], COLORS[letter], letter))
        text = [
            f"<b>{letter}: {escaped(profile.draft)} · draft {x}</b><br>survival {format_percent(y)} {curve.interval(i, 100.0)}"
            for i, (x, y) in enumerate(zip(curve.x, curve.y, strict=True))
        ]
        marker = {"symbol": SYMBOLS[letter], "size": 8}
        y = [100 * share for share in curve.y]
        traces.append(hover_line(curve.x, y, text, letter, COLORS[letter], mode="lines+markers", marker=marker))
    last = max(len(one.a.survival), len(one.b.survival))
    positions = axis("draft position in the block", tick0=1, dtick=max(1, math.ceil(last / 8)), range=[0.5, last + 0.5])
    finding = (
        f"{one.task}: the first draft is accepted in {format_percent(one.a.survival[0], 2)} of steps by A "
        f"and {format_percent(one.b.survival[0], 2)} by B"
    )
    return Figure(
        key=f"survival-{index}",
        title=finding[:1].upper() + finding[1:],
        reading=f"Share of steps in which at least this many drafts were accepted. A: {one.a.draft or 'unknown drafter'}; "
        f"B: {one.b.draft or 'unknown drafter'}. Bands: 95 %.",
        alt=f"Line chart of survival by draft position of both drafters. {finding}",
        data=tuple(traces),
        layout={"xaxis": positions, "yaxis": axis("steps surviving (%)", range=[0, 102])},
        height=360,
        half=True,
    )


def time_ratio_figure(times: Sequence[TimeDifference], finding: str) -> Figure:
    """Time of B over A against K, per phase and shape, with intervals as bars."""
    shapes = dict.fromkeys((one.a.batch, one.a.context) for one in times)
    traces: list[Trace] = []
    for phase in STEP_PHASES:
        for number, (batch, context) in enumerate(shapes):
            mine = [one for one in times if (one.a.phase, one.a.batch, one.a.context) == (phase, batch, context)]
            if mine:
                traces.append(_time_trace(phase, mine, shape_text(batch, context) if len(shapes) > 1 else "", number))
    return Figure(
        key="time-ratio",
        title=finding,
        reading="Median of B over median of A at the same shape; bars: 95 %, repeats resampled. Above 1, B is slower.",
        alt=f"Chart of step time, B over A, against block size K by phase. {finding}",
        data=tuple(traces),
        layout={
            "xaxis": block_size_axis([one.a.block_size for one in times]),
            "yaxis": axis("step time B over A (×)", range=_around_one([one.ratio for one in times])),
            **no_difference(),
        },
        height=420,
    )


def _time_trace(phase: str, times: Sequence[TimeDifference], shape: str, number: int) -> Trace:
    token = f"@{PHASE_COLORS[phase]}"
    values = [one.ratio.value for one in times]
    errors = {
        "type": "data", "symmetric": False, "color": token, "thickness": 1.5, "width": 4,
        "array": [(one.ratio.high or value) - value for one, value in zip(times, values, strict=True)],
        "arrayminus": [value - (one.ratio.low or value) for one, value in zip(times, values, strict=True)],
    }  # fmt: skip
    text = [
        f"<b>{phase} · {block_size_text(one.a.block_size)}</b><br>{shape_text(one.a.batch, one.a.context)}<br>"
        f"A {format_seconds(one.ratio.a)}, B {format_seconds(one.ratio.b)}<br>"
        f"B over A {format_ratio(one.ratio.value)} {interval_text(one.ratio.low, one.ratio.high)}"
        for one in times
    ]
    name = f"{phase}, {shape}" if shape else phase
    line = {"color": token, "width": 2, "dash": ("solid", "dash", "dot", "dashdot")[number % 4]}
    x = [one.a.block_size for one in times]
    return hover_line(x, values, text, name, token, mode="lines+markers", line=line, error_y=errors, marker={"size": 7})
