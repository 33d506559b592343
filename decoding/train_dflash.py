"""What a DFlash drafter is trained to do: blocks behind random anchors, each slot to name the token of its own position.

Per slot the loss mixes the cross-entropy with the target's next-token distribution and with the token it wrote. Slots are weighted
by how much they can still matter: with q_k the drafter's probability of the right token, slot k counts
Σ_{j≥k} Π_{i≤j} ((1 − β) q_i + β), since a later slot is reached only when the earlier ones hold (D-PACE, arXiv 2605.18810).
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from . import draft
from .config_draft import DraftConfig
from .layers import MASKED, attention_mix, attention_scores, rms_norm, rope_table
from .train_blocks import Batch, Sampler
from .train_evaluate import Drafts
from .train_fit import Params, Recipe, State, fit


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


def fit_blocks(
    state: State,
    config: DraftConfig,
    recipe: Recipe,
    sampler: Sampler,
    embed: Array,
    head: Array,
    scale: np.ndarray,
    after_step: Callable[[int, State, dict[str, Array], float], None],
) -> State:
    """Train a DFlash drafter from `state` to the recipe's last step; see `train_fit.fit`."""

    def objective(params: Params, frozen: tuple[Array, Array, Array], batch: Batch) -> tuple[Array, dict[str, Array]]:
        return loss(params, config, recipe, *frozen, batch)

    def batches(step: int) -> Batch:
        return sampler.batch(step, recipe.block_size_at(step, config.block_size))

    return fit(state, recipe, objective, (embed, head, jnp.asarray(scale)), batches, after_step)


def block_drafts(config: DraftConfig, embed: Array, head: Array, scale: np.ndarray, block_size: int) -> Drafts:
    """Drafts of a DFlash drafter behind any anchors of a text, as the evaluator asks for them."""

    @jax.jit
    def drafts(params: Params, frozen: tuple[Array, Array, Array], features: Array, tokens: Array, anchors: Array) -> Array:
        embed, head, scale = frozen
        inputs = block_embeddings(embed, config, jnp.take_along_axis(tokens, anchors, axis=1), block_size)
        hidden = block_hidden(params, config, features.astype(jnp.float32) / scale, anchors, inputs)[:, :, 1:]
        return jnp.argmax(jnp.einsum("bntd,vd->bntv", hidden, head), axis=-1)

    frozen = (embed, head, jnp.asarray(scale))
    return lambda params, features, tokens, anchors: drafts(params, frozen, features, tokens, anchors)
