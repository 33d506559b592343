"""How far verification is nearly free: the flat widths and the knee, in words and as marks on the step-time figure."""

import math
from typing import Any

from perfmodel.records import Flatness
from perfmodel.units import format_ratio

from .inputs import PageInputs
from .wording import BOUND_WORDS

TOLERANCE = "0.10"
"""The tolerance quoted in sentences."""

ENDS_FLATNESS = ("compute", "kernel")
"""Causes that end flatness; all others are what keeps a step flat."""


def flat_sentence(inputs: PageInputs) -> str:
    """How far verify is flat and why, as a sentence part; empty when unknown."""
    return "" if inputs.flatness is None else flat_text(inputs.flatness)


def flat_text(flatness: Flatness) -> str:
    """The width within 10 % of K = 1 with its cause; from K = 2 where K = 1 runs on a kernel of its own."""
    width, from_two = flatness.widths.get(TOLERANCE), flatness.widths_from_two.get(TOLERANCE)
    within = tolerance_text(float(TOLERANCE))
    why = BOUND_WORDS[flatness.cause]
    if width is None:
        return ""
    if width > 1:
        joint = "until" if flatness.cause in ENDS_FLATNESS else "because"
        return f"verification is flat to {width_text(width, flatness)} (within {within}) {joint} {why}"
    if flatness.cause == "kernel" and flatness.kernel:
        why += f", {format_ratio(1 / flatness.kernel, 2)} as fast as the curve of the others"
    if from_two is not None and from_two > 2:
        return f"verification is flat only from K = 2, to {width_text(from_two, flatness)} (within {within}): {why}"
    return f"verification is not flat: {why}"


def width_text(width: int, flatness: Flatness) -> str:
    """A width; one at the search's limit is only known to be at least that."""
    return f"K = {width} or more" if width >= flatness.limit else f"K = {width}"


def flat_marks(flatness: Flatness | None, batch: int, context: int) -> dict[str, Any]:
    """Shapes and labels of the flat widths and the knee, for a figure with a logarithmic axis of K at one shape."""
    if flatness is None or (flatness.batch, flatness.context) != (batch, context):
        return {}
    start, table = (1, flatness.widths) if flatness.widths.get(TOLERANCE, 1) > 1 else (2, flatness.widths_from_two)
    widths = sorted((float(tolerance), width) for tolerance, width in table.items() if width > start)
    shapes: list[dict[str, Any]] = []
    labels: list[dict[str, Any]] = []
    for index, (tolerance, width) in enumerate(widths):
        height = 0.97 - 0.055 * index
        shapes.append(bar(start, width, height))
        labels.append(label(width, f" +{tolerance_text(tolerance)} to {width_text(width, flatness)}", height))
    if flatness.knee_tokens is not None:
        knee = flatness.knee_tokens / flatness.batch
        interval = (
            f" ({flatness.knee_low}–{flatness.knee_high})"
            if flatness.knee_low is not None and flatness.knee_high is not None
            else ""
        )
        line = {"color": "@ink", "width": 1.2, "dash": "dashdot"}
        shapes.append({"type": "line", "x0": knee, "x1": knee, "yref": "paper", "y0": 0, "y1": 1, "line": line})
        labels.append(label(knee, f" knee: {flatness.knee_tokens} tokens{interval}", 0.05))
    return {"shapes": shapes, "annotations": labels}


def flat_reading(flatness: Flatness | None, batch: int, context: int) -> str:
    """How to read the marks; empty without any."""
    if not flat_marks(flatness, batch, context).get("shapes") or flatness is None:
        return ""
    start = 1 if flatness.widths.get(TOLERANCE, 1) > 1 else 2
    return (
        f" Bars: how far verify stays within 5, 10 and 25 % of its time at K = {start}. Knee: arithmetic takes as long as memory."
    )


def bar(low: float, high: float, height: float) -> dict[str, Any]:
    """A horizontal bar over a range of K at a share of the plot's height."""
    line = {"color": "@blue", "width": 4}
    return {"type": "line", "x0": low, "x1": high, "yref": "paper", "y0": height, "y1": height, "line": line}


def tolerance_text(tolerance: float) -> str:
    """A tolerance as `5 %`."""
    return f"{100 * tolerance:g} %"


def label(at: float, text: str, height: float) -> dict[str, Any]:
    """A label right of a block size, at a share of the plot's height."""
    return {
        "x": math.log10(at),
        "yref": "paper",
        "y": height,
        "xanchor": "left",
        "yanchor": "middle",
        "text": text,
        "showarrow": False,
        "font": {"color": "@muted", "size": 12},
        "bgcolor": "@paper",
    }
