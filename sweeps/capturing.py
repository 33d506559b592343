"""One decode of given prompts, traced or not: what `perf capture` runs."""

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from decoding.loop import Decoder, Generation, generate, no_span, required_capacity
from decoding.pair import Pair
from perfmodel.codec import read_json
from perfmodel.errors import InputError
from profiling.capture import capture


def read_prompt_ids(path: Path) -> list[list[int]]:
    """Prompts as token ids: a JSON list of non-empty lists of whole numbers. Raises `InputError`."""
    document = read_json(path)
    if not isinstance(document, list) or not document:
        raise InputError(f"{path} is not a JSON list of token-id lists", "for example [[1, 4093, 198], [1, 520]]")
    for number, prompt in enumerate(document, start=1):
        if (
            not isinstance(prompt, list)
            or not prompt
            or not all(isinstance(token, int) and not isinstance(token, bool) for token in prompt)
        ):
            raise InputError(f"{path}: prompt {number} is not a non-empty list of token ids", "whole numbers only")
    return document


def decode_prompts(
    pair: Pair, prompts: Sequence[Sequence[int]], block_size: int, batch: int, max_new_tokens: int, trace: tuple[Path, str] | None
) -> tuple[tuple[Generation, ...], Path | None]:
    """Answers to the prompts, `batch` at a time, and the trace file.

    Arguments: `trace` is the log folder and the capture's name; only the first batch is traced.
    """
    longest = max(len(prompt) for prompt in prompts)
    decoder = Decoder(pair, block_size=block_size, batch=batch, capacity=required_capacity(longest, max_new_tokens, block_size))
    decoder.compile(longest)
    answers: list[Generation] = []
    xplane = None
    for start in range(0, len(prompts), batch):
        session = capture(*trace) if trace and start == 0 else nullcontext()
        with session as traced:
            span = no_span if traced is None else traced.span
            answers.append(generate(decoder, prompts[start : start + batch], max_new_tokens, span=span))
        xplane = xplane if traced is None else traced.xplane
    return tuple(answers), xplane


def token_dump(answers: Sequence[Generation]) -> list[dict[str, Any]]:
    """One object per prompt: `tokens` (the prefill's and any stop token included), `committed` (tokens kept per step)."""
    return [
        {"tokens": list(tokens), "committed": list(committed)}
        for answer in answers
        for tokens, committed in zip(answer.tokens, answer.committed, strict=True)
    ]
