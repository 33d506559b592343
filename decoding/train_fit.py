"""Fitting a drafter: loss, optimiser, checkpoints.

The target is frozen and absent: its features and its opinion come from the shards of `train_features`. Per slot the loss mixes
the cross-entropy with the target's next-token distribution and with the token it wrote. Slots are weighted by how much they can
still matter: with q_k the drafter's probability of the right token, slot k counts Σ_{j≥k} Π_{i≤j} ((1 − β) q_i + β), since a later
slot is reached only when the earlier ones hold (D-PACE, arXiv 2605.18810).

Features differ by orders of magnitude between channels, which no adaptive step size mends inside one matrix. Training therefore
runs on features divided by each channel's root mean square, and the scale is folded into `fc` on export: the same function.
"""

import functools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from . import draft
from .config import DraftConfig
from .layers import MASKED, attention_mix, attention_scores, rms_norm, rope_table
from .train_blocks import Batch, Sampler
from .train_features import Example

Params = dict[str, Any]


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


def initial_params(config: DraftConfig, target_params: Params, seed: int) -> Params:
    """A drafter that starts from the target's last layers; `fc` starts by passing on the deepest feature, and a little of the others.

    Each layer's input norm is folded into its projections, so that the context, which bypasses that norm, meets what it expects.
    """
    generator = np.random.default_rng(seed)
    d, n, h = config.hidden_size, config.num_heads, config.head_dim
    num = len(config.target_layer_ids)
    fc = generator.standard_normal((num, d, d), dtype=np.float32) * (0.5 * (num * d) ** -0.5)
    fc[int(np.argmax(config.target_layer_ids))] += np.eye(d, dtype=np.float32)
    ones = np.ones(h, np.float32)
    layers = []
    for source in target_params["layers"][-config.num_layers :]:
        norm = np.asarray(source["attn_norm"], np.float32)[:, None]
        qkv = np.asarray(source["qkv"], np.float32) * norm
        layers.append(
            {
                "attn_norm": np.ones(d, np.float32),
                "q": qkv[:, : n * h],
                "kv": qkv[:, n * h :],
                "q_norm": ones * 1.4,
                "k_norm": ones * 1.4,
                "o": source["o"],
                "mlp_norm": source["mlp_norm"],
                "gate_up": source["gate_up"],
                "down": source["down"],
            }
        )
    params = {
        "fc": fc.reshape(num * d, d),
        "hidden_norm": np.ones(d, np.float32),
        "layers": layers,
        "norm": target_params["norm"],
    }
    return jax.tree.map(lambda x: jnp.array(x, jnp.float32), params)


def fold_scale(params: Params, scale: np.ndarray) -> Params:
    """The drafter for raw features, from one trained on features divided by `scale`."""
    return {**params, "fc": params["fc"] / jnp.asarray(scale)[:, None]}


def block_hidden(
    params: Params,
    config: DraftConfig,
    features: Float[Array, "b s nd"],
    anchors: Array,
    block_embeddings: Float[Array, "b n t d"],
) -> Float[Array, "b n t d"]:
    """Hidden states of all blocks of a batch; each block sees the context before its own anchor and itself, no other block."""
    b, num_blocks, t, d = block_embeddings.shape
    context = draft.context_states(params, config, features)
    s = context.shape[1]
    table = functools.partial(rope_table, head_dim=config.head_dim, theta=config.rope_theta, scaling=config.rope_scaling)
    context_table = table(jnp.broadcast_to(jnp.arange(s), (b, s)))
    block_table = table((anchors[..., None] + jnp.arange(t)).reshape(b, num_blocks * t))
    visible = jnp.arange(s) < jnp.repeat(anchors, t, axis=1)[..., None]

    def attention(keys: Array, values: Array, q: Array, block_k: Array, block_v: Array) -> Array:
        k, h = config.num_kv_heads, config.head_dim
        g = config.num_heads // k
        context_scores = jnp.where(visible[:, None, None], attention_scores(q, keys), MASKED)
        # Products over a handful of slots are too small for a batched matrix product: multiply and sum.
        own_q = q.reshape(b, num_blocks, t, 1, k, g, h)
        own_k = block_k.reshape(b, num_blocks, 1, t, k, 1, h)
        own_scores = jnp.einsum("bnqskg->bkgnqs", jnp.sum(own_q * own_k, axis=-1) * h**-0.5).reshape(b, k, g, num_blocks * t, t)
        weights = jax.nn.softmax(jnp.concatenate([context_scores, own_scores], axis=-1), axis=-1)
        own_weights = jnp.einsum("bkgnqs->bnqskg", weights[..., s:].reshape(b, k, g, num_blocks, t, t))
        own = jnp.sum(own_weights[..., None] * block_v.reshape(b, num_blocks, 1, t, k, 1, h), axis=3)
        return attention_mix(weights[..., :s], values) + own.reshape(b, num_blocks * t, k * g * h)

    x = block_embeddings.reshape(b, num_blocks * t, d)
    for layer in params["layers"]:
        keys, values = draft.context_kv(layer, config, context, context_table)
        x = draft.block_layer(layer, config, x, block_table, functools.partial(attention, keys, values))
    return rms_norm(x, params["norm"], config.rms_norm_eps).reshape(b, num_blocks, t, d)


def block_embeddings(
    embed: Float[Array, "v d"], config: DraftConfig, anchor_tokens: Array, block_size: int
) -> Float[Array, "b n t d"]:
    """The blocks' inputs: the anchor's embedding, then mask embeddings."""
    masks = jnp.full((*anchor_tokens.shape, block_size - 1), config.mask_token_id, anchor_tokens.dtype)
    return jnp.take(embed, jnp.concatenate([anchor_tokens[..., None], masks], axis=-1), axis=0)


def loss(
    params: Params, config: DraftConfig, recipe: Recipe, embed: Array, head: Array, scale: Array, batch: Batch
) -> tuple[Array, dict[str, Array]]:
    """The weighted loss in nats per slot, and what to log: accepted prefix + 1 under teacher forcing, first-slot accuracy."""
    inputs = block_embeddings(embed, config, jnp.asarray(batch.anchor_tokens), batch.labels.shape[-1] + 1)
    features = jnp.asarray(batch.features, jnp.float32) / scale
    hidden = block_hidden(params, config, features, jnp.asarray(batch.anchors), inputs)[:, :, 1:]
    logits = jnp.einsum("bntd,cd->bntc", hidden, jnp.take(head, batch.candidates, axis=0), preferred_element_type=jnp.float32)
    log_norm = jax.nn.logsumexp(logits, axis=-1)
    label_log = jnp.take_along_axis(logits, batch.labels[..., None], axis=-1)[..., 0] - log_norm
    teacher_logits = jnp.take_along_axis(logits, batch.teacher_places, axis=-1) - log_norm[..., None]
    mass = jnp.sum(batch.teacher_probs, axis=-1)
    soft = -jnp.sum(batch.teacher_probs * teacher_logits, axis=-1) / jnp.maximum(mass, 1e-6)
    share = jnp.where(mass > 1e-3, recipe.soft_share, 0.0)
    per_slot = share * soft - (1 - share) * label_log
    weights = batch.weights * _pace_weights(jax.lax.stop_gradient(jnp.exp(label_log)), recipe.pace_floor)
    value = jnp.sum(per_slot * weights) / jnp.maximum(jnp.sum(weights), 1e-6)
    right = (jnp.argmax(logits, axis=-1) == batch.labels) * batch.weights
    full = batch.weights[..., -1]  # only blocks with every slot labelled count as a sample of the accepted prefix
    tau = 1 + jnp.sum(jnp.sum(jnp.cumprod(right, axis=-1), axis=-1) * full) / jnp.maximum(jnp.sum(full), 1)
    return value, {"loss": value, "tau": tau, "first": jnp.sum(right[..., 0]) / jnp.maximum(jnp.sum(batch.weights[..., 0]), 1)}


def _pace_weights(label_probs: Float[Array, "b n t"], floor: float) -> Float[Array, "b n t"]:
    reach = jnp.cumprod((1 - floor) * label_probs + floor, axis=-1)
    return jnp.flip(jnp.cumsum(jnp.flip(reach, -1), axis=-1), -1)


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


def update(
    state: State, config: DraftConfig, recipe: Recipe, embed: Array, head: Array, scale: Array, batch: Batch
) -> tuple[State, dict[str, Array]]:
    """The state after one step on a batch, and what to log."""
    gradient, report = jax.grad(loss, has_aux=True)(state.params, config, recipe, embed, head, scale, batch)
    state, step_report = descend(state, gradient, recipe)
    return state, report | step_report


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
    config: DraftConfig,
    recipe: Recipe,
    sampler: Sampler,
    embed: Array,
    head: Array,
    scale: np.ndarray,
    after_step: Callable[[int, State, dict[str, Array], float], None],
) -> State:
    """Train from `state` to the recipe's last step; `after_step(step, state, report, seconds)` logs, evaluates and saves."""
    step_fn = jax.jit(
        lambda state, embed, head, scale, batch: update(state, config, recipe, embed, head, scale, batch), donate_argnums=(0,)
    )
    channel_rms = jnp.asarray(scale)
    short_until = int(recipe.short_block_share * recipe.num_steps)
    for step in range(int(state.step), recipe.num_steps):
        started = time.perf_counter()
        batch = sampler.batch(step, recipe.short_block_size if step < short_until else config.block_size)
        state, report = step_fn(state, embed, head, channel_rms, batch)
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
