"""Fitting a drafter of any kind: optimiser, step loop, checkpoints.

The target is frozen and absent: its features and its opinion come from the shards of `train_features`. What is minimised is the
affair of the kind of drafter: `train_dflash`, `train_eagle3`.

Features differ by orders of magnitude between channels, which no adaptive step size mends inside one matrix. Training therefore
runs on features divided by each channel's root mean square, and the scale is folded into `fc` on export: the same function.
"""

import functools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .train_features import Example

Params = dict[str, Any]

Objective: TypeAlias = Callable[[Params, Any, Any], tuple[Array, dict[str, Array]]]
"""(parameters, frozen arrays, batch) → loss, and what to log."""


@dataclass(frozen=True)
class Recipe:
    """How to fit a drafter. The first `short_block_share` of the steps use shorter blocks: cheaper, and first slots matter most."""

    num_steps: int
    num_answers: int = 8
    num_anchors: int = 24
    num_candidates: int = 4096
    learning_rate: float = 1e-3
    warmup_steps: int = 100
    final_rate_share: float = 0.02
    weight_decay: float = 0.05
    betas: tuple[float, float] = (0.9, 0.98)
    clip: float = 1.0
    average_decay: float = 0.998
    soft_share: float = 0.6
    pace_floor: float = 0.5
    short_block_size: int = 4
    short_block_share: float = 0.0
    seed: int = 0

    def block_size_at(self, step: int, block_size: int) -> int:
        """The block size of a step, when `block_size` is the full one."""
        return self.short_block_size if step < int(self.short_block_share * self.num_steps) else block_size


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class State:
    """Everything a resumed training needs: step, parameters, Adam's two moments, and the running average that is exported."""

    step: Array
    params: Params
    first: Params
    second: Params
    average: Params


def channel_scale(examples: Sequence[Example], sample: int = 256, skip: int = 4) -> np.ndarray:
    """Root mean square of each feature channel; the first tokens, which carry massive activations, are left out."""
    total, count = 0.0, 0
    for example in examples[:: max(1, len(examples) // sample)]:
        wide = example.features[skip:].astype(np.float64)
        total, count = total + (wide**2).sum(axis=0), count + len(wide)
    return np.sqrt(np.maximum(total / max(count, 1), 1e-12)).astype(np.float32)


def learning_rate(recipe: Recipe, step: Array) -> Array:
    """Linear warm-up, then a cosine down to `final_rate_share` of the peak."""
    warm = jnp.minimum(1.0, (step + 1) / recipe.warmup_steps)
    progress = jnp.clip((step - recipe.warmup_steps) / max(1, recipe.num_steps - recipe.warmup_steps), 0.0, 1.0)
    floor = recipe.final_rate_share
    return recipe.learning_rate * warm * (floor + (1 - floor) * 0.5 * (1 + jnp.cos(jnp.pi * progress)))


def initial_state(params: Params) -> State:
    """The state before the first step."""
    zeros = jax.tree.map(jnp.zeros_like, params)
    return State(jnp.zeros((), jnp.int32), params, zeros, jax.tree.map(jnp.copy, zeros), jax.tree.map(jnp.copy, params))


def descend(state: State, gradient: Params, recipe: Recipe) -> tuple[State, dict[str, Array]]:
    """One step of AdamW (decay on matrices only) with a clipped gradient and a running average of the parameters."""
    norm = jnp.sqrt(sum(jnp.sum(g * g) for g in jax.tree.leaves(gradient)))
    gradient = jax.tree.map(lambda g: g * jnp.minimum(1.0, recipe.clip / (norm + 1e-9)), gradient)
    rate, (beta1, beta2), count = learning_rate(recipe, state.step), recipe.betas, state.step + 1
    first = jax.tree.map(lambda m, g: beta1 * m + (1 - beta1) * g, state.first, gradient)
    second = jax.tree.map(lambda v, g: beta2 * v + (1 - beta2) * g * g, state.second, gradient)

    def move(p: Array, m: Array, v: Array) -> Array:
        step = (m / (1 - beta1**count)) / (jnp.sqrt(v / (1 - beta2**count)) + 1e-8)
        return p - rate * (step + (recipe.weight_decay * p if p.ndim > 1 else 0.0))

    params = jax.tree.map(move, state.params, first, second)
    keep = jnp.minimum(recipe.average_decay, (1.0 + state.step) / (10.0 + state.step))
    average = jax.tree.map(lambda a, p: keep * a + (1 - keep) * p, state.average, params)
    return State(count, params, first, second, average), {"gradient_norm": norm, "rate": rate}


def fit(
    state: State,
    recipe: Recipe,
    objective: Objective,
    frozen: Any,
    batches: Callable[[int], Any],
    after_step: Callable[[int, State, dict[str, Array], float], None],
) -> State:
    """Train from `state` to the recipe's last step.

    Arguments:
        objective: gives the loss, and what to log, of parameters on a batch; `frozen` is what it needs beside them.
        batches: the batch of a step; it depends on the step's number only, so that training can resume.
        after_step: gets step, state, report and seconds; logs, evaluates and saves.
    """

    @functools.partial(jax.jit, donate_argnames=("state",))
    def update(state: State, frozen: Any, batch: Any) -> tuple[State, dict[str, Array]]:
        gradient, report = jax.grad(objective, has_aux=True)(state.params, frozen, batch)
        state, step_report = descend(state, gradient, recipe)
        return state, report | step_report

    for step in range(int(state.step), recipe.num_steps):
        started = time.perf_counter()
        state, report = update(state, frozen, batches(step))
        jax.block_until_ready(report)
        after_step(step + 1, state, report, time.perf_counter() - started)
    return state


def save_state(path: Path, state: State) -> None:
    """Write the state to a file, whole or not at all."""
    leaves = {f"leaf{i:04d}": np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(state))}
    part = path.with_suffix(".part.npz")
    np.savez(part, allow_pickle=False, **leaves)
    part.replace(path)


def load_state(path: Path, like: State) -> State:
    """The state in a file, of the same structure as `like`."""
    with np.load(path) as file:
        leaves = [jnp.asarray(file[name]) for name in sorted(file.files)]
    return jax.tree.unflatten(jax.tree.structure(like), leaves)
