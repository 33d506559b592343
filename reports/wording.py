"""Numbers and causes in words: one phrase per fact, so that page and terminal say the same thing.

K and what engines call it differ by one (`num_speculative_tokens` = K − 1), so `block_size_text` always gives both.
"""

from collections.abc import Sequence

from perfmodel.records import CheckedK, Environment, KPrediction, KRow, Run
from perfmodel.units import format_percent, format_ratio

BOUND_WORDS: dict[str, str] = {
    "memory": "the step waits for weights",
    "experts": "the step waits for expert weights",
    "kv": "the step waits for the KV cache",
    "compute": "arithmetic takes over",
    "overhead": "fixed overhead (host, launch) outweighs the work",
    "kernel": "K = 1 runs on a kernel of its own",
}
"""Why a step takes as long as it does, per `Bound`; reads after "because"."""


def block_size_text(block_size: int) -> str:
    """K with the engines' name for it, for example `K = 8 (num_speculative_tokens 7)`."""
    return f"K = {block_size} (num_speculative_tokens {block_size - 1})"


def range_text(low: int, high: int) -> str:
    """A range of block sizes: `K = 6–10`, or `K = 8` when it holds one."""
    return f"K = {low}" if low == high else f"K = {low}–{high}"


def number_text(value: float | None, digits: int = 3) -> str:
    """A plain number with the given significant digits; `unknown` for None."""
    return format_ratio(value, digits).rstrip("×")


def interval_text(low: float | None, high: float | None, digits: int = 3) -> str:
    """An interval in brackets, `(1.10–1.26)`; empty when either end is unknown."""
    if low is None or high is None:
        return ""
    return f"({number_text(low, digits)}–{number_text(high, digits)})"


def speedup_text(value: float | None, low: float | None, high: float | None) -> str:
    """A speedup with its interval, for example `1.18× (1.10–1.26)`."""
    return f"{format_ratio(value)} {interval_text(low, high)}".strip()


def tau_text(row: KRow) -> str:
    """Mean committed tokens per step with its interval, for example `1.71 (1.62–1.80)`."""
    return f"{number_text(row.tau)} {interval_text(row.tau_low, row.tau_high)}".strip()


def step_ratio(row: KRow) -> float | None:
    """Time of the speculative step over a plain step: r = τ / speedup (architecture.md §4); None without a speedup."""
    return row.tau / row.speedup if row.speedup else None


def signed_percent(share: float | None, digits: int = 2) -> str:
    """A relative error with its sign, for example `+4.2 %`; `unknown` for None."""
    if share is None:
        return "unknown"
    return f"{'+' if share > 0 else '−' if share < 0 else ''}{format_percent(abs(share), digits)}"


def machine_text(environment: Environment) -> str:
    """The machine in one phrase: the accelerator, or the processor and its cores."""
    cores = f"{environment.num_cores} core{'' if environment.num_cores == 1 else 's'}"
    if environment.platform == "server":
        return environment.device_kind
    if environment.platform == "cpu":
        return f"{environment.host_cpu}, {cores}"
    return f"{environment.num_devices} × {environment.device_kind}; host {environment.host_cpu}, {cores}"


def place_text(prediction: KPrediction, run: Run | None) -> str:
    """Where an answer holds, as the start of a sentence: `On this machine (…)` or `On tpu-v5p`."""
    if prediction.source == "measured" and run is not None and run.environment.platform == "server":
        return f"On the {run.environment.device_kind}"
    if prediction.source == "measured" and run is not None:
        return f"On this machine ({machine_text(run.environment)})"
    if prediction.source == "datasheet":
        return f"On {prediction.hardware} by its datasheet"
    return f"On {prediction.hardware}" if prediction.hardware else "By the given step times"


def check_at(checks: Sequence[CheckedK], prediction: KPrediction) -> CheckedK | None:
    """The measured check of a prediction's best block size, if it was made."""
    wanted = (prediction.task, prediction.best.block_size, prediction.batch)
    found = (c for c in checks if (c.task, c.block_size, c.batch) == wanted and c.context in (None, prediction.context))
    return next((c for c in found if c.measured_speedup is not None), None)


def list_text(items: Sequence[str]) -> str:
    """Items joined as in prose: `a, b and c`."""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}" if items else ""
