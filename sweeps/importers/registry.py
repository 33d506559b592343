"""Every reader by name, and how a file finds its own."""

import difflib
from collections.abc import Sequence

from perfmodel.errors import InputError

from . import (
    benchmark_conditions,
    dflash_mlx,
    dflash_text,
    generic_counters,
    generic_steps,
    llamacpp_log,
    plain_csv,
    sglang_bench,
    sglang_log,
    sglang_requests,
    speculation_profile,
    tpu_phases,
    tpu_standalone,
    tpu_verify_sweep,
    vllm_bench_json,
    vllm_bench_text,
    vllm_log,
    vllm_prometheus,
    vllm_requests,
)
from .reader import Likeness, Reader
from .source import Source

READERS: tuple[Reader, ...] = (
    vllm_bench_json.READER,
    vllm_bench_text.READER,
    vllm_prometheus.READER,
    vllm_log.READER,
    vllm_requests.READER,
    sglang_requests.READER,
    sglang_bench.READER,
    sglang_log.READER,
    llamacpp_log.READER,
    tpu_standalone.READER,
    tpu_verify_sweep.READER,
    tpu_phases.READER,
    dflash_text.READER,
    dflash_mlx.READER,
    speculation_profile.READER,
    benchmark_conditions.READER,
    generic_counters.READER,
    generic_steps.READER,
    plain_csv.READER,
)
"""In the order of the documentation."""


def names() -> tuple[str, ...]:
    """Names of the readers, as `--format` takes them."""
    return tuple(reader.name for reader in READERS)


def reader_named(name: str) -> Reader:
    """The reader of that name. Raises `InputError` with the nearest names."""
    found = next((reader for reader in READERS if reader.name == name), None)
    if found is None:
        near = difflib.get_close_matches(name, names(), n=3, cutoff=0.4)
        raise InputError(
            f"there is no format called {name!r}", f"did you mean {', '.join(near)}?" if near else f"known: {', '.join(names())}"
        )
    return found


def candidates(source: Source) -> list[Reader]:
    """The readers that recognise a file best; several where it is ambiguous, none where nobody does."""
    scores = [(reader.sniff(source), reader) for reader in READERS]
    best = max((score for score, _ in scores), default=Likeness.NO)
    return [reader for score, reader in scores if score == best and score is not Likeness.NO]


def recognise(source: Source) -> Reader:
    """The reader of a file. Raises `InputError`: what is wrong with its JSON, or which formats it could be."""
    found = candidates(source)
    if len(found) == 1:
        return found[0]
    if found:
        listed = "; ".join(f"{reader.name} ({reader.description})" for reader in found)
        raise InputError(f"{source} could be several things: {listed}", "say which with perf import --format")
    if source.looks_like_json and source.first_row is None:
        _ = source.document
    shown = source.head.lstrip()[:60].splitlines()
    begins = f"it begins with {shown[0]!r}" if shown else "it is empty"
    raise InputError(f"{source}, line 1: no known format: {begins}", f"known formats: {', '.join(names())}; see docs/formats.md")


def told(reader: Reader, sources: Sequence[Source]) -> str:
    """One line saying what files were taken for, and what such a file cannot tell."""
    files = ", ".join(source.path.name for source in sources)
    return f"{files}: taken for {reader.name} ({reader.description}); it cannot tell {reader.cannot_know}"
