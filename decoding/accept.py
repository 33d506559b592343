"""The greedy accept rule: which drafts the target would have written itself.

Verification runs the target once over the anchor and K - 1 drafts; row i of its argmax is the token the target puts after
row i. Drafts are kept as long as they are what the target says, and the first row that disagrees (or the last row, when all
agree) gives one more token for free, the bonus. So every step commits between 1 and K tokens, all of them the target's own
choice: a poor drafter costs time, never correctness.

Everything here is batched and has static shapes: a request that commits less has its row filled with `NO_TOKEN`.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Int

NO_TOKEN = -1
"""Filler behind the last committed token of a row; no vocabulary has it."""


class Accepted(NamedTuple):
    """Outcome of one step before any limit: accepted drafts per request, and their tokens with the bonus behind them."""

    num_accepted: Int[Array, " b"]
    committed: Int[Array, "b t"]


class Cut(NamedTuple):
    """What a step adds to each answer, and how many tokens the answer may still grow by."""

    num_committed: Int[Array, " b"]
    remaining: Int[Array, " b"]


def accept_greedy(draft_tokens: Int[Array, "b _"], predicted: Int[Array, "b t"]) -> Accepted:
    """Accepted drafts per request (0 … K - 1) and the committed tokens, bonus last, `NO_TOKEN` behind.

    Chen et al. 2023 (arXiv 2302.01318) with a one-hot target: a draft is accepted when, and only when, it equals the
    target's argmax and all drafts before it were accepted.
    """
    agrees = (draft_tokens == predicted[:, :-1]).astype(jnp.int32)
    num_accepted = jnp.sum(jnp.cumprod(agrees, axis=1), axis=1)
    kept = jnp.arange(predicted.shape[1]) <= num_accepted[:, None]
    return Accepted(num_accepted, jnp.where(kept, predicted, NO_TOKEN))


def cut_answer(accepted: Accepted, remaining: Int[Array, " b"], stop_token_ids: tuple[int, ...]) -> Cut:
    """Tokens of this step that belong to each answer, after the length limit and the first stop token.

    The stop token itself is kept and counted; what the step accepted behind it is not (as the reference `dflash` 0.1.0
    counts). A request with nothing remaining commits 0 tokens: it is finished and only keeps its place in the batch.
    """
    slots = jnp.arange(accepted.committed.shape[1])
    num_allowed = jnp.minimum(accepted.num_accepted + 1, remaining)
    if not stop_token_ids:
        return Cut(num_allowed, remaining - num_allowed)
    stops = jnp.isin(accepted.committed, jnp.asarray(stop_token_ids)) & (slots < num_allowed[:, None])
    stopped = jnp.any(stops, axis=1)
    num_committed = jnp.where(stopped, jnp.argmax(stops, axis=1) + 1, num_allowed)
    return Cut(num_committed, jnp.where(stopped, 0, remaining - num_allowed))


def last_committed(anchor: Int[Array, "b 1"], committed: Int[Array, "b t"], num_committed: Int[Array, " b"]) -> Int[Array, "b 1"]:
    """The next anchor of each request: its last committed token, or the anchor it had when it committed none."""
    last = jnp.take_along_axis(committed, jnp.maximum(num_committed - 1, 0)[:, None], axis=1)
    return jnp.where(num_committed[:, None] > 0, last, anchor)
