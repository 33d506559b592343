"""The DFlash drafter: one pass over a block of mask tokens, conditioned on the target's own features.

Each token's features (residual streams of several target layers, joined) pass once through `fc` and `hidden_norm`; the result is
projected to keys and values in every drafter layer and cached. The block (the last committed token, called the anchor, followed
by mask tokens) attends to that context and to itself, and slot k predicts the token at its own position; in checkpoints that
sample from the anchor it predicts the next one. Only the context is cached; the block's keys and values are thrown away.
A full layer sees all of the context and of the block. A windowed one sees W positions back, its own included, and its block is
causal unless the config says otherwise; its cache holds W positions and no more. Embedding and head are the target's, unless the
checkpoint brings its own; a head over a draft vocabulary chooses among fewer tokens, whose target ids are in `d2t`.
Source: DFlash, arXiv 2602.06036, section 3, and the layouts of the z-lab and `speculators` checkpoints.
"""

import functools
from collections.abc import Callable
from typing import Any, Protocol

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from . import target as model
from .config import TargetConfig
from .config_draft import DraftConfig
from .layers import (
    MASKED,
    KVCache,
    attention_mix,
    attention_scores,
    empty_cache,
    linear,
    linear_parts,
    rms_norm,
    rope_table,
    rotate,
    slot_positions,
    swiglu,
    write_rows,
)

Params = dict[str, Any]
"""fc [nd d] · hidden_norm · layers[i] {attn_norm, q [d nh], kv [d 2kh], q_norm, k_norm, o, mlp_norm, gate_up, down, sinks? [n]} ·
norm · where the checkpoint has them: embed [v d], head [d w], d2t [w] (target ids), mask_embedding [d]."""


class Choose(Protocol):
    """How tokens are taken from logits; see `drafter.Choose`."""

    def __call__(self, logits: Array, slot: int = 0) -> tuple[Array, Array | None]:
        """Tokens, and the probabilities they were drawn from."""


class Layer(Protocol):
    """One drafter layer over a block."""

    def __call__(
        self, layer: Params, config: Any, x: Array, table: tuple[Array, Array], attention: Callable[[Array, Array, Array], Array]
    ) -> Array:
        """The block's residual stream after the layer."""


def init_state(config: DraftConfig, batch: int, capacity: int, dtype: jnp.dtype) -> KVCache:
    """An empty context cache, no larger than the window in windowed layers. It only ever holds what target features gave."""
    return empty_cache(
        config.num_layers, batch, capacity, config.num_kv_heads, config.head_dim, dtype, windows=config.layer_windows
    )


def feature_layer_ids(config: DraftConfig) -> tuple[int, ...]:
    """The 0-indexed target layers whose outputs the drafter reads, in the order it joins them."""
    return config.target_layer_ids


def trained_block_size(config: DraftConfig) -> int:
    """Tokens per verify step the drafter was trained for, anchor included."""
    return config.trained_block_size


def context_states(params: Params, config: DraftConfig, features: Float[Array, "b m nd"]) -> Float[Array, "b m d"]:
    """hidden_norm(fc(features)): the context state every drafter layer reads."""
    with jax.named_scope("fc"):
        return rms_norm(linear(features, params["fc"]), params["hidden_norm"], config.rms_norm_eps)


def context_kv(
    layer: Params, config: DraftConfig, context: Float[Array, "b m d"], table: tuple[Array, Array]
) -> tuple[Float[Array, "b m k h"], Float[Array, "b m k h"]]:
    """Keys (normed, rotated) and values of a layer for inputs that are already normed: context states or a normed block."""
    b, m, _ = context.shape
    k, v = linear_parts(context, layer["kv"], [config.num_kv_heads * config.head_dim] * 2)
    k = rms_norm(k.reshape(b, m, config.num_kv_heads, config.head_dim), layer["k_norm"], config.rms_norm_eps)
    return rotate(k, table), v.reshape(b, m, config.num_kv_heads, config.head_dim)


def extend_context(
    params: Params,
    config: DraftConfig,
    target_params: Params,
    target_config: TargetConfig,
    features: Float[Array, "b m nd"],
    next_tokens: Int[Array, "b m"],
    positions: Int[Array, "b m"],
    num_new: Int[Array, " b"],
    state: KVCache,
) -> KVCache:
    """The cache with the context keys and values of these positions, which are consecutive in each request.

    Rows behind the first `num_new` are written too where the cache has a slot per position (behind the anchor nobody sees them, and
    the next block overwrites them), and left out of a ring, where their slots still hold what the window needs.
    """
    context = context_states(params, config, features)
    table = rope_table(positions, config.head_dim, config.rope_theta, config.rope_scaling)
    keys, values = [], []
    for i, layer in enumerate(params["layers"]):
        with jax.named_scope("context_kv"):
            k, v = context_kv(layer, config, context, table)
            keys.append(write_rows(state.k[i], k, positions, num_new, state.is_ring(i)))
            values.append(write_rows(state.v[i], v, positions, num_new, state.is_ring(i)))
    return KVCache(tuple(keys), tuple(values), state.capacity)


def propose(
    params: Params,
    config: DraftConfig,
    target_params: Params,
    target_config: TargetConfig,
    anchor: Int[Array, "b 1"],
    position: Int[Array, " b"],
    state: KVCache,
    block_size: int,
    choose: Choose,
) -> tuple[Int[Array, "b k"], Float[Array, "b k v"] | None, KVCache]:
    """K − 1 drafts for the positions behind the anchor, the probabilities they were drawn from over the target's vocabulary."""
    hidden = predicting_states(params, config, target_params, anchor, position, state, block_size, block_layer)
    chosen, probabilities = choose(draft_logits(params, config, target_params, target_config, hidden))
    if "d2t" in params:
        chosen = jnp.take(params["d2t"], chosen)
        if probabilities is not None:
            whole = jnp.zeros((*chosen.shape, target_config.vocab_size), probabilities.dtype)
            probabilities = whole.at[..., params["d2t"]].set(probabilities)
    return chosen.astype(anchor.dtype), probabilities, state


def predicting_states(
    params: Params,
    config: DraftConfig,
    target_params: Params,
    anchor: Int[Array, "b 1"],
    position: Int[Array, " b"],
    cache: KVCache,
    block_size: int,
    layer_function: Layer,
) -> Float[Array, "b k d"]:
    """Final hidden states of the K − 1 slots that predict the drafts.

    The drafter sees exactly the slots that are verified, as in the reference: its block is bidirectional, and more masks would change
    what it proposes. When the anchor's own slot predicts, one mask fewer is needed.
    """
    num_masks = block_size - 2 if config.sample_from_anchor else block_size - 1
    embeddings = block_embeddings(params, config, target_params, anchor, num_masks)
    hidden = forward(params, config, embeddings, position, cache, layer_function)
    return hidden if config.sample_from_anchor else hidden[:, 1:]


def block_embeddings(
    params: Params, config: DraftConfig, target_params: Params, anchor: Int[Array, "b 1"], num_masks: int
) -> Float[Array, "b t d"]:
    """The block's input: the anchor's embedding and the mask's, `num_masks` times."""
    masks = jnp.full((anchor.shape[0], num_masks), config.mask_token_id, dtype=anchor.dtype)
    embeddings = model.embed(params if "embed" in params else target_params, jnp.concatenate([anchor, masks], axis=1))
    if "mask_embedding" in params:
        is_anchor = jnp.arange(num_masks + 1)[:, None] == 0
        embeddings = jnp.where(is_anchor, embeddings, params["mask_embedding"].astype(embeddings.dtype))
    return embeddings if config.input_embedding_scale == 1.0 else embeddings * config.input_embedding_scale


def draft_logits(
    params: Params, config: DraftConfig, target_params: Params, target_config: TargetConfig, hidden: Float[Array, "b k d"]
) -> Float[Array, "b k w"]:
    """Logits in float32 over the drafter's vocabulary: scaled, capped, scaled again, each where the config asks for it."""
    logits = model.logits(params if "head" in params else target_params, target_config, hidden)
    if config.output_multiplier != 1.0:
        logits = logits * config.output_multiplier
    if config.final_logit_softcapping is not None:
        logits = jnp.tanh(logits / config.final_logit_softcapping) * config.final_logit_softcapping
    return logits if config.logit_scale == 1.0 else logits * config.logit_scale


def forward(
    params: Params,
    config: DraftConfig,
    embeddings: Float[Array, "b t d"],
    anchor_positions: Int[Array, " b"],
    cache: KVCache,
    layer_function: Layer | None = None,
) -> Float[Array, "b t d"]:
    """Hidden states of the block after the final norm.

    The block sees the context strictly before its anchor, whose own features do not exist yet, and of itself what the layer allows.
    """
    positions = anchor_positions[:, None] + jnp.arange(embeddings.shape[1])
    table = rope_table(positions, config.head_dim, config.rope_theta, config.rope_scaling)
    run, x = layer_function or block_layer, embeddings
    for i, layer in enumerate(params["layers"]):
        window = config.layer_windows[i]
        attention = functools.partial(
            attend_block,
            cache.k[i],
            cache.v[i],
            visible_context(cache.k[i].shape[1], positions, window),
            visible_block(embeddings.shape[1], window, config.layer_causality[i]),
            layer.get("sinks"),
        )
        x = run(layer, config, x, table, attention)
    return rms_norm(x, params["norm"], config.rms_norm_eps)


def visible_context(num_slots: int, positions: Int[Array, "b t"], window: int | None) -> Bool[Array, "b u s"]:
    """Which cache slots a layer's block sees: those written before the anchor, and with a window those nearer than it, per query."""
    held = slot_positions(num_slots, positions[:, 0])[:, None]
    if window is None:
        return held >= 0
    return (held >= 0) & (positions[..., None] - held < window)


def visible_block(num_slots: int, window: int | None, is_causal: bool) -> Bool[Array, "t t"] | None:
    """Which slots of the block each of its slots sees; None when it sees all."""
    if not is_causal and (window is None or window >= num_slots):
        return None
    ahead = jnp.arange(num_slots) - jnp.arange(num_slots)[:, None]
    reach = num_slots if window is None else window
    return (-ahead < reach) & ((ahead <= 0) if is_causal else (ahead < reach))


def attend_block(
    keys: Float[Array, "b s k h"],
    values: Float[Array, "b s k h"],
    visible: Bool[Array, "b u s"],
    block_visible: Bool[Array, "t t"] | None,
    sinks: Float[Array, " n"] | None,
    q: Float[Array, "b t n h"],
    block_k: Float[Array, "b t k h"],
    block_v: Float[Array, "b t k h"],
) -> Float[Array, "b t nh"]:
    """Attention of a block over the visible context and the visible part of itself.

    A sink is a score per head without a value: it takes weight from all keys alike.
    """
    # Scores are joined rather than keys: joining keys would copy the whole cache at every step.
    context_scores = jnp.where(visible[:, None, None], attention_scores(q, keys), MASKED)
    block_scores = attention_scores(q, block_k)
    if block_visible is not None:
        block_scores = jnp.where(block_visible, block_scores, MASKED)
    scores = [context_scores, block_scores]
    if sinks is not None:
        b, k, g, t, _ = block_scores.shape
        scores.append(jnp.broadcast_to(sinks.astype(jnp.float32).reshape(1, k, g, 1, 1), (b, k, g, t, 1)))
    weights = jax.nn.softmax(jnp.concatenate(scores, axis=-1), axis=-1)
    num_context = keys.shape[1]
    context_weights, block_weights = weights[..., :num_context], weights[..., num_context : num_context + q.shape[1]]
    return attention_mix(context_weights, values) + attention_mix(block_weights, block_v)


def block_layer(
    layer: Params,
    config: DraftConfig,
    x: Float[Array, "b t d"],
    table: tuple[Array, Array],
    attention: Callable[[Array, Array, Array], Array],
) -> Float[Array, "b t d"]:
    """One drafter layer over block tokens; `attention` gets their q, k, v (rotated) and knows the context."""
    x = x + attention_branch(layer, config, rms_norm(x, layer["attn_norm"], config.rms_norm_eps), table, attention)
    return x + mlp_branch(layer, rms_norm(x, layer["mlp_norm"], config.rms_norm_eps))


def attention_branch(
    layer: Params,
    config: DraftConfig,
    normed: Float[Array, "b t d"],
    table: tuple[Array, Array],
    attention: Callable[[Array, Array, Array], Array],
) -> Float[Array, "b t d"]:
    """What a layer's attention adds to the residual stream."""
    b, t, _ = normed.shape
    with jax.named_scope("qkv"):
        q = linear(normed, layer["q"]).reshape(b, t, config.num_heads, config.head_dim)
        q = rotate(rms_norm(q, layer["q_norm"], config.rms_norm_eps), table)
        block_k, block_v = context_kv(layer, config, normed, table)
    with jax.named_scope("attention"):
        return linear(attention(q, block_k, block_v), layer["o"])


def mlp_branch(layer: Params, normed: Float[Array, "b t d"]) -> Float[Array, "b t d"]:
    """What a layer's MLP adds to the residual stream."""
    with jax.named_scope("mlp"):
        return swiglu(normed, layer["gate_up"], layer["down"])
