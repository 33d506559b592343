"""Tensor parallelism: what one of N chips does of a step, and how long the chips take to add up their parts.

Every weight matrix is cut into N slices, so FLOP and weight bytes divide by N; keys and values divide by heads, of which there
may be fewer than chips, and a latent row shared by all heads is kept whole on each. After attention and after the MLP of
every layer the partial sums of all query tokens are added over the chips (all-reduce): 2(N - 1)/N of the message leaves every
chip. At decode the message is small and the fixed time per all-reduce dominates; it is paid once per step whatever K, which
*helps* speculation until messages grow (scaling-book, "Sharded matrices" and "Inference").
"""

from dataclasses import dataclass

import numpy as np

from .errors import InputError
from .layercost import Amount, CostArrays, Sizes, dtype_bytes
from .records import Hardware, ModelSpec

REDUCES_PER_LAYER = 2
"""One all-reduce after the token mixer, one after the MLP (Megatron-LM, arXiv 1909.08053)."""


@dataclass(frozen=True)
class Collectives:
    """All-reduces of one pass: how many there are, and bytes that each chip sends in all of them."""

    count: Amount
    sent_bytes: Amount


def split(cost: CostArrays, spec: ModelSpec, num_chips: int) -> CostArrays:
    """The share of one of `num_chips` chips. Activations count as divided; the residual stream, which is not, is small."""
    if num_chips == 1:
        return cost
    if num_chips < 1:
        raise InputError(f"{num_chips} chips are no machine", "count chips from 1")
    return CostArrays(
        flops=cost.flops / num_chips,
        weight_bytes=cost.weight_bytes / num_chips,
        kv_bytes=cost.kv_bytes / min(num_chips, _cached_heads(spec)),
        activation_bytes=cost.activation_bytes / num_chips,
        attention_flops=cost.attention_flops / num_chips,
        expert_bytes=cost.expert_bytes / num_chips,
        least_expert_bytes=cost.least_expert_bytes / num_chips,
    )


def _cached_heads(spec: ModelSpec) -> int:
    """Heads that the cache can be divided by; a latent or pooled row is one head."""
    return 1 if spec.latent is not None or spec.compressed is not None else spec.num_kv_heads


def collectives(spec: ModelSpec, sizes: Sizes, dtype: str, num_chips: int) -> Collectives:
    """The all-reduces of one pass of a model over the query tokens of `sizes`; none on one chip."""
    if num_chips == 1:
        return Collectives(0.0, 0.0)
    count = REDUCES_PER_LAYER * spec.num_layers
    message = sizes.tokens * spec.hidden_size * dtype_bytes(dtype)
    return Collectives(float(count), count * message * 2.0 * (num_chips - 1) / num_chips)


def egress_bytes_per_s(hardware: Hardware) -> float:
    """Bytes per second that one chip can send in a ring of its kind: both directions of a torus axis, or its whole port.

    Raises `InputError` where nobody published the links.
    """
    link = hardware.link_bytes_per_s
    if link is None:
        raise InputError(
            f"{hardware.name} has no known links, so several chips cannot be priced", "use one chip, or add link_bytes_per_s"
        )
    return 2.0 * link.value if hardware.kind == "tpu" else link.value


def all_reduce_s(moved: Collectives, hardware: Hardware, latency_s: Amount) -> Amount:
    """Seconds of all-reduces: `latency_s` for each, and the bytes a chip sends over what it can send per second."""
    if not np.any(np.asarray(moved.count) > 0):
        return 0.0
    return moved.count * latency_s + moved.sent_bytes / egress_bytes_per_s(hardware)
