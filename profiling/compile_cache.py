"""Compiled programs on disk, so that asking again is instant: one file per program, topology and compiler version.

The key is made of what decides the result: the reference and its arguments, the text of its sources, the topology, the versions of
JAX and libtpu, and XLA's flags. The file holds the compiled text, not figures drawn from it, so a change of the accounting needs
no compilation.
"""

import gzip
import hashlib
import json
import os
import zlib
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from perfmodel import codec

from .compile_program import ProgramReference, source_files
from .compile_topology import Topology

PACKAGES = ("jax", "jaxlib", "libtpu")
_OWN_SOURCES = ("profiling.compile_worker", "profiling.compile_flops")
_FLAGS = ("XLA_FLAGS", "LIBTPU_INIT_ARGS")


def versions() -> dict[str, str]:
    """Versions of the packages that decide what is compiled; one that is absent is left out."""
    found = {}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def folder() -> Path:
    """Where compiled programs are kept."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "dflash-perf" / "compiled"


def path_of(program: ProgramReference, topology: Topology) -> Path:
    """The file of a program compiled for a topology by the compiler that is installed."""
    facts = {
        "factory": program.factory,
        "arguments": program.arguments,
        "sources": fingerprint((*program.sources, *_OWN_SOURCES)),
        "topology": topology.name,
        "options": topology.options,
        "versions": versions(),
        "flags": {name: os.environ[name] for name in _FLAGS if name in os.environ},
    }
    return folder() / f"{hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:32]}.json.gz"


def fingerprint(sources: Sequence[str]) -> str:
    """A digest of the text of modules and packages."""
    digest = hashlib.sha256()
    for name in sources:
        for path in source_files(name):
            digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def read(path: Path) -> dict[str, Any] | None:
    """The document in a cache file; None when there is none, or when it cannot be read and must be made anew."""
    try:
        document = json.loads(gzip.decompress(path.read_bytes()))
    except (OSError, EOFError, zlib.error, ValueError):
        return None
    return document if isinstance(document, dict) and "failure" in document else None


def write(path: Path, document: dict[str, Any]) -> None:
    """Keep a document; a reader never sees half of it."""
    codec.write_atomic(path, gzip.compress(json.dumps(document).encode(), compresslevel=6))
