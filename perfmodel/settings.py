"""Engine settings for a chosen K, ready to paste. Engines count differently: some the block K, some its K − 1 drafts.

K is the block size: the anchor (last committed token) and K − 1 drafts. vLLM, tpu-inference, TensorRT-LLM and llama.cpp ask for
the drafts; SGLang asks for the block. Mixing the two up is a leading cause of low acceptance, so every line says which it is.
"""

import json
import shlex
from dataclasses import dataclass

from .errors import InputError


@dataclass(frozen=True)
class EngineSetting:
    """What to paste for one engine; `reason` says in one sentence how its count follows from K."""

    engine: str
    snippet: str
    reason: str

    def __str__(self) -> str:
        """The snippet under its reason as a comment."""
        return f"# {self.engine}: {self.reason}\n{self.snippet}"


def engine_settings(block_size: int, target: str, draft: str) -> tuple[EngineSetting, ...]:
    """Settings of every engine for block size K; at K = 1, how to switch speculation off. Raises `InputError`."""
    if block_size < 1:
        raise InputError(f"block size {block_size} is impossible", "block sizes start at 1, plain decoding")
    if block_size == 1:
        return _switched_off(target)
    drafts = block_size - 1
    model, drafter = shlex.quote(target), shlex.quote(draft)
    config = shlex.quote(json.dumps({"method": "dflash", "model": draft, "num_speculative_tokens": drafts}, ensure_ascii=False))
    counts_drafts = (
        f"K={block_size} is the anchor and {drafts} draft{'s' if drafts > 1 else ''}; this engine counts drafts, so {drafts}"
    )
    return (
        EngineSetting("vLLM", f"vllm serve {model} --speculative-config {config}", counts_drafts),
        EngineSetting(
            "tpu-inference",
            f"vllm serve {model} --speculative-config {config}",
            f"vLLM with the TPU plug-in: {counts_drafts}",
        ),
        EngineSetting(
            "SGLang",
            f"python -m sglang.launch_server --model-path {model} --speculative-algorithm DFLASH"
            f" --speculative-draft-model-path {drafter} --speculative-num-draft-tokens {block_size}",
            f"this engine counts the whole block, anchor included, so {block_size} (despite the option's name)",
        ),
        EngineSetting(
            "TensorRT-LLM",
            f"speculative_config:\n  decoding_type: DFlash\n  max_draft_len: {drafts}\n  speculative_model: {json.dumps(draft)}",
            f"max_draft_len leaves the anchor out: {counts_drafts}",
        ),
        EngineSetting(
            "llama.cpp",
            f"llama-server -m {model} -md {drafter} --draft-max {drafts}",
            f"{counts_drafts}; it is clamped to the drafter's block minus one, and newer builds also call it --spec-draft-n-max",
        ),
    )


def _switched_off(target: str) -> tuple[EngineSetting, ...]:
    model = shlex.quote(target)
    reason = "K=1 is plain decoding, so leave speculation off: a drafter would only cost time and memory"
    return (
        EngineSetting("vLLM", f"vllm serve {model}", f"{reason} (no --speculative-config)"),
        EngineSetting("tpu-inference", f"vllm serve {model}", f"{reason} (no --speculative-config)"),
        EngineSetting("SGLang", f"python -m sglang.launch_server --model-path {model}", f"{reason} (no --speculative-… option)"),
        EngineSetting("TensorRT-LLM", f"trtllm-serve {model}", f"{reason} (no speculative_config)"),
        EngineSetting("llama.cpp", f"llama-server -m {model}", f"{reason} (no -md)"),
    )
