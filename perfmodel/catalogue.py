"""Acceptance curves that ship with the package: published measurements as named profiles, `pair/task`."""

from functools import cache
from pathlib import Path

from . import codec
from .records import AcceptanceProfile, AcceptanceSet

FOLDER = Path(__file__).parent / "profiles"

TASK_GROUPS = {
    "math": ("math500", "aime24", "aime25", "gsm8k"),
    "code": ("humaneval", "mbpp"),
    "chat": ("mt-bench", "alpaca"),
}
"""Task of a sweep → published data sets whose steps are pooled for it."""


@cache
def shipped() -> dict[str, AcceptanceProfile]:
    """Every shipped profile by its name, in the order of the files."""
    sets = [codec.load(path, AcceptanceSet) for path in sorted(FOLDER.glob("*.json"))]
    return {profile.name: profile for group in sets for profile in group.profiles}


def groups() -> dict[str, tuple[str, ...]]:
    """Names of pooled profiles (`pair/math`, …) with the names of their members, where all members ship."""
    pairs = dict.fromkeys(name.rpartition("/")[0] for name in shipped())
    found = {f"{pair}/{task}": tuple(f"{pair}/{m}" for m in members) for pair in pairs for task, members in TASK_GROUPS.items()}
    return {name: members for name, members in found.items() if all(member in shipped() for member in members)}
