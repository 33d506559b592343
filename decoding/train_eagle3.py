"""What an EAGLE-3 drafter is trained to do: chains behind random anchors, unrolled as drafting unrolls them.

The first draft of a chain rests on the target's features, each later one on the drafter's own output, so training must run the same
recurrence or the drafter would never have seen its own errors ("training-time test"). The loss of a draft is the cross-entropy
with the target's distribution over the draft vocabulary; draft i counts 0.8^i.
Source: EAGLE-3, arXiv 2503.01840, section 3.2 and appendix.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from safetensors.numpy import save

from perfmodel.codec import encode, write_atomic

from . import eagle3
from .config import TargetConfig
from .config_eagle3 import Eagle3Config
from .layers import MASKED, attention_mix, attention_scores
from .train_chains import ChainBatch, ChainSampler
from .train_evaluate import Drafts
from .train_fit import Params, Recipe, State, fit

STEP_DECAY = 0.8
"""Weight of a draft relative to the one before it."""

_QUIET = 0.1
"""Share of the target's residual branches that a new drafter starts with."""


def eagle3_config(
    target: TargetConfig, feature_layers: tuple[int, ...], draft_vocab_size: int, intermediate_size: int
) -> Eagle3Config:
    """A drafter of the target's own width and heads."""
    return Eagle3Config(
        vocab_size=target.vocab_size,
        draft_vocab_size=draft_vocab_size,
        hidden_size=target.hidden_size,
        intermediate_size=intermediate_size,
        num_heads=target.num_heads,
        num_kv_heads=target.num_kv_heads,
        head_dim=target.head_dim,
        rms_norm_eps=target.rms_norm_eps,
        rope_theta=target.rope_theta,
        target_hidden_size=target.hidden_size,
        target_layer_ids=feature_layers,
        norm_before_residual=True,
        rope_scaling=target.rope_scaling,
    )


def initial_params(config: Eagle3Config, target_params: Params, head: np.ndarray, seed: int) -> Params:
    """A drafter that starts from the target's last layer and its head's rows `head` [w d]; `fc` passes on the deepest feature.

    The layer's new half, which reads the token's embedding, starts small and random; of a wider MLP the strongest neurons are kept.
    """
    generator = np.random.default_rng(seed)
    d, width = config.hidden_size, config.num_heads * config.head_dim
    num = len(config.target_layer_ids)
    fc = generator.standard_normal((num, d, d), dtype=np.float32) * (0.5 * (num * d) ** -0.5)
    fc[int(np.argmax(config.target_layer_ids))] += np.eye(d, dtype=np.float32)
    source = {name: np.asarray(value, np.float32) for name, value in target_params["layers"][-1].items()}
    deep = source["qkv"] * source["attn_norm"][:, None]
    qkv = np.concatenate([generator.standard_normal(deep.shape, dtype=np.float32) * (0.5 * d**-0.5), deep])
    gate, up = np.split(source["gate_up"], 2, axis=1)
    strength = np.linalg.norm(source["down"], axis=1) * np.linalg.norm(up, axis=0)
    kept = np.sort(np.argsort(-strength, kind="stable")[: config.intermediate_size])
    params = {
        "fc": fc.reshape(num * d, d),
        "layer": {
            "embed_norm": np.ones(d, np.float32),
            "hidden_norm": np.ones(d, np.float32),
            "q": qkv[:, :width],
            "kv": qkv[:, width:],
            "o": _QUIET * source["o"],
            "mlp_norm": source["mlp_norm"],
            "gate_up": np.concatenate([gate[:, kept], up[:, kept]], axis=1),
            "down": _QUIET * source["down"][kept],
        },
        "norm": target_params["norm"],
        "head": head,
    }
    return jax.tree.map(lambda x: jnp.array(x, jnp.float32), params)


def chain_hidden(
    params: Params,
    config: Eagle3Config,
    embed: Float[Array, "v d"],
    features: Float[Array, "b s f"],
    tokens: Int[Array, "b _"],
    anchors: Int[Array, "b n"],
    num_drafts: int,
) -> list[Float[Array, "b n d"]]:
    """The drafter's output for each draft of every chain, given that the tokens before it were right.

    A chain sees the context's rows strictly before its own anchor and its own rows, no other chain.
    """
    b, s, _ = features.shape
    borrowed = {"embed": embed}
    fused = eagle3.fuse(params, features)
    after = eagle3.token_embeddings(params, borrowed, tokens[:, 1 : s + 1])
    inputs, _ = eagle3.layer_inputs(params, config, after, fused)
    positions = jnp.broadcast_to(jnp.arange(s), (b, s))
    keys, values = eagle3.keys_and_values(params["layer"], config, inputs, eagle3.rope(config, positions))
    visible = jnp.arange(s) < anchors[..., None]
    hidden = jnp.take_along_axis(fused, anchors[..., None] - 1, axis=1)
    own: list[tuple[Array, Array]] = []
    outputs = []
    for i in range(num_drafts):
        fed = jnp.take_along_axis(tokens, anchors + i, axis=1)
        inputs, residual = eagle3.layer_inputs(params, config, eagle3.token_embeddings(params, borrowed, fed), hidden)
        table = eagle3.rope(config, anchors - 1 + i)
        q = eagle3.queries(params["layer"], config, inputs, table)
        if i > 0:  # the first row of a chain is the context's last one
            own.append(eagle3.keys_and_values(params["layer"], config, inputs, table))
        mixed = _attend_chain(q, keys, values, visible, own)
        hidden = eagle3.layer_output(params["layer"], config, residual, mixed)
        outputs.append(hidden)
    return outputs


def _attend_chain(q: Array, keys: Array, values: Array, visible: Array, own: list[tuple[Array, Array]]) -> Array:
    """Attention of each chain's newest row over the visible context and the chain's own rows."""
    b, n, heads, h = q.shape
    k = keys.shape[2]
    s = keys.shape[1]
    scores = [jnp.where(visible[:, None, None], attention_scores(q, keys), MASKED)]
    grouped = q.reshape(b, n, k, heads // k, h)
    # Products with a handful of own rows are too small for a batched matrix product: multiply and sum.
    for own_k, _ in own:
        score = jnp.sum(grouped * own_k[:, :, :, None], axis=-1) * h**-0.5
        scores.append(jnp.transpose(score, (0, 2, 3, 1))[..., None])
    weights = jax.nn.softmax(jnp.concatenate(scores, axis=-1), axis=-1)
    mixed = attention_mix(weights[..., :s], values).reshape(b, n, k, heads // k, h)
    for i, (_, own_v) in enumerate(own):
        mixed = mixed + jnp.transpose(weights[..., s + i], (0, 3, 1, 2))[..., None] * own_v[:, :, :, None]
    return mixed.reshape(b, n, heads * h)


def loss(params: Params, config: Eagle3Config, embed: Array, scale: Array, batch: ChainBatch) -> tuple[Array, dict[str, Array]]:
    """The weighted loss in nats per draft, and what to log: accepted drafts + 1 under teacher forcing, first-draft accuracy."""
    features = jnp.asarray(batch.features, jnp.float32) / scale
    num_drafts = batch.weights.shape[-1]
    outputs = chain_hidden(params, config, embed, features, jnp.asarray(batch.tokens), jnp.asarray(batch.anchors), num_drafts)
    total, mass, right = jnp.zeros(()), jnp.zeros(()), []
    for i, hidden in enumerate(outputs):
        logits = eagle3.logits(params, config, hidden)
        places, probs, weights = batch.teacher_places[:, :, i], batch.teacher_probs[:, :, i], batch.weights[:, :, i]
        teacher_logits = jnp.take_along_axis(logits, places, axis=-1)
        soft = jax.nn.logsumexp(logits, axis=-1) * jnp.sum(probs, axis=-1) - jnp.sum(probs * teacher_logits, axis=-1)
        total += STEP_DECAY**i * jnp.sum(soft * weights)
        mass += STEP_DECAY**i * jnp.sum(weights)
        right.append((jnp.argmax(logits, axis=-1) == places[..., 0]) * weights)
    value = total / jnp.maximum(mass, 1e-6)
    held = jnp.cumprod(jnp.stack(right, axis=-1), axis=-1)
    return value, {"loss": value, "tau": 1 + jnp.mean(jnp.sum(held, axis=-1)), "first": jnp.mean(held[..., 0])}


def fit_chains(
    state: State,
    config: Eagle3Config,
    recipe: Recipe,
    sampler: ChainSampler,
    embed: Array,
    scale: np.ndarray,
    block_size: int,
    after_step: Callable[[int, State, dict[str, Array], float], None],
) -> State:
    """Train an EAGLE-3 drafter from `state` to the recipe's last step on chains of `block_size` − 1 drafts."""

    def objective(params: Params, frozen: tuple[Array, Array], batch: ChainBatch) -> tuple[Array, dict[str, Array]]:
        return loss(params, config, *frozen, batch)

    def batches(step: int) -> ChainBatch:
        return sampler.batch(step, recipe.block_size_at(step, block_size))

    return fit(state, recipe, objective, (embed, jnp.asarray(scale)), batches, after_step)


def chain_drafts(
    config: Eagle3Config, embed: Array, scale: np.ndarray, target_ids: np.ndarray, columns: slice | np.ndarray, block_size: int
) -> Drafts:
    """Drafts of an EAGLE-3 drafter behind any anchors of a text, as the evaluator asks for them."""

    @jax.jit
    def drafts(params: Params, frozen: tuple[Array, Array, Array], features: Array, tokens: Array, anchors: Array) -> Array:
        embed, scale, target_ids = frozen
        wide = features.astype(jnp.float32) / scale
        outputs = chain_hidden(params, config, embed, wide, tokens, anchors, block_size - 1)
        best = [jnp.argmax(eagle3.logits(params, config, hidden), axis=-1) for hidden in outputs]
        return jnp.take(target_ids, jnp.stack(best, axis=-1))

    frozen = (embed, jnp.asarray(scale), jnp.asarray(target_ids))
    return lambda params, features, tokens, anchors: drafts(params, frozen, features[..., columns], tokens, anchors)


def feature_columns(cached: tuple[int, ...], wanted: tuple[int, ...], width: int) -> np.ndarray:
    """Where the features of the layers `wanted` lie in rows that join those of the layers `cached`, each `width` wide."""
    return np.concatenate([np.arange(width) + cached.index(layer) * width for layer in wanted])


def nearest_layers(cached: tuple[int, ...], wanted: tuple[int, ...]) -> tuple[int, ...]:
    """For each layer of `wanted` the nearest one that is cached, the deeper of two that are equally near."""
    return tuple(min(cached, key=lambda layer: (abs(layer - target), -layer)) for target in wanted)


def write_eagle3(folder: Path, config: Eagle3Config, params: Params, metadata: Mapping[str, str]) -> None:
    """Write the drafter as bfloat16 safetensors with its `config.json`, in the published layout; each file is whole or absent."""
    tensors = eagle3.tensors_of(config, params)
    write_atomic(folder / "model.safetensors", save(tensors, metadata={"format": "pt", **metadata}))
    write_atomic(folder / "config.json", encode(config.to_json()))
