"""Sampling: one way to turn logits into probabilities, for target, drafter and bonus alike, and the draws from them.

Speculation leaves the target's distribution unchanged only if the very distribution that verifies is the one that plain decoding
would draw from. So there is one order of filters everywhere, that of the reference: divide by the temperature, keep the top k
logits, softmax, keep the nucleus (a token stays while the mass before it is below top-p), renormalise. Greedy decoding has no
`Sampling` at all.

Randomness belongs to a request: its key is folded with its position and with what is drawn, so what else is in the batch, or how
many tokens a step commits, changes no request's draws.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from perfmodel.errors import InputError

FIRST, DRAFT, ACCEPT = range(3)
"""What is drawn: the prefill's token, drafts, and what verification draws. Streams never share randomness."""


@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn. `top_k` 0 and `top_p` 1 filter nothing.

    `proposals` says what the drafter offers: "greedy" its argmax, "sampled" a draw under the same filters.
    """

    temperature: float
    top_k: int = 0
    top_p: float = 1.0
    proposals: Literal["greedy", "sampled"] = "greedy"

    def __post_init__(self) -> None:
        """Refuses settings that no distribution has. Raises `InputError`."""
        if not 0 < self.temperature < float("inf"):
            raise InputError(
                f"temperature {self.temperature} is not a positive number", "for greedy decoding give no sampling settings"
            )
        if self.top_k < 0:
            raise InputError(f"top_k {self.top_k} is negative", "0 keeps all tokens")
        if not 0 < self.top_p <= 1:
            raise InputError(f"top_p {self.top_p} does not lie in (0, 1]", "1 keeps all tokens")
        if self.proposals not in ("greedy", "sampled"):
            raise InputError(f"proposals {self.proposals!r} are unknown", "greedy or sampled")


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Chooser:
    """Takes drafts from a drafter's logits (`drafter.Choose`): `keys` are those of the step's `DRAFT` stream, one per request."""

    keys: Key[Array, " b"]
    sampling: Sampling = field(metadata={"static": True})

    def __call__(
        self, logits: Float[Array, "b t v"], slot: int | Array = 0
    ) -> tuple[Int[Array, "b t"], Float[Array, "b t v"] | None]:
        """The drafts, and the probabilities they were drawn from; None for argmaxes."""
        return choose(_fold(self.keys, slot), logits, self.sampling)


def request_keys(seed: int, request_ids: Sequence[int]) -> Key[Array, " b"]:
    """A key for each request, from the run's seed and the request's own number: the same whatever else is in the batch."""
    key = jax.random.key(seed)
    return jax.vmap(lambda number: jax.random.fold_in(key, number))(np.asarray(request_ids, np.uint32))


def step_keys(keys: Key[Array, " b"], position: Int[Array, " b"], stream: int) -> Key[Array, " b"]:
    """The keys of one stream of a step whose anchors sit at `position`. A request has one step per position."""
    return _fold(jax.vmap(jax.random.fold_in)(keys, position), stream)


def _fold(keys: Key[Array, " b"], number: int | Array) -> Key[Array, " b"]:
    return jax.vmap(lambda key: jax.random.fold_in(key, number))(keys)


def probabilities(logits: Float[Array, "b t v"], sampling: Sampling) -> Float[Array, "b t v"]:
    """The distribution that tokens are drawn from, in float32; tokens that a filter removed have exactly 0."""
    scaled = logits.astype(jnp.float32) / sampling.temperature
    vocab_size = logits.shape[-1]
    num_kept = min(sampling.top_k, vocab_size) or vocab_size
    if num_kept == vocab_size and sampling.top_p == 1.0:
        return jax.nn.softmax(scaled, axis=-1)
    best, ids = jax.lax.top_k(scaled, num_kept)  # sorted, ties by id
    kept = jax.nn.softmax(best, axis=-1)
    if sampling.top_p < 1.0:
        mass_before = jnp.cumsum(kept, axis=-1) - kept
        kept = jnp.where(mass_before < sampling.top_p, kept, 0.0)
        kept = kept / jnp.sum(kept, axis=-1, keepdims=True)
    return jnp.put_along_axis(jnp.zeros_like(scaled), ids, kept, axis=-1, inplace=False)


def draw(keys: Key[Array, " b"], weights: Float[Array, "b t v"]) -> Int[Array, "b t"]:
    """A token per row in proportion to its weights, which need not sum to 1; never one of weight 0 (unless all are)."""
    return jax.vmap(lambda key, row: jax.random.categorical(key, jnp.log(row), axis=-1))(keys, weights).astype(jnp.int32)


def choose(
    keys: Key[Array, " b"], logits: Float[Array, "b t v"], sampling: Sampling
) -> tuple[Int[Array, "b t"], Float[Array, "b t v"] | None]:
    """Drafts from a drafter's logits, and the probabilities they were drawn from; None for argmaxes."""
    if sampling.proposals == "greedy":
        return jnp.argmax(logits, axis=-1).astype(jnp.int32), None
    drawn_from = probabilities(logits, sampling)
    return draw(keys, drawn_from), drawn_from
