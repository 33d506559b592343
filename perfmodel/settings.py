"""Engine settings for a chosen K, ready to paste. Engines count differently: some the block K, some its K − 1 drafts.

K is the block size: the anchor (last committed token) and K − 1 drafts. vLLM, tpu-inference, TensorRT-LLM and llama.cpp ask for
the drafts; SGLang asks for the block. Mixing the two up is a leading cause of low acceptance, so every snippet says which it is.

Where the best K falls with the number of requests in flight, vLLM takes a table of inclusive ranges of batch sizes and
TensorRT-LLM one of upper ends; the other engines take a single count.
"""

import difflib
import json
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from .errors import InputError

Method = Literal["dflash", "eagle3"]
"""How the drafter works, by the name vLLM has for it."""

ENGINES = ("vllm", "sglang", "tensorrt-llm", "llama.cpp", "tpu-inference")
"""Engines there are snippets for, as `--emit` names them."""

_SHOWN = {
    "vllm": "vLLM",
    "sglang": "SGLang",
    "tensorrt-llm": "TensorRT-LLM",
    "llama.cpp": "llama.cpp",
    "tpu-inference": "tpu-inference",
}
_ORDER = ("vllm", "tpu-inference", "sglang", "tensorrt-llm", "llama.cpp")


@dataclass(frozen=True)
class EngineSetting:
    """What to paste for one engine; `reason` says in one sentence how its count follows from K."""

    engine: str
    snippet: str
    reason: str

    def __str__(self) -> str:
        """The snippet under its reason as a comment."""
        return f"# {self.engine}: {self.reason}\n{self.snippet}"


@dataclass(frozen=True)
class _Wanted:
    """What is to be set: K, the pair, the kind of drafter, and the best K by batch size where it varies."""

    block_size: int
    target: str
    draft: str
    method: Method
    by_batch: tuple[tuple[int, int], ...]

    @property
    def drafts(self) -> int:
        return self.block_size - 1

    @property
    def widest(self) -> "_Wanted":
        """The same with the largest K of the table, which a table's engine is given beside it."""
        return replace(self, block_size=max([self.block_size, *(size for _, size in self.by_batch)]))

    @property
    def counts_drafts(self) -> str:
        plural = "s" if self.drafts > 1 else ""
        return f"K={self.block_size} is the anchor and {self.drafts} draft{plural}; this engine counts drafts, so {self.drafts}"


def engine_settings(block_size: int, target: str, draft: str, method: Method = "dflash") -> tuple[EngineSetting, ...]:
    """Settings of every engine for block size K; at K = 1, how to switch speculation off. Raises `InputError`."""
    wanted = _checked(block_size, target, draft, method, {})
    return tuple(_setting(engine, wanted) for engine in _ORDER)


def snippet(
    engine: str,
    *,
    block_size: int,
    target: str,
    draft: str,
    why: str = "",
    method: Method = "dflash",
    by_batch: Mapping[int, int] | None = None,
) -> str:
    """The text to paste for one engine of `ENGINES`: reasons as comments, then the command or the YAML.

    `why` says in the caller's words why it is this K; it becomes the first comment. `by_batch` maps a batch size to the best K
    there (1 where plain decoding is best): engines with a table get it, for the others a comment tells. Between two batch sizes
    the K of the larger one is used. Raises `InputError` for an unknown engine or an impossible K.
    """
    name = engine.strip().lower()
    if name not in ENGINES:
        close = difflib.get_close_matches(name, ENGINES, n=1, cutoff=0.4)
        hint = f"did you mean {close[0]}?" if close else f"known: {', '.join(ENGINES)}"
        raise InputError(f"there are no settings for the engine {engine!r}", hint)
    setting = _setting(name, _checked(block_size, target, draft, method, by_batch or {}))
    comments = [line.strip() for line in why.splitlines() if line.strip()] + [f"{setting.engine}: {setting.reason}"]
    return "\n".join([*(f"# {line}" for line in comments), setting.snippet])


def _checked(block_size: int, target: str, draft: str, method: Method, by_batch: Mapping[int, int]) -> _Wanted:
    sizes = dict(by_batch)
    for size in (block_size, *sizes.values()):
        if size < 1:
            raise InputError(f"block size {size} is impossible", "block sizes start at 1, plain decoding")
    if any(batch < 1 for batch in sizes):
        raise InputError(f"a batch of {min(sizes)} is impossible", "batch sizes start at 1")
    varies = len(set(sizes.values())) > 1
    return _Wanted(block_size, target, draft, method, tuple(sorted(sizes.items())) if varies else ())


def _setting(engine: str, wanted: _Wanted) -> EngineSetting:
    if engine in _WITH_TABLE:
        wanted = wanted.widest
    if wanted.block_size == 1:
        command, option = _PLAIN[engine]
        reason = f"K=1 is plain decoding, so leave speculation off: a drafter would only cost time and memory (no {option})"
        return EngineSetting(_SHOWN[engine], f"{command} {shlex.quote(wanted.target)}", reason)
    made, reason = _MAKERS[engine](wanted)
    return EngineSetting(_SHOWN[engine], made, reason)


def _ranges(wanted: _Wanted) -> list[tuple[int, int, int]]:
    """(first batch, last batch, drafts) with neighbours of one count joined; a gap belongs to the larger batch."""
    found: list[tuple[int, int, int]] = []
    for batch, size in wanted.by_batch:
        if found and found[-1][2] == size - 1:
            found[-1] = (found[-1][0], batch, size - 1)
        else:
            found.append((found[-1][1] + 1 if found else 1, batch, size - 1))
    return found


def _said(wanted: _Wanted) -> str:
    return ", ".join(
        f"K={drafts + 1} ({drafts}) at batch {low}{f'-{high}' if high > low else ''}" for low, high, drafts in _ranges(wanted)
    )


def _one_count(wanted: _Wanted) -> str:
    if not wanted.by_batch:
        return ""
    return f"; it takes one count only, while the best differs: {_said(wanted)}; choose the count for the load you serve"


def _vllm(wanted: _Wanted) -> tuple[str, str]:
    config: dict[str, Any] = {"method": wanted.method, "model": wanted.draft, "num_speculative_tokens": wanted.drafts}
    reason = wanted.counts_drafts
    if wanted.by_batch:
        config["num_speculative_tokens_per_batch_size"] = [list(entry) for entry in _ranges(wanted)]
        reason += f"; by requests in flight: {_said(wanted)}; larger batches keep the last count; not with data parallelism"
    text = shlex.quote(json.dumps(config, ensure_ascii=False))
    return f"vllm serve {shlex.quote(wanted.target)} --speculative-config {text}", reason


def _tpu_inference(wanted: _Wanted) -> tuple[str, str]:
    made, reason = _vllm(replace(wanted, by_batch=()))
    return made, f"vLLM with the TPU plug-in: {reason}{_one_count(wanted)}"


def _sglang(wanted: _Wanted) -> tuple[str, str]:
    steps = "" if wanted.method == "dflash" else f" --speculative-num-steps {wanted.drafts} --speculative-eagle-topk 1"
    return (
        f"python -m sglang.launch_server --model-path {shlex.quote(wanted.target)}"
        f" --speculative-algorithm {wanted.method.upper()} --speculative-draft-model-path {shlex.quote(wanted.draft)}{steps}"
        f" --speculative-num-draft-tokens {wanted.block_size}",
        f"this engine counts the whole block, anchor included, so {wanted.block_size} (despite the option's name)"
        f"{_one_count(wanted)}",
    )


def _tensorrt(wanted: _Wanted) -> tuple[str, str]:
    kind = {"dflash": "DFlash", "eagle3": "Eagle3"}[wanted.method]
    lines = [
        "speculative_config:",
        f"  decoding_type: {kind}",
        f"  max_draft_len: {wanted.drafts}",
        f"  speculative_model: {json.dumps(wanted.draft)}",
    ]
    reason = f"max_draft_len leaves the anchor out: {wanted.counts_drafts}"
    if wanted.by_batch:
        table = ", ".join(f"{high}: {drafts}" for _, high, drafts in _ranges(wanted) if drafts)
        lines.append(f"  draft_len_schedule: {{{table}}}")
        reason += f"; the schedule's keys are the largest batch of each count, none drafted beyond: {_said(wanted)}"
    return "\n".join(lines), f"{reason}. Put this in the file given to trtllm-serve --config"


def _llama(wanted: _Wanted) -> tuple[str, str]:
    return (
        f"llama-server -m {shlex.quote(wanted.target)} -md {shlex.quote(wanted.draft)} --spec-type draft-{wanted.method}"
        f" --spec-draft-n-max {wanted.drafts}",
        f"{wanted.counts_drafts}; both models are GGUF files, the count is clamped to the drafter's block minus one, and older"
        f" builds call it --draft-max{_one_count(wanted)}",
    )


_WITH_TABLE = ("vllm", "tensorrt-llm")
"""Engines that take a count per batch size."""

_MAKERS: dict[str, Callable[[_Wanted], tuple[str, str]]] = {
    "vllm": _vllm,
    "sglang": _sglang,
    "tensorrt-llm": _tensorrt,
    "llama.cpp": _llama,
    "tpu-inference": _tpu_inference,
}

_PLAIN = {
    "vllm": ("vllm serve", "--speculative-config"),
    "tpu-inference": ("vllm serve", "--speculative-config"),
    "sglang": ("python -m sglang.launch_server --model-path", "--speculative-… option"),
    "tensorrt-llm": ("trtllm-serve", "speculative_config"),
    "llama.cpp": ("llama-server -m", "-md"),
}
