"""What if: the same step-time law and acceptance under another K, batch, context, drafter quality or chip, recomputed in the page.

The page holds what the law needs as data: the dimensions of the pair, the constants of every chip (fitted for the measured one,
peaks and priors for those known by data sheet) and the survival curve of every task. `templates/whatif.js` holds the equations.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import msgspec
import numpy as np

from perfmodel.acceptance import measured_block_size, tau_curve
from perfmodel.cost import DTYPE_BYTES
from perfmodel.errors import InputError
from perfmodel.hardware import load_hardware, names
from perfmodel.modelspec import load_model
from perfmodel.parallel import egress_bytes_per_s
from perfmodel.records import AcceptanceProfile, FittedModel, Hardware, KPrediction, ModelSpec
from perfmodel.roofline import peak_flops_per_s
from perfmodel.stepgrid import StepGrid, datasheet_grid, fitted_grid
from perfmodel.stepmodel import PRIORS, ROOFLINE, values_of
from perfmodel.steptime import host_mode_s, prior_values
from perfmodel.units import format_ratio

from .figure import Figure, Trace, axis, escaped, hover_line
from .inputs import PageInputs
from .section import Section, absent, shape_text
from .wording import block_size_text, number_text

DATASHEET_DTYPE = "bfloat16"
WIDEST = 64
"""Largest K of the slider; beyond the drafter's own block τ is the fitted tail's."""


@dataclass(frozen=True)
class Chip:
    """Constants of one chip as the law takes them; `model` is None for a chip known by its data sheet alone."""

    name: str
    hardware: Hardware
    dtype: str
    values: dict[str, float]
    plain_host_s: float
    drafting_host_s: float
    model: FittedModel | None = None

    def document(self) -> dict[str, Any]:
        """What the page's script needs of the chip."""
        several = self.hardware.num_chips > 1
        return {
            "name": self.name,
            "dtype": self.dtype,
            "source": "datasheet" if self.model is None else "measured",
            "values": self.values,
            "bandwidth_bytes_per_s": self.hardware.bandwidth_bytes_per_s.value,
            "peak_flops_per_s": peak_flops_per_s(self.hardware, self.dtype),
            "num_chips": self.hardware.num_chips,
            "egress_bytes_per_s": egress_bytes_per_s(self.hardware) if several else None,
            "reduce_latency_s": PRIORS["reduce_latency_s"].mode,
            "host_s": {"plain": self.plain_host_s, "drafting": self.drafting_host_s},
        }


@dataclass(frozen=True)
class Task:
    """The acceptance of one task as a survival curve up to the widest K, with the block its drafter was made for."""

    name: str
    survival: tuple[float, ...]
    trained_block_size: int

    def document(self) -> dict[str, Any]:
        """What the page's script needs of the task."""
        return {"name": self.name, "survival": self.survival, "trained_block_size": self.trained_block_size}


@dataclass(frozen=True)
class WhatIf:
    """All that can be varied, and the setting the page opens with (indices into chips and tasks)."""

    target: ModelSpec
    draft: ModelSpec
    chips: tuple[Chip, ...]
    tasks: tuple[Task, ...]
    chip: int
    batch: int
    context: int
    block_size: int

    @property
    def widest(self) -> int:
        """Largest K that every task's curve covers."""
        return min(len(task.survival) for task in self.tasks) + 1

    def document(self) -> dict[str, Any]:
        """The page's data: records and constants, no equation."""
        return {
            "pair": {"target": msgspec.to_builtins(self.target), "draft": msgspec.to_builtins(self.draft)},
            "dtype_bytes": DTYPE_BYTES,
            "chips": [chip.document() for chip in self.chips],
            "tasks": [task.document() for task in self.tasks],
            "start": {"chip": self.chip, "batch": self.batch, "context": self.context, "block_size": self.block_size},
            "batches": sorted({self.batch, *(2**power for power in range(11))}),
            "contexts": sorted({self.context, *(2**power for power in range(6, 18))}),
            "widest": self.widest,
        }


def what_if(inputs: PageInputs) -> WhatIf | str:
    """What the sliders may vary, or why there are none."""
    pair = _pair(inputs)
    if isinstance(pair, str):
        return pair
    target, draft = pair
    tasks = _tasks(inputs, draft)
    if not tasks:
        return "no acceptance of this drafter by position is known"
    chips = _chips(inputs)
    shown = _shown(inputs)
    names = [chip.hardware.name for chip in chips]
    start = 0 if shown is None or shown.source == "measured" or shown.hardware not in names else names.index(shown.hardware)
    batch, context = (shown.batch, shown.context) if shown else (1, 1024)
    size = shown.best.block_size if shown else tasks[0].trained_block_size
    return WhatIf(target, draft, chips, tasks, start, batch, context, size)


def _shown(inputs: PageInputs) -> KPrediction | None:
    known = inputs.predictions
    return next(iter(known.here or known.elsewhere), None) if known else None


def _pair(inputs: PageInputs) -> tuple[ModelSpec, ModelSpec] | str:
    model, run, shown = inputs.model, inputs.run, _shown(inputs)
    if model is not None and model.target is not None and model.draft is not None:
        return model.target, model.draft
    if run is not None and run.target is not None and run.draft is not None:
        return run.target, run.draft
    if shown is None:
        return "no model with a drafter and no prediction is given"
    try:
        return load_model(shown.target, "target"), load_model(shown.draft, "draft")
    except InputError:
        return "the dimensions of the pair are unknown"


def _chips(inputs: PageInputs) -> tuple[Chip, ...]:
    """The fitted chip first, then every chip that ships with a peak for the data sheets' dtype."""
    chips = [] if inputs.model is None else _fitted(inputs.model, inputs)
    priors = prior_values()
    plain, drafting = host_mode_s(np.array([1, 2])).tolist()
    chips += [
        Chip(f"{hardware.name} (data sheet)", hardware, DATASHEET_DTYPE, priors, plain, drafting) for hardware in _shipped_chips()
    ]
    return tuple(chips)


@cache
def _shipped_chips() -> tuple[Hardware, ...]:
    chips = [load_hardware(name) for name in names()]
    return tuple(chip for chip in chips if peak_flops_per_s(chip, DATASHEET_DTYPE) is not None)


def _fitted(model: FittedModel, inputs: PageInputs) -> list[Chip]:
    if model.form != ROOFLINE or model.hardware is None or model.target is None or model.draft is None:
        return []
    if model.dtype not in DTYPE_BYTES:
        return []
    shown = next((p for p in inputs.predictions.here if p.source == "measured"), None) if inputs.predictions else None
    rows = shown.rows if shown else ()
    plain = next((row.host_s for row in rows if row.block_size == 1 and row.host_s is not None), 0.0)
    drafting = next((row.host_s for row in rows if row.block_size > 1 and row.host_s is not None), plain)
    name = f"{model.hardware.display_name} (fitted)"
    return [Chip(name, model.hardware, model.dtype, values_of(model), plain, drafting, model)]


def _tasks(inputs: PageInputs, draft: ModelSpec) -> tuple[Task, ...]:
    profiles = inputs.acceptance.profiles if inputs.acceptance else ()
    mine = [profile for profile in profiles if profile.draft in ("", draft.name)]
    if mine:
        return tuple(task for profile in mine if (task := _of_profile(profile, draft)) is not None)
    shown = _shown(inputs)
    if shown is None or inputs.predictions is None:
        return ()
    shape = (shown.hardware, draft.name, shown.batch, shown.context)
    known = (*inputs.predictions.here, *inputs.predictions.elsewhere)
    alike = [p for p in known if (p.hardware, p.draft, p.batch, p.context) == shape]
    return tuple(task for p in alike if (task := _of_rows(p)) is not None)


def _of_profile(profile: AcceptanceProfile, draft: ModelSpec) -> Task | None:
    trained = draft.block_size or profile.trained_block_size or measured_block_size(profile)
    try:
        curve = tau_curve(profile, WIDEST)
    except InputError:
        return None
    return Task(profile.task, tuple(np.diff(curve).tolist()), trained)


def _of_rows(prediction: KPrediction) -> Task | None:
    """The survival behind a prediction's rows, S_i = τ(i+1) − τ(i), where they run from K = 1 without a gap."""
    rows = sorted(prediction.rows, key=lambda row: row.block_size)
    whole = [row.tau for index, row in enumerate(rows, start=1) if row.block_size == index]
    trained = prediction.trained_block_size or len(whole)
    return Task(prediction.task, tuple(np.diff(whole).tolist()), min(trained, len(whole))) if len(whole) > 1 else None


def grid_of(what: WhatIf, chip: Chip, block_sizes: Sequence[int], batches: Sequence[int], contexts: Sequence[int]) -> StepGrid:
    """Step times of a chip as Python computes them: what the page's script must agree with."""
    if chip.model is not None:
        return fitted_grid(chip.model, block_sizes, batches, contexts, host_s=chip.plain_host_s)
    return datasheet_grid(chip.hardware, what.target, what.draft, block_sizes, batches, contexts, chip.dtype)


def whatif_section(inputs: PageInputs) -> tuple[Section, WhatIf | None]:
    """Section 8 and its data: sliders, and the curve of speedup under the setting they show."""
    title = "What if"
    what = what_if(inputs)
    if isinstance(what, str):
        return absent("whatif", title, what), None
    paragraph = (
        "Recomputed here in the page from the constants of the step-time law and the acceptance above; single values, "
        "no intervals. A chip by its data sheet takes the priors, as the table of other chips does. "
        f"α scale multiplies every conditional acceptance: what a better or worse drafter of {what.draft.name}'s cost would give."
    )
    return Section("whatif", title, paragraphs=(paragraph,), figures=(_figure(what),)), what


def _figure(what: WhatIf) -> Figure:
    """Speedup against K under the setting the page opens with; the script draws it anew for every other."""
    chip, task = what.chips[what.chip], what.tasks[0]
    sizes = list(range(1, what.widest + 1))
    step_s = grid_of(what, chip, sizes, [what.batch], [what.context]).step_s[:, 0, 0]
    tau = np.concatenate([[1.0], 1.0 + np.cumsum(task.survival[: what.widest - 1])])
    speedup = (tau * step_s[0] / step_s).tolist()
    best = int(np.argmax(speedup[: task.trained_block_size])) + 1
    finding = (
        f"{task.name} on {chip.name}, {shape_text(what.batch, what.context)}: "
        f"best at K = {best} with {format_ratio(speedup[best - 1])}"
    )
    text = [
        f"<b>{escaped(task.name)} · {block_size_text(size)}</b><br>{number_text(gain)}× over plain decoding<br>τ = {number_text(mean)}"
        for size, gain, mean in zip(sizes, speedup, tau.tolist(), strict=True)
    ]
    trace: Trace = hover_line(sizes, speedup, text, task.name, "@blue", mode="lines+markers", marker={"size": 6})
    return Figure(
        key="whatif",
        title=finding,
        reading="Dotted: beyond the block the drafter was trained for. The ring marks the K of the slider.",
        alt=f"Line chart of speedup against block size K under the setting of the sliders. {finding}",
        data=(trace,),
        layout={
            "xaxis": axis("block size K (tokens verified per step)", range=[0, what.widest + 1], tick0=0, dtick=4),
            "yaxis": axis("speedup over plain decoding (×)", rangemode="tozero"),
            "showlegend": False,
            "shapes": [
                {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": 1, "y1": 1, "line": {"color": "@ink", "width": 1.2}}
            ],
        },
        height=360,
    )
