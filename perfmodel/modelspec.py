"""Dimensions of a target or a drafter, from a published config.json or from the few that ship.

What a step costs follows from a handful of integers: layers, widths, heads, vocabulary, experts, bits per weight. They are
public facts and are read from the config, never guessed: `head_dim` in particular is often *not* hidden size over heads
(Qwen3-4B: 128, not 80). An architecture whose layers this model does not price is refused, because a number that looks right
would be worse than none.
"""

import difflib
from functools import cache
from importlib import resources
from pathlib import Path

from . import codec
from .errors import InputError
from .modelconfig import from_config
from .records import ModelSpec
from .records.model import ModelRole

__all__ = ["from_config", "hub_id", "load_model", "names"]

_CATALOGUE = "models"


@cache
def names(role: ModelRole | None = None) -> tuple[str, ...]:
    """Names of the models that ship, sorted; of one role if given."""
    folder = resources.files(__package__) / _CATALOGUE
    found = sorted(entry.name.removesuffix(".json") for entry in folder.iterdir() if entry.name.endswith(".json"))
    return tuple(name for name in found if role is None or _shipped(name).role == role)


def load_model(name_or_path: str, role: ModelRole | None = None) -> ModelSpec:
    """The dimensions of a model by shipped name, hub id, record file, or config.json (a file or its folder).

    Raises `InputError` when nothing fits, when the config is not priced here, or when `role` is the other one.
    """
    spec = _find(name_or_path)
    if role is not None and spec.role != role:
        raise InputError(f"{name_or_path} is a {spec.role}, and a {role} is wanted here", f"known: {', '.join(names(role))}")
    return spec


def _find(name_or_path: str) -> ModelSpec:
    name = name_or_path.strip()
    if name.lower() in names():
        return _shipped(name.lower())
    for shipped in names():
        spec = _shipped(shipped)
        if name.lower() in (hub_id.lower() for hub_id in spec.hub_ids):
            return spec
    path = Path(name_or_path)
    if path.is_dir() and (path / "config.json").is_file():
        path = path / "config.json"
    if path.is_file():
        document = codec.read_json(path)
        if isinstance(document, dict) and "schema" in document:
            return codec.load(path, ModelSpec)
        if not isinstance(document, dict):
            raise InputError(f"{path} is not a model config: it is not a JSON object", "give a config.json")
        label = path.parent.name if path.name == "config.json" else path.stem
        return from_config(document, label, str(path))
    near = difflib.get_close_matches(name.lower().rpartition("/")[2], names(), n=3, cutoff=0.5)
    hint = f"did you mean {', '.join(near)}?" if near else f"known: {', '.join(names())}; or a path to a config.json"
    raise InputError(f"no model called {name_or_path!r}", hint)


def hub_id(name: str) -> str | None:
    """The hub id by which an engine loads a shipped model: the one named, else the only one there is; None where that is open."""
    for spec in map(_shipped, names()):
        if name.strip().lower() == spec.name and len(spec.hub_ids) == 1:
            return spec.hub_ids[0]
        for known in spec.hub_ids:
            if name.strip().lower() == known.lower():
                return known
    return None


@cache
def _shipped(name: str) -> ModelSpec:
    folder = resources.files(__package__) / _CATALOGUE
    with resources.as_file(folder / f"{name}.json") as path:
        return codec.load(path, ModelSpec)
