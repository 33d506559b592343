"""Finding the one trace a person means by a path, and reading it whole.

Only ordinary files of a bounded size are read: a device or a pipe has no end, and a file that pretends to be larger than its
format allows would fill the memory before anyone noticed. Nothing is ever written beside a trace.
"""

from collections.abc import Callable
from pathlib import Path

from perfmodel.errors import InputError
from perfmodel.units import format_bytes

MAX_FILE_BYTES = (1 << 31) - 1
"""Largest file read: protobuf's own limit for one message."""

MANGLED = b"\xef\xbf\xbd"
"""What a byte becomes that is no UTF-8 when a binary file is saved as text."""

_LAYOUT = "expected FOLDER/plugins/profile/<run>/<host>.xplane.pb, a run folder, or the file itself"
_MAX_DEPTH = 5


def find_trace(path: Path) -> Path:
    """The file that a path stands for: itself, or the one trace in a run folder or a parent of one run.

    XPlane files come first; a Chrome trace counts only in a folder without any. Raises `InputError` when there is none (saying
    what was seen), or several runs or hosts.
    """
    if path.is_file():
        return path
    if not path.is_dir():
        if path.exists():
            raise InputError(f"{path} is a device, pipe or socket, not a file", "save the trace to a file and give that")
        raise InputError(f"{path} does not exist", _LAYOUT)
    try:
        files = sorted(_search(path, _is_xplane, _MAX_DEPTH) or _search(path, _is_chrome_trace, _MAX_DEPTH))
        if not files:
            seen = sorted(entry.name + "/" * entry.is_dir() for entry in path.iterdir())
            listing = ", ".join(seen[:8]) + (", …" if len(seen) > 8 else "") if seen else "nothing"
            raise InputError(f"{path} holds no profile: saw {listing}", _LAYOUT)
    except OSError as error:
        raise InputError(f"{path} cannot be searched: {error.strerror}", "check its permissions, or give the file") from error
    runs = sorted({file.parent for file in files})
    if len(runs) > 1:
        raise InputError(f"{path} holds {len(runs)} runs: {_names(runs, path)}", "give one run folder")
    if len(files) > 1:
        raise InputError(
            f"{runs[0]} holds {len(files)} hosts: {_names(files, runs[0])}", "hosts are not added together; give one file"
        )
    return files[0]


def read_whole(path: Path, max_bytes: int = MAX_FILE_BYTES) -> bytes:
    """The bytes of a file. Raises `InputError` when it is missing, empty, no ordinary file, or larger than is read."""
    try:
        if path.exists() and not path.is_file():
            raise InputError(f"{path} is not an ordinary file", "save the trace to a file and give that")
        size = path.stat().st_size
        if size > max_bytes:
            raise InputError(f"{path} has {format_bytes(size)}; at most {format_bytes(max_bytes)} are read", "record fewer steps")
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}", "give an .xplane.pb or a trace.json[.gz]") from error
    if not data:
        raise InputError(f"{path} is empty", "the capture did not finish; record it again")
    return data


def _is_xplane(name: str) -> bool:
    return name.endswith(".xplane.pb")


def _is_chrome_trace(name: str) -> bool:
    return name.endswith(("trace.json", "trace.json.gz"))


def _search(folder: Path, wanted: Callable[[str], bool], depth: int) -> list[Path]:
    found = []
    for entry in folder.iterdir():
        if wanted(entry.name) and entry.is_file():
            found.append(entry)
        elif depth > 0 and entry.is_dir() and not entry.is_symlink():
            found += _search(entry, wanted, depth - 1)
    return found


def _names(paths: list[Path], base: Path) -> str:
    shown = ", ".join(str(path.relative_to(base)) for path in paths[:8])
    return shown + (", …" if len(paths) > 8 else "")
