"""What a drafter learns from: the target's features of its own answers, and what it thought at each answer position.

A drafter is trained on text that its target wrote, with the target frozen, so everything it needs from the target can be computed
once: the features (its input), and the most probable next tokens with their probabilities (a softer label than the one token that
was written, and worth more when data are few). One shard file holds one padded batch.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import msgspec
import numpy as np

from perfmodel.codec import write_atomic
from perfmodel.errors import InputError

from . import target
from .config import TargetConfig

NUM_TEACHER_TOKENS = 24
"""Most probable next tokens kept per answer position."""
_LENGTH_STEP = 32
"""Batches are padded to a multiple of this, so that few shapes are compiled."""
_HEAD_GROUP = 64
_FLOAT16_MAX = 65504.0


@dataclass(frozen=True)
class Answer:
    """A prompt and the target's answer to it, as token ids, with the temperature it was written at."""

    family: str
    prompt: tuple[int, ...]
    answer: tuple[int, ...]
    temperature: float

    @property
    def tokens(self) -> tuple[int, ...]:
        """Prompt and answer joined."""
        return self.prompt + self.answer


@dataclass(frozen=True)
class Example:
    """An answer with what the target says about it.

    `features` [t nd] float16 for every token; `teacher_ids` and `teacher_probs` [a m] for predicting each answer token.
    """

    index: int
    family: str
    temperature: float
    prompt_length: int
    tokens: np.ndarray
    features: np.ndarray
    teacher_ids: np.ndarray
    teacher_probs: np.ndarray


def read_answers(path: Path) -> list[Answer]:
    """The answers in a JSON file `{"rows": [[family, prompt ids, answer ids, temperature], …]}`. Raises `InputError`."""
    try:
        rows = msgspec.json.decode(path.read_bytes())["rows"]
        return [Answer(str(f), tuple(map(int, p)), tuple(map(int, a)), float(t)) for f, p, a, t in rows]
    except (OSError, msgspec.DecodeError, TypeError, ValueError, KeyError) as error:
        raise InputError(
            f"{path} holds no answers: {error}", 'expected {"rows": [[family, prompt ids, answer ids, temperature], …]}'
        ) from error


def write_features(
    params: target.Params,
    config: TargetConfig,
    answers: Sequence[Answer],
    feature_layers: tuple[int, ...],
    folder: Path,
    tokens_per_batch: int = 2048,
    seed: int = 0,
) -> Iterator[Path]:
    """Write one shard per batch of like-length answers, in random order; yields each file's path. Existing shards are kept."""
    folder.mkdir(parents=True, exist_ok=True)
    batches = _batches(answers, tokens_per_batch)
    capacity = max(len(answer.answer) for answer in answers)
    extract = jax.jit(lambda p, tokens, starts: _extract(p, config, tokens, starts, feature_layers, capacity))
    for number in np.random.default_rng(seed).permutation(len(batches)):
        path = folder / f"shard-{number:05d}.npz"
        if path.exists():
            continue
        length, indices = batches[number]
        tokens = np.zeros((len(indices), length), np.int32)
        for row, index in enumerate(indices):
            tokens[row, : len(answers[index].tokens)] = answers[index].tokens
        starts = np.array([len(answers[index].prompt) - 1 for index in indices], np.int32)
        features, ids, probs = jax.device_get(extract(params, tokens, starts))
        part = path.with_suffix(".part.npz")
        np.savez(
            part,
            indices=np.array(indices),
            tokens=tokens,
            prompt_lengths=starts + 1,
            answer_lengths=np.array([len(answers[index].answer) for index in indices]),
            families=np.array([answers[index].family for index in indices]),
            temperatures=np.array([answers[index].temperature for index in indices], np.float32),
            features=features,
            teacher_ids=ids,
            teacher_probs=probs,
        )
        part.replace(path)
        yield path


def read_examples(folder: Path) -> list[Example]:
    """All examples in a folder of shards, in the order of their index."""
    examples: list[Example] = []
    for path in sorted(folder.glob("shard-*.npz")):
        if path.name.endswith(".part.npz"):
            continue
        with np.load(path) as file:
            examples += _examples({name: file[name] for name in file.files})
    if not examples:
        raise InputError(f"{folder} holds no feature shards", "write them first: python -m decoding.train features")
    return sorted(examples, key=lambda example: example.index)


def write_settings(folder: Path, settings: dict[str, Any]) -> None:
    """Note how the shards were made, beside them."""
    write_atomic(folder / "settings.json", msgspec.json.encode(settings))


def read_settings(folder: Path) -> dict[str, Any]:
    """How the shards of a folder were made. Raises `InputError` when the folder does not say."""
    try:
        return msgspec.json.decode((folder / "settings.json").read_bytes())
    except (OSError, msgspec.DecodeError) as error:
        raise InputError(
            f"{folder} does not say how its features were made: {error}", "write them: python -m decoding.train features"
        ) from error


def _examples(shard: dict[str, np.ndarray]) -> Iterator[Example]:
    for row, index in enumerate(shard["indices"]):
        prompt, answer = int(shard["prompt_lengths"][row]), int(shard["answer_lengths"][row])
        yield Example(
            index=int(index),
            family=str(shard["families"][row]),
            temperature=float(shard["temperatures"][row]),
            prompt_length=prompt,
            tokens=shard["tokens"][row, : prompt + answer],
            features=shard["features"][row, : prompt + answer],
            teacher_ids=shard["teacher_ids"][row, :answer],
            teacher_probs=shard["teacher_probs"][row, :answer],
        )


def _batches(answers: Sequence[Answer], tokens_per_batch: int) -> list[tuple[int, list[int]]]:
    groups: dict[int, list[int]] = {}
    for index, answer in enumerate(answers):
        length = -(-len(answer.tokens) // _LENGTH_STEP) * _LENGTH_STEP
        groups.setdefault(length, []).append(index)
    batches = []
    for length, indices in sorted(groups.items()):
        size = max(1, tokens_per_batch // length)
        batches += [(length, indices[i : i + size]) for i in range(0, len(indices), size)]
    return batches


def _extract(
    params: target.Params,
    config: TargetConfig,
    tokens: jax.Array,
    starts: jax.Array,
    feature_layers: tuple[int, ...],
    capacity: int,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    batch, length = tokens.shape
    positions = jnp.broadcast_to(jnp.arange(length), tokens.shape)
    cache = target.init_cache(config, batch, length, params["embed"].dtype)
    hidden, features, _ = target.forward(params, config, tokens, positions, cache, feature_layers)
    rows = jnp.minimum(starts[:, None] + jnp.arange(min(capacity, length)), length - 1)
    logits = target.logits(params, config, jnp.take_along_axis(hidden, rows[..., None], axis=1))
    values, ids = top_tokens(logits, NUM_TEACHER_TOKENS)
    probs = jnp.exp(values - jax.nn.logsumexp(logits, axis=-1, keepdims=True))
    features = jnp.clip(features, -_FLOAT16_MAX, _FLOAT16_MAX).astype(jnp.float16)
    return features, ids.astype(jnp.uint32), probs.astype(jnp.float16)


def top_tokens(logits: jax.Array, num: int) -> tuple[jax.Array, jax.Array]:
    """The `num` largest logits and their ids, exactly: the winners lie in the `num` groups with the largest maxima."""
    vocab = logits.shape[-1]
    if vocab % _HEAD_GROUP or vocab // _HEAD_GROUP < num:
        return jax.lax.top_k(logits, num)
    grouped = logits.reshape(*logits.shape[:-1], vocab // _HEAD_GROUP, _HEAD_GROUP)
    _, groups = jax.lax.top_k(grouped.max(axis=-1), num)
    candidates = jnp.take_along_axis(grouped, groups[..., None], axis=-2).reshape(*logits.shape[:-1], num * _HEAD_GROUP)
    values, places = jax.lax.top_k(candidates, num)
    ids = jnp.take_along_axis(groups, places // _HEAD_GROUP, axis=-1) * _HEAD_GROUP + places % _HEAD_GROUP
    return values, ids
