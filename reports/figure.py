"""A figure as plain data: a title that states its finding, how to read it, a text for those who cannot see it, and plotly traces.

Colours are tokens (`@blue`, `@blue/0.2`, `@ink`) that the page resolves per theme, so one specification serves light, dark and
print. The series colours are Okabe and Ito's set (distinct under the common colour-vision deficiencies), lightened for dark;
line dash and marker shape repeat what colour says. Text from records is escaped here, because plotly reads a subset of HTML.
"""

import html
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

Trace = dict[str, Any]

SERIES = ("blue", "orange", "green", "purple", "sky", "amber")
"""Colour tokens for tasks and phases, in order of use."""

SYMBOLS = ("circle", "diamond", "square", "triangle-up", "cross", "hexagon")

PHASE_COLORS = {"prefill": "amber", "draft": "orange", "verify": "blue", "commit": "green", "host": "purple"}

THEMES: dict[str, dict[str, str]] = {
    "light": {
        "blue": "#0072B2",
        "orange": "#D55E00",
        "green": "#00855F",
        "purple": "#B0568A",
        "sky": "#2A93CE",
        "amber": "#B07A00",
        "ink": "#1B1F24",
        "muted": "#5B6570",
        "grid": "#E3E7EB",
        "paper": "#FFFFFF",
        "page": "#F5F7F8",
        "bad": "#B3261E",
    },
    "dark": {
        "blue": "#5AB0EA",
        "orange": "#FF9357",
        "green": "#46CFA4",
        "purple": "#E79CC6",
        "sky": "#9AD5F5",
        "amber": "#F2BE4E",
        "ink": "#E7EAEE",
        "muted": "#A3ADB8",
        "grid": "#2F363E",
        "paper": "#181C21",
        "page": "#0E1114",
        "bad": "#FF8A80",
    },
}
"""Theme → token → colour. The page's stylesheet is made from the same table."""


@dataclass(frozen=True)
class Figure:
    """One figure. `title` states the finding, `alt` says it to a screen reader; two `half` ones may stand side by side."""

    key: str
    title: str
    reading: str
    alt: str
    data: tuple[Trace, ...]
    layout: dict[str, Any] = field(default_factory=dict)
    height: int = 420
    folded: bool = False
    half: bool = False

    @property
    def specification(self) -> dict[str, Any]:
        """What the page draws: plotly data and layout, floats at six significant digits."""
        return rounded({"data": list(self.data), "layout": {**base_layout(), **self.layout}, "height": self.height})


def base_layout() -> dict[str, Any]:
    """Layout shared by all figures: transparent ground, theme colours, legend above the plot."""
    return {
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"color": "@ink", "size": 13},
        "margin": {"l": 64, "r": 20, "t": 6, "b": 52},
        "hovermode": "closest",
        "hoverlabel": {"bgcolor": "@paper", "bordercolor": "@grid", "font": {"color": "@ink"}, "align": "left"},
        "legend": {"orientation": "h", "x": 0, "xanchor": "left", "y": 1.02, "yanchor": "bottom"},
        "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": "@muted", "activecolor": "@blue"},
        "dragmode": False,
    }


def axis(title: str, **options: Any) -> dict[str, Any]:
    """An axis with its title (quantity and unit) in theme colours."""
    return {
        "title": {"text": title, "standoff": 8},
        "gridcolor": "@grid",
        "linecolor": "@grid",
        "zeroline": False,
        "automargin": True,
        "tickfont": {"color": "@muted"},
        **options,
    }


def block_size_axis(block_sizes: Iterable[int], title: str = "block size K (tokens verified per step)") -> dict[str, Any]:
    """A logarithmic axis of block sizes with ticks at powers of four, or of two where the range is short."""
    sizes = sorted(set(block_sizes)) or [1]
    top = math.ceil(math.log2(max(sizes)))
    ticks = [2**power for power in range(0, top + 1, 2 if top > 6 else 1)]
    return axis(title, type="log", tickvals=ticks, ticktext=[str(tick) for tick in ticks], range=log_range(sizes, 0.06))


def log_range(values: Iterable[float], pad: float = 0.05) -> list[float]:
    """The range of a logarithmic axis (decades) around positive values, padded by a share of its width."""
    known = [math.log10(value) for value in values if value > 0]
    low, high = (min(known), max(known)) if known else (0.0, 1.0)
    room = pad * max(high - low, 0.5)
    return [low - room, high + room]


def seconds_ticks(values: Iterable[float]) -> dict[str, Any]:
    """Ticks of a logarithmic axis of seconds, labelled in the unit a person would use."""
    known = [value for value in values if value > 0]
    if not known:
        return {}
    low, high = math.floor(math.log10(min(known))), math.ceil(math.log10(max(known)))
    steps = (1.0,) if high - low > 4 else (1.0, 3.0) if max(known) > 10 * min(known) else (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0)
    ticks = [digit * 10.0**power for power in range(low, high + 1) for digit in steps]
    return {"type": "log", "tickvals": ticks, "ticktext": [tick_seconds(tick) for tick in ticks], "range": log_range(known, 0.07)}


def tick_seconds(seconds: float) -> str:
    """A short tick label of a duration, for example `30 ms`."""
    for factor, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if seconds >= factor * 0.999:
            return f"{seconds / factor:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


def escaped(text: str) -> str:
    """Text from a record, safe inside plotly's pseudo-HTML."""
    return html.escape(text, quote=True)


def color(index: int) -> str:
    """The colour token of series number `index`."""
    return f"@{SERIES[index % len(SERIES)]}"


def faded(token: str, opacity: float) -> str:
    """A colour token at the given opacity."""
    return f"{token}/{opacity:g}"


def symbol(index: int) -> str:
    """The marker symbol of series number `index`."""
    return SYMBOLS[index % len(SYMBOLS)]


def band(x: Sequence[float], low: Sequence[float], high: Sequence[float], token: str, group: str) -> Trace:
    """A filled band between two curves, without legend entry or hover."""
    return {
        "type": "scatter",
        "x": [*x, *reversed(x)],
        "y": [*high, *reversed(low)],
        "fill": "toself",
        "fillcolor": faded(token, 0.14),
        "line": {"width": 0, "color": faded(token, 0)},
        "mode": "lines",
        "hoverinfo": "skip",
        "showlegend": False,
        "legendgroup": group,
    }


def hover_line(x: Sequence[Any], y: Sequence[Any], text: Sequence[str], name: str, token: str, **options: Any) -> Trace:
    """A line or point trace whose hover shows `text`."""
    return {
        "type": "scatter",
        "x": list(x),
        "y": list(y),
        "text": list(text),
        "hoverinfo": "text",
        "name": escaped(name),
        "mode": "lines",
        "line": {"color": token, "width": 2.5},
        **options,
    }


def rounded(value: Any) -> Any:
    """The same structure with floats at six significant digits; NaN and infinities become None (not drawn)."""
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(item) for item in value]
    return value
