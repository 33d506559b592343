"""The accept rules: which drafts the target would have written itself, or might have drawn.

Verification runs the target once over the anchor and K - 1 drafts; row i of its argmax is the token the target puts after
row i. Drafts are kept as long as they are what the target says, and the first row that disagrees (or the last row, when all
agree) gives one more token for free, the bonus. So every step commits between 1 and K tokens, all of them the target's own
choice: a poor drafter costs time, never correctness.

When tokens are drawn rather than chosen, the same holds in distribution. A draft d that was drawn with probability q(d) is kept with
probability min(1, p(d) / q(d)); the first one that is not kept is replaced by a draw from what p has more of than q. Whatever q is,
the committed tokens then have the law of plain sampling from p.

Everything here is batched and has static shapes: a request that commits less has its row filled with `NO_TOKEN`.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from .sampling import draw

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


def accept_sampled(
    keys: Key[Array, " b"],
    draft_tokens: Int[Array, "b _"],
    target_probabilities: Float[Array, "b t v"],
    draft_probabilities: Float[Array, "b _ v"] | None,
) -> Accepted:
    """Accepted drafts per request (0 … K − 1) and the committed tokens, the drawn one last, `NO_TOKEN` behind.

    Chen et al. 2023 (arXiv 2302.01318), algorithm 2: draft i is kept while u q_i(d) < p_i(d), u uniform in [0, 1); on the first
    that is not, a token is drawn in proportion to max(p_i − q_i, 0), or from p_i where that is nothing; when all are kept, from
    p's last row. `draft_probabilities` None: drafts are argmaxes, that is q is 1 at the draft.

    Arguments:
        keys: of the step's `ACCEPT` stream, one per request.
        draft_tokens: drawn from `draft_probabilities`, row by row.
        target_probabilities: row i is the law of the token behind row i, filtered as `sampling.probabilities` does.
        draft_probabilities: filtered in the same way; over the target's vocabulary.
    """
    num_drafts = draft_tokens.shape[1]
    if draft_probabilities is None:
        draft_probabilities = jax.nn.one_hot(draft_tokens, target_probabilities.shape[-1], dtype=target_probabilities.dtype)
    at_draft = draft_tokens[..., None]
    p = jnp.take_along_axis(target_probabilities[:, :-1], at_draft, axis=-1)[..., 0]
    q = jnp.take_along_axis(draft_probabilities, at_draft, axis=-1)[..., 0]
    accept_keys, draw_keys = jnp.moveaxis(jax.vmap(jax.random.split)(keys), 1, 0)
    u = jax.vmap(lambda key: jax.random.uniform(key, (num_drafts,)))(accept_keys)
    num_accepted = jnp.sum(jnp.cumprod((u * q < p).astype(jnp.int32), axis=1), axis=1)

    # The row that draws: the first rejected draft's, or the last, behind which nothing was proposed (q = 0).
    row = num_accepted[:, None, None]
    p_row = jnp.take_along_axis(target_probabilities, row, axis=1)
    q_row = jnp.take_along_axis(jnp.pad(draft_probabilities, ((0, 0), (0, 1), (0, 0))), row, axis=1)
    residual = jnp.maximum(p_row - q_row, 0.0)
    residual = jnp.where(jnp.sum(residual, axis=-1, keepdims=True) > 0, residual, p_row)
    drawn = draw(draw_keys, residual).astype(draft_tokens.dtype)

    slots = jnp.arange(num_drafts + 1)
    drafts = jnp.pad(draft_tokens, ((0, 0), (0, 1)))
    committed = jnp.where(slots < num_accepted[:, None], drafts, jnp.where(slots == num_accepted[:, None], drawn, NO_TOKEN))
    return Accepted(num_accepted, committed)


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
