"""Speedup against block size: what speculation gains per task, with its interval, its ceiling and the line of break-even."""

from collections.abc import Sequence
from itertools import pairwise

from perfmodel.records import CheckedK, KPrediction, KRow
from perfmodel.units import format_ratio, format_seconds

from .answer import worth
from .figure import Figure, Trace, axis, band, block_size_axis, color, escaped, faded, hover_line, symbol
from .inputs import PageInputs
from .section import Section, absent, shape_text, shapes
from .wording import block_size_text, list_text, signed_percent, speedup_text, tau_text

ROOM = 4
"""K is drawn up to this many times the drafter's block: beyond, no drafter was trained and every curve only falls."""


def speedup_section(inputs: PageInputs) -> Section:
    """Section 2: one figure per measured shape."""
    title = "Speedup against K"
    predictions = inputs.predictions.here if inputs.predictions else ()
    if not predictions:
        return absent("speedup", title, "there is no prediction for this machine")
    known = [p for p in predictions if any(row.speedup for row in p.rows)]
    if not known:
        return absent("speedup", title, "no block size has a known speedup (acceptance or step times are missing)")
    checks = inputs.run.checks if inputs.run else ()
    figures = [
        speedup_figure([p for p in known if (p.batch, p.context) == shape], checks, index)
        for index, shape in enumerate(shapes([(p.batch, p.context) for p in known]))
    ]
    return Section("speedup", title, figures=tuple(figures))


def speedup_figure(predictions: Sequence[KPrediction], checks: Sequence[CheckedK], index: int) -> Figure:
    """All tasks of one shape in one figure; measured checks belong to the first shape (they are made at it)."""
    traces: list[Trace] = []
    for number, prediction in enumerate(predictions):
        traces += task_traces(prediction, number)
        if index == 0:
            traces += check_traces([c for c in checks if c.task == prediction.task], number)
    ceiling = ceiling_trace(predictions[0])
    known = [row.block_size for p in predictions for row in p.rows]
    sizes = [size for size in known if size <= widest(predictions, checks)]
    shape = shape_text(predictions[0].batch, predictions[0].context)
    return Figure(
        key=f"speedup-{index}",
        title=finding(predictions),
        reading=f"{shape.capitalize()}. Lines: predicted mean, bands: 95 % interval, stars: best K, thick: as good within 2 % or "
        "the error, open markers with bars: measured. Dotted: beyond the drafter's trained block or the fitted range. "
        f"Below 1× speculation loses.{ceiling_text(predictions[0])}{beyond_text(predictions, max(sizes))}",
        alt=f"Line chart of predicted speedup over plain decoding against block size K, {shape}. {finding(predictions)}",
        data=(*((ceiling,) if ceiling else ()), *traces),
        layout={
            "xaxis": block_size_axis(sizes),
            "yaxis": axis("speedup over plain decoding (×)", range=[0, top(predictions, checks if index == 0 else ())]),
            "shapes": [
                {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": 1, "y1": 1, "line": {"color": "@ink", "width": 1.2}}
            ],
            "annotations": [
                {
                    "xref": "paper",
                    "x": 1,
                    "xanchor": "right",
                    "y": 1,
                    "yanchor": "bottom",
                    "text": "break-even",
                    "showarrow": False,
                    "font": {"color": "@muted", "size": 12},
                }
            ],
        },
        height=440,
        folded=index > 0,
    )


def widest(predictions: Sequence[KPrediction], checks: Sequence[CheckedK]) -> int:
    """The largest K that is drawn: room beyond the drafter's block and what was checked; everything where the block is unknown."""
    trained = [p.trained_block_size for p in predictions]
    if None in trained:
        return max(row.block_size for p in predictions for row in p.rows)
    return ROOM * max(*(size or 1 for size in trained), *(check.block_size for check in checks), 4)


def beyond_text(predictions: Sequence[KPrediction], drawn: int) -> str:
    """What lies beyond the largest K that is drawn; empty when nothing does."""
    last = [max(p.rows, key=lambda row: row.block_size) for p in predictions]
    if all(row.block_size <= drawn for row in last):
        return ""
    highest = max(row.speedup or 0.0 for row in last)
    return f" Not drawn: K up to {max(row.block_size for row in last)}, where at most {format_ratio(highest)} is left."


def ceiling_text(prediction: KPrediction) -> str:
    """What a perfect drafter would reach at this shape; empty when unknown."""
    return (
        "" if prediction.ceiling is None else f" A perfect drafter of this block would reach {format_ratio(prediction.ceiling)}."
    )


def finding(predictions: Sequence[KPrediction]) -> str:
    """The figure's finding: where each task peaks, and which do not pay."""
    gains = [p for p in predictions if worth(p) in ("yes", "undecided") and p.best.block_size > 1]
    losses = [p.task for p in predictions if worth(p) == "no"]
    peaks = [f"{p.task} peaks at K = {p.best.block_size} with {format_ratio(p.best.speedup)}" for p in gains]
    parts = [list_text(peaks)] if peaks else []
    if losses:
        parts.append(f"{list_text(losses)} {'loses' if len(losses) == 1 else 'lose'} at every K")
    text = "; ".join(parts) or "no task has a known best K"
    return text[:1].upper() + text[1:]


def top(predictions: Sequence[KPrediction], checks: Sequence[CheckedK]) -> float:
    """Upper end of the speedup axis: room above the highest interval, at least 1.5."""
    highs = [row.speedup_high or row.speedup or 0.0 for p in predictions for row in p.rows]
    measured = [c.measured_high or c.measured_speedup or 0.0 for c in checks]
    return max(1.5, 1.15 * max([*highs, *measured]))


def dashed(row: KRow, prediction: KPrediction) -> bool:
    """Whether a row lies outside what was fitted or what the drafter was trained for."""
    trained = prediction.trained_block_size
    return row.extrapolated or not row.in_training or (trained is not None and row.block_size > trained)


def hover(row: KRow, prediction: KPrediction) -> str:
    """What hovering a predicted point says."""
    lines = [
        f"<b>{escaped(prediction.task)} · {block_size_text(row.block_size)}</b>",
        f"predicted {speedup_text(row.speedup, row.speedup_low, row.speedup_high)} over plain decoding",
        f"τ = {tau_text(row)} tokens per step",
        f"draft {format_seconds(row.draft_s)} + verify {format_seconds(row.verify_s)} + host {format_seconds(row.host_s)}",
        f"{format_seconds(row.tpot_s)} per token",
    ]
    if row.bound:
        lines.append(f"bound: {row.bound}")
    if dashed(row, prediction):
        lines.append("outside the fitted range or the trained block")
    return "<br>".join(lines)


def task_traces(prediction: KPrediction, number: int) -> list[Trace]:
    """Band, solid and dashed line, plateau and best marker of one task."""
    rows = [row for row in sorted(prediction.rows, key=lambda row: row.block_size) if row.speedup is not None]
    token, group = color(number), f"task-{number}"
    traces: list[Trace] = []
    bounded = [row for row in rows if row.speedup_low is not None and row.speedup_high is not None]
    if bounded:
        lows, highs = [row.speedup_low or 0.0 for row in bounded], [row.speedup_high or 0.0 for row in bounded]
        traces.append(band([row.block_size for row in bounded], lows, highs, token, group))
    low, high = prediction.plateau
    plateau = [row for row in rows if low <= row.block_size <= high]
    if len(plateau) > 1:
        traces.append(
            hover_line(
                [row.block_size for row in plateau],
                [row.speedup for row in plateau],
                [""] * len(plateau),
                "plateau",
                token,
                line={"color": faded(token, 0.4), "width": 10},
                hoverinfo="skip",
                showlegend=False,
                legendgroup=group,
            )
        )
    for is_dashed in (False, True):
        x, y, text = segments(rows, prediction, is_dashed)
        if not x:
            continue
        line = {"color": token, "width": 2.5, "dash": "dot" if is_dashed else "solid"}
        name = prediction.task
        shown = not is_dashed or not segments(rows, prediction, False)[0]
        traces.append(hover_line(x, y, text, name, token, line=line, legendgroup=group, showlegend=shown))
    best = prediction.best
    if best.speedup is not None:
        marker = {"symbol": "star", "size": 15, "color": token, "line": {"color": "@paper", "width": 1}}
        traces.append(
            hover_line(
                [best.block_size],
                [best.speedup],
                [hover(best, prediction)],
                f"{prediction.task}: best",
                token,
                mode="markers",
                marker=marker,
                legendgroup=group,
                showlegend=False,
            )
        )
    return traces


def segments(
    rows: Sequence[KRow], prediction: KPrediction, want_dashed: bool
) -> tuple[list[int | None], list[float | None], list[str]]:
    """The line pieces that are dashed (or solid): a piece is dashed when either end is; None breaks the line."""
    x: list[int | None] = []
    y: list[float | None] = []
    text: list[str] = []
    for left, right in pairwise(rows):
        if (dashed(left, prediction) or dashed(right, prediction)) is want_dashed:
            x += [left.block_size, right.block_size, None]
            y += [left.speedup, right.speedup, None]
            text += [hover(left, prediction), hover(right, prediction), ""]
    return x, y, text


def check_traces(checks: Sequence[CheckedK], number: int) -> list[Trace]:
    """Measured speedups of one task as open markers with their intervals."""
    known = [c for c in checks if c.measured_speedup is not None]
    if not known:
        return []
    token = color(number)
    values = [c.measured_speedup or 0.0 for c in known]
    errors = {
        "type": "data",
        "symmetric": False,
        "array": [(c.measured_high or v) - v for c, v in zip(known, values, strict=True)],
        "arrayminus": [v - (c.measured_low or v) for c, v in zip(known, values, strict=True)],
        "color": token,
        "thickness": 1.5,
        "width": 5,
    }
    text = [
        f"<b>{escaped(c.task)} · {block_size_text(c.block_size)}</b><br>measured "
        f"{speedup_text(c.measured_speedup, c.measured_low, c.measured_high)}<br>predicted {format_ratio(c.predicted_speedup)}"
        f"{difference(c)}<br>{c.num_tokens:,} tokens decoded, {format_seconds(c.measured_tpot_s)} per token"
        for c in known
    ]
    marker = {"symbol": f"{symbol(number)}-open", "size": 10, "color": token, "line": {"width": 2, "color": token}}
    return [
        hover_line(
            [c.block_size for c in known],
            values,
            text,
            f"{known[0].task}: measured",
            token,
            mode="markers",
            marker=marker,
            error_y=errors,
            legendgroup=f"task-{number}",
        )
    ]


def difference(check: CheckedK) -> str:
    """How far the prediction is from the measurement, in brackets; empty when either is unknown."""
    if not check.predicted_speedup or not check.measured_speedup:
        return ""
    return f" ({signed_percent(check.predicted_speedup / check.measured_speedup - 1)})"


def ceiling_trace(prediction: KPrediction) -> Trace | None:
    """The speedup if every draft were accepted (τ = K): K · speedup / τ, the same for every task at one shape."""
    rows = [row for row in sorted(prediction.rows, key=lambda row: row.block_size) if row.speedup]
    if not rows:
        return None
    values = [row.block_size * (row.speedup or 0.0) / row.tau for row in rows]
    text = [
        f"<b>ceiling · {block_size_text(row.block_size)}</b><br>if every draft were accepted: {format_ratio(value)}"
        for row, value in zip(rows, values, strict=True)
    ]
    return hover_line(
        [row.block_size for row in rows],
        values,
        text,
        "ceiling (all accepted)",
        "@muted",
        line={"color": "@muted", "width": 1.5, "dash": "dash"},
        legendrank=2000,
    )
