"""A run folder that survives being killed.

Every finished piece of work is one small record under `parts/`, written whole or not at all. A sweep that starts again finds
them and does only what is missing. One process owns the folder at a time: the lock is the kernel's, so it goes when its
owner dies, however it dies.
"""

import errno
import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from perfmodel import codec
from perfmodel.errors import InputError, PerfError
from perfmodel.records import Record, RunSpec

R = TypeVar("R", bound=Record)

SPEC_FILE = "spec.json"
LOCK_FILE = "run.lock"
PARTS = "parts"
TRACES = "xprof"

_SAFE = re.compile(r"[^A-Za-z0-9._-]+")


class RunStore:
    """The folder of one sweep: its spec, its finished parts, its documents."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def trace_folder(self) -> Path:
        """Where XProf captures go: the log folder that TensorBoard opens."""
        return self.folder / TRACES

    def _part(self, key: str) -> Path:
        return self.folder / PARTS / f"{_SAFE.sub('-', key)}.json"

    def keys(self, prefix: str) -> list[str]:
        """Names of the finished parts that begin so, sorted."""
        return sorted(path.stem for path in (self.folder / PARTS).glob(f"{_SAFE.sub('-', prefix)}*.json"))

    def has(self, key: str) -> bool:
        """Whether the part was finished."""
        return self._part(key).is_file()

    def get(self, key: str, record_type: type[R]) -> R | None:
        """A finished part, or None. Raises `InputError` when it was damaged since."""
        path = self._part(key)
        if not path.is_file():
            return None
        try:
            return codec.load(path, record_type)
        except InputError as error:
            raise InputError(error.message, f"delete it, then: {self.resume_command}") from error

    def put(self, key: str, record: Record) -> None:
        """Keep a finished part. Raises `PerfError` when the disk is full."""
        self._write(self._part(key), codec.encode(codec.to_document(record)))

    def save(self, name: str, record: Record) -> Path:
        """Write a document of the run, for example `model.json`; returns its path."""
        path = self.folder / name
        self._write(path, codec.encode(codec.to_document(record)))
        return path

    def _write(self, path: Path, data: bytes) -> None:
        try:
            codec.write_atomic(path, data)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise PerfError(
                    f"the disk is full: {path.name} could not be written", f"free some space, then: {self.resume_command}"
                ) from error
            raise PerfError(f"{path} cannot be written: {error.strerror}", "check the folder and its permissions") from error

    @property
    def resume_command(self) -> str:
        """What to type to finish this run."""
        return f"perf sweep-k --resume --out {self.folder}"

    def read_spec(self) -> RunSpec:
        """The spec that the run was started with. Raises `InputError` when the folder is no run."""
        path = self.folder / SPEC_FILE
        if not path.is_file():
            raise InputError(
                f"{self.folder} is not a run folder: it has no {SPEC_FILE}", "give the folder that `perf sweep-k` made"
            )
        return codec.load(path, RunSpec)

    def begin(self, spec: RunSpec, resume: bool) -> None:
        """Start the run, or continue it. Raises `InputError` rather than mix two sweeps in one folder."""
        path = self.folder / SPEC_FILE
        if path.is_file():
            if not resume:
                raise InputError(
                    f"{self.folder} already holds a run", f"to finish it: {self.resume_command}; else choose another --out"
                )
            return
        foreign = sorted(entry.name for entry in self.folder.iterdir() if entry.name != LOCK_FILE)
        if foreign:
            raise InputError(
                f"{self.folder} is not empty and holds no run (found {foreign[0]})", "choose an empty or new folder for --out"
            )
        self.save(SPEC_FILE, spec)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Own the folder while inside. Raises `InputError` when another process does."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            handle = os.open(self.folder / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise InputError(f"{self.folder} cannot be used as a run folder: {error.strerror}", "choose another --out") from error
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                owner = os.pread(handle, 32, 0).decode(errors="replace").strip()
                who = f" (process {owner})" if owner else ""
                raise InputError(
                    f"another perf is writing into {self.folder}{who}", "wait for it, or choose another --out"
                ) from None
            os.ftruncate(handle, 0)
            os.pwrite(handle, str(os.getpid()).encode(), 0)
            yield
        finally:
            os.close(handle)
