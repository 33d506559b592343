"""What the loop asks of any drafter, and which module answers for which configuration.

A drafter guesses the K − 1 tokens behind the anchor. It may condition on the target's residual streams ("features"), it may guess
all tokens in one pass or one after the other, and it keeps what it has read of the answer so far in a state of its own. The loop
needs to know none of this: it feeds features, asks for proposals, and judges them by the target. So every kind of drafter is a
module with the five functions below, found by the class of its configuration, and a new kind needs a module and a line here.

States are registered pytrees with shapes fixed by batch and capacity, so that no count of accepted tokens compiles anything. Their
rows follow committed positions only: rows of rejected drafts are dropped, or hidden until they are overwritten.
"""

from types import ModuleType
from typing import Any, Protocol, TypeAlias

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from . import draft, draft2, eagle3
from .config import TargetConfig
from .config_draft import Draft2Config, DraftConfig
from .config_eagle3 import Eagle3Config

State: TypeAlias = Any
"""What a drafter remembers of a batch: a pytree of its own kind."""

Params = dict[str, Any]

AnyDraftConfig: TypeAlias = DraftConfig | Eagle3Config
"""Configuration of a drafter of any kind; its class decides who drafts."""

MODULES: dict[type, ModuleType] = {DraftConfig: draft, Draft2Config: draft2, Eagle3Config: eagle3}
"""Class of configuration → module that drafts."""


class Choose(Protocol):
    """How a proposal is taken from the drafter's logits: the argmax, or a draw."""

    def __call__(self, logits: Float[Array, "b t v"], slot: int = 0) -> tuple[Int[Array, "b t"], Float[Array, "b t v"] | None]:
        """Tokens, and the probabilities they were drawn from (None: they are argmaxes).

        `slot` is the index, among the K − 1 drafts, of the first that these logits decide: whoever drafts one after the other
        passes it on, so that every draw has randomness of its own.
        """


def argmax(logits: Float[Array, "b t v"], slot: int = 0) -> tuple[Int[Array, "b t"], None]:
    """The likeliest tokens; the proposal of greedy decoding."""
    return jnp.argmax(logits, axis=-1).astype(jnp.int32), None


def init_state(config: AnyDraftConfig, batch: int, capacity: int, dtype: jnp.dtype) -> State:
    """A state that has read nothing, for `batch` requests of up to `capacity` positions."""
    return MODULES[type(config)].init_state(config, batch, capacity, dtype)


def extend_context(
    params: Params,
    config: AnyDraftConfig,
    target_params: Params,
    target_config: TargetConfig,
    features: Float[Array, "b t f"],
    next_tokens: Int[Array, "b t"],
    positions: Int[Array, "b t"],
    num_new: Int[Array, " b"],
    state: State,
) -> State:
    """The state after reading the features of rows at `positions`, consecutive in each request.

    Only the first `num_new` rows of a request count. Others (rejected drafts, padding of a prompt) may be written where no
    query sees them before they are overwritten. `next_tokens` holds the token that follows each row.
    """
    return MODULES[type(config)].extend_context(
        params, config, target_params, target_config, features, next_tokens, positions, num_new, state
    )


def propose(
    params: Params,
    config: AnyDraftConfig,
    target_params: Params,
    target_config: TargetConfig,
    anchor: Int[Array, "b 1"],
    position: Int[Array, " b"],
    state: State,
    block_size: int,
    choose: Choose,
) -> tuple[Int[Array, "b k"], Float[Array, "b k v"] | None, State]:
    """K − 1 drafts for the positions behind the anchor, the probabilities they were drawn from, and the state.

    The anchor sits at `position`; what the drafter may look at lies strictly before it.
    """
    return MODULES[type(config)].propose(
        params, config, target_params, target_config, anchor, position, state, block_size, choose
    )


def feature_layer_ids(config: AnyDraftConfig) -> tuple[int, ...]:
    """The 0-indexed target layers whose outputs the drafter reads, in the order it joins them."""
    return MODULES[type(config)].feature_layer_ids(config)


def trained_block_size(config: AnyDraftConfig) -> int | None:
    """Tokens per verify step the drafter was trained for, anchor included; None where training fixed no such number."""
    return MODULES[type(config)].trained_block_size(config)
