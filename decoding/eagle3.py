"""The EAGLE-3 drafter: one decoder layer that drafts token after token, fed with the target's features and then with itself.

Features and tokens are paired with a shift of one: the feature of position t (residual streams of three target layers, joined by
`fc`) goes with the token at t + 1, and together they predict the token at t + 2. For drafts beyond what the target has seen, the
layer's own output takes the feature's place. So K − 1 drafts cost K − 1 sequential passes of a small network, against one pass for a
block drafter, but each draft knows the ones before it.

Keys and values of a row depend on its feature and its next token alone, so context rows are written once, when the target's
features of a step arrive; rows that drafting wrote for its own guesses are overwritten then.
Source: EAGLE-3, arXiv 2503.01840, section 3.2, and the layout of its published checkpoints.
"""

from dataclasses import dataclass
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Int

from perfmodel.errors import InputError

from . import target as model
from .checkpoint_tensors import Tensors, target_ids
from .config import TargetConfig
from .config_eagle3 import Eagle3Config
from .layers import (
    KVCache,
    attend,
    empty_cache,
    linear,
    rms_norm,
    rope_table,
    rotate,
    swiglu,
    tied_head,
    write_rows,
)

Params = dict[str, Any]
"""fc [nd d] · layer {embed_norm, hidden_norm, q [2d nh], kv [2d 2kh], o [nh d], mlp_norm, gate_up, down} · norm · head [w d] ·
d2t [w] int32, the target's id of each of the w draft tokens · embed [v d] where the drafter has its own."""

_LAYER_PREFIXES = ("midlayer.", "layers.0.")


class Choose(Protocol):
    """How a token is taken from logits; see `drafter.Choose`."""

    def __call__(self, logits: Array, slot: Any = 0) -> tuple[Array, Array | None]:
        """Tokens, and the probabilities they were drawn from."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class State:
    """Context keys and values of the one layer, and the fused feature of the last row read, which the next proposal starts from."""

    cache: KVCache
    feature: Float[Array, "b 1 d"]


def init_state(config: Eagle3Config, batch: int, capacity: int, dtype: jnp.dtype) -> State:
    """A state that has read nothing."""
    cache = empty_cache(1, batch, capacity, config.num_kv_heads, config.head_dim, dtype)
    return State(cache, jnp.zeros((batch, 1, config.hidden_size), dtype))


def feature_layer_ids(config: Eagle3Config) -> tuple[int, ...]:
    """The 0-indexed target layers whose outputs are the feature. Raises `InputError` before the target is known."""
    if not config.target_layer_ids:
        raise InputError(
            "the drafter's config lists no feature layers, and its target is not known here",
            "add eagle_aux_hidden_state_layer_ids, or load it together with its target",
        )
    return config.target_layer_ids


def trained_block_size(config: Eagle3Config) -> None:
    """None: a chain may be drafted to any length."""
    return None


def extend_context(
    params: Params,
    config: Eagle3Config,
    target_params: Params,
    target_config: TargetConfig,
    features: Float[Array, "b t f"],
    next_tokens: Int[Array, "b t"],
    positions: Int[Array, "b t"],
    num_new: Int[Array, " b"],
    state: State,
) -> State:
    """The state after the first `num_new` of these rows; further rows lie where drafting or the next step overwrites them."""
    fused = fuse(params, features)
    inputs, _ = layer_inputs(params, config, token_embeddings(params, target_params, next_tokens), fused)
    k, v = keys_and_values(params["layer"], config, inputs, rope(config, positions))
    cache = _written(state.cache, k, v, positions)
    last = jnp.take_along_axis(fused, jnp.maximum(num_new - 1, 0)[:, None, None], axis=1)
    return State(cache, jnp.where((num_new > 0)[:, None, None], last, state.feature))


def propose(
    params: Params,
    config: Eagle3Config,
    target_params: Params,
    target_config: TargetConfig,
    anchor: Int[Array, "b 1"],
    position: Int[Array, " b"],
    state: State,
    block_size: int,
    choose: Choose,
) -> tuple[Int[Array, "b k"], Float[Array, "b k v"] | None, State]:
    """K − 1 drafts behind the anchor, the probabilities over the target's vocabulary they were drawn from, and the state.

    The chain starts at the row before the anchor, the last one that has a feature, with the anchor as its next token.
    """

    def one(carry: tuple[KVCache, Array, Array], slot: Array) -> tuple[tuple[KVCache, Array, Array], tuple[Array, Array | None]]:
        cache, token, hidden = carry
        cache, hidden = forward(params, config, target_params, token, hidden, (position - 1 + slot)[:, None], cache)
        drafted, probabilities = choose(logits(params, config, hidden), slot)
        token = jnp.take(params["d2t"], drafted, axis=0).astype(anchor.dtype)
        return (cache, token, hidden), (token[:, 0], None if probabilities is None else probabilities[:, 0])

    (cache, _, _), (drafts, probabilities) = jax.lax.scan(
        one, (state.cache, anchor, state.feature), jnp.arange(block_size - 1, dtype=position.dtype)
    )
    if probabilities is not None:
        own = jnp.moveaxis(probabilities, 0, 1)
        probabilities = jnp.zeros((*own.shape[:2], config.vocab_size), own.dtype).at[..., params["d2t"]].set(own)
    return drafts.T, probabilities, State(cache, state.feature)


def forward(
    params: Params,
    config: Eagle3Config,
    target_params: Params,
    tokens: Int[Array, "b t"],
    hidden: Float[Array, "b t d"],
    positions: Int[Array, "b t"],
    cache: KVCache,
) -> tuple[KVCache, Float[Array, "b t d"]]:
    """The cache with rows at `positions` written, and the layer's output for them, before the final norm.

    A row pairs a fused feature, or the output of the row before it, with the token that follows; it sees all slots up to its own.
    """
    with jax.named_scope("qkv"):
        inputs, residual = layer_inputs(params, config, token_embeddings(params, target_params, tokens), hidden)
        table = rope(config, positions)
        k, v = keys_and_values(params["layer"], config, inputs, table)
        q = queries(params["layer"], config, inputs, table)
    with jax.named_scope("attention"):
        cache = _written(cache, k, v, positions)
        visible = jnp.arange(cache.k[0].shape[1]) <= positions[..., None]
        mixed = attend(q, cache.k[0], cache.v[0], visible)
    return cache, layer_output(params["layer"], config, residual, mixed)


def fuse(params: Params, features: Float[Array, "b t f"]) -> Float[Array, "b t d"]:
    """The target's joined features as one vector of the drafter's width."""
    with jax.named_scope("fc"):
        return linear(features, params["fc"])


def token_embeddings(params: Params, target_params: Params, tokens: Int[Array, "b t"]) -> Float[Array, "b t d"]:
    """Embedding rows of `tokens` from the drafter's own table, or else the target's. Fillers below 0 give some row."""
    return model.embed(params if "embed" in params else target_params, jnp.maximum(tokens, 0))


def layer_inputs(
    params: Params, config: Eagle3Config, embeddings: Float[Array, "b t d"], hidden: Float[Array, "b t d"]
) -> tuple[Float[Array, "b t dd"], Float[Array, "b t d"]]:
    """What the layer's projections read (normed embedding and normed feature side by side), and its residual stream."""
    layer, eps = params["layer"], config.rms_norm_eps
    normed = rms_norm(hidden, layer["hidden_norm"], eps)
    inputs = jnp.concatenate([rms_norm(embeddings, layer["embed_norm"], eps), normed], axis=-1)
    return inputs, normed if config.norm_before_residual else hidden


def rope(config: Eagle3Config, positions: Int[Array, "b t"]) -> tuple[Array, Array]:
    """The rotation of each position."""
    return rope_table(positions, config.head_dim, config.rope_theta, config.rope_scaling)


def queries(
    layer: Params, config: Eagle3Config, inputs: Float[Array, "b t dd"], table: tuple[Array, Array]
) -> Float[Array, "b t n h"]:
    """Rotated queries."""
    q = linear(inputs, layer["q"])
    return rotate(q.reshape(*inputs.shape[:2], config.num_heads, config.head_dim), table)


def keys_and_values(
    layer: Params, config: Eagle3Config, inputs: Float[Array, "b t dd"], table: tuple[Array, Array]
) -> tuple[Float[Array, "b t k h"], Float[Array, "b t k h"]]:
    """Rotated keys, and values."""
    kv = linear(inputs, layer["kv"])
    k, v = (part.reshape(*inputs.shape[:2], config.num_kv_heads, config.head_dim) for part in jnp.split(kv, 2, axis=-1))
    return rotate(k, table), v


def layer_output(
    layer: Params, config: Eagle3Config, residual: Float[Array, "b t d"], mixed: Float[Array, "b t nh"]
) -> Float[Array, "b t d"]:
    """The residual stream behind attention and MLP."""
    x = residual + linear(mixed, layer["o"])
    with jax.named_scope("mlp"):
        return x + swiglu(rms_norm(x, layer["mlp_norm"], config.rms_norm_eps), layer["gate_up"], layer["down"])


def logits(params: Params, config: Eagle3Config, hidden: Float[Array, "b t d"]) -> Float[Array, "b t w"]:
    """Logits over the draft vocabulary in float32."""
    with jax.named_scope("head"):
        return tied_head(rms_norm(hidden, params["norm"], config.rms_norm_eps), params["head"])


def _written(cache: KVCache, k: Array, v: Array, positions: Array) -> KVCache:
    return KVCache((write_rows(cache.k[0], k, positions),), (write_rows(cache.v[0], v, positions),), cache.capacity)


def params_from(take: Tensors, config: Eagle3Config, dtype: DTypeLike) -> Params:
    """The drafter's parameters from tensors under their published names, in `dtype`. Raises `InputError`."""
    d, f, h = config.hidden_size, config.intermediate_size, config.head_dim
    q_width, kv_width = config.num_heads * h, config.num_kv_heads * h
    num_features = len(config.target_layer_ids) or 3
    prefix = next((p for p in _LAYER_PREFIXES if take.has(f"{p}self_attn.q_proj.weight")), _LAYER_PREFIXES[0])
    kv = [take(f"{prefix}self_attn.{name}_proj.weight", kv_width, 2 * d).T for name in ("k", "v")]
    gate_up = [take(f"{prefix}mlp.{name}_proj.weight", f, d).T for name in ("gate", "up")]
    params: Params = {
        "fc": take("fc.weight", d, num_features * config.target_hidden_size).T,
        "layer": {
            "embed_norm": take(f"{prefix}input_layernorm.weight", d),
            "hidden_norm": take(f"{prefix}hidden_norm.weight", d),
            "q": take(f"{prefix}self_attn.q_proj.weight", q_width, 2 * d).T,
            "kv": np.concatenate(kv, axis=1),
            "o": take(f"{prefix}self_attn.o_proj.weight", d, q_width).T,
            "mlp_norm": take(f"{prefix}post_attention_layernorm.weight", d),
            "gate_up": np.concatenate(gate_up, axis=1),
            "down": take(f"{prefix}mlp.down_proj.weight", d, f).T,
        },
        "norm": take("norm.weight", d),
        "head": take("lm_head.weight", config.draft_vocab_size, d),
    }
    if take.has("embed_tokens.weight"):
        params["embed"] = take("embed_tokens.weight", config.vocab_size, d)
    elif d != config.target_hidden_size:
        raise InputError(
            f"the drafter of width {d} has no embedding of its own for a target of width {config.target_hidden_size}",
            "the checkpoint may be incomplete",
        )
    params = jax.tree.map(lambda value: jnp.asarray(np.ascontiguousarray(value), dtype=dtype), params)
    return params | {"d2t": jnp.asarray(target_ids(take, config.draft_vocab_size, config.vocab_size))}


def tensors_of(config: Eagle3Config, params: Params) -> dict[str, np.ndarray]:
    """The drafter's tensors under their published names: weights in bfloat16 as [out, in], d2t and t2d as published."""
    layer = params["layer"]
    k, v = np.split(np.asarray(layer["kv"], np.float32), 2, axis=1)
    gate, up = np.split(np.asarray(layer["gate_up"], np.float32), 2, axis=1)
    linears = {
        "fc": params["fc"], "midlayer.self_attn.q_proj": layer["q"], "midlayer.self_attn.k_proj": k, "midlayer.self_attn.v_proj": v,
        "midlayer.self_attn.o_proj": layer["o"], "midlayer.mlp.gate_proj": gate, "midlayer.mlp.up_proj": up,
        "midlayer.mlp.down_proj": layer["down"],
    }  # fmt: skip
    others = {
        "midlayer.input_layernorm": layer["embed_norm"], "midlayer.hidden_norm": layer["hidden_norm"],
        "midlayer.post_attention_layernorm": layer["mlp_norm"], "norm": params["norm"], "lm_head": params["head"],
    }  # fmt: skip
    if "embed" in params:
        others["embed_tokens"] = params["embed"]
    weights = {name: np.asarray(value, np.float32).T for name, value in linears.items()}
    weights |= {name: np.asarray(value, np.float32) for name, value in others.items()}
    tensors = {f"{name}.weight": np.ascontiguousarray(value).astype(ml_dtypes.bfloat16) for name, value in weights.items()}
    if config.draft_vocab_size != config.vocab_size:
        ids = np.asarray(params["d2t"], np.int64)
        used = np.zeros(config.vocab_size, np.bool_)
        used[ids] = True
        tensors |= {"d2t": ids - np.arange(len(ids)), "t2d": used}
    return tensors
