"""Results of another tool: acceptance with its counts, step times, and the definition they were read under."""

import msgspec

from ..phases import Phase
from .base import Finding, Record


class CostPoint(Record):
    """Time of one step of the target at one shape, s, out of someone's latency table.

    `tokens` are the query tokens of the whole batch; `context` is None where the table does not say it. `label` tells what was
    timed where that is not a step of the run's own target (the name of a device, the shape of a single matmul).
    """

    tokens: int
    batch: int
    context: int | None
    seconds: float
    phase: Phase = "verify"
    label: str = ""


class CyclePoint(Record):
    """Time of one whole speculative step, s: draft, verify and host together, as a server's own rates give it.

    `block_size` 1 is plain decoding. Such times hold everything between two steps, so no model of the device is fitted to them.
    """

    block_size: int
    batch: float | None
    context: int | None
    seconds: float
    num_steps: int | None = None


class ImportedRun(Record):
    """One run of another tool. Counts that the file did not hold are None, never 0.

    `num_steps` are steps in which drafts were verified, `num_draft_tokens` the drafts proposed in them and `num_accepted` the
    drafts accepted (bonus excluded); `block_size` is K, `tau` the mean of committed tokens per step, bonus included.
    `survival[i-1]` is P(at least i drafts accepted); `histogram[c-1]` counts the steps that committed c tokens; `committed`
    holds the counts of each answer where they are known. `num_warmup` and `num_plain` rows were read and left out of the
    counts: warm-ups, and answers without speculation. `phases_s` are times of a step's parts by the source's own names, s.
    """

    name: str
    source: str
    definition: str
    num_steps: int | None = None
    num_draft_tokens: int | None = None
    num_accepted: int | None = None
    block_size: int | None = None
    tau: float | None = None
    survival: tuple[float, ...] | None = None
    histogram: tuple[int, ...] | None = None
    committed: tuple[tuple[int, ...], ...] = ()
    tau_per_answer: float | None = None
    num_requests: int | None = None
    num_warmup: int = 0
    num_plain: int = 0
    num_output_tokens: int | None = None
    batch: float | None = None
    context: int | None = None
    method: str | None = None
    target: str | None = None
    draft: str | None = None
    task: str | None = None
    temperature: float | None = None
    engine: str | None = None
    plain_tokens_per_s: float | None = None
    tokens_per_s: float | None = None
    trained_block_size: int | None = None
    phases_s: dict[str, float] = msgspec.field(default_factory=dict)
    cost_points: tuple[CostPoint, ...] = ()
    cycles: tuple[CyclePoint, ...] = ()
    findings: tuple[Finding, ...] = ()


class Imported(Record):
    """What one or several files of an experiment held: the runs, and their totals where they may be added.

    Totals are those of the single run, or the sum over runs of one definition and one K; otherwise None.
    """

    source: str
    definition: str | None
    num_steps: int | None
    num_draft_tokens: int | None
    num_accepted: int | None
    block_size: int | None
    tau: float | None
    survival: tuple[float, ...] | None
    records: tuple[ImportedRun, ...]
    cost_points: tuple[CostPoint, ...] = ()
    files: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
