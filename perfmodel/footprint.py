"""What a pair keeps in a chip's memory: all weights, every expert among them, and what each request remembers.

A step reads only the experts it touches and the rows it sees, but all of them must be there. A prediction for a chip that cannot hold
the pair is a number about nothing, so it comes with a finding. Programs need room beside this (activations, compiled code,
captured graphs); what does not fit here does not fit at all.
"""

import numpy as np

from .cost import step_costs
from .draftcost import correction_weights, embedding_cost, head_cost
from .layercost import CostArrays, Sizes, dtype_bytes, layers_cost
from .parallel import split
from .phases import VERIFY
from .records import Finding, Hardware, ModelSpec

EVERY_TOKEN = 1e9
"""So many tokens touch every expert and every row of the embedding table."""


def resident_bytes(
    target: ModelSpec, draft: ModelSpec | None, batch: int, context: int, dtype: str = "bfloat16", num_chips: int = 1
) -> float:
    """Bytes of weights and cache that each chip holds for `batch` requests of `context` tokens, drafter's included, B."""
    held = split(_weights(target, dtype) + _cache(target, batch, context, dtype), target, num_chips)
    total = float(held.weight_bytes) + float(held.kv_bytes)
    if draft is not None:
        drafted = split(_weights(draft, dtype) + _cache(draft, batch, context, dtype), draft, num_chips)
        total += float(drafted.weight_bytes) + float(drafted.kv_bytes)
    return total


def footprint_finding(
    hardware: Hardware, target: ModelSpec, draft: ModelSpec | None, batch: int, context: int, dtype: str = "bfloat16"
) -> Finding | None:
    """An error when the pair and its cache do not fit the chip's memory; None when they do or its size is unknown."""
    if hardware.memory_bytes is None:
        return None
    needed = resident_bytes(target, draft, batch, context, dtype, hardware.num_chips)
    available = hardware.memory_bytes.value
    if needed <= available:
        return None
    num_chips = int(np.ceil(needed * hardware.num_chips / available))
    return Finding(
        code="does-not-fit",
        severity="error",
        message=f"weights and cache need {needed / 1e9:.1f} GB on each chip and {hardware.label} has {available / 1e9:.1f} GB",
        hint=f"predict for {num_chips} chips or more (--hardware {hardware.name}:{num_chips}), fewer requests or a shorter context",
    )


def _weights(spec: ModelSpec, dtype: str) -> CostArrays:
    """All weights of a model; an embedding tied to the head is held once, and one that is borrowed not at all."""
    everything = Sizes(np.array(EVERY_TOKEN), np.array(1.0), np.array(0.0))
    if spec.role == "target":
        cost = step_costs(spec, None, VERIFY, everything, dtype)
        twice = float(embedding_cost(spec, EVERY_TOKEN, dtype).weight_bytes) if spec.tied_embeddings else 0.0
        return CostArrays(weight_bytes=cost.weight_bytes - twice)
    fused = len(spec.target_layer_ids or (0, 0, 0)) * (spec.target_hidden_size or spec.hidden_size) * spec.hidden_size
    body = layers_cost(spec, everything, causal=False, writes_cache=False, dtype=dtype)
    vocab_size = spec.draft_vocab_size or spec.vocab_size
    own = CostArrays() if spec.borrows_head else head_cost(spec, vocab_size, 1.0, dtype)
    beside = fused + correction_weights(spec)
    return CostArrays(weight_bytes=body.weight_bytes + beside * dtype_bytes(dtype) + own.weight_bytes)


def _cache(spec: ModelSpec, batch: int, context: int, dtype: str) -> CostArrays:
    """Rows and states of every request: what one step would read."""
    sizes = Sizes(np.array(float(batch)), np.array(1.0), np.array(float(context)))
    return CostArrays(kv_bytes=layers_cost(spec, sizes, causal=True, writes_cache=False, dtype=dtype).kv_bytes)
