"""What K is worth: one row per block size, each with an interval."""

from typing import Literal

import msgspec

from .base import Finding, Record

Bound = Literal["memory", "experts", "kv", "compute", "overhead", "kernel"]
PredictionSource = Literal["datasheet", "compiled", "measured", "published"]
TauSource = Literal["measured", "estimated", "extrapolated"]


class KRow(Record):
    """Time and gain of one block size. Seconds are per step; `*_low`, `*_high` are 95 % intervals.

    `tau_source` says where τ comes from: read off the measured curve, estimated between given mean lengths, or extrapolated
    beyond them. `in_training` is False beyond the drafter's own block, where no curve can be trusted. `extrapolated` is True
    when τ or the step time lies outside what was measured. `usd_per_million_tokens` is the price of generated tokens, where
    the chip's is known.
    """

    block_size: int
    batch: int
    context: int
    draft_s: float | None
    verify_s: float | None
    host_s: float | None
    tau: float
    tpot_s: float | None
    speedup: float | None
    speedup_low: float | None = None
    speedup_high: float | None = None
    tau_low: float | None = None
    tau_high: float | None = None
    bound: Bound | None = None
    extrapolated: bool = False
    tau_source: TauSource = "measured"
    in_training: bool = True
    usd_per_million_tokens: float | None = None

    @property
    def num_speculative_tokens(self) -> int:
        """Drafts per step, as vLLM counts them: K − 1."""
        return self.block_size - 1


class KPrediction(Record):
    """The answer for one task on one chip: rows per K, the best, and the plateau that is as good.

    `best_block_size_low` … `_high` is the 95 % interval of the best K over the draws of acceptance and cost. `cost_*` and
    `acceptance_*` are the interval of the best row's speedup with only that one uncertainty. `ceiling` is the best speedup any
    drafter could give here (every draft accepted). `reach` maps a share ("0.90") to the smallest K that gives it.
    `sensitivity` says by which factor one thing must change before another K wins; see `perfmodel.sensitivity`. `tau_share` is the
    share of an unlimited block's τ that the best K captures. `usd_per_hour` is the price that costs are computed with.
    """

    hardware: str
    target: str
    draft: str
    task: str
    source: PredictionSource
    batch: int
    context: int
    rows: tuple[KRow, ...]
    best: KRow
    plateau: tuple[int, int]
    worth_it: bool | None
    break_even_tau: float | None
    ceiling: float | None = None
    cost_low: float | None = None
    cost_high: float | None = None
    acceptance_low: float | None = None
    acceptance_high: float | None = None
    best_block_size_low: int | None = None
    best_block_size_high: int | None = None
    reach: dict[str, int] = msgspec.field(default_factory=dict)
    trained_block_size: int | None = None
    label: str = ""
    sensitivity: dict[str, float] = msgspec.field(default_factory=dict)
    tau_share: float | None = None
    tau_share_low: float | None = None
    tau_share_high: float | None = None
    usd_per_hour: float | None = None
    findings: tuple[Finding, ...] = ()


class PredictionSet(Record):
    """All predictions of a sweep: `prediction.json`. `here` is this machine, `elsewhere` chips by datasheet."""

    here: tuple[KPrediction, ...]
    elsewhere: tuple[KPrediction, ...] = ()
    findings: tuple[Finding, ...] = ()
