"""Whether two sides may be compared: the facts of device, versions, flags and question that must be equal, and which differ."""

from dataclasses import dataclass

from perfmodel.errors import InputError
from perfmodel.records import Environment

from .inputs import PageInputs
from .section import Table

UNKNOWN = "unknown"


@dataclass(frozen=True)
class Fact:
    """One fact of both sides. `must_match` facts are those of the machine; others (the pair, the chip asked about) may be the point."""

    name: str
    a: str
    b: str
    must_match: bool

    @property
    def differs(self) -> bool:
        """Whether both are known and unlike."""
        return self.a != self.b and UNKNOWN not in (self.a, self.b)


def facts(a: PageInputs, b: PageInputs) -> tuple[Fact, ...]:
    """The facts that either side knows."""
    machine = [_machine(a), _machine(b)]
    asked = [_asked(a), _asked(b)]
    names = list(dict.fromkeys(name for one in machine for name in one))
    others = list(dict.fromkeys(name for one in asked for name in one))
    return (
        *(Fact(name, machine[0].get(name, UNKNOWN), machine[1].get(name, UNKNOWN), True) for name in names),
        *(Fact(name, asked[0].get(name, UNKNOWN), asked[1].get(name, UNKNOWN), False) for name in others),
    )


def _machine(inputs: PageInputs) -> dict[str, str]:
    """What the machine was, where anything was measured."""
    if inputs.run is not None:
        return _of_environment(inputs.run.environment) | {"dtype": inputs.run.spec.dtype, "weights": inputs.run.spec.weights}
    times = inputs.step_times
    return {} if times is None else {"device": times.device_kind, "dtype": times.dtype}


def _of_environment(environment: Environment) -> dict[str, str]:
    return {
        "device": environment.device_kind,
        "platform": environment.platform,
        "devices": str(environment.num_devices),
        "host processor": environment.host_cpu,
        "cores": str(environment.num_cores),
        "perf": environment.perf_version,
        **{f"version of {name}": version for name, version in sorted(environment.versions.items())},
        **{name: value or "(empty)" for name, value in sorted(environment.flags.items())},
    }


def _asked(inputs: PageInputs) -> dict[str, str]:
    """What was run or asked about: what two sides of a comparison may differ in on purpose."""
    if inputs.run is not None:
        return {"target": inputs.run.spec.target, "drafter": inputs.run.spec.draft}
    known = (*inputs.predictions.here, *inputs.predictions.elsewhere) if inputs.predictions else ()
    profiles = inputs.acceptance.profiles if inputs.acceptance else ()
    found = {}
    if known:
        found = {"chip": known[0].hardware, "target": known[0].target, "drafter": known[0].draft}
    elif profiles:
        found = {"target": profiles[0].target, "drafter": profiles[0].draft}
    elif inputs.model is not None:
        model = inputs.model
        named = {"chip": model.hardware, "target": model.target, "drafter": model.draft}
        found = {name: record.name for name, record in named.items() if record is not None}
    return {name: value for name, value in found.items() if value}


def refuse_unlike(known: tuple[Fact, ...], forced: bool) -> tuple[str, ...]:
    """The differences of the machines in words. Raises `InputError` for any, unless forced."""
    unlike = tuple(f"{fact.name}: {fact.a} against {fact.b}" for fact in known if fact.must_match and fact.differs)
    if unlike and not forced:
        shown = "; ".join(unlike[:4]) + (f"; and {len(unlike) - 4} more" if len(unlike) > 4 else "")
        raise InputError(
            f"the two were not measured alike ({shown})", "measure both alike, or take --force: the page will say what differs"
        )
    return unlike


def likeness_table(known: tuple[Fact, ...]) -> Table:
    """Every fact of both sides, and whether it differs."""
    rows = tuple(
        (fact.name, fact.a, fact.b, "differs" if fact.differs else "unknown" if UNKNOWN in (fact.a, fact.b) else "equal")
        for fact in known
    )
    return Table("likeness", "What was held equal, and what differs.", ("fact", "A", "B", ""), rows, text_columns=(0, 1, 2, 3))
