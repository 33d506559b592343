"""Finding the one trace a person means by a path."""

from pathlib import Path

from perfmodel.errors import InputError

_LAYOUT = "expected FOLDER/plugins/profile/<run>/<host>.xplane.pb, a run folder, or the file itself"
_MAX_DEPTH = 5


def find_xplane(path: Path) -> Path:
    """The `.xplane.pb` that a file, a run folder or a parent of one run stands for.

    Raises `InputError` when there is none (saying what was seen), several runs, several hosts, or a trace of another kind.
    """
    if path.is_file():
        if path.name.endswith((".json", ".json.gz")):
            raise InputError(
                f"{path} is a Chrome trace; device time is read from XPlane files only", "give the .xplane.pb recorded beside it"
            )
        return path
    if not path.is_dir():
        raise InputError(f"{path} does not exist", _LAYOUT)
    files = sorted(_search(path, _MAX_DEPTH))
    if not files:
        seen = sorted(entry.name + "/" * entry.is_dir() for entry in path.iterdir())
        listing = ", ".join(seen[:8]) + (", …" if len(seen) > 8 else "") if seen else "nothing"
        raise InputError(f"{path} holds no profile: saw {listing}", _LAYOUT)
    runs = sorted({file.parent for file in files})
    if len(runs) > 1:
        raise InputError(f"{path} holds {len(runs)} runs: {_names(runs, path)}", "give one run folder")
    if len(files) > 1:
        raise InputError(
            f"{runs[0]} holds {len(files)} hosts: {_names(files, runs[0])}", "hosts are not added together; give one file"
        )
    return files[0]


def _search(folder: Path, depth: int) -> list[Path]:
    found = []
    for entry in folder.iterdir():
        if entry.name.endswith(".xplane.pb"):
            found.append(entry)
        elif depth > 0 and entry.is_dir() and not entry.is_symlink():
            found += _search(entry, depth - 1)
    return found


def _names(paths: list[Path], base: Path) -> str:
    shown = ", ".join(str(path.relative_to(base)) for path in paths[:8])
    return shown + (", …" if len(paths) > 8 else "")
