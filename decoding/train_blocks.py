"""Training batches: a few answers, random anchors in each, and the label and teacher of every slot behind an anchor.

Anchors are drawn anew each time an answer is visited, so one answer gives many different blocks (DFlash, section 4.2).
The loss is taken over a candidate vocabulary per batch: all labels, the teacher's best tokens, and the most frequent tokens of
the data. The head is most of a small drafter's work, and tokens that nobody considers add nothing to its gradient.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import jax
import numpy as np

from .train_features import Example

_LENGTH_STEP = 64

Values = np.ndarray | jax.Array
"""NumPy when assembled, JAX inside a compiled step."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Batch:
    """Blocks of one training step; b answers, n anchors each, slots 1 … K−1, m teacher tokens, c candidates."""

    features: Values
    """[b s nd] float16."""
    anchors: Values
    """[b n] positions."""
    anchor_tokens: Values
    """[b n] token ids."""
    labels: Values
    """[b n K−1] places in `candidates`."""
    weights: Values
    """[b n K−1] 1 where the slot has a label, else 0."""
    teacher_places: Values
    """[b n K−1 m] places in `candidates`."""
    teacher_probs: Values
    """[b n K−1 m] probabilities; 0 for tokens that are no candidates."""
    candidates: Values
    """[c] token ids."""


@dataclass(frozen=True)
class Drawn:
    """What a step trains on: answers, anchors [b n] in each, the padded length, and the generator for further draws."""

    examples: list[Example]
    anchors: np.ndarray
    length: int
    generator: np.random.Generator


class Sampler:
    """Draws batches from examples; the batch of a step depends on the seed and the step's number only, so training can resume."""

    def __init__(
        self,
        examples: Sequence[Example],
        vocab_size: int,
        num_answers: int,
        num_anchors: int,
        num_candidates: int,
        seed: int,
        family_weights: Mapping[str, float] = MappingProxyType({}),
    ) -> None:
        self.examples = [example for example in examples if len(example.teacher_ids) >= 2]
        self.vocab_size, self.num_answers, self.num_anchors = vocab_size, num_answers, num_anchors
        self.num_candidates, self.seed = num_candidates, seed
        counts = np.bincount(np.concatenate([example.tokens for example in self.examples]), minlength=vocab_size)
        self.by_frequency = np.argsort(-counts, kind="stable")
        self.buckets: dict[int, list[int]] = {}
        for i, example in enumerate(self.examples):
            length = -(-len(example.tokens) // _LENGTH_STEP) * _LENGTH_STEP
            self.buckets.setdefault(length, []).append(i)
        # A bucket smaller than a batch would repeat its answers within a batch; join it to the next longer one.
        for length in sorted(self.buckets)[:-1]:
            if len(self.buckets[length]) < 4 * num_answers:
                longer = min(other for other in self.buckets if other > length)
                self.buckets[longer] += self.buckets.pop(length)
        self.lengths = sorted(self.buckets)
        # An answer is visited in proportion to its tokens, times its family's weight.
        mass = [len(example.teacher_ids) * family_weights.get(example.family, 1.0) for example in self.examples]
        self.masses = {length: np.array([mass[i] for i in self.buckets[length]]) for length in self.lengths}
        total = sum(masses.sum() for masses in self.masses.values())
        self.shares = np.array([self.masses[length].sum() for length in self.lengths]) / total

    def batch(self, step: int, block_size: int) -> Batch:
        """The batch of a step."""
        drawn = self.draw(step)
        return assemble(
            drawn.examples, drawn.anchors, block_size, drawn.length, self.by_frequency, self.num_candidates, drawn.generator
        )

    def draw(self, step: int) -> Drawn:
        """The answers and anchors of a step."""
        generator = np.random.default_rng([self.seed, step])
        length = self.lengths[generator.choice(len(self.lengths), p=self.shares)]
        members, masses = self.buckets[length], self.masses[length]
        replace = len(members) < self.num_answers
        chosen = generator.choice(members, self.num_answers, replace=replace, p=masses / masses.sum())
        anchors = []
        for i in chosen:
            first, last = self.examples[i].prompt_length, len(self.examples[i].tokens) - 2
            places = np.arange(first, last + 1)
            anchors.append(np.sort(generator.choice(places, self.num_anchors, replace=len(places) < self.num_anchors)))
        return Drawn([self.examples[i] for i in chosen], np.array(anchors), length, generator)


def assemble(
    examples: Sequence[Example],
    anchors: np.ndarray,
    block_size: int,
    length: int,
    by_frequency: np.ndarray,
    num_candidates: int,
    generator: np.random.Generator,
) -> Batch:
    """The batch for given answers and anchors [b n]; context padded to `length` tokens."""
    num_answers, num_anchors = anchors.shape
    num_teacher = examples[0].teacher_ids.shape[1]
    shape = (num_answers, num_anchors, block_size - 1)
    features = np.zeros((num_answers, length, examples[0].features.shape[1]), np.float16)
    labels, weights = np.zeros(shape, np.int64), np.zeros(shape, np.float32)
    teacher_ids, teacher_probs = np.zeros((*shape, num_teacher), np.int64), np.zeros((*shape, num_teacher), np.float32)
    anchor_tokens = np.zeros(anchors.shape, np.int32)
    for row, example in enumerate(examples):
        features[row, : len(example.tokens)] = example.features
        anchor_tokens[row] = example.tokens[anchors[row]]
        slots = anchors[row][:, None] + np.arange(1, block_size)
        inside = slots < len(example.tokens)
        places = np.where(inside, slots, 0)
        labels[row], weights[row] = np.where(inside, example.tokens[places], 0), inside
        answer = np.where(inside, slots - example.prompt_length, 0)
        teacher_ids[row] = example.teacher_ids[answer]
        teacher_probs[row] = example.teacher_probs[answer] * inside[..., None]
    candidates = _candidates(labels, teacher_ids, by_frequency, num_candidates, generator)
    place = np.full(len(by_frequency), -1, np.int64)
    place[candidates] = np.arange(len(candidates))
    teacher_places = place[teacher_ids]
    return Batch(
        features=features,
        anchors=anchors.astype(np.int32),
        anchor_tokens=anchor_tokens,
        labels=place[labels].astype(np.int32),
        weights=weights,
        teacher_places=np.maximum(teacher_places, 0).astype(np.int32),
        teacher_probs=np.where(teacher_places >= 0, teacher_probs, 0.0).astype(np.float32),
        candidates=candidates.astype(np.int32),
    )


def _candidates(
    labels: np.ndarray, teacher_ids: np.ndarray, by_frequency: np.ndarray, num: int, generator: np.random.Generator
) -> np.ndarray:
    # In order of need, then cut: labels, the teacher's best, the frequent ones, and a few of all the others as negatives.
    num_random = num // 8
    likely = np.concatenate([labels.ravel(), *np.moveaxis(teacher_ids, -1, 0).reshape(teacher_ids.shape[-1], -1), by_frequency])
    _, first = np.unique(likely, return_index=True)
    ordered = likely[np.sort(first)]
    rest = generator.choice(ordered[num - num_random :], min(num, len(ordered)) - (num - num_random), replace=False)
    return np.concatenate([ordered[: num - num_random], rest])
