"""The programs a speculative decoder runs on its device: `prefill`, then `draft`, `verify` and `commit` per step; `step` is the three.

Each is its own jitted function, so a trace shows it under its own name (`jit_draft`, `jit_verify`, …), a step-time sweep can time the
very program that decodes, and a compiler for another chip can be asked about each: all take arrays or their shapes, and everything
that decides a program's shape is a static argument. Inside a larger program (`step`, `fused.decode`) the same functions are inlined,
and the named scopes `prefill`, `draft`, `verify`, `commit` tell their operations apart. Shapes depend on block size, batch and
capacity only: how many tokens a step commits moves positions, never shapes, so nothing is compiled twice. Caches are donated: a step
updates them in place.

Positions carry all the bookkeeping, and they follow committed tokens only. A position is a place in the cache and a query sees only
places at or before its own, so rows of rejected drafts and of prompt padding stay in the cache unseen, until a later block writes
its own rows over them.

Randomness belongs to a request and a position: a request's key is folded with the position of its anchor. So what a request draws
depends neither on its neighbours in the batch nor on which loop runs the steps.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from perfmodel.phases import COMMIT, DRAFT, PREFILL, VERIFY

from . import drafter
from . import sampling as draws
from . import target as model
from .accept import accept_greedy, accept_sampled, cut_answer, last_committed
from .attention import Kernel
from .config import TargetConfig
from .drafter import AnyDraftConfig
from .paged import PagedCache
from .sampling import Sampling
from .target import Params


class LoopState(NamedTuple):
    """Everything a batch carries from step to step.

    `anchor` sits at `position`, still without K/V of its own. `num_context` is how many positions the drafter has consumed: its own
    positions come from it, and it grows by committed tokens only (counting the rejected ones too is the classic fault of a port).
    """

    target_cache: PagedCache
    draft_state: drafter.State
    anchor: Int[Array, "b 1"]
    position: Int[Array, " b"]
    num_context: Int[Array, " b"]
    remaining: Int[Array, " b"]
    keys: Key[Array, " b"] | None


class Drafted(NamedTuple):
    """The block to verify (anchor and K − 1 drafts), what the drafts were drawn from (None: argmaxes), and the drafter's state."""

    block: Int[Array, "b t"]
    probabilities: Float[Array, "b _ v"] | None
    draft_state: drafter.State


class Verified(NamedTuple):
    """The target's say on a block: after every row its argmax, or with sampling its distribution; features, and the grown cache."""

    predicted: Int[Array, "b t"] | None
    probabilities: Float[Array, "b t v"] | None
    features: Float[Array, "b t f"] | None
    cache: PagedCache


class Committed(NamedTuple):
    """A step's outcome: tokens (`NO_TOKEN` behind the last one), how many of them count, and the state they lead to."""

    tokens: Int[Array, "b t"]
    num_committed: Int[Array, " b"]
    draft_state: drafter.State
    anchor: Int[Array, "b 1"]
    position: Int[Array, " b"]
    num_context: Int[Array, " b"]
    remaining: Int[Array, " b"]


class Outcome(NamedTuple):
    """What a step added to each answer: tokens (`NO_TOKEN` behind the last one) and their number."""

    tokens: Int[Array, "b t"]
    num_committed: Int[Array, " b"]


def block_positions(position: Int[Array, " b"], num_tokens: int) -> Int[Array, "b t"]:
    """Absolute positions of a block whose first token sits at `position`."""
    return position[:, None] + jnp.arange(num_tokens, dtype=position.dtype)


def feature_layers(draft_config: AnyDraftConfig | None) -> tuple[int, ...]:
    """The target layers whose outputs a step must keep; none without a drafter."""
    return () if draft_config is None else drafter.feature_layer_ids(draft_config)


@functools.partial(jax.jit, static_argnames=("target_config", "draft_config", "capacity", "stop_token_ids", "kernel", "sampling"))
def prefill(
    target_params: Params,
    draft_params: Params | None,
    tokens: Int[Array, "b t"],
    lengths: Int[Array, " b"],
    max_new_tokens: Int[Array, " b"],
    keys: Key[Array, " b"] | None = None,
    page_table: Int[Array, "b m"] | None = None,
    *,
    target_config: TargetConfig,
    draft_config: AnyDraftConfig | None,
    capacity: int,
    stop_token_ids: tuple[int, ...],
    kernel: Kernel | None = None,
    sampling: Sampling | None = None,
) -> LoopState:
    """The state after the prompts: caches filled, the first token chosen. Prompts are padded on the right.

    The first token counts against `max_new_tokens`; a request that asks for none (a place without a prompt) is born finished.
    """
    with jax.named_scope(PREFILL):
        batch, num_tokens = tokens.shape
        dtype = target_params["embed"].dtype
        positions = jnp.broadcast_to(jnp.arange(num_tokens, dtype=jnp.int32), tokens.shape)
        cache = model.init_cache(target_config, batch, capacity, dtype, kernel, page_table)
        hidden, features, cache = model.forward(
            target_params, target_config, tokens, positions, cache, feature_layers(draft_config)
        )
        last = jnp.take_along_axis(hidden, (lengths - 1)[:, None, None], axis=1)
        logits = model.logits(target_params, target_config, last)
        if sampling is None:
            anchor = jnp.argmax(logits, axis=-1).astype(jnp.int32)
        else:
            assert keys is not None  # who samples brings the requests' keys
            anchor = draws.draw(draws.step_keys(keys, lengths - 1, draws.FIRST), draws.probabilities(logits, sampling))
        draft_state = None
        if draft_config is not None:
            assert draft_params is not None  # a drafter's config comes with its weights,
            assert features is not None  # and with the features it asked for
            draft_state = drafter.init_state(draft_config, batch, capacity, dtype)
            is_last = positions == (lengths - 1)[:, None]
            next_tokens = jnp.where(is_last, anchor, jnp.roll(tokens, -1, axis=1))
            draft_state = drafter.extend_context(
                draft_params, draft_config, target_params, target_config, features, next_tokens, positions, lengths, draft_state
            )
        stopped = jnp.isin(anchor[:, 0], jnp.asarray(stop_token_ids, dtype=jnp.int32))
        remaining = jnp.where(stopped, 0, jnp.maximum(max_new_tokens - 1, 0))
        return LoopState(cache, draft_state, anchor, lengths, lengths, remaining, keys)


@functools.partial(
    jax.jit, static_argnames=("target_config", "draft_config", "block_size", "sampling"), donate_argnames=("draft_state",)
)
def draft(
    target_params: Params,
    draft_params: Params,
    anchor: Int[Array, "b 1"],
    num_context: Int[Array, " b"],
    draft_state: drafter.State,
    keys: Key[Array, " b"] | None = None,
    *,
    target_config: TargetConfig,
    draft_config: AnyDraftConfig,
    block_size: int,
    sampling: Sampling | None = None,
) -> Drafted:
    """The block to verify: the anchor and K − 1 drafts, each the drafter's argmax, or drawn where the sampling says so.

    A block drafter sees exactly K slots, as in the reference: its block is bidirectional, and more masks than are verified would
    change what it proposes.
    """
    with jax.named_scope(DRAFT):
        take: drafter.Choose = drafter.argmax
        if sampling is not None and sampling.proposals == "sampled":
            assert keys is not None  # who samples brings the requests' keys
            take = draws.Chooser(draws.step_keys(keys, num_context, draws.DRAFT), sampling)
        drafts, weights, draft_state = drafter.propose(
            draft_params, draft_config, target_params, target_config, anchor, num_context, draft_state, block_size, take
        )
        return Drafted(jnp.concatenate([anchor, drafts.astype(anchor.dtype)], axis=1), weights, draft_state)


@functools.partial(jax.jit, static_argnames=("target_config", "draft_config", "sampling"), donate_argnames=("target_cache",))
def verify(
    target_params: Params,
    block: Int[Array, "b t"],
    position: Int[Array, " b"],
    target_cache: PagedCache,
    *,
    target_config: TargetConfig,
    draft_config: AnyDraftConfig | None,
    sampling: Sampling | None = None,
) -> Verified:
    """The target's say after every row of the block, in one causal pass, with the features a drafter wants of each row."""
    with jax.named_scope(VERIFY):
        positions = block_positions(position, block.shape[1])
        hidden, features, cache = model.forward(
            target_params, target_config, block, positions, target_cache, feature_layers(draft_config)
        )
        logits = model.logits(target_params, target_config, hidden)
        if sampling is None:
            return Verified(jnp.argmax(logits, axis=-1).astype(block.dtype), None, features, cache)
        return Verified(None, draws.probabilities(logits, sampling), features, cache)


@functools.partial(jax.jit, static_argnames=("target_config", "draft_config", "stop_token_ids"), donate_argnames=("draft_state",))
def commit(
    target_params: Params,
    draft_params: Params | None,
    block: Int[Array, "b t"],
    predicted: Int[Array, "b t"] | None,
    features: Float[Array, "b t f"] | None,
    position: Int[Array, " b"],
    num_context: Int[Array, " b"],
    remaining: Int[Array, " b"],
    draft_state: drafter.State,
    keys: Key[Array, " b"] | None = None,
    target_probabilities: Float[Array, "b t v"] | None = None,
    draft_probabilities: Float[Array, "b _ v"] | None = None,
    *,
    target_config: TargetConfig,
    draft_config: AnyDraftConfig | None,
    stop_token_ids: tuple[int, ...],
) -> Committed:
    """What the step adds to each answer, and the state of the next one.

    The drafter is handed the features of all rows, the rejected ones included: their number differs per request and step, so
    leaving them out would change shapes. It is told how many count.
    """
    with jax.named_scope(COMMIT):
        if predicted is not None:
            accepted = accept_greedy(block[:, 1:], predicted)
        else:
            assert keys is not None  # who samples brings the requests' keys
            assert target_probabilities is not None  # and verifies with them
            accept_keys = draws.step_keys(keys, position, draws.ACCEPT)
            accepted = accept_sampled(accept_keys, block[:, 1:], target_probabilities, draft_probabilities)
        num_committed, remaining = cut_answer(accepted, remaining, stop_token_ids)
        if draft_config is not None:
            assert draft_params is not None  # a drafter's config comes with its weights,
            assert features is not None  # and with the features it asked for
            draft_state = drafter.extend_context(
                draft_params, draft_config, target_params, target_config, features, jnp.maximum(accepted.committed, 0),
                block_positions(num_context, block.shape[1]), num_committed, draft_state,
            )  # fmt: skip
        anchor = last_committed(block[:, :1], accepted.committed, num_committed)
        return Committed(
            accepted.committed,
            num_committed,
            draft_state,
            anchor,
            position + num_committed,
            num_context + num_committed,
            remaining,
        )


@functools.partial(
    jax.jit,
    static_argnames=("target_config", "draft_config", "block_size", "stop_token_ids", "sampling"),
    donate_argnames=("state",),
)
def step(
    target_params: Params,
    draft_params: Params | None,
    state: LoopState,
    *,
    target_config: TargetConfig,
    draft_config: AnyDraftConfig | None,
    block_size: int,
    stop_token_ids: tuple[int, ...],
    sampling: Sampling | None = None,
) -> tuple[LoopState, Outcome]:
    """Draft, verify and commit as one program: the next state, and what the step added."""
    drafted = Drafted(state.anchor, None, state.draft_state)
    if draft_config is not None:
        assert draft_params is not None  # a drafter's config comes with its weights
        drafted = draft(
            target_params, draft_params, state.anchor, state.num_context, state.draft_state, state.keys,
            target_config=target_config, draft_config=draft_config, block_size=block_size, sampling=sampling,
        )  # fmt: skip
    verified = verify(
        target_params, drafted.block, state.position, state.target_cache, target_config=target_config,
        draft_config=draft_config, sampling=sampling,
    )  # fmt: skip
    done = commit(
        target_params, draft_params, drafted.block, verified.predicted, verified.features, state.position, state.num_context,
        state.remaining, drafted.draft_state, state.keys, verified.probabilities, drafted.probabilities,
        target_config=target_config, draft_config=draft_config, stop_token_ids=stop_token_ids,
    )  # fmt: skip
    after = LoopState(verified.cache, done.draft_state, done.anchor, done.position, done.num_context, done.remaining, state.keys)
    return after, Outcome(done.tokens, done.num_committed)
