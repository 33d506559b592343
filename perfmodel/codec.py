"""Records to and from versioned JSON: `{"schema": "perf.model", "version": 1, …}`.

A file names its schema and version. Older versions go through `upgrade_N_to_M` steps, one at a time; a newer version is
refused by name. Files are written to a temporary name beside the target and renamed, so a reader never sees half a file.

History: every schema is at version 1 (first release).
"""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from .errors import InputError
from .records import (
    AcceptanceProfile,
    AcceptanceSet,
    Audit,
    CheckedK,
    CompiledSet,
    DecodeRun,
    Diagnosis,
    FittedModel,
    Hardware,
    Imported,
    KPrediction,
    ModelSpec,
    PredictionSet,
    Record,
    Run,
    RunSpec,
    Served,
    ServedPoint,
    StepTimes,
    TimingPoint,
    TraceSet,
    TraceTimings,
)

R = TypeVar("R", bound=Record)

SCHEMAS: dict[type[Record], tuple[str, int]] = {
    Hardware: ("perf.hardware", 1),
    ModelSpec: ("perf.modelspec", 1),
    RunSpec: ("perf.runspec", 1),
    Run: ("perf.run", 1),
    DecodeRun: ("perf.decode_run", 1),
    CheckedK: ("perf.checked_k", 1),
    TimingPoint: ("perf.timing_point", 1),
    StepTimes: ("perf.step_times", 1),
    TraceTimings: ("perf.timings", 1),
    TraceSet: ("perf.traces", 1),
    Audit: ("perf.check", 1),
    AcceptanceProfile: ("perf.acceptance_profile", 1),
    AcceptanceSet: ("perf.acceptance", 1),
    FittedModel: ("perf.model", 1),
    KPrediction: ("perf.prediction", 1),
    PredictionSet: ("perf.predictions", 1),
    Imported: ("perf.imported", 1),
    Diagnosis: ("perf.diagnosis", 1),
    CompiledSet: ("perf.compiled", 1),
    Served: ("perf.served", 1),
    ServedPoint: ("perf.served_point", 1),
}
"""Record type → schema name and current version."""

UPGRADES: dict[tuple[str, int], Callable[[dict[str, Any]], dict[str, Any]]] = {}
"""(schema, version) → the step that lifts a document of that version by one."""

MAX_BYTES = 256 << 20
"""Largest file that is read whole: far beyond any record or table, small enough for any machine."""

FOREIGN = "another tool's file becomes a record by `perf import FILE -o record.json`"
"""What to do with a file that perf did not write."""

_TYPES = {schema: record_type for record_type, (schema, _) in SCHEMAS.items()}


def to_document(record: Record) -> dict[str, Any]:
    """The record as a JSON-ready dict that starts with `schema` and `version`."""
    schema, version = SCHEMAS[type(record)]
    return {"schema": schema, "version": version, **msgspec.to_builtins(record)}


def from_document(document: Any, where: str = "document") -> Record:
    """The record that a decoded JSON document holds.

    Raises `InputError` when it names no known schema, a newer version, or fields that do not fit.
    """
    if not isinstance(document, dict) or "schema" not in document:
        raise InputError(f"{where} is not a perf record: it has no `schema`", FOREIGN)
    body = dict(document)
    schema, version = body.pop("schema"), body.pop("version", None)
    body.pop("perf_version", None)  # a document that a verb printed says who printed it
    if not isinstance(schema, str) or schema not in _TYPES:
        raise InputError(f"{where} has the unknown schema {schema!r}", f"known: {', '.join(sorted(_TYPES))}")
    record_type = _TYPES[schema]
    current = SCHEMAS[record_type][1]
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise InputError(f"{where}: {schema} has no usable version ({version!r})", "the file may be damaged")
    if version > current:
        raise InputError(f"{where} is {schema} version {version}; this perf reads up to {current}", "update dflash-perf")
    for step in range(version, current):
        body = UPGRADES[schema, step](body)
    try:
        return msgspec.convert(body, record_type, strict=True)
    except msgspec.ValidationError as error:
        raise InputError(f"{where} is not a valid {schema}: {error}", "the file may be damaged or edited") from error


def read_file(path: Path) -> bytes:
    """The bytes of a file or pipe. Raises `InputError` when it is missing, unreadable, or larger than `MAX_BYTES`."""
    try:
        with path.open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise InputError(f"{path} does not exist", "check the path") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}", "check the path and its permissions") from error
    if len(data) > MAX_BYTES:
        raise InputError(f"{path} is larger than {MAX_BYTES >> 20} MiB: neither a record nor a table of ours", FOREIGN)
    return data


def read_json(path: Path) -> Any:
    """The decoded JSON of a file. Raises `InputError` when it is missing, unreadable or not JSON."""
    data = read_file(path)
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not JSON: {error}", f"the file may be truncated; {FOREIGN}") from error
    except RecursionError:
        raise InputError(f"{path} is nested too deeply to be one of ours", "check the file") from None


def load_any(path: Path) -> Record:
    """Any record from its file. Raises `InputError`."""
    return from_document(read_json(path), str(path))


def load(path: Path, record_type: type[R]) -> R:
    """A record of the given type from its file. Raises `InputError` when the file holds another type."""
    record = load_any(path)
    if not isinstance(record, record_type):
        found, wanted = SCHEMAS[type(record)][0], SCHEMAS[record_type][0]
        raise InputError(
            f"{path} holds {found}, not {wanted}", "give the file of the right kind; `perf show FILE` tells what it is"
        )
    return record


def write_atomic(path: Path, data: bytes) -> None:
    """Write a file so that it is either whole or absent: temporary name in the same folder, flush, rename.

    A device or pipe (`/dev/stdout`) is written to as it is, for a rename would put a file in its place.
    """
    if path.is_dir():
        raise InputError(f"{path} is a folder", "give the name of a file")
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and not path.is_file():
        path.write_bytes(data)
        return
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def encode(document: Any) -> bytes:
    """Indented UTF-8 JSON with a final newline. NaN and infinities become null (absent knowledge)."""
    return msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n"


def save(path: Path, record: Record) -> None:
    """Write the record as versioned JSON, atomically."""
    write_atomic(path, encode(to_document(record)))
