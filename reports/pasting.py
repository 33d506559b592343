"""Engine settings with names that an engine can load: hub ids, or the folders that the embedded pair is written to.

Short names of models are ours. What is pasted into a shell must work there, so a name without one public checkpoint behind it
is said in a comment, and never passed on in silence. llama.cpp loads GGUF files only, which have to be made first.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import PurePath

from perfmodel.modelspec import hub_id, load_model, names
from perfmodel.settings import EngineSetting, Method, engine_settings, snippet

EXPORT_FOLDER = "embedded-pair"
EXPORT = f"python -m decoding.embedded {EXPORT_FOLDER}"
"""The command that writes the embedded target and its drafters as folders of their own names."""

EMBEDDED = ("smollm2-135m", "smollm2-135m-dflash", "smollm2-135m-eagle3")

LLAMA, TENSORRT = "llama.cpp", "tensorrt-llm"


@dataclass(frozen=True)
class Loadable:
    """A model as an engine is to be given it, and the lines that must stand before the settings."""

    name: str
    before: tuple[str, ...] = ()


def loadable(name: str, engine: str) -> Loadable:
    """The hub id, exported folder, file, or other name (a path, as it was given) by which an engine loads a model."""
    found = _by_engine(name, engine)
    if engine != LLAMA or found.name.endswith(".gguf"):
        return found
    file = f"{PurePath(found.name).name}.gguf"
    return Loadable(file, (*found.before, f"# {file}: {found.name}, made into a GGUF file by llama.cpp's convert_hf_to_gguf.py"))


def _by_engine(name: str, engine: str) -> Loadable:
    if name in EMBEDDED:
        return Loadable(f"{EXPORT_FOLDER}/{name}", (f"# first: {EXPORT}" if engine == TENSORRT else EXPORT,))
    known = hub_id(name)
    if known is not None or name not in names():
        return Loadable(known or name)
    several = load_model(name).hub_ids
    choice = f"one of {', '.join(several)}" if several else "the folder or hub id of your copy"
    return Loadable(name, (f"# {name} is a name of ours: put {choice} in its place",))


def pasted_settings(block_size: int, target: str, draft: str, method: Method = "dflash") -> tuple[EngineSetting, ...]:
    """Settings of every engine for block size K, to be pasted as they are. Raises `InputError` for an impossible K."""
    made = []
    for index, setting in enumerate(engine_settings(block_size, target, draft, method)):
        pair = _pair(setting.engine.lower(), block_size, target, draft)
        named = engine_settings(block_size, pair[0].name, pair[1].name, method)[index]
        made.append(replace(named, snippet="\n".join([*_before(pair), named.snippet])))
    return tuple(made)


def pasted(
    engine: str, *, block_size: int, target: str, draft: str, why: str, method: Method, by_batch: Mapping[int, int]
) -> str:
    """`perfmodel.settings.snippet` with names that the engine can load. Raises `InputError`."""
    widest = max(block_size, *by_batch.values())
    pair = _pair(engine.strip().lower(), widest, target, draft)
    text = snippet(
        engine,
        block_size=block_size,
        target=pair[0].name,
        draft=pair[1].name,
        why=why,
        method=method,
        by_batch=by_batch,
    )
    return "\n".join([*_before(pair), text])


def _pair(engine: str, block_size: int, target: str, draft: str) -> tuple[Loadable, Loadable]:
    """Both models; the drafter of plain decoding is not named, so nothing is to be done for it."""
    return loadable(target, engine), loadable(draft, engine) if block_size > 1 else Loadable(draft)


def _before(pair: tuple[Loadable, Loadable]) -> list[str]:
    return list(dict.fromkeys(line for one in pair for line in one.before))
