"""Predicted against measured: how far the model is off, on points it was fitted to and on points it never saw."""

import statistics
from collections.abc import Sequence

from perfmodel.records import FittedModel, FittedPoint, Parameter
from perfmodel.units import format_bandwidth, format_flop_rate, format_percent, format_seconds

from .figure import PHASE_COLORS, Figure, Trace, axis, block_size_axis, escaped, hover_line, log_range, seconds_ticks
from .inputs import PageInputs
from .section import Section, Table, absent, shape_text
from .wording import block_size_text, number_text, signed_percent, speedup_text

PHASE_SYMBOLS = {"verify": "circle", "draft": "diamond", "commit": "square", "prefill": "triangle-up"}


def validation_section(inputs: PageInputs) -> Section:
    """Section 7: scatter, residuals, checked speedups and the parameters with what the data cannot identify."""
    title = "Predicted against measured"
    checks = tuple(c for c in inputs.run.checks if c.measured_speedup is not None) if inputs.run else ()
    if inputs.model is None and not checks:
        return absent("validation", title, "there is no fitted model and no check run")
    figures: list[Figure] = []
    tables: list[Table] = []
    if inputs.model is not None and inputs.model.points:
        figures += [scatter_figure(inputs.model), residual_figure(inputs.model)]
    if checks:
        tables.append(check_table(inputs))
    if inputs.model is not None:
        tables.append(parameter_table(inputs.model))
    return Section("validation", title, figures=tuple(figures), tables=tuple(tables))


def point_text(point: FittedPoint) -> str:
    """What hovering a point says."""
    kind = "held out (not fitted)" if point.held_out else "fitted"
    return (
        f"<b>{escaped(point.phase)} · {block_size_text(point.block_size)}</b><br>{shape_text(point.batch, point.context)}<br>"
        f"measured {format_seconds(point.measured_s)}, predicted {format_seconds(point.predicted_s)}<br>"
        f"error {signed_percent(point.error)}, {kind}"
    )


def groups(points: Sequence[FittedPoint]) -> list[tuple[str, bool, list[FittedPoint]]]:
    """Points by phase and whether they were held out, empty groups left out."""
    phases = tuple(dict.fromkeys(p.phase for p in points))
    split = [
        (phase, held, [p for p in points if p.phase == phase and p.held_out is held])
        for phase in phases
        for held in (False, True)
    ]
    return [group for group in split if group[2]]


def markers(phase: str, held_out: bool) -> dict[str, object]:
    """Filled markers for fitted points, open ones for held-out points."""
    token, shape = f"@{PHASE_COLORS.get(phase, 'sky')}", PHASE_SYMBOLS.get(phase, "cross")
    if held_out:
        return {"symbol": f"{shape}-open", "size": 12, "color": token, "line": {"width": 2.5, "color": token}}
    return {"symbol": shape, "size": 8, "color": token}


def group_trace(phase: str, held_out: bool, points: Sequence[FittedPoint], y: Sequence[float], x: Sequence[float]) -> Trace:
    """One legend entry of points."""
    name = f"{phase}, held out" if held_out else f"{phase}, fitted"
    text = [point_text(p) for p in points]
    return hover_line(x, y, text, name, f"@{PHASE_COLORS.get(phase, 'sky')}", mode="markers", marker=markers(phase, held_out))


def scatter_figure(model: FittedModel) -> Figure:
    """Predicted over measured time on logarithmic axes, with the diagonal and ±10 %."""
    points = model.points
    every = [s for p in points for s in (p.measured_s, p.predicted_s)]
    low, high = (10**edge for edge in log_range(every, 0.05))
    lines: list[Trace] = [
        hover_line(
            [low, high], [factor * low, factor * high], ["", ""], name, "@muted", hoverinfo="skip", showlegend=shown, line=style
        )
        for factor, name, shown, style in (
            (1.0, "exact", True, {"color": "@muted", "width": 1.5}),
            (1.1, "±10 %", True, {"color": "@muted", "width": 1, "dash": "dot"}),
            (0.9, "±10 %", False, {"color": "@muted", "width": 1, "dash": "dot"}),
        )
    ]
    dots = [
        group_trace(phase, held, mine, [p.predicted_s for p in mine], [p.measured_s for p in mine])
        for phase, held, mine in groups(points)
    ]
    finding = error_finding(model)
    ticks = seconds_ticks(every)
    return Figure(
        key="scatter",
        title=finding,
        reading="Each point is the median of one shape. Open markers were held out: the model never saw them.",
        alt=f"Scatter plot of predicted against measured step times. {finding}",
        data=(*lines, *dots),
        layout={"xaxis": axis("measured time", **ticks), "yaxis": axis("predicted time", **ticks)},
        height=440,
    )


def error_finding(model: FittedModel) -> str:
    """Median errors, held-out first."""
    fitted = f"{format_percent(model.median_error, 2)} on the fitted ones"
    if model.held_out_median_error is None:
        return f"The model is off by {fitted} in the median; no point was held out"
    return f"On points it never saw the model is off by {format_percent(model.held_out_median_error, 2)} in the median, {fitted}"


def residual_figure(model: FittedModel) -> Figure:
    """Relative error against K."""
    worst = max(model.points, key=lambda p: abs(p.error))
    center = statistics.median(p.error for p in model.points)
    where = f"{worst.phase} at K = {worst.block_size}"
    finding = f"The largest error is {signed_percent(worst.error)} ({where}); the median is {signed_percent(center)}"
    dots = [
        group_trace(phase, held, mine, [100 * p.error for p in mine], [p.block_size for p in mine])
        for phase, held, mine in groups(model.points)
    ]
    reach = 1.2 * max(12.0, 100 * abs(worst.error))
    return Figure(
        key="residuals",
        title=finding,
        reading="Predicted over measured, minus one: above zero the model is too slow. A trend in K would mean a missing term.",
        alt=f"Residuals of the step-time model against block size K. {finding}",
        data=tuple(dots),
        layout={
            "xaxis": block_size_axis([p.block_size for p in model.points]),
            "yaxis": axis("error of the prediction (%)", range=[-reach, reach], zeroline=True, zerolinecolor="@muted"),
            "shapes": [
                {
                    "type": "rect",
                    "xref": "paper",
                    "x0": 0,
                    "x1": 1,
                    "y0": -10,
                    "y1": 10,
                    "line": {"width": 0},
                    "fillcolor": "@muted/0.1",
                    "layer": "below",
                }
            ],
        },
        height=340,
    )


def check_table(inputs: PageInputs) -> Table:
    """Speedups predicted and then measured by running the loop again."""
    checks = [c for c in inputs.run.checks if c.measured_speedup is not None] if inputs.run else []
    return Table(
        key="checks",
        caption="The prediction put to the test: the loop run again at the predicted best K and its neighbours.",
        headers=(
            "task",
            "K",
            "num_speculative_tokens",
            "predicted speedup",
            "measured speedup (95 %)",
            "prediction off by",
            "tokens",
        ),
        rows=tuple(
            (
                c.task,
                str(c.block_size),
                str(c.block_size - 1),
                speedup_text(c.predicted_speedup, None, None),
                speedup_text(c.measured_speedup, c.measured_low, c.measured_high),
                signed_percent(c.predicted_speedup / c.measured_speedup - 1)
                if c.predicted_speedup and c.measured_speedup
                else "unknown",
                f"{c.num_tokens:,}",
            )
            for c in checks
        ),
    )


def parameter_table(model: FittedModel) -> Table:
    """The fitted constants, and plainly which of them the data cannot see."""
    unseen = [name for name, parameter in model.parameters.items() if not parameter.identified]
    note = (
        f" The data cannot identify: {', '.join(unseen)}; their value is a prior."
        if unseen
        else " The data identify every parameter."
    )
    return Table(
        key="parameters",
        caption=f"Parameters of the step-time model ({model.form}), from {model.num_points} points, "
        f"{model.num_rejected} rejected.{note}",
        headers=("parameter", "value ± standard error", "allowed range", "identified", "note"),
        rows=tuple(
            (name, parameter_text(p), parameter_bounds(p), "yes" if p.identified else "no: prior", note_text(p))
            for name, p in model.parameters.items()
        ),
        text_columns=(0, 3, 4),
    )


def in_unit(value: float, unit: str, digits: int = 3) -> str:
    """A value with its unit, prefixed where the unit has a formatter."""
    if unit == "s":
        return format_seconds(value, digits)
    if unit == "B/s":
        return format_bandwidth(value, digits)
    if unit == "FLOP/s":
        return format_flop_rate(value, digits)
    return number_text(value, digits) if unit in ("", "1") else f"{number_text(value, digits)} {unit}"


def parameter_text(parameter: Parameter) -> str:
    """`value ± error unit`."""
    value = in_unit(parameter.value, parameter.unit)
    return value if parameter.stderr is None else f"{value} ± {in_unit(parameter.stderr, parameter.unit, 2)}"


def parameter_bounds(parameter: Parameter) -> str:
    """The range the fit (or the prior) allows, each end in its unit; a dash when there is none."""
    if parameter.low is None or parameter.high is None:
        return "–"
    return f"{in_unit(parameter.low, parameter.unit)} to {in_unit(parameter.high, parameter.unit)}"


def note_text(parameter: Parameter) -> str:
    """The parameter's note, with a warning where the fit ran into its bound."""
    bound = "at its bound" if parameter.at_bound else ""
    return "; ".join(part for part in (bound, parameter.note) if part)
