"""Step time against block size: how long draft, verify and commit take, how flat verify is, and which point cannot be true."""

from collections.abc import Sequence

from perfmodel import stepmodel
from perfmodel.cost import DTYPE_BYTES
from perfmodel.phases import STEP_PHASES, VERIFY, Phase
from perfmodel.records import Audit, AuditedPoint, FittedModel, StepShape, TimingPoint
from perfmodel.units import format_percent, format_ratio, format_seconds

from .chip import Chip, chip_of, grid
from .figure import PHASE_COLORS, Figure, Trace, axis, block_size_axis, escaped, faded, hover_line, seconds_ticks
from .flat import flat_marks, flat_reading
from .inputs import PageInputs
from .section import Section, Table, absent, shape_text, shapes
from .wording import block_size_text

SYMBOLS = {"verify": "circle", "draft": "diamond", "commit": "square", "prefill": "triangle-up"}


def steptime_section(inputs: PageInputs) -> Section:
    """Section 3: one figure per measured shape, and the points that failed or cannot be true."""
    title = "Step time against K"
    points = [p for p in inputs.step_times.points if p.samples_s] if inputs.step_times else []
    if inputs.step_times is None:
        return absent("steptime", title, "no step times were measured")
    if not points:
        return absent("steptime", title, "every step-time point failed; see the findings")
    figures = [
        steptime_figure(inputs, [p for p in points if (p.batch, p.context) == shape], index)
        for index, shape in enumerate(shapes([(p.batch, p.context) for p in points]))
    ]
    rejected = rejected_table(inputs)
    return Section("steptime", title, figures=tuple(figures), tables=(rejected,) if rejected.rows else ())


def verdict_at(audit: Audit | None, point: TimingPoint) -> AuditedPoint | None:
    """The audit's verdict on one measured point."""
    shape = (point.phase, point.block_size, point.batch, point.context)
    return next((a for a in audit.points if (a.phase, a.block_size, a.batch, a.context) == shape), None) if audit else None


def is_invalid(audit: Audit | None, point: TimingPoint) -> bool:
    """Whether the audit calls the point invalid."""
    verdict = verdict_at(audit, point)
    return verdict is not None and verdict.verdict == "invalid"


def steptime_figure(inputs: PageInputs, points: Sequence[TimingPoint], index: int) -> Figure:
    """Measured samples and medians, fitted model and floors, of one shape."""
    batch, context = points[0].batch, points[0].context
    chip = chip_of(inputs)
    sizes = sorted({p.block_size for p in points})
    traces: list[Trace] = []
    for phase in (phase for phase in STEP_PHASES if any(p.phase == phase for p in points)):
        mine = sorted((p for p in points if p.phase == phase), key=lambda p: p.block_size)
        fitted = fitted_traces(inputs.model, phase, [p.block_size for p in mine], batch, context) if inputs.model else []
        traces += [sample_trace(phase, mine), *fitted, *median_traces(phase, mine, inputs.audit)]
    floors = floor_traces(chip, sizes, batch, context) if chip else []
    finding = steptime_finding(points, inputs.audit)
    shape = shape_text(batch, context)
    ticks = seconds_ticks([s for p in points for s in p.samples_s])
    return Figure(
        key=f"steptime-{index}",
        title=finding,
        reading=f"{shape.capitalize()}. Markers: medians; faint dots: every sample; lines: fitted model; dashed, dotted: floors "
        f"that no step can beat. Crosses: points the audit rejects.{flat_reading(inputs.flatness, batch, context)}",
        alt=f"Log-log chart of step time against block size K by phase, {shape}. {finding}",
        data=(*floors, *traces),
        layout={
            "xaxis": block_size_axis(sizes),
            "yaxis": axis("time per step", **ticks),
            **flat_marks(inputs.flatness, batch, context),
        },
        height=520,
        folded=index > 0,
    )


def sample_trace(phase: str, points: Sequence[TimingPoint]) -> Trace:
    """Every sample as a faint dot."""
    token = f"@{PHASE_COLORS[phase]}"
    x = [p.block_size for p in points for _ in p.samples_s]
    y = [s for p in points for s in p.samples_s]
    marker = {"size": 5, "color": faded(token, 0.35)}
    return hover_line(
        x, y, [""] * len(x), phase, token, mode="markers", marker=marker, hoverinfo="skip", showlegend=False, legendgroup=phase
    )


def median_traces(phase: str, points: Sequence[TimingPoint], audit: Audit | None) -> list[Trace]:
    """Medians as markers, and a cross over those the audit rejects."""
    token = f"@{PHASE_COLORS[phase]}"
    verdicts = [verdict_at(audit, p) for p in points]
    text = [
        f"<b>{phase} · {block_size_text(p.block_size)}</b><br>"
        f"median {format_seconds(p.median_s)}, spread {spread_text(p)} "
        f"({len(p.samples_s)} samples, {p.clock} clock){verdict_text(v)}"
        for p, v in zip(points, verdicts, strict=True)
    ]
    marker = {"symbol": SYMBOLS[phase], "size": 9, "color": token, "line": {"width": 1, "color": "@paper"}}
    medians = [p.median_s for p in points]
    sizes = [p.block_size for p in points]
    traces = [hover_line(sizes, medians, text, phase, token, mode="markers", marker=marker, legendgroup=phase)]
    bad = [index for index, point in enumerate(points) if is_invalid(audit, point)]
    if bad:
        cross = {"symbol": "x-thin", "size": 17, "line": {"width": 3, "color": "@bad"}}
        traces.append(
            hover_line(
                [sizes[i] for i in bad],
                [medians[i] for i in bad],
                [text[i] for i in bad],
                f"{phase}: invalid",
                "@bad",
                mode="markers",
                marker=cross,
            )
        )
    return traces


def spread_text(point: TimingPoint) -> str:
    """Interquartile range over median; `unknown` for fewer than four samples."""
    return format_percent(point.spread if len(point.samples_s) >= 4 else None, 2)


def verdict_text(verdict: AuditedPoint | None) -> str:
    """The audit's word on a point, for its hover."""
    if verdict is None:
        return ""
    floor = f"<br>floor {format_seconds(verdict.floor_s)}" if verdict.floor_s is not None else ""
    cause = f": {escaped(verdict.cause)}" if verdict.cause else ""
    return f"{floor}<br>verdict: {verdict.verdict}{cause}"


def fitted_traces(model: FittedModel, phase: Phase, sizes: Sequence[int], batch: int, context: int) -> list[Trace]:
    """The fitted model as a line over the measured range of K; nothing for a phase it was not fitted to, or an unknown dtype."""
    if model.dtype not in DTYPE_BYTES or not any(point.phase == phase for point in model.points):
        return []
    x = grid(sizes)
    shapes = [StepShape(phase=phase, batch=batch, query_tokens=size, context=context) for size in x]
    y = stepmodel.seconds(stepmodel.values_of(model), stepmodel.model_work(model, shapes), model.hardware, model.dtype).tolist()
    text = [f"<b>{phase} · {block_size_text(size)}</b><br>fitted model {format_seconds(s)}" for size, s in zip(x, y, strict=True)]
    token = f"@{PHASE_COLORS[phase]}"
    line = {"color": token, "width": 2}
    return [hover_line(x, y, text, f"{phase}: fitted", token, line=line, showlegend=False, legendgroup=phase)]


def floor_traces(chip: Chip, sizes: Sequence[int], batch: int, context: int) -> list[Trace]:
    """Memory and compute floor of verify, and the floor of the other phases."""
    traces: list[Trace] = []
    for phase in STEP_PHASES:
        floors = chip.floors(phase, grid(sizes), batch, context)
        if not floors:
            continue
        floors = [(size, floor) for size, floor in floors if size > 1 or phase == VERIFY]  # plain decoding drafts nothing
        x = [size for size, _ in floors]
        if phase == VERIFY:
            memory = [f.memory_s for _, f in floors]
            traces.append(floor_line(x, memory, "verify: memory floor", "@blue", "dash"))
            if all(f.compute_s is not None for _, f in floors):
                traces.append(floor_line(x, [f.compute_s or 0.0 for _, f in floors], "verify: compute floor", "@blue", "dot"))
        else:
            seconds = [f.seconds for _, f in floors]
            traces.append(floor_line(x, seconds, f"{phase}: floor", f"@{PHASE_COLORS[phase]}", "dot"))
    return traces


def floor_line(x: Sequence[int], y: Sequence[float], name: str, token: str, dash: str) -> Trace:
    """A floor: thin, broken, in the colour of its phase."""
    text = [f"<b>{name} · K = {size}</b><br>{format_seconds(seconds)}" for size, seconds in zip(x, y, strict=True)]
    return hover_line(x, y, text, name, token, line={"color": faded(token, 0.7), "width": 1.5, "dash": dash}, legendrank=2000)


def steptime_finding(points: Sequence[TimingPoint], audit: Audit | None) -> str:
    """How verify grows from its smallest to its largest K, and how many points are invalid."""
    verify = sorted((p for p in points if p.phase == VERIFY), key=lambda p: p.block_size)
    num_invalid = sum(is_invalid(audit, point) for point in points)
    invalid = (
        f"; {num_invalid} point{'s are' if num_invalid > 1 else ' is'} faster than physically possible" if num_invalid else ""
    )
    if len(verify) < 2:
        return f"Draft and commit times; verify was not measured over K{invalid}"
    first, last = verify[0], verify[-1]
    middle = verify[len(verify) // 2]
    return (
        f"Verify takes {format_seconds(first.median_s)} at K = {first.block_size}, "
        f"{format_ratio(middle.median_s / first.median_s, 2)} that at K = {middle.block_size} and "
        f"{format_ratio(last.median_s / first.median_s, 2)} at K = {last.block_size}{invalid}"
    )


def rejected_table(inputs: PageInputs) -> Table:
    """Points that failed, and points the audit does not call valid."""
    rows = []
    for point in inputs.step_times.points if inputs.step_times else ():
        where = (point.phase, str(point.block_size), shape_text(point.batch, point.context))
        verdict = verdict_at(inputs.audit, point)
        if point.failure is not None:
            rows.append((*where, "–", "–", "failed", point.failure))
        elif verdict is not None and verdict.verdict != "valid":
            rows.append(
                (*where, format_seconds(verdict.seconds), format_seconds(verdict.floor_s), verdict.verdict, verdict.cause)
            )
    return Table(
        key="rejected",
        caption=f"{len(rows)} points not to be trusted. An invalid one lies below its floor, so timer or floor is wrong; "
        "it was not fitted.",
        headers=("phase", "K", "shape", "measured", "floor", "verdict", "reason"),
        rows=tuple(rows),
        text_columns=(0, 2, 5, 6),
        folded=len(rows) > 6,
    )
