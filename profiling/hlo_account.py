"""What a compiled TPU program will do, by the compiler's own account: cycles per scope, bytes over the memory bus, waits.

The compiler writes an estimate of cycles into every fusion it schedules. Summing them is not yet a time, for three reasons. A
loop's body is printed once and runs many times. Weights that are copied into VMEM ahead of use carry no estimate at all: the copy
runs beside other work and costs only what is still missing when its user waits for it. And kernels written by hand (Pallas)
carry none either. So the schedule is replayed here: instructions one after the other, all bytes queued on one memory bus of the
given rate, each `-done` waiting for its copy. Kernels are charged what their bytes take there, a lower bound, and listed.
"""

import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field

from perfmodel.errors import InputError
from perfmodel.phases import PHASES

from .hlo import Computation, HloModule, Instruction
from .hlo_traffic import FREE, Traffic

UNPRICED_IGNORED = frozenset(
    ("AllocateBuffer", "AssumeGatherIndicesInBound", "ConcatBitcast", "PrepareAsyncCallStart", "PrepareAsyncCallDone", "Sharding",
     "SPMDFullToShardShape", "SPMDShardToFullShape", "BarrierStart", "BarrierDone", "MoveToHost", "MoveToDevice", "SliceToDynamic",
     "annotate_device_placement", "InspectSharding")
)  # fmt: skip
"""Custom calls that mark or allocate, and compute nothing."""

COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute", "collective-broadcast")

_WRAPPED = re.compile(r"^(?:p?jit|jvp|vmap|remat|checkpoint|closed_call|core_call|custom_\w+)(?:\((?P<name>.*)\))?$")
_STRUCTURE = frozenset(("while", "body", "cond", "body_jaxpr", "cond_jaxpr", "branch", "scan", "closed_call", "shard_map"))
_BRANCH = re.compile(r"^branch_\d+_fun$")
_COMPARE = re.compile(r"direction=(LT|LE|GT|GE|NE)")
_TRIPS = re.compile(r'"known_trip_count":\{"n":"?(\d+)')

_SCALARS_BYTES = 4096.0
"""Below this an operation without an estimate is bookkeeping on scalars, not work that went unpriced."""

OTHER = "other"
"""Scope of what the compiler added: copies, transposes, waits of no one scope."""


@dataclass
class Tally:
    """Sums over instructions: estimated cycles, bytes over the bus, and how many instructions carried an estimate."""

    cycles: float = 0.0
    hbm_bytes: float = 0.0
    num_priced: float = 0.0

    def add(self, other: "Tally", times: float = 1.0) -> None:
        """Add another tally so many times."""
        self.cycles += times * other.cycles
        self.hbm_bytes += times * other.hbm_bytes
        self.num_priced += times * other.num_priced


@dataclass
class Account:
    """One run of a program, or of one of its computations.

    `unpriced` counts operations with work and no estimate by name, `unpriced_bytes` their bytes. `wait_cycles` is time spent waiting for
    copies, `call_cycles` what unpriced operations take at least; both need a bus rate and are 0 without one. `num_open_loops` counts
    loops whose trip count the program does not fix; their bodies count once.
    """

    scopes: dict[str, Tally] = field(default_factory=lambda: defaultdict(Tally))
    unpriced: Counter[str] = field(default_factory=Counter)
    unpriced_bytes: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    wait_cycles: float = 0.0
    call_cycles: float = 0.0
    collective_bytes: float = 0.0
    num_open_loops: int = 0

    @property
    def estimated_cycles(self) -> float:
        """The compiler's estimates, summed."""
        return sum(tally.cycles for tally in self.scopes.values())

    @property
    def hbm_bytes(self) -> float:
        """Bytes over the memory bus."""
        return sum(tally.hbm_bytes for tally in self.scopes.values())

    @property
    def total_cycles(self) -> float:
        """Estimates, waits and the least that unpriced calls take."""
        return self.estimated_cycles + self.wait_cycles + self.call_cycles

    def add(self, other: "Account", times: float = 1.0) -> None:
        """Add what another computation did, so many times; waits are added by whoever replays the schedule."""
        for scope, tally in other.scopes.items():
            self.scopes[scope].add(tally, times)
        for name, count in other.unpriced.items():
            self.unpriced[name] += round(times * count)
            self.unpriced_bytes[name] += times * other.unpriced_bytes[name]
        self.wait_cycles += times * other.wait_cycles
        self.call_cycles += times * other.call_cycles
        self.collective_bytes += times * other.collective_bytes
        self.num_open_loops += other.num_open_loops


def account(module: HloModule, bytes_per_cycle: float | None = None) -> Account:
    """The account of one run of the program. `bytes_per_cycle` is the memory bus's rate; without it nothing waits."""
    return _account(module, module.computations[module.entry], bytes_per_cycle)


def account_of_turn(module: HloModule, bytes_per_cycle: float | None = None) -> Account:
    """The account of one turn of the loop whose length data decide, without what runs once around it. Raises `InputError` without one."""
    entry = module.computations[module.entry]
    for instruction in entry.instructions:
        if instruction.opcode == "while" and trip_count(module, entry, instruction) is None:
            return _account(module, module.computations[instruction.attribute("body") or ""], bytes_per_cycle)
    raise InputError("the program has no loop whose length data decide", "account for the whole program")


def _account(module: HloModule, where: Computation, bytes_per_cycle: float | None) -> Account:
    replay = _Replay(module, bytes_per_cycle)
    found = replay.run(where)
    replay.finish(found)
    return found


def scope_of(op_name: str) -> str:
    """`phase/part` of an operation's path: the first of our phases in it, and the first scope named below that."""
    parts: list[str] = []
    for part in op_name.split("/"):
        wrapped = _WRAPPED.match(part)
        name = (wrapped["name"] or "") if wrapped else part
        if name and name not in _STRUCTURE and not _BRANCH.match(name) and name not in parts[-1:]:
            parts.append(name)
    # A single part is an argument's name or a bare primitive: what the compiler moved for itself.
    if len(parts) < 2:
        return OTHER
    begin = next((place for place, name in enumerate(parts) if name in PHASES), 0)
    # The last part is the primitive itself, so a path of one scope and a primitive has no finer part.
    return "/".join(parts[begin : begin + 2]) if begin + 2 < len(parts) else parts[begin]


class _Replay:
    """Runs a schedule on paper: a clock in cycles, and the time at which the memory bus has finished what it was asked."""

    def __init__(self, module: HloModule, bytes_per_cycle: float | None) -> None:
        self._module = module
        self._traffic = Traffic(module)
        self._rate = bytes_per_cycle
        self._now = 0.0
        self._bus_free = 0.0

    def run(self, where: Computation) -> Account:
        found = Account()
        arriving: dict[str, float] = {}
        for instruction in where.instructions:
            self._one(where, instruction, found, arriving)
        return found

    def finish(self, found: Account) -> None:
        """Wait for the bus: a run is not over before its last byte has moved, so no total is below bytes over rate."""
        if self._bus_free > self._now:
            found.wait_cycles += self._bus_free - self._now
            self._now = self._bus_free

    def _one(self, where: Computation, instruction: Instruction, found: Account, arriving: dict[str, float]) -> None:
        opcode = instruction.opcode
        if opcode == "while":
            self._loop(where, instruction, found)
        elif opcode == "conditional":
            self._branch(instruction, found)
        elif opcode == "call":
            found.add(self.run(self._module.computations[instruction.attribute("to_apply") or ""]))
        elif opcode.endswith("-done"):
            self._wait(instruction, found, arriving)
        elif opcode not in FREE:
            self._work(where, instruction, found, arriving)

    def _work(self, where: Computation, instruction: Instruction, found: Account, arriving: dict[str, float]) -> None:
        moved = self._traffic.instruction_bytes(where, instruction)
        tally = found.scopes[scope_of(instruction.op_name)]
        tally.hbm_bytes += moved
        collective = instruction.opcode.removesuffix("-start") in COLLECTIVES
        if collective:
            found.collective_bytes += sum(buffer.num_bytes for buffer in instruction.buffers[-1:])
        if instruction.cycles is not None:
            tally.cycles += instruction.cycles
            tally.num_priced += 1
            self._use_bus(moved)
            self._now += instruction.cycles
        elif instruction.opcode.endswith("-start") and not collective:
            self._use_bus(moved)
            arriving[instruction.name] = self._bus_free
        elif self._is_work(instruction, moved, collective):
            name = _call_name(instruction)
            found.unpriced[name] += 1
            found.unpriced_bytes[name] += moved
            self._use_bus(moved)
            if self._rate:
                found.call_cycles += moved / self._rate
                self._now += moved / self._rate

    def _use_bus(self, moved: float) -> None:
        """Queue bytes on the bus. What an operation reads itself delays the copies behind it, for the bus is one."""
        if self._rate and moved:
            self._bus_free = max(self._now, self._bus_free) + moved / self._rate

    def _is_work(self, instruction: Instruction, moved: float, collective: bool) -> bool:
        if instruction.opcode == "custom-call":
            return instruction.attribute("custom_call_target") not in UNPRICED_IGNORED
        return collective or moved >= _SCALARS_BYTES

    def _wait(self, instruction: Instruction, found: Account, arriving: dict[str, float]) -> None:
        ready = max((arriving.pop(name) for name in instruction.operands if name in arriving), default=self._now)
        if ready > self._now:
            found.wait_cycles += ready - self._now
            self._now = ready

    def _loop(self, where: Computation, instruction: Instruction, found: Account) -> None:
        body = self._module.computations[instruction.attribute("body") or ""]
        trips = trip_count(self._module, where, instruction)
        found.num_open_loops += trips is None
        first = self.run(body)
        found.add(first)
        remaining = 1 if trips is None else trips
        if remaining > 1:
            # From the second round on the bus is in the state that the round before left it in.
            before, bus = self._now, self._bus_free
            second = self.run(body)
            second.num_open_loops = 0
            found.add(second, remaining - 1)
            turn, lag = self._now - before, self._bus_free - bus
            self._now += (remaining - 2) * turn
            self._bus_free = max(self._bus_free + (remaining - 2) * lag, 0.0)

    def _branch(self, instruction: Instruction, found: Account) -> None:
        names = instruction.names("branch_computations") or tuple(
            name for name in (instruction.attribute("true_computation"), instruction.attribute("false_computation")) if name
        )
        begin, bus = self._now, self._bus_free
        accounts = []
        for name in names:
            self._now, self._bus_free = begin, bus
            accounts.append((self.run(self._module.computations[name]), self._now, self._bus_free))
        longest, self._now, self._bus_free = max(accounts, key=lambda each: each[1])
        found.add(longest)


def trip_count(module: HloModule, where: Computation, loop: Instruction) -> int | None:
    """How often a loop's body runs: known to the compiler, or counted from 0 by ones up to a constant; None when data decide."""
    known = _TRIPS.search(loop.attributes)
    if known:
        return int(known[1])
    condition = module.computations[loop.attribute("condition") or ""]
    compare = _through(module, condition, condition.root)
    if compare is None:
        return None
    instruction, inside, bindings = compare
    direction = _COMPARE.search(instruction.attributes)
    if direction is None or direction[1] not in ("LT", "LE", "NE"):
        return None
    index, limit = instruction.operands
    bound = _constant(inside, limit, bindings)
    place = _tuple_place(inside, index, bindings)
    if bound is None or place is None:
        return None
    start = _initial(where, loop, place)
    if start is None:
        return None
    return bound - start + (direction[1] == "LE")


Bindings = dict[str, tuple[Computation, str]]


def _through(module: HloModule, where: Computation, root: Instruction) -> tuple[Instruction, Computation, Bindings] | None:
    """The comparison that a condition comes down to, possibly inside a fusion, and what the fusion's parameters are bound to."""
    if root.opcode == "compare":
        return root, where, {}
    if root.opcode != "fusion":
        return None
    inner = module.computations[root.attribute("calls") or ""]
    if inner.root.opcode != "compare":
        return None
    bindings = {
        inner.parameters[place].name: (where, name) for place, name in enumerate(root.operands) if place in inner.parameters
    }
    return inner.root, inner, bindings


def _resolved(where: Computation, name: str, bindings: Bindings) -> Instruction | None:
    """What a name stands for, through copies and through a fusion's parameters."""
    while True:
        if name in bindings:
            where, name = bindings[name]
            bindings = {}
        found = where.by_name.get(name)
        if found is None or found.opcode not in ("copy", "bitcast"):
            return found
        name = found.operands[0]


def _constant(where: Computation, name: str, bindings: Bindings) -> int | None:
    found = _resolved(where, name, bindings)
    return (
        int(found.literal) if found is not None and found.opcode == "constant" and found.literal.lstrip("-").isdigit() else None
    )


def _tuple_place(where: Computation, name: str, bindings: Bindings) -> int | None:
    found = _resolved(where, name, bindings)
    if found is None or found.opcode != "get-tuple-element":
        return None
    place = found.attribute("index")
    return None if place is None else int(place)


def _initial(where: Computation, loop: Instruction, place: int) -> int | None:
    carried = where.by_name.get(loop.operands[0])
    if carried is None or carried.opcode != "tuple":
        return None
    return _constant(where, carried.operands[place], {})


def _call_name(instruction: Instruction) -> str:
    """A name for an operation without an estimate: a kernel's own, else what it does."""
    if instruction.opcode == "custom-call":
        target = instruction.attribute("custom_call_target") or "custom-call"
        return re.sub(r"[.\d]+$", "", instruction.name) if target == "tpu_custom_call" else target
    return instruction.opcode
