"""The prediction held against the loop: at the predicted best K and its neighbours, batch 1, prompt by prompt.

Every prompt is answered at every block size before the next prompt begins, so that a machine that slows down slows all block
sizes alike; the speedup is a ratio of times measured side by side.
"""

import random
import time
from collections.abc import Callable, Sequence

import numpy as np

from decoding.loop import generate
from perfmodel.records import CheckedK

from .answers import Decoders
from .store import RunStore

NUM_DRAWS = 400


def check_task(
    task: str,
    prompts: Sequence[tuple[int, ...]],
    predicted: dict[int, tuple[float | None, float | None]],
    decoders: Decoders,
    store: RunStore,
    max_new_tokens: int,
    budget_s: float,
    progress: Callable[[str], None],
    context: int,
) -> tuple[CheckedK, ...]:
    """Measured against predicted speedup at each block size of `predicted` (K → speedup, seconds per token).

    K = 1 must be among them: it is the plain run that the others are divided by. At least two prompts are answered, more
    while the budget lasts. Finished tasks are read back. `context` is the one the prediction was made for.
    """
    keys = {size: f"check-{task}-K{size}" for size in predicted}
    if all(store.has(key) for key in keys.values()):
        return tuple(found for key in keys.values() if (found := store.get(key, CheckedK)) is not None)
    sizes = list(predicted)
    for size in sizes:
        progress(f"compiling K={size}")
        decoders.get(size, prompts[:1])
    seconds: dict[int, list[float]] = {size: [] for size in sizes}
    tokens: dict[int, list[int]] = {size: [] for size in sizes}
    order = random.Random(0)
    started = time.perf_counter()
    for count, prompt in enumerate(prompts):
        if count >= 2 and time.perf_counter() - started > budget_s:
            break
        progress(f"{task}: prompt {count + 1}")
        for size in order.sample(sizes, len(sizes)):
            result = generate(decoders.get(size, [prompt]).decoder, [prompt], max_new_tokens)
            seconds[size].append(result.decode_s)
            tokens[size].append(result.num_committed)
    checks = tuple(_checked(task, size, predicted[size], seconds, tokens, context) for size in sizes)
    for check in checks:
        store.put(keys[check.block_size], check)
    return checks


def _checked(
    task: str,
    size: int,
    predicted: tuple[float | None, float | None],
    seconds: dict[int, list[float]],
    tokens: dict[int, list[int]],
    context: int,
) -> CheckedK:
    speedup, tpot_s = predicted
    ours, plain = np.array(seconds[size]), np.array(seconds[1])
    num_ours, num_plain = np.array(tokens[size]), np.array(tokens[1])
    draws = np.random.default_rng(0).integers(len(ours), size=(NUM_DRAWS, len(ours)))
    resampled = _speedup(ours[draws], num_ours[draws], plain[draws], num_plain[draws])
    low, high = np.quantile(resampled, [0.025, 0.975])
    return CheckedK(
        task=task,
        block_size=size,
        predicted_speedup=speedup,
        predicted_tpot_s=tpot_s,
        measured_speedup=float(_speedup(ours, num_ours, plain, num_plain)),
        measured_low=float(low),
        measured_high=float(high),
        measured_tpot_s=float(ours.sum() / num_ours.sum()),
        num_tokens=int(num_ours.sum()),
        context=context,
        answer_s=tuple(seconds[size]),
        answer_tokens=tuple(tokens[size]),
    )


def _speedup(seconds: np.ndarray, tokens: np.ndarray, plain_seconds: np.ndarray, plain_tokens: np.ndarray) -> np.ndarray:
    """Plain over speculative seconds per token, summed over prompts along the last axis."""
    plain: np.ndarray = plain_seconds.sum(-1) / plain_tokens.sum(-1)
    return plain / (seconds.sum(-1) / tokens.sum(-1))
