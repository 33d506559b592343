"""A small still picture of a sweep for a README: speedup against K, and step time against K, as SVG written by hand.

It needs no script and no font file, follows the reader's light or dark theme, and is a few kilobytes.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

from perfmodel.phases import STEP_PHASES
from perfmodel.records import Audit, KPrediction, Run, StepTimes

from .figure import PHASE_COLORS, SERIES, THEMES, tick_seconds
from .speedup import dashed
from .steptime import is_invalid

WIDTH, HEIGHT = 860, 348
PLOT_WIDTH, PLOT_HEIGHT, TOP = 350, 220, 58

Scale = Callable[[float], float]


@dataclass(frozen=True)
class Panel:
    """One plot: where its left edge is, and how a block size and a value become pixels."""

    left: float
    x: Scale
    y: Scale

    def path(self, points: Sequence[tuple[float, float]]) -> str:
        """The `d` of a polyline."""
        return "M" + "L".join(f"{self.x(x):.1f} {self.y(y):.1f}" for x, y in points)


def sweep_svg(
    predictions: Sequence[KPrediction], step_times: StepTimes, audit: Audit | None = None, run: Run | None = None
) -> str:
    """The SVG text: left speedup per task (dotted beyond the trained block), right median step time per phase."""
    known = [p for p in predictions if any(row.speedup for row in p.rows)]
    body = [*speedup_panel(known, run), *time_panel(step_times, audit)]
    pair = " + ".join(name for name in (step_times.target, step_times.draft) if name)
    title = f"Speedup and step time against block size K, {pair} on {step_times.device_kind}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">\n'
        f"<title>{escape(title)}</title>\n<style>{style()}</style>\n" + "\n".join(body) + "\n</svg>\n"
    )


def style() -> str:
    """Colours of both themes, and the look of text and lines."""
    light, dark = (";".join(f"--{token}:{value}" for token, value in THEMES[name].items()) for name in ("light", "dark"))
    return (
        f":root{{{light}}}@media(prefers-color-scheme:dark){{:root{{{dark}}}}}"
        "text{font:12px system-ui,-apple-system,'Segoe UI',Roboto,Helvetica,Arial,sans-serif;fill:var(--muted)}"
        ".t{font-weight:600;font-size:14px;fill:var(--ink)}.g{stroke:var(--grid)}.e{stroke:var(--ink)}"
        ".l{fill:none;stroke-width:2.4;stroke-linejoin:round}.d{stroke-dasharray:2 4}.m{text-anchor:middle}.r{text-anchor:end}"
    )


def log_scale(low: float, high: float, start: float, end: float) -> Scale:
    """Pixels of a logarithmic axis."""
    width = math.log(high / low) or 1.0
    return lambda value: start + (end - start) * math.log(value / low) / width


def text(x: float, y: float, words: str, kind: str = "") -> str:
    """A line of text."""
    return f'<text x="{x:.1f}" y="{y:.1f}"{f" class={chr(34)}{kind}{chr(34)}" if kind else ""}>{escape(words)}</text>'


def k_axis(panel: Panel, largest: int) -> list[str]:
    """Ticks and title of the block-size axis."""
    bottom = TOP + PLOT_HEIGHT
    power = 2 if largest > 64 else 1
    ticks = [2**exponent for exponent in range(0, math.floor(math.log2(largest)) + 1, power)]
    lines = [f'<path class="g" d="M{panel.x(tick):.1f} {TOP}V{bottom}"/>' for tick in ticks]
    labels = [text(panel.x(tick), bottom + 17, str(tick), "m") for tick in ticks]
    return [*lines, *labels, text(panel.left + PLOT_WIDTH / 2, bottom + 36, "block size K (tokens verified per step)", "m")]


def legend(left: float, entries: Sequence[tuple[str, str]]) -> list[str]:
    """Colour and name of every series, in one row."""
    parts, at = [], left
    for name, token in entries:
        parts.append(f'<path class="l" stroke="var(--{token})" d="M{at:.0f} 40h18"/>{text(at + 23, 44, name)}')
        at += 38 + 6.6 * len(name)
    return parts


def speedup_panel(predictions: Sequence[KPrediction], run: Run | None) -> list[str]:
    """Speedup per task, break-even, best K as dots, measured checks as rings."""
    left, bottom = 42.0, TOP + PLOT_HEIGHT
    sizes = [row.block_size for p in predictions for row in p.rows] or [1, 2]
    checks = [c for c in run.checks if c.measured_speedup is not None] if run else []
    peak = max([row.speedup or 0.0 for p in predictions for row in p.rows] + [c.measured_speedup or 0.0 for c in checks] + [1.2])
    scale = 1.12 * peak
    panel = Panel(
        left, log_scale(1, max(sizes), left + 8, left + PLOT_WIDTH - 8), lambda value: bottom - PLOT_HEIGHT * value / scale
    )
    step = 0.5 if peak < 3 else 1.0
    ticks = [index * step for index in range(int(scale / step) + 1)]
    parts = [text(left, 22, "Speedup over plain decoding (×)", "t"), *k_axis(panel, max(sizes))]
    for tick in ticks:
        kind, y = ("e" if tick == 1 else "g"), panel.y(tick)
        parts.append(f'<path class="{kind}" d="M{left} {y:.1f}h{PLOT_WIDTH}"/>{text(left - 7, y + 4, f"{tick:g}", "r")}')
    for number, prediction in enumerate(predictions):
        token = SERIES[number % len(SERIES)]
        rows = [row for row in sorted(prediction.rows, key=lambda row: row.block_size) if row.speedup]
        inside = [(row.block_size, row.speedup or 0.0) for row in rows if not dashed(row, prediction)]
        outside = inside[-1:] + [(row.block_size, row.speedup or 0.0) for row in rows if dashed(row, prediction)]
        for points, kind in ((inside, "l"), (outside, "l d")):
            if len(points) > 1:
                parts.append(f'<path class="{kind}" stroke="var(--{token})" d="{panel.path(points)}"/>')
        best = prediction.best
        if best.speedup:
            x, y = panel.x(best.block_size), panel.y(best.speedup)
            parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="var(--{token})"/>')
        for check in (c for c in checks if c.task == prediction.task):
            x, y = panel.x(check.block_size), panel.y(check.measured_speedup or 0.0)
            parts.append(
                f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4.5" fill="var(--paper)" stroke="var(--{token})" stroke-width="2"/>'
            )
    entries = [(p.task, SERIES[number % len(SERIES)]) for number, p in enumerate(predictions)]
    return [*parts, *legend(left, entries), text(left, HEIGHT - 3, "● best K   ○ measured   ··· beyond the trained block")]


def time_panel(step_times: StepTimes, audit: Audit | None) -> list[str]:
    """Median step time per phase at the first shape that was measured; invalid points are left out."""
    left, bottom = 500.0, TOP + PLOT_HEIGHT
    timed = [p for p in step_times.points if p.samples_s and not is_invalid(audit, p)]
    if not timed:
        return [text(left, 22, "No step time was measured", "t")]
    shape = (timed[0].batch, timed[0].context)
    mine = [p for p in timed if (p.batch, p.context) == shape]
    medians, sizes = [p.median_s for p in mine], [p.block_size for p in mine]
    low, high = 10 ** math.floor(math.log10(min(medians))), 10 ** math.ceil(math.log10(max(medians)))
    panel = Panel(left, log_scale(1, max(sizes), left + 8, left + PLOT_WIDTH - 8), log_scale(low, high, bottom, TOP))
    parts = [text(left, 22, f"Time per step (batch {shape[0]}, context {shape[1]})", "t"), *k_axis(panel, max(sizes))]
    for power in range(round(math.log10(low)), round(math.log10(high)) + 1):
        y = panel.y(10.0**power)
        parts.append(f'<path class="g" d="M{left} {y:.1f}h{PLOT_WIDTH}"/>{text(left - 7, y + 4, tick_seconds(10.0**power), "r")}')
    phases = [phase for phase in STEP_PHASES if any(p.phase == phase for p in mine)]
    for phase in phases:
        points = sorted((p.block_size, p.median_s) for p in mine if p.phase == phase)
        color = f"var(--{PHASE_COLORS[phase]})"
        parts.append(f'<path class="l" stroke="{color}" d="{panel.path(points)}"/>')
        parts += [f'<circle cx="{panel.x(x):.1f}" cy="{panel.y(y):.1f}" r="3.2" fill="{color}"/>' for x, y in points]
    return [*parts, *legend(left, [(phase, PHASE_COLORS[phase]) for phase in phases])]
