"""Answers in the target's own words: the text a drafter is trained on.

Plain batched decoding. Greedy answers teach what greedy speculation will meet; a second answer at a temperature above zero gives
more text from the same prompts without leaving the target's own distribution.
"""

import functools
import logging
from collections.abc import Sequence
from pathlib import Path

import jax
import jax.numpy as jnp
import msgspec
import numpy as np
from jaxtyping import Array

from perfmodel.codec import write_atomic
from perfmodel.errors import InputError

from . import target
from .checkpoint import load_target
from .config import TargetConfig
from .paged import PagedCache
from .pair import stop_tokens
from .tokenizer import load_tokenizer, render_chat
from .train_features import Answer, read_answers

_LENGTH_STEP = 64
_log = logging.getLogger(__name__)


def read_prompts(path: Path) -> list[tuple[str, str]]:
    """Family and text of each prompt in a file of JSON lines `{"family": …, "prompt": …}`. Raises `InputError`."""
    try:
        rows = [msgspec.json.decode(line) for line in path.read_bytes().splitlines() if line.strip()]
        return [(str(row["family"]), str(row["prompt"])) for row in rows]
    except (OSError, msgspec.DecodeError, KeyError, TypeError) as error:
        raise InputError(f"{path} holds no prompts: {error}", 'expected JSON lines {"family": …, "prompt": …}') from error


def write_answers(
    folder: Path, prompts: Sequence[tuple[str, str]], out: Path, max_new_tokens: int, temperature: float, batch: int, seed: int
) -> None:
    """Answer the prompts that have no answer in `out` yet at this temperature, saving after every batch."""
    config, params = load_target(folder, jnp.float32)
    tokenizer, stop = load_tokenizer(folder), stop_tokens(folder)
    answers = read_answers(out) if out.exists() else []
    known = {(answer.prompt, answer.temperature) for answer in answers}
    texts = [(family, render_chat(folder, [{"role": "user", "content": text}])) for family, text in prompts]
    encoded = [(family, tuple(tokenizer.encode(text, add_special_tokens=False).ids)) for family, text in texts]
    left = sorted((row for row in encoded if (row[1], temperature) not in known), key=lambda row: len(row[1]))
    for begin in range(0, len(left), batch):
        group = left[begin : begin + batch]
        outputs = answer_batch(params, config, [ids for _, ids in group], max_new_tokens, temperature, stop, seed + begin)
        answers += [Answer(family, ids, tokens, temperature) for (family, ids), tokens in zip(group, outputs, strict=True)]
        rows = [[a.family, a.prompt, a.answer, a.temperature] for a in answers]
        write_atomic(out, msgspec.json.encode({"rows": rows}))
        _log.info("%d of %d prompts answered", begin + len(group), len(left))


def answer_batch(
    params: target.Params,
    config: TargetConfig,
    prompts: Sequence[Sequence[int]],
    max_new_tokens: int,
    temperature: float,
    stop: Sequence[int],
    seed: int,
) -> list[tuple[int, ...]]:
    """The answers to a batch of prompts, each up to and with its stop token; greedy at temperature 0."""
    lengths = np.array([len(prompt) for prompt in prompts], np.int32)
    width = -(-int(lengths.max()) // _LENGTH_STEP) * _LENGTH_STEP
    tokens = np.zeros((len(prompts), width), np.int32)
    for row, prompt in enumerate(prompts):
        tokens[row, : len(prompt)] = prompt
    cache = target.init_cache(config, len(prompts), width + max_new_tokens, params["embed"].dtype)
    key = jax.random.key(seed)
    token, cache = _prefill(params, config, tokens, lengths, cache, key, temperature)
    written, done = [np.asarray(token)], np.isin(np.asarray(token), stop)
    for i in range(max_new_tokens - 1):
        if done.all():
            break
        token, cache = _step(params, config, token, lengths + i, cache, jax.random.fold_in(key, i + 1), temperature)
        written.append(np.asarray(token))
        done |= np.isin(written[-1], stop)
    return [_until_stop(row, stop) for row in np.stack(written, axis=1)]


def _until_stop(tokens: np.ndarray, stop: Sequence[int]) -> tuple[int, ...]:
    ends = np.flatnonzero(np.isin(tokens, stop))
    return tuple(tokens[: ends[0] + 1 if len(ends) else len(tokens)].tolist())


@functools.partial(jax.jit, static_argnames=("config", "temperature"), donate_argnames=("cache",))
def _prefill(
    params: target.Params, config: TargetConfig, tokens: Array, lengths: Array, cache: PagedCache, key: Array, temperature: float
) -> tuple[Array, PagedCache]:
    positions = jnp.broadcast_to(jnp.arange(tokens.shape[1]), tokens.shape)
    hidden, _, cache = target.forward(params, config, tokens, positions, cache)
    last = jnp.take_along_axis(hidden, (lengths - 1)[:, None, None], axis=1)
    return _pick(target.logits(params, config, last)[:, 0], key, temperature), cache


@functools.partial(jax.jit, static_argnames=("config", "temperature"), donate_argnames=("cache",))
def _step(
    params: target.Params, config: TargetConfig, token: Array, position: Array, cache: PagedCache, key: Array, temperature: float
) -> tuple[Array, PagedCache]:
    hidden, _, cache = target.forward(params, config, token[:, None], position[:, None], cache)
    return _pick(target.logits(params, config, hidden)[:, 0], key, temperature), cache


def _pick(logits: Array, key: Array, temperature: float) -> Array:
    if temperature == 0.0:
        return jnp.argmax(logits, axis=-1)
    return jax.random.categorical(key, logits / temperature)
