"""One sweep: what was asked, where it ran, what it decoded."""

from .base import Finding, Record
from .hardware import Hardware
from .model import ModelSpec


class RunSpec(Record):
    """What a sweep was asked to do; two sweeps with equal specs ask the same question.

    With `engine` a server at `base_url` is measured: `batches` are then requests in flight, `contexts` are left to the prompts,
    `launch` is the command that starts a server for one K (None: it runs already), and `choose` lets the tool choose among
    `block_sizes`. `trained_block_size` is the drafter's own block where its config was given.
    """

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
    engine: str | None = None
    base_url: str | None = None
    launch: str | None = None
    launch_limit_s: float | None = None
    choose: bool = False
    trained_block_size: int | None = None


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
    """One batch of prompts decoded at one block size: tokens, committed counts, times in seconds.

    Lowering, compiling, warming up and running are four numbers: `lower_s`, `compile_s` and `warmup_s` were spent once on the
    decoder that this run used (None: not recorded).
    """

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
    lower_s: float | None = None
    warmup_s: float | None = None
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
    task's prompts at that batch, at the contexts they have. `answer_s` and `answer_tokens` are the seconds of every answer and the
    tokens its steps added, in the order of the prompts (empty: not recorded).
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
    answer_s: tuple[float, ...] = ()
    answer_tokens: tuple[int, ...] = ()


class Run(Record):
    """A sweep as a whole: `run.json`. The dimensions of a pair behind a server are None where nobody gave its configs."""

    spec: RunSpec
    environment: Environment
    machine: Hardware | None
    target: ModelSpec | None
    draft: ModelSpec | None
    decodes: tuple[DecodeRun, ...]
    checks: tuple[CheckedK, ...]
    lossless: bool | None
    lossless_compared: int
    profiler_overhead: float | None
    wall_s: dict[str, float]
    findings: tuple[Finding, ...] = ()
    failures: tuple[str, ...] = ()
