"""What the drafts were worth: survival and conditional acceptance by position, τ(K), and the committed tokens of every step.

S_i is the share of steps in which at least i drafts were accepted; α_i = S_i / S_{i−1} is the chance of the next one, and
τ(K) = 1 + Σ_{i<K} S_i. The intervals come from `perfmodel.acceptance`: draws of τ over resampled answers, of which
S_i = τ(i+1) − τ(i) are the differences.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from perfmodel.acceptance import alpha, measured_block_size, tau, tau_curve, tau_draws, tau_interval
from perfmodel.records import AcceptanceProfile
from perfmodel.units import format_percent

from .figure import Figure, Trace, axis, band, color, escaped, hover_line, symbol
from .inputs import PageInputs
from .section import Section, Table, absent
from .wording import block_size_text, interval_text, list_text, number_text

QUANTILES = (0.025, 0.975)


@dataclass(frozen=True)
class Curve:
    """One task's curve over x: values with their 95 % interval (None where the sampling error is unknown)."""

    task: str
    x: tuple[int, ...]
    y: tuple[float, ...]
    low: tuple[float, ...] | None
    high: tuple[float, ...] | None

    def interval(self, index: int, scale: float = 1.0) -> str:
        """The interval of one point as text; empty when unknown."""
        return interval_text(scale * self.low[index], scale * self.high[index]) if self.low and self.high else ""


def acceptance_section(inputs: PageInputs) -> Section:
    """Section 5: survival, conditional acceptance, τ(K), heat maps, and the counts behind them."""
    title = "Acceptance"
    profiles = inputs.acceptance.profiles if inputs.acceptance else ()
    if not profiles:
        return absent("acceptance", title, "no acceptance was measured: it needs a decode run or `--acceptance`")
    by_position = [profile for profile in profiles if profile.survival]
    figures = [survival_figure(by_position), conditional_figure(by_position)] if by_position else []
    figures += [tau_figure(profiles)]
    figures += [heat_figure(profile, index) for index, profile in enumerate(profiles) if any(profile.committed)]
    return Section("acceptance", title, figures=tuple(figures), tables=(profile_table(profiles),))


def bounded(task: str, x: Sequence[int], y: Sequence[float], draws: np.ndarray | None) -> Curve:
    """A curve with the 2.5 and 97.5 % quantiles of its draws [draws, x]."""
    if draws is None:
        return Curve(task, tuple(x), tuple(y), None, None)
    low, high = np.nanquantile(draws, QUANTILES, axis=0)
    return Curve(task, tuple(x), tuple(y), tuple(low.tolist()), tuple(high.tolist()))


def survival_draws(profile: AcceptanceProfile) -> np.ndarray | None:
    """Draws of S_1 … S_n, [draws, n]; None where the sampling error is unknown."""
    draws = tau_draws(profile, len(profile.survival) + 1)
    return None if draws is None else np.diff(draws, axis=1)


def survival_curve(profile: AcceptanceProfile) -> Curve:
    """S_i over positions 1, 2, …"""
    return bounded(profile.task, range(1, len(profile.survival) + 1), profile.survival, survival_draws(profile))


def conditional_curve(profile: AcceptanceProfile) -> Curve:
    """α_i over positions 1, 2, …, up to the last position that any step reached."""
    shares = [share for share in alpha(profile) if share is not None]
    draws = survival_draws(profile)
    if draws is not None:
        before = np.concatenate([np.ones((len(draws), 1)), draws[:, :-1]], axis=1)
        ratio = np.divide(draws, before, out=np.full_like(draws, np.nan), where=before > 0)[:, : len(shares)]
        draws = np.where(np.isnan(ratio).all(axis=0), np.array(shares), ratio)
    return bounded(profile.task, range(1, len(shares) + 1), shares, draws)


def curve_band(curve: Curve, number: int, scale: float = 1.0) -> list[Trace]:
    """The curve's interval as a band, where there is one."""
    if curve.low is None or curve.high is None:
        return []
    return [band(curve.x, [scale * v for v in curve.low], [scale * v for v in curve.high], color(number), f"task-{number}")]


def position_traces(profiles: Sequence[AcceptanceProfile], curves: Sequence[Curve], what: str) -> list[Trace]:
    """Per task: the band, and a marked line over positions with the number of steps that reached each."""
    traces: list[Trace] = []
    for number, (profile, curve) in enumerate(zip(profiles, curves, strict=True)):
        text = [
            f"<b>{escaped(curve.task)} · draft {position}</b><br>"
            f"{what} {format_percent(share)} {curve.interval(index, 100.0)}<br>"
            + (f"{count:,.0f} steps came this far" if count is not None else "number of steps unknown")
            for index, (position, share, count) in enumerate(zip(curve.x, curve.y, profile.at_risk, strict=False))
        ]
        line = hover_line(
            curve.x,
            [100 * share for share in curve.y],
            text,
            curve.task,
            color(number),
            mode="lines+markers",
            marker={"symbol": symbol(number), "size": 8},
            legendgroup=f"task-{number}",
        )
        traces += [*curve_band(curve, number, 100.0), line]
    return traces


def position_layout(profiles: Sequence[AcceptanceProfile], title: str) -> dict[str, object]:
    """Axes of a figure over draft positions."""
    last = max(len(p.survival) for p in profiles)
    step = max(1, math.ceil(last / 16))
    return {
        "xaxis": axis("draft position in the block", dtick=step, tick0=1, range=[0.5, last + 0.5]),
        "yaxis": axis(title, range=[0, 102]),
    }


def survival_figure(profiles: Sequence[AcceptanceProfile]) -> Figure:
    """S_i by position, per task."""
    firsts = [f"{format_percent(p.survival[0], 2)} ({p.task})" for p in profiles]
    finding = f"The first draft is accepted in {list_text(firsts)} of steps"
    lasts = [f"{format_percent(p.survival[-1], 2)} ({p.task})" for p in profiles if len(p.survival) > 1]
    if lasts:
        finding += f"; the whole block in {list_text(lasts)}"
    return Figure(
        key="survival",
        title=finding,
        reading="Share of steps in which at least this many drafts were accepted. Bands: 95 %, answers resampled.",
        alt=f"Line chart of survival by draft position. {finding}",
        data=tuple(position_traces(profiles, [survival_curve(p) for p in profiles], "survival")),
        layout=position_layout(profiles, "steps surviving (%)"),
        height=360,
        half=True,
    )


def conditional_figure(profiles: Sequence[AcceptanceProfile]) -> Figure:
    """α_i by position, per task."""
    curves = [conditional_curve(p) for p in profiles]
    ranges = [f"{percent_range(curve.y)} ({curve.task})" for curve in curves if curve.y]
    finding = f"Once a step has come this far, the next draft is accepted in {list_text(ranges)} of cases"
    return Figure(
        key="conditional",
        title=finding,
        reading="Chance that the next draft is accepted, given that all before it were. A level line would be a geometric law. "
        "Fewer steps reach the later positions, so the bands widen.",
        alt=f"Line chart of conditional acceptance by draft position. {finding}",
        data=tuple(position_traces(profiles, curves, "accepted, given the ones before:")),
        layout=position_layout(profiles, "conditional acceptance (%)"),
        height=360,
        half=True,
    )


def percent_range(shares: Sequence[float]) -> str:
    """The range of shares, `70 % to 82 %`, or the one share they all round to."""
    low, high = format_percent(min(shares), 2), format_percent(max(shares), 2)
    return low if low == high else f"{low} to {high}"


def tau_of(profile: AcceptanceProfile) -> Curve:
    """τ(1), τ(2), … up to the block that was measured, with its interval."""
    up_to = measured_block_size(profile)
    return bounded(profile.task, range(1, up_to + 1), tau_curve(profile, up_to).tolist(), tau_draws(profile, up_to))


def tau_figure(profiles: Sequence[AcceptanceProfile]) -> Figure:
    """τ(K) per task with its interval, beside the most that K allows."""
    curves = [tau_of(profile) for profile in profiles]
    traces: list[Trace] = []
    for number, curve in enumerate(curves):
        text = [
            f"<b>{escaped(curve.task)} · {block_size_text(size)}</b><br>"
            f"τ = {number_text(value)} {curve.interval(index)} tokens per step"
            for index, (size, value) in enumerate(zip(curve.x, curve.y, strict=True))
        ]
        marker = {"symbol": symbol(number), "size": 7}
        group = f"task-{number}"
        line = hover_line(
            curve.x, curve.y, text, curve.task, color(number), mode="lines+markers", marker=marker, legendgroup=group
        )
        traces += [*curve_band(curve, number), line]
    sizes = list(range(1, max(curve.x[-1] for curve in curves) + 1))
    limit = hover_line(sizes, sizes, ["every draft accepted"] * len(sizes), "τ = K (all accepted)", "@muted")
    finals = [f"{number_text(curve.y[-1])} ({curve.task})" for curve in curves]
    finding = f"A whole block of K = {sizes[-1]} commits {list_text(finals)} tokens per step"
    return Figure(
        key="tau",
        title=finding,
        reading="Mean tokens committed per step, bonus included, up to the measured block. Bands: 95 %, answers resampled.",
        alt=f"Line chart of tau against block size K. {finding}",
        data=(*traces, {**limit, "line": {"color": "@muted", "dash": "dash", "width": 1.5}}),
        layout={
            "xaxis": axis(
                "block size K (tokens verified per step)",
                tick0=1,
                dtick=max(1, math.ceil(len(sizes) / 16)),
                range=[0.7, sizes[-1] + 0.3],
            ),
            "yaxis": axis("τ (tokens per step)", range=[0, 1.2 * max(max(trace["y"]) for trace in traces)]),
        },
        height=380,
    )


def heat_figure(profile: AcceptanceProfile, index: int) -> Figure:
    """Committed tokens of every step (columns) of every answer (rows), one task."""
    answers = [steps for steps in profile.committed if steps]
    longest = max(len(steps) for steps in answers)
    cells = [[*steps, *([None] * (longest - len(steps)))] for steps in answers]
    pooled = [count for steps in answers for count in steps]
    means = [sum(steps) / len(steps) for steps in answers]
    low, high, mean = number_text(min(means), 2), number_text(max(means), 2), number_text(sum(pooled) / len(pooled))
    spread = f"answers differ, from {low} to {high} tokens per step" if low != high else "answers are alike"
    finding = f"{profile.task}: {spread} (pooled {mean})"
    return Figure(
        key=f"heat-{index}",
        title=finding[:1].upper() + finding[1:],
        reading="One row per answer, one cell per step; brighter means more tokens committed.",
        alt=f"Heat map of committed tokens over steps and answers of {profile.task}. {finding}",
        data=(
            {
                "type": "heatmap",
                "z": cells,
                "x": list(range(1, longest + 1)),
                "y": list(range(1, len(answers) + 1)),
                "hovertemplate": f"answer %{{y}}, step %{{x}}: %{{z}} of {profile.block_size} tokens<extra></extra>",
                "hoverongaps": False,
                "zmin": 1,
                "zmax": profile.block_size,
                "colorscale": "Cividis",
                "xgap": 1 if longest <= 150 else 0,
                "ygap": 2,
                "colorbar": {
                    "title": {"text": "tokens"},
                    "thickness": 12,
                    "outlinewidth": 0,
                    "tickfont": {"color": "@muted"},
                    "len": 1,
                },
            },
        ),
        layout={
            "xaxis": axis("step of the answer", showgrid=False),
            "yaxis": axis(
                "answer", showgrid=False, autorange="reversed", tickformat="d", dtick=max(1, math.ceil(len(answers) / 8))
            ),
        },
        height=110 + max(90, 18 * len(answers)),
        folded=index > 0,
    )


def pooled_text(profile: AcceptanceProfile) -> str:
    """Pooled τ at the measured block with its interval, for example `3.62 (3.44–3.81)`."""
    block = measured_block_size(profile)
    low, high = tau_interval(profile, block) or (None, None)
    return f"{number_text(tau(profile, block))} {interval_text(low, high)}".strip()


def profile_table(profiles: Sequence[AcceptanceProfile]) -> Table:
    """Where each acceptance curve comes from, and how much stands behind it."""
    return Table(
        key="profiles",
        caption="What the curves rest on.",
        headers=("task", "drafter", "block size", "steps", "answers", "source", "definition"),
        rows=tuple(
            (
                p.task,
                p.draft + (" (synthetic)" if p.synthetic else ""),
                str(p.block_size),
                "unknown" if p.num_steps is None else f"{p.num_steps:,}",
                "unknown" if p.num_prompts is None else f"{p.num_prompts:,}",
                p.source or "unknown",
                p.definition or "committed tokens per step, bonus included",
            )
            for p in profiles
        ),
        text_columns=(0, 1, 5, 6),
        folded=True,
    )
