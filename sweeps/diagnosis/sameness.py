"""Whether several files are one sweep: what must not differ besides K and load."""

from collections.abc import Sequence

from perfmodel.records import Diagnosed

from .finding import diagnosed
from .subject import Subject

FIXED = ("temperature", "target", "draft", "task", "engine", "device", "versions", "definition")
"""Facts that two points of one sweep share."""

_WITHIN_A_FILE = ("task", "definition")
"""Facts of which one file may hold several: a sweep has tasks, a log generations."""


def not_one_sweep(subjects: Sequence[Subject]) -> list[Diagnosed]:
    """`not-one-sweep` for every fact that differs between runs of different files or settings."""
    found = []
    known = [subject for subject in subjects if not subject.is_plain] or list(subjects)
    for name in FIXED:
        values = {subject.facts[name]: subject.name for subject in known if name in subject.facts}
        if len(values) < 2 or (name in _WITHIN_A_FILE and len({subject.file for subject in known}) < 2):
            continue
        listed = "; ".join(f"{value[:80]} ({run})" for value, run in list(values.items())[:4])
        found.append(
            diagnosed(
                "not-one-sweep",
                "warning" if name != "definition" else "info",
                None,
                f"{name} differs: {listed}",
                _WHY.get(name, "acceptance and time belong to one setup"),
                f"compare runs of one {name}, or import them apart",
            )
        )
    return found


_WHY = {
    "temperature": "acceptance falls with temperature, so the curves are not of one drafter on one text",
    "definition": "the tools count differently (bonus, anchor, denominator); the figures were converted, not their meaning",
    "task": "acceptance differs between tasks more than between neighbouring K",
    "versions": "another engine version may run other kernels",
    "engine": "engines differ in kernels, defaults and in what they count",
}
