"""Time per token of B over A: what a reader of the answer waits for, predicted and as the loop took it.

A speedup is each side's gain over its own plain decoding; time per token compares the sides themselves. Where both ran on one
machine, plain decoding of the same answers stands beside it: it should take both sides equally long, and how far it does not is the
machine's drift between the runs, which is taken out.
"""

from collections.abc import Sequence

from perfmodel.units import format_ratio, format_seconds

from .difference import Difference, TaskDifference, Verdict
from .figure import Figure, Trace, axis, escaped, hover_line
from .section import Section, Table, absent, shape_text
from .wording import block_size_text, interval_text, list_text, speedup_text

PREDICTED, SETTLED, TIMED, PLAIN = "predicted", "measured", "measured as timed", "plain decoding as timed"

MARKS = {
    PREDICTED: ("@purple", "circle"),
    SETTLED: ("@green", "diamond"),
    TIMED: ("@blue", "diamond-open"),
    PLAIN: ("@muted", "square-open"),
}
"""Each kind of ratio with its colour and marker."""


def per_token_section(tasks: tuple[TaskDifference, ...]) -> Section:
    """The ratio of times per token at each side's best K, by task, with what was paired."""
    title = "Time per token"
    known = [one for one in tasks if one.predicted is not None]
    if not known:
        return absent("pertoken", title, "no time per token is known of both sides")
    several = len({(one.a.batch, one.a.context) for one in known}) > 1
    rows = [row for one in known for row in _rows(one, several)]
    table = Table(
        key="pertoken",
        caption=f"Time per token at each side's own best K. {pairing_text(known)}"
        f"{f' Predicted and measured are taken{drift_text(known)}.' if drift_text(known) else ''}",
        headers=("task", "", "K A", "K B", "A", "B", "B/A", "95 %"),
        rows=tuple(rows),
        text_columns=(0, 1),
    )
    return Section("pertoken", title, figures=(per_token_figure(known, several),), tables=(table,))


def drift_text(tasks: Sequence[TaskDifference]) -> str:
    """That the machine's drift is out of the ratios, where it is: ` over plain decoding, …`; empty where there is none."""
    if all(one.settled is None for one in tasks):
        return ""
    return (
        " over plain decoding of the same side, which on one machine should take both equally long (how far it does not is the "
        "machine's drift between the runs)"
    )


def verdict(one: TaskDifference) -> Verdict:
    """Which side takes longer per token: as measured where that has an interval, without the drift where it is known; else predicted."""
    if one.measured is not None:
        found = (one.measured.settled or one.measured.tpot).verdict(1.0)
        if found != "unknown":
            return found
    return "unknown" if one.predicted is None else one.predicted.verdict(1.0)


def lead(tasks: tuple[TaskDifference, ...]) -> str:
    """All tasks in one sentence: on which B or A is faster per token, and on which that cannot be told. Empty when nothing is known."""
    named = [(_name(one, tasks), verdict(one)) for one in tasks if one.predicted is not None]
    a, b = _called(tasks)
    words = {
        "a": f"{b} is faster on",
        "b": f"{a} is faster on",
        "undecided": "they cannot be told apart on",
        "unknown": "the error is unknown on",
    }
    parts = [
        f"{text} {list_text([name for name, found in named if found == kind])}"
        for kind, text in words.items()
        if any(found == kind for _, found in named)
    ]
    return f"Per token, {'; '.join(parts)}" if parts else ""


def _called(tasks: tuple[TaskDifference, ...]) -> tuple[str, str]:
    """The sides by letter, with what tells them apart."""
    names = apart(tasks)
    return ("A", "B") if names is None else (f"A ({names[0]})", f"B ({names[1]})")


def apart(tasks: tuple[TaskDifference, ...]) -> tuple[str, str] | None:
    """What tells the sides apart in a word: their drafters where they differ, else their chips where those do; None for neither."""
    for field in ("draft", "hardware"):
        a, b = ({getattr(one.a, field) for one in tasks}, {getattr(one.b, field) for one in tasks})
        if len(a) == len(b) == 1 and a != b and "" not in a | b:
            return a.pop(), b.pop()
    return None


def _name(one: TaskDifference, tasks: tuple[TaskDifference, ...]) -> str:
    several = len({(other.a.batch, other.a.context) for other in tasks}) > 1
    return f"{one.task} ({shape_text(one.a.batch, one.a.context)})" if several else one.task


def sentence(one: TaskDifference) -> str:
    """One task's ratio, predicted and measured: `a token takes B 1.08× (1.02–1.15) as long as A by prediction, …`."""
    if one.predicted is None:
        return ""
    text = f"a token takes B {_ratio(one.predicted)} as long as A by prediction"
    if one.measured is None:
        return text
    measured = one.measured
    answers = f" on {measured.num_answers} answers" if measured.num_answers else ""
    beside = "" if measured.plain is None else f"; plain decoding beside it {format_ratio(measured.plain.value)}"
    if measured.settled is None:
        return f"{text}, {_ratio(measured.tpot)} as timed{answers}{beside}"
    return (
        f"{text}, {_ratio(measured.settled)} as measured{answers} "
        f"(as timed {format_ratio(measured.tpot.value)}{beside}: the machine's drift, taken out)"
    )


def _ratio(difference: Difference) -> str:
    return speedup_text(difference.value, difference.low, difference.high)


def pairing_text(tasks: list[TaskDifference]) -> str:
    """What is common to both sides, and so has left the interval."""
    prompts = [one.task for one in tasks if one.shared.prompts]
    steps = [one.task for one in tasks if one.shared.steps]
    parts = []
    if len(prompts) == len(tasks):
        parts.append("Both sides answered the same prompts: every draw takes the same answers of both.")
    elif prompts:
        parts.append(f"Paired by prompt: {list_text(prompts)}; elsewhere the prompts are taken as different ones.")
    else:
        parts.append("The prompts are not known to be the same, so the answers of the two sides are taken as independent.")
    if len(steps) == len(tasks):
        parts.append("The step times of both come from one source, whose error is drawn once for both.")
    else:
        parts.append("The errors of the step times are taken as independent.")
    return " ".join(parts)


def kinds(one: TaskDifference) -> list[tuple[str, int, int, Difference]]:
    """(kind, K of A, K of B, ratio) of what is known of one task."""
    sizes = one.a.best.block_size, one.b.best.block_size
    found = [(PREDICTED, *sizes, one.predicted)] if one.predicted else []
    if one.measured is not None:
        found += [(SETTLED, *sizes, one.measured.settled)] if one.measured.settled else []
        found.append((TIMED, *sizes, one.measured.tpot))
        found += [(PLAIN, 1, 1, one.measured.plain)] if one.measured.plain else []
    return found


def _rows(one: TaskDifference, several: bool) -> list[tuple[str, ...]]:
    task = f"{one.task}, {shape_text(one.a.batch, one.a.context)}" if several else one.task
    return [
        (
            task if number == 0 else "", kind, str(size_a), str(size_b), *_sides(one, kind, d),
            format_ratio(d.value), interval_text(d.low, d.high) or "unknown",
        )
        for number, (kind, size_a, size_b, d) in enumerate(kinds(one))
    ]  # fmt: skip


def _sides(one: TaskDifference, kind: str, difference: Difference) -> tuple[str, str]:
    """A's and B's own number: seconds per token, or, with the drift taken out, that over plain decoding."""
    show = format_ratio if _of_plain(one, kind) else format_seconds
    return show(difference.a), show(difference.b)


def _of_plain(one: TaskDifference, kind: str) -> bool:
    """Whether a kind of ratio compares time per token over plain decoding, so that the machine's drift is out of it."""
    return kind == SETTLED or (kind == PREDICTED and one.settled is not None)


def per_token_figure(tasks: list[TaskDifference], several: bool) -> Figure:
    """B over A per task: a mark for what was predicted and for what was measured, with bars for the intervals."""
    finding = lead(tuple(tasks))
    names = [_name(one, tuple(tasks)) for one in tasks]
    traces = [trace for kind in MARKS if (trace := _trace(tasks, names, kind)) is not None]
    ends = [end for one in tasks for *_, d in kinds(one) for end in (d.value, d.low, d.high) if end is not None] + [1.0]
    room = max(0.08 * (max(ends) - min(ends)), 0.02)
    line = {"type": "line", "yref": "paper", "y0": 0, "y1": 1, "x0": 1, "x1": 1, "line": {"color": "@ink", "width": 1.2}}
    places = {"tickvals": [-index for index in range(len(names))], "range": [0.5 - len(names), 0.5]}
    return Figure(
        key="pertoken",
        title=finding,
        reading="Time per token, B over A, each at its own best K; left of the line B is faster. Bars: 95 %.",
        alt=f"Interval chart of time per token, B over A, by task. {finding}.",
        data=tuple(traces),
        layout={
            "xaxis": axis("time per token, B over A (×)", range=[max(0.0, min(ends) - room), max(ends) + room]),
            "yaxis": axis("", showgrid=False, ticktext=[escaped(name) for name in names], **places),
            "shapes": [line],
        },
        height=170 + 84 * len(tasks) + (20 if several else 0),
    )


def _trace(tasks: list[TaskDifference], names: list[str], kind: str) -> Trace | None:
    token, symbol = MARKS[kind]
    offset = 0.24 - 0.16 * list(MARKS).index(kind)
    found = [(index, sizes, d) for index, one in enumerate(tasks) for name, *sizes, d in kinds(one) if name == kind]
    units = ["of plain decoding" if _of_plain(one, kind) else "per token" for one in tasks]
    if not found:
        return None
    text = [
        f"<b>{escaped(names[index])} · {kind}</b><br>A: {block_size_text(sizes[0])}, {_sides(tasks[index], kind, d)[0]} {units[index]}"
        f"<br>B: {block_size_text(sizes[1])}, {_sides(tasks[index], kind, d)[1]} {units[index]}<br>B over A {_ratio(d)}"
        for index, sizes, d in found
    ]
    bars = {
        "type": "data", "symmetric": False, "color": token, "thickness": 2, "width": 5,
        "array": [(d.high or d.value) - d.value for *_, d in found],
        "arrayminus": [d.value - (d.low or d.value) for *_, d in found],
    }  # fmt: skip
    marker = {"symbol": symbol, "size": 10, "color": token}
    places = [offset - index for index, *_ in found]
    return hover_line([d.value for *_, d in found], places, text, kind, token, mode="markers", marker=marker, error_x=bars)
