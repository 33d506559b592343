"""One sweep: what was asked, where it ran, what it decoded."""

from .base import Finding, Record
from .hardware import Hardware
from .model import ModelSpec


class RunSpec(Record):
    """What a sweep was asked to do; two sweeps with equal specs ask the same question."""

    target: str
    draft: str
    tasks: tuple[str, ...]
    block_sizes: tuple[int, ...]
    batches: tuple[int, ...]
    contexts: tuple[int, ...]
    dtype: str
    max_new_tokens: int
    num_prompts: int
    repeats: int
    hardware: tuple[str, ...]
    quick: bool = False
    prompts_file: str | None = None
    weights: str = "checkpoint"


class Environment(Record):
    """What makes two runs comparable: the device, the versions and the flags that change numbers."""

    device_kind: str
    platform: str
    num_devices: int
    host_cpu: str
    num_cores: int
    versions: dict[str, str]
    flags: dict[str, str]
    commit: str | None
    perf_version: str


class DecodeRun(Record):
    """One batch of prompts decoded at one block size: tokens, committed counts, times in seconds."""

    task: str
    block_size: int
    batch: int
    prompt_tokens: tuple[int, ...]
    tokens: tuple[tuple[int, ...], ...]
    committed: tuple[tuple[int, ...], ...]
    ttft_s: float
    compile_s: float
    decode_s: float
    step_wall_s: tuple[float, ...]
    trace: str | None = None
    failure: str | None = None

    @property
    def num_steps(self) -> int:
        """Steps summed over requests."""
        return sum(len(steps) for steps in self.committed)

    @property
    def num_committed(self) -> int:
        """Tokens committed by steps (the prefill's token is not one of them)."""
        return sum(sum(steps) for steps in self.committed)


class CheckedK(Record):
    """Predicted against measured at one block size of one task; times in seconds per token.

    `batch` and `context` are those of the prediction that was checked (None: not recorded); the loop itself answered the
    task's prompts at that batch, at the contexts they have.
    """

    task: str
    block_size: int
    predicted_speedup: float | None
    measured_speedup: float | None
    measured_low: float | None = None
    measured_high: float | None = None
    measured_tpot_s: float | None = None
    predicted_tpot_s: float | None = None
    num_tokens: int = 0
    batch: int = 1
    context: int | None = None


class Run(Record):
    """A sweep as a whole: `run.json`."""

    spec: RunSpec
    environment: Environment
    machine: Hardware | None
    target: ModelSpec
    draft: ModelSpec
    decodes: tuple[DecodeRun, ...]
    checks: tuple[CheckedK, ...]
    lossless: bool | None
    lossless_compared: int
    profiler_overhead: float | None
    wall_s: dict[str, float]
    findings: tuple[Finding, ...] = ()
    failures: tuple[str, ...] = ()
