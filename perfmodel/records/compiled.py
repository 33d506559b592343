"""What the TPU compiler says of a step: cycles it estimates, bytes it moves, memory it needs, on a chip that is not there."""

from typing import Literal

import msgspec

from ..phases import Phase
from .base import Finding, Record

CompiledPhase = Phase | Literal["step", "loop"]
"""A phase alone, the whole step as one program, or the loop that runs steps until every answer is finished."""


class CompiledStep(Record):
    """One program compiled for one device. Counts are per device and per run; of the loop of steps they are per turn.

    `hardware` is the chip, `topology` the compiler's name for the devices; a device may be less than a chip (`chip_share`, 0.5 on
    a v7x). `estimated_cycles` sums the compiler's estimates; `wait_cycles` is time spent waiting for copies into on-chip memory,
    and `call_cycles` what operations without an estimate take at least, both at the data sheet's bandwidth. `estimated_s` is all
    three over `clock_hz`, None where nothing was compiled. `hbm_bytes` crosses the memory bus; `scopes` splits estimated cycles,
    `scope_bytes` the bytes. `unpriced_calls` counts operations with work and no estimate by name. `floor_s` is the analytical
    bound of the same work on the same device, the larger of its memory and compute part. `needed_bytes` (arguments, results and
    temporaries) against `memory_bytes` decides `fits`.
    """

    hardware: str
    topology: str
    device_kind: str
    num_devices: int
    chip_share: float
    target: str
    draft: str | None
    dtype: str
    phase: CompiledPhase
    block_size: int
    batch: int
    context: int
    estimated_s: float | None
    floor_s: float | None
    hbm_bytes: float | None
    flops: float | None
    argument_bytes: float | None
    temporary_bytes: float | None
    fits: bool
    memory_floor_s: float | None = None
    compute_floor_s: float | None = None
    memory_bytes: float | None = None
    needed_bytes: float | None = None
    clock_hz: float | None = None
    estimated_cycles: float | None = None
    wait_cycles: float | None = None
    call_cycles: float | None = None
    collective_bytes: float | None = None
    scopes: dict[str, float] = msgspec.field(default_factory=dict)
    scope_bytes: dict[str, float] = msgspec.field(default_factory=dict)
    unpriced_calls: dict[str, int] = msgspec.field(default_factory=dict)
    num_open_loops: int = 0
    lower_s: float | None = None
    compile_s: float | None = None
    versions: dict[str, str] = msgspec.field(default_factory=dict)
    failure: str | None = None

    @property
    def num_speculative_tokens(self) -> int:
        """Drafts per step, as vLLM counts them: K − 1."""
        return self.block_size - 1

    @property
    def floor_share(self) -> float | None:
        """Floor over estimate: 1 is the speed of light."""
        return None if self.estimated_s is None or self.floor_s is None else self.floor_s / self.estimated_s


class CompiledSet(Record):
    """Compiled programs of one pair: the `perf compile` document."""

    rows: tuple[CompiledStep, ...]
    findings: tuple[Finding, ...] = ()
