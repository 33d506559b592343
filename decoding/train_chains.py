"""Training batches for a drafter that drafts token after token: answers, random anchors in each, and the teacher of every draft.

A chain behind an anchor is fed the tokens that were written: its drafts matter only as long as all before them were right. The
teacher's distribution is cut to the draft vocabulary and renormalised; where the target's own choice lies outside it, nothing the
drafter could say would be accepted, and the draft does not count.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import jax
import numpy as np

from .train_blocks import Drawn, Sampler, Values
from .train_features import Example


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class ChainBatch:
    """Chains of one training step; b answers of s padded tokens, n anchors each, K − 1 drafts a chain, m teacher tokens."""

    features: Values
    """[b s nd] float16."""
    tokens: Values
    """[b s+K] token ids."""
    anchors: Values
    """[b n] positions."""
    weights: Values
    """[b n K−1] 1 where the draft counts, else 0."""
    teacher_places: Values
    """[b n K−1 m] draft tokens."""
    teacher_probs: Values
    """[b n K−1 m] probabilities, summing to 1 where the draft counts; 0 for tokens outside the draft vocabulary."""


def frequent_tokens(examples: Sequence[Example], num: int, vocab_size: int) -> np.ndarray:
    """Ids of the `num` tokens that the answers hold most often, ascending: a draft vocabulary."""
    counts = np.bincount(np.concatenate([example.tokens[example.prompt_length :] for example in examples]), minlength=vocab_size)
    return np.sort(np.argsort(-counts, kind="stable")[:num])


class ChainSampler:
    """Draws batches of chains; like `Sampler`, by seed and step number only."""

    def __init__(self, sampler: Sampler, target_ids: np.ndarray, columns: slice | np.ndarray) -> None:
        """`target_ids` is the draft vocabulary; `columns` picks the features the drafter reads from those of the examples."""
        self.sampler, self.columns = sampler, columns
        self.places = np.full(sampler.vocab_size, -1, np.int64)
        self.places[target_ids] = np.arange(len(target_ids))

    def batch(self, step: int, block_size: int) -> ChainBatch:
        """The batch of a step."""
        return assemble_chains(self.sampler.draw(step), block_size, self.places, self.columns)


def assemble_chains(drawn: Drawn, block_size: int, places: np.ndarray, columns: slice | np.ndarray) -> ChainBatch:
    """The batch for drawn answers and anchors; `places` maps target ids to draft tokens, −1 for those without one."""
    num_answers, num_anchors = drawn.anchors.shape
    num_teacher = drawn.examples[0].teacher_ids.shape[1]
    shape = (num_answers, num_anchors, block_size - 1)
    features = np.zeros((num_answers, drawn.length, drawn.examples[0].features[:, columns].shape[1]), np.float16)
    tokens = np.zeros((num_answers, drawn.length + block_size), np.int32)
    weights = np.zeros(shape, np.float32)
    teacher_places, teacher_probs = np.zeros((*shape, num_teacher), np.int32), np.zeros((*shape, num_teacher), np.float32)
    for row, example in enumerate(drawn.examples):
        num_tokens = len(example.tokens)
        features[row, :num_tokens] = example.features[:, columns]
        tokens[row, :num_tokens] = example.tokens
        positions = drawn.anchors[row][:, None] + np.arange(1, block_size)
        inside = positions < num_tokens
        answer = np.where(inside, positions - example.prompt_length, 0)
        known = places[example.teacher_ids[answer]]
        probs = np.where(known >= 0, example.teacher_probs[answer].astype(np.float32), 0.0)
        counts = inside & (known[..., 0] >= 0)
        weights[row] = counts
        teacher_places[row] = np.maximum(known, 0)
        teacher_probs[row] = np.where(counts[..., None], probs / np.maximum(probs.sum(axis=-1, keepdims=True), 1e-6), 0.0)
    return ChainBatch(features, tokens, drawn.anchors.astype(np.int32), weights, teacher_places, teacher_probs)
