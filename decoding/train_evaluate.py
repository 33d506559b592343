"""How good a drafter is on answers it was not trained on, without decoding: the target's own text is the verifier.

For an answer the target wrote greedily, verifying a block is comparing it with what was written, so the accepted prefix of every
possible anchor follows from one batched pass. Uniform anchors give a quick figure; walking from anchor to anchor, each step
landing where the last one stopped, gives exactly what greedy decoding would commit.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from jax import Array

from .train_features import Example
from .train_fit import Params

_ANCHOR_GROUP = 24
_LENGTH_STEP = 64

Drafts: TypeAlias = Callable[[Params, np.ndarray, np.ndarray, np.ndarray], Array]
"""(parameters, features [1 s f], tokens [1 s+K], anchors [1 n]) → drafted ids [1 n K−1], given that those before each were right."""


@dataclass(frozen=True)
class Acceptance:
    """Committed tokens per step for one family: mean (τ), steps counted, and the share of steps whose first draft held."""

    family: str
    tau: float
    first: float
    num_steps: int


class Evaluator:
    """Evaluates drafters of one kind at one block size."""

    def __init__(self, drafts: Drafts, block_size: int) -> None:
        self.drafts, self.block_size = drafts, block_size

    def uniform(self, params: Params, examples: Sequence[Example], num_anchors: int) -> list[Acceptance]:
        """Per family, over evenly spread anchors of each answer."""
        counts: dict[str, list[int]] = {}
        for example in _greedy(examples, self.block_size):
            last = len(example.tokens) - self.block_size
            anchors = np.unique(np.linspace(example.prompt_length, last, num_anchors).astype(int))
            counts.setdefault(example.family, []).extend(self._committed(params, example, anchors))
        return _summary(counts)

    def walked(self, params: Params, examples: Sequence[Example]) -> list[Acceptance]:
        """Per family, over the steps greedy decoding would take."""
        counts: dict[str, list[int]] = {}
        for example in _greedy(examples, self.block_size):
            anchors = np.arange(example.prompt_length, len(example.tokens) - 1)
            committed = self._committed(params, example, anchors)
            place, steps = 0, []
            while place < len(committed):
                steps.append(int(committed[place]))
                place += steps[-1]
            counts.setdefault(example.family, []).extend(steps)
        return _summary(counts)

    def _committed(self, params: Params, example: Example, anchors: np.ndarray) -> np.ndarray:
        length = -(-len(example.tokens) // _LENGTH_STEP) * _LENGTH_STEP
        features = np.zeros((1, length, example.features.shape[1]), np.float16)
        features[0, : len(example.tokens)] = example.features
        padded = np.concatenate([example.tokens, np.full(self.block_size, -1)])
        tokens = np.zeros((1, length + self.block_size), np.int32)
        tokens[0, : len(example.tokens)] = example.tokens
        labels = padded[anchors[:, None] + np.arange(1, self.block_size)]
        committed = []
        for begin in range(0, len(anchors), _ANCHOR_GROUP):
            group = anchors[begin : begin + _ANCHOR_GROUP]
            filled = np.concatenate([group, np.repeat(group[-1:], _ANCHOR_GROUP - len(group))])[None]
            drafts = self.drafts(params, features, tokens, filled)
            right = np.asarray(drafts)[0, : len(group)] == labels[begin : begin + _ANCHOR_GROUP]
            committed.append(1 + np.cumprod(right, axis=-1).sum(axis=-1))
        return np.concatenate(committed)


def _greedy(examples: Sequence[Example], block_size: int) -> list[Example]:
    return [e for e in examples if e.temperature == 0.0 and len(e.teacher_ids) > block_size]


def _summary(counts: dict[str, list[int]]) -> list[Acceptance]:
    return [
        Acceptance(family, float(np.mean(steps)), float(np.mean(np.array(steps) > 1)), len(steps))
        for family, steps in sorted(counts.items())
    ]
