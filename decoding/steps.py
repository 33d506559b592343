"""The four programs a speculative decoder runs on its device: `prefill`, then `draft`, `verify` and `commit` per step.

Each is its own jitted function, so a trace shows it under its own name (`jit_draft`, `jit_verify`, …) and a step-time sweep can
time the very program that decodes. Their shapes depend on block size, batch and capacity only: how many tokens a step commits
moves positions, never shapes, so nothing is compiled twice. Caches are donated: a step updates them in place.

Positions carry all the bookkeeping. A cache slot is an absolute position and a query sees only slots at or before its own, so
rows of rejected drafts and of prompt padding stay in the cache unseen, until a later block writes its own rows over them.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from . import draft as drafter
from . import target as model
from .accept import accept_greedy, cut_answer, last_committed
from .config import DraftConfig, TargetConfig
from .layers import KVCache
from .target import Params


class LoopState(NamedTuple):
    """Everything a batch carries from step to step; `anchor` sits at `position`, still without K/V of its own."""

    target_cache: KVCache
    draft_cache: KVCache | None
    anchor: Int[Array, "b 1"]
    position: Int[Array, " b"]
    remaining: Int[Array, " b"]


class Verified(NamedTuple):
    """The target's say on a block: its argmax after every row, the features of every row, and the grown cache."""

    predicted: Int[Array, "b t"]
    features: Float[Array, "b t f"] | None
    cache: KVCache


class Committed(NamedTuple):
    """A step's outcome: tokens (`NO_TOKEN` behind the last one), how many of them count, and the state they lead to."""

    tokens: Int[Array, "b t"]
    num_committed: Int[Array, " b"]
    draft_cache: KVCache | None
    anchor: Int[Array, "b 1"]
    position: Int[Array, " b"]
    remaining: Int[Array, " b"]


def block_positions(position: Int[Array, " b"], num_tokens: int) -> Int[Array, "b t"]:
    """Absolute positions of a block whose anchor sits at `position`."""
    return position[:, None] + jnp.arange(num_tokens, dtype=position.dtype)


@functools.partial(jax.jit, static_argnames=("target_config", "draft_config", "capacity", "stop_token_ids"))
def prefill(
    target_params: Params,
    draft_params: Params | None,
    tokens: Int[Array, "b t"],
    lengths: Int[Array, " b"],
    max_new_tokens: Int[Array, " b"],
    *,
    target_config: TargetConfig,
    draft_config: DraftConfig | None,
    capacity: int,
    stop_token_ids: tuple[int, ...],
) -> LoopState:
    """The state after the prompts: caches filled, the first token chosen. Prompts are padded on the right.

    The first token counts against `max_new_tokens`; a request that asks for none (a place without a prompt) is born finished.
    """
    batch, num_tokens = tokens.shape
    dtype = target_params["embed"].dtype
    positions = jnp.broadcast_to(jnp.arange(num_tokens, dtype=jnp.int32), tokens.shape)
    layer_ids = draft_config.target_layer_ids if draft_config else ()
    cache = model.init_cache(target_config, batch, capacity, dtype)
    hidden, features, cache = model.forward(target_params, target_config, tokens, positions, cache, layer_ids)
    last = jnp.take_along_axis(hidden, (lengths - 1)[:, None, None], axis=1)
    anchor = jnp.argmax(model.logits(target_params, target_config, last), axis=-1).astype(jnp.int32)
    draft_cache = None
    if draft_config:
        assert draft_params is not None  # a drafter's config comes with its weights,
        assert features is not None  # and with the features it asked for
        draft_cache = drafter.init_cache(draft_config, batch, capacity, dtype)
        draft_cache = drafter.extend_context(draft_params, draft_config, features, positions, draft_cache)
    stopped = jnp.isin(anchor[:, 0], jnp.asarray(stop_token_ids, dtype=jnp.int32))
    remaining = jnp.where(stopped, 0, jnp.maximum(max_new_tokens - 1, 0))
    return LoopState(cache, draft_cache, anchor, lengths, remaining)


@functools.partial(jax.jit, static_argnames=("target_config", "draft_config", "block_size"))
def draft(
    target_params: Params,
    draft_params: Params,
    anchor: Int[Array, "b 1"],
    position: Int[Array, " b"],
    draft_cache: KVCache,
    *,
    target_config: TargetConfig,
    draft_config: DraftConfig,
    block_size: int,
) -> Int[Array, "b t"]:
    """The block to verify: the anchor and K − 1 drafts, each the drafter's argmax.

    Slot k proposes the token of its own position, so the anchor's slot proposes nothing. The drafter sees exactly K slots, as
    in the reference: its block is bidirectional, and more masks than are verified would change what it proposes.
    """
    masks = jnp.full((anchor.shape[0], block_size - 1), draft_config.mask_token_id, dtype=anchor.dtype)
    embeddings = model.embed(target_params, jnp.concatenate([anchor, masks], axis=1))
    hidden = drafter.forward(draft_params, draft_config, embeddings, position, draft_cache)
    logits = model.logits(target_params, target_config, hidden[:, 1:])
    return jnp.concatenate([anchor, jnp.argmax(logits, axis=-1).astype(anchor.dtype)], axis=1)


@functools.partial(jax.jit, static_argnames=("target_config", "draft_config"), donate_argnames=("target_cache",))
def verify(
    target_params: Params,
    block: Int[Array, "b t"],
    position: Int[Array, " b"],
    target_cache: KVCache,
    *,
    target_config: TargetConfig,
    draft_config: DraftConfig | None,
) -> Verified:
    """The target's argmax after every row of the block, in one causal pass, with the features a drafter wants of each row."""
    layer_ids = draft_config.target_layer_ids if draft_config else ()
    positions = block_positions(position, block.shape[1])
    hidden, features, cache = model.forward(target_params, target_config, block, positions, target_cache, layer_ids)
    logits = model.logits(target_params, target_config, hidden)
    return Verified(jnp.argmax(logits, axis=-1).astype(block.dtype), features, cache)


@functools.partial(jax.jit, static_argnames=("draft_config", "stop_token_ids"), donate_argnames=("draft_cache",))
def commit(
    draft_params: Params | None,
    block: Int[Array, "b t"],
    predicted: Int[Array, "b t"],
    features: Float[Array, "b t f"] | None,
    position: Int[Array, " b"],
    remaining: Int[Array, " b"],
    draft_cache: KVCache | None,
    *,
    draft_config: DraftConfig | None,
    stop_token_ids: tuple[int, ...],
) -> Committed:
    """What the step adds to each answer, and the state of the next one.

    The drafter's context grows by the features of all rows, the rejected ones included: their number differs per request and
    step, so skipping them would change shapes; they sit behind the new anchor, where no query sees them.
    """
    accepted = accept_greedy(block[:, 1:], predicted)
    num_committed, remaining = cut_answer(accepted, remaining, stop_token_ids)
    if draft_config:
        assert draft_params is not None  # a drafter's config comes with its weights,
        assert features is not None  # the features it asked for,
        assert draft_cache is not None  # and its cache
        positions = block_positions(position, block.shape[1])
        draft_cache = drafter.extend_context(draft_params, draft_config, features, positions, draft_cache)
    anchor = last_committed(block[:, :1], accepted.committed, num_committed)
    return Committed(accepted.committed, num_committed, draft_cache, anchor, position + num_committed, remaining)
