"""What the TPU compiler says of every step, beside the analytical floor: a third opinion, never a measurement."""

from collections.abc import Sequence

from perfmodel.compiled import calibrate, flat_width
from perfmodel.records import CompiledStep
from perfmodel.units import format_bytes, format_percent, format_seconds

from .figure import Figure, Trace, axis, block_size_axis, color, escaped, hover_line, seconds_ticks, symbol
from .inputs import PageInputs
from .section import Section, Table, absent, shape_text, shapes
from .wording import block_size_text, list_text

FLAT_TOLERANCE = 0.10
DASHES = {"verify": "solid", "draft": "dash", "commit": "dot", "step": "dashdot", "loop": "longdash", "prefill": "solid"}


def compiler_section(inputs: PageInputs) -> Section:
    """The compiled programs: estimates against K with their floors, per shape, and a row each."""
    title = "The compiler's view"
    if inputs.compiled is None:
        return absent("compiled", title, "nothing was compiled: `perf compile` needs no TPU")
    rows = inputs.compiled.rows
    priced = [row for row in rows if row.estimated_s]
    figures = [
        compiled_figure([row for row in priced if (row.batch, row.context) == shape], index)
        for index, shape in enumerate(shapes([(row.batch, row.context) for row in priced]))
    ]
    paragraph = "Device time per step by XLA's own cost model, on chips that were not there: cycles over the clock, with no host."
    return Section(
        "compiled", title, paragraphs=(paragraph + known_error(rows),), figures=tuple(figures), tables=(compiled_rows(rows),)
    )


def known_error(rows: Sequence[CompiledStep]) -> str:
    """How far these estimates are from the published measurements they can be held against; empty where there are none."""
    calibration = calibrate(rows)
    if calibration is None:
        return ""
    return (
        f" Against {len(calibration.points)} published measurements the estimates are off by {format_percent(calibration.error_before)} "
        "in the mean."
    )


def compiled_figure(rows: Sequence[CompiledStep], index: int) -> Figure:
    """Estimated time against K at one shape: a line per chip and phase, its floor dashed below."""
    curves = dict.fromkeys((row.topology, row.phase) for row in rows)
    chips = list(dict.fromkeys(topology for topology, _ in curves))
    traces: list[Trace] = []
    for topology, phase in curves:
        mine = sorted((row for row in rows if (row.topology, row.phase) == (topology, phase)), key=lambda row: row.block_size)
        number = chips.index(topology)
        x, y = [row.block_size for row in mine], [row.estimated_s for row in mine]
        text = [row_text(row) for row in mine]
        line = {"color": color(number), "width": 2.5, "dash": DASHES.get(phase, "solid")}
        marker = {"symbol": symbol(number), "size": 8}
        traces.append(
            hover_line(x, y, text, f"{topology} {phase}", color(number), mode="lines+markers", line=line, marker=marker)
        )
        floors = [(row.block_size, row.floor_s) for row in mine if row.floor_s]
        if floors:
            words = [f"<b>floor · K = {size}</b><br>{format_seconds(seconds)}" for size, seconds in floors]
            thin = {"color": f"{color(number)}/0.6", "width": 1.2, "dash": "dot"}
            where = ([size for size, _ in floors], [seconds for _, seconds in floors])
            traces.append(hover_line(*where, words, f"{topology} {phase}: floor", color(number), line=thin, showlegend=False))
    shape = shape_text(rows[0].batch, rows[0].context)
    finding = compiled_finding(rows)
    known = [s for row in rows for s in (row.estimated_s, row.floor_s) if s]
    return Figure(
        key=f"compiled-{index}",
        title=finding,
        reading=f"{shape.capitalize()}. Thick: the compiler's estimate; thin dotted: the floor of the same work. "
        "K = 1 takes another code path, with an estimate far too long.",
        alt=f"Log-log chart of compiled step time against block size K, {shape}. {finding}",
        data=tuple(traces),
        layout={
            "xaxis": block_size_axis([row.block_size for row in rows]),
            "yaxis": axis("time per step", **seconds_ticks(known)),
        },
        height=440,
        folded=index > 0,
    )


def row_text(row: CompiledStep) -> str:
    """What hovering an estimate says."""
    return (
        f"<b>{escaped(row.topology)} {row.phase} · {block_size_text(row.block_size)}</b><br>"
        f"estimate {format_seconds(row.estimated_s)}, floor {format_seconds(row.floor_s)}<br>"
        f"{format_bytes(row.hbm_bytes)} moved, needs {format_bytes(row.needed_bytes)}{'' if row.fits else ': does not fit'}"
    )


def compiled_finding(rows: Sequence[CompiledStep]) -> str:
    """How far verify is flat on each chip by the compiler's account, else what was compiled."""
    widths = []
    for topology in dict.fromkeys(row.topology for row in rows):
        width = flat_width([row for row in rows if (row.topology, row.phase) == (topology, "verify")], FLAT_TOLERANCE)
        if width is not None:
            widths.append(f"K = {width} ({topology})")
    if widths:
        return f"By the compiler's account verify is flat (within {100 * FLAT_TOLERANCE:g} %) at least to {list_text(widths)}"
    return f"Compiled step times of {list_text(list(dict.fromkeys(row.topology for row in rows)))}"


def compiled_rows(rows: Sequence[CompiledStep]) -> Table:
    """A row per compiled program; one that failed shows its reason."""
    cells = [
        (
            row.topology,
            row.phase,
            str(row.block_size),
            str(row.num_speculative_tokens),
            shape_text(row.batch, row.context),
            format_seconds(row.estimated_s),
            format_seconds(row.floor_s),
            format_bytes(row.hbm_bytes),
            format_bytes(row.needed_bytes),
            "yes" if row.fits else f"no: {row.failure}" if row.failure else "no",
        )
        for row in rows
    ]
    pairs = list(dict.fromkeys(f"{row.target}{f' + {row.draft}' if row.draft else ''}, {row.dtype}" for row in rows))
    headers = ("topology", "phase", "K", "num_speculative_tokens", "shape", "estimate", "floor", "HBM bytes", "needs", "fits")
    caption = f"Compiled programs of {list_text(pairs)}, one device a row."
    return Table("compiled-rows", caption, headers, tuple(cells), text_columns=(0, 1, 4, 9), folded=len(cells) > 12)
