"""What stands under a prediction's table: what would flip it, how far K could go, what tokens cost; and the map of a grid."""

import numpy as np
from rich.console import Group, RenderableType
from rich.text import Text

from perfmodel.landscape import Landscape
from perfmodel.records import KPrediction
from perfmodel.units import format_percent, format_ratio, format_seconds

from .terminal import lines_of, table_of
from .wording import interval_text, range_text, speedup_text

_CONSTANTS = {
    "memory_efficiency": "memory efficiency",
    "compute_efficiency": "compute efficiency",
    "compute_flops_per_s": "compute rate",
    "exponent": "sharpness of the knee",
    "overhead_s": "fixed time of a verify pass",
    "draft_overhead_s": "fixed time of a draft pass",
    "commit_overhead_s": "fixed time of a context update",
    "batch_overhead_s": "time per request",
    "host_s": "host time per step",
    "drafting_host_s": "host time of drafting",
    "kernel": "the single-token kernel",
    "cache_slowdown": "price of a cached byte",
    "attention_slowdown": "price of attention",
    "plateau_s": "time of the flat part",
    "token_s": "time per token",
}


def why_this_k(prediction: KPrediction) -> str:
    """One line on where a recommended K comes from, for the head of pasted settings."""
    best = prediction.best
    gain = speedup_text(best.speedup, best.speedup_low, best.speedup_high)
    place = f"{prediction.hardware or 'measured cycle times'}, batch {best.batch}, context {best.context}"
    if prediction.worth_it is False:
        return f"{prediction.task} on {place}: plain decoding is fastest ({prediction.source} prediction)"
    lead = f"K={best.block_size} for {prediction.task} on {place}"
    return f"{lead}: {gain} against plain decoding ({prediction.source} prediction)" if best.speedup else lead


def details(prediction: KPrediction) -> RenderableType:
    """Lines under the table of one prediction; a fact that is unknown has no line."""
    pairs = []
    spread = [
        ("acceptance", prediction.acceptance_low, prediction.acceptance_high),
        ("step times", prediction.cost_low, prediction.cost_high),
    ]
    parts = [f"{interval_text(low, high)} from {name}" for name, low, high in spread if low is not None]
    if parts:
        pairs.append(("uncertainty alone", ", ".join(parts)))
    least, most = prediction.best_block_size_low, prediction.best_block_size_high
    if least is not None and most is not None:
        pairs.append(("best K in the draws", f"{range_text(least, most)} (95 %)"))
    if prediction.ceiling is not None:
        pairs.append(("ceiling", f"{format_ratio(prediction.ceiling)} with every draft accepted"))
    if prediction.tau_share is not None:
        share = format_percent(prediction.tau_share)
        low, high = prediction.tau_share_low, prediction.tau_share_high
        interval = f" ({format_percent(low)}–{format_percent(high)})" if low is not None and high is not None else ""
        pairs.append(("of an endless block's τ", f"{share}{interval} at K={prediction.best.block_size}"))
    if prediction.reach and prediction.best.block_size > 1:
        reach = ", ".join(f"{round(100 * float(share))} % from K={size}" for share, size in prediction.reach.items())
        pairs.append(("of the best", reach))
    flips = flip_texts(prediction)
    if flips:
        pairs.append(("would flip it", "; ".join(flips)))
    if prediction.usd_per_hour is not None and prediction.best.usd_per_million_tokens is not None:
        cost = f"${prediction.best.usd_per_million_tokens:.3g} a million tokens at ${prediction.usd_per_hour:g} an hour"
        plain = prediction.rows[0]
        if plain.block_size == 1 and plain.usd_per_million_tokens is not None and prediction.best.block_size > 1:
            cost += f" (plain decoding ${plain.usd_per_million_tokens:.3g})"
        pairs.append(("cost", cost))
    return lines_of(pairs)


def flip_texts(prediction: KPrediction) -> list[str]:
    """What would have to change before another K wins, the least change first."""
    found: list[tuple[float, str]] = []
    known = prediction.sensitivity
    for way in ("up", "down"):
        factor = known.get(f"alpha_factor_{way}")
        if factor is not None:
            winner = round(known[f"alpha_winner_{way}"])
            found.append((abs(np.log(factor)), f"acceptance of every draft × {factor:.2f} (K={winner})"))
        for name, words in _CONSTANTS.items():
            factor = known.get(f"{name}_factor_{way}")
            if factor is not None:
                winner = round(known[f"{name}_winner_{way}"])
                found.append((abs(np.log(factor)), f"{words} × {factor:.2f} (K={winner})"))
    if "host_s_added" in known:
        added = format_seconds(known["host_s_added"])
        found.append((1.0, f"{added} more in every step (K={round(known['host_s_winner'])})"))
    return [text for _, text in sorted(found)][:4]


def landscape_tables(grid: Landscape) -> RenderableType:
    """The best K by batch and context, one table per chip and task."""
    tables = []
    for chip, chip_name in enumerate(grid.chips):
        for task, task_name in enumerate(grid.tasks):
            rows = [
                (str(batch), *(f"{k} ({k - 1})" for k in grid.best[chip, task, index].tolist()))
                for index, batch in enumerate(grid.batches.tolist())
            ]
            columns = [("batch", "right"), *((f"context {context}", "right") for context in grid.contexts.tolist())]
            tables.append(table_of(f"{task_name} on {chip_name}: best K (K − 1)", columns, rows))
    note = f"{grid.num_cells:,} cells, no intervals: ask for fewer to get them, or use --json for every cell"
    return Group(*tables, Text(note, style="dim"))
