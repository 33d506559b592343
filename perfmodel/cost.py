"""Work of one phase of one step by hand arithmetic: FLOP, and bytes that cross the memory bus.

A decode step reads every weight once, whatever the number K of tokens it verifies; that is why verifying 16 tokens can cost what
one costs. What grows with K is arithmetic (2 FLOP per weight and token), attention (4 FLOP per query, key and head channel), and
the activations. What grows with the context is reading cached keys and values, once per step and not once per query. In a
mixture of experts the weights read grow with K too, until every expert has been touched. Formulas: docs/model.md, "Cost".

Counted: matrix products, attention, the gathered embedding rows, cache rows and states read and written, and activations as if
every matrix product read its input and wrote its output once, with elementwise work riding along and scores kept on chip. Not
counted: softmax, norms, rotations and activation functions as FLOP (below 1 % of a step), and biases.
"""

import numpy as np

from .draftcost import commit_cost, draft_cost, embedding_cost, head_cost
from .errors import InputError
from .layercost import (
    DTYPE_BYTES,
    CostArrays,
    Sizes,
    dtype_bytes,
    expert_element_bytes,
    experts_touched,
    head_element_bytes,
    kv_element_bytes,
    layers_cost,
    weight_element_bytes,
)
from .parallel import split
from .phases import COMMIT, DRAFT, PREFILL, VERIFY, Phase
from .records import ModelSpec, StepCost, StepShape

__all__ = [
    "DTYPE_BYTES",
    "CostArrays",
    "Sizes",
    "dtype_bytes",
    "expert_element_bytes",
    "experts_touched",
    "head_element_bytes",
    "kv_element_bytes",
    "step_cost",
    "step_costs",
    "weight_element_bytes",
]


def step_cost(
    target: ModelSpec, draft: ModelSpec | None, shape: StepShape, dtype: str = "bfloat16", num_chips: int = 1
) -> StepCost:
    """FLOP and bytes of one phase of one step at a shape, over the whole batch; with `num_chips`, the share of one chip.

    `dtype` is that of activations, and of weights and cache unless the spec stores them quantised (below 16 bits).
    `verify` and `prefill` are the target's; with a draft, prefill also builds the drafter's context. `draft` is the drafter with
    the head it borrows; `commit` projects the verified rows into the drafter's cache (no work without a draft, nor at K=1,
    which is plain decoding).
    Raises `InputError` for a shape that is none, or a phase that needs the drafter nobody named.
    """
    sizes = Sizes(*(np.asarray(float(size)) for size in (shape.batch, shape.query_tokens, shape.context)))
    return step_costs(target, draft, shape.phase, sizes, dtype, num_chips).record()


def step_costs(
    target: ModelSpec, draft: ModelSpec | None, phase: Phase, sizes: Sizes, dtype: str = "bfloat16", num_chips: int = 1
) -> CostArrays:
    """`step_cost` for many shapes of one phase at once: FLOP and bytes as arrays that broadcast over the sizes."""
    _check(target, draft, sizes)
    if phase == DRAFT and draft is None:
        raise InputError("the draft phase has no cost without a drafter", "name the drafter")
    if phase in (VERIFY, PREFILL):
        rows = sizes.tokens if phase == VERIFY else sizes.batch
        cost = split(_target_pass(target, draft, sizes, rows, dtype), target, num_chips)
        if phase == VERIFY or draft is None:
            return cost
        return cost + split(commit_cost(draft, sizes, dtype), draft, num_chips)
    if draft is None:
        return CostArrays()
    if phase == DRAFT:
        return split(draft_cost(target, draft, sizes, dtype), draft, num_chips)
    # Plain decoding (K=1) keeps no drafter's context: committing is the accept rule alone.
    committed = (
        commit_cost(draft, sizes, dtype).scaled(np.where(sizes.queries > 1, 1.0, 0.0)) if phase == COMMIT else CostArrays()
    )
    return split(committed, draft, num_chips)


def _check(target: ModelSpec, draft: ModelSpec | None, sizes: Sizes) -> None:
    batch, queries, context = (float(np.min(size)) for size in (sizes.batch, sizes.queries, sizes.context))
    if not (batch >= 1 and queries >= 1 and context >= 0):
        raise InputError(
            f"batch {batch:.0f}, {queries:.0f} query tokens, context {context:.0f} is no step",
            "batch and query tokens start at 1, context at 0",
        )
    if target.role != "target":
        raise InputError(f"{target.name} is a {target.role}, not a target", "give the target first")
    if draft is not None and draft.role != "draft":
        raise InputError(f"{draft.name} is a {draft.role}, not a drafter", "give the drafter second")


def _target_pass(target: ModelSpec, draft: ModelSpec | None, sizes: Sizes, head_rows: np.ndarray, dtype: str) -> CostArrays:
    features = 0.0 if draft is None else sizes.tokens * len(draft.target_layer_ids) * target.hidden_size * dtype_bytes(dtype)
    body = layers_cost(target, sizes, causal=True, writes_cache=True, dtype=dtype)
    head = head_cost(target, target.vocab_size, head_rows, dtype)
    return body + embedding_cost(target, sizes.tokens, dtype) + head + CostArrays(activation_bytes=features)
