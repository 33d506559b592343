"""Work of drafting: what one pass, or a chain of passes, of each kind of drafter costs, and what keeping its context costs.

A block drafter (DFlash and its relatives) makes all drafts in one pass, so its cost hardly grows with their number; relatives
correct the logits from left to right with a small matrix, read once per draft. EAGLE-3 drafts one token per pass and reads
its layer and its head every time; P-EAGLE does all its drafts in one pass of a deeper stack. Committing turns the target's
features of the verified rows into the drafter's context.
"""

import numpy as np

from .errors import InputError
from .layercost import (
    Amount,
    CostArrays,
    Sizes,
    dtype_bytes,
    has_window,
    head_element_bytes,
    kv_element_bytes,
    layers_cost,
    weight_element_bytes,
)
from .records import ModelSpec
from .records.model import BlockMixing

LOGIT_BYTES = 4.0
"""Logits are float32 whatever the weights are."""

_CHAINED = ("eagle3",)
_TWO_STREAMS = ("eagle3", "peagle")


def embedding_cost(spec: ModelSpec, tokens: Amount, dtype: str) -> CostArrays:
    """Only the rows of the tokens at hand are gathered, never the whole table."""
    return CostArrays(weight_bytes=np.minimum(tokens, spec.vocab_size) * spec.hidden_size * dtype_bytes(dtype))


def head_cost(spec: ModelSpec, vocab_size: int, rows: Amount, dtype: str) -> CostArrays:
    """The LM head on `rows` rows: the whole matrix is read; logits are written and read once more by the argmax."""
    weights = spec.hidden_size * vocab_size
    return CostArrays(
        flops=2.0 * rows * weights,
        weight_bytes=np.where(np.asarray(rows) > 0, weights * head_element_bytes(spec, dtype), 0.0),
        activation_bytes=rows * (spec.hidden_size * dtype_bytes(dtype) + 2 * vocab_size * LOGIT_BYTES),
    )


def draft_cost(target: ModelSpec, draft: ModelSpec, sizes: Sizes, dtype: str) -> CostArrays:
    """Making K - 1 drafts; nothing at K = 1 for drafters that propose nothing there."""
    if draft.drafter in _CHAINED:
        return _chained(draft, sizes, dtype)
    return _block(target, draft, sizes, dtype)


def _block(target: ModelSpec, draft: ModelSpec, sizes: Sizes, dtype: str) -> CostArrays:
    """One pass over the whole block, both directions; the block's own keys and values are thrown away.

    The anchor's slot proposes nothing, so the head runs on K - 1 rows; a shifted drafter, and P-EAGLE, need K - 1 slots only.
    """
    is_peagle = draft.drafter == "peagle"
    num_drafts = sizes.queries - 1
    slots = num_drafts if draft.sample_from_anchor or is_peagle else sizes.queries
    block = Sizes(sizes.batch, slots, sizes.context)
    extra = draft.hidden_size if is_peagle else 0
    body = layers_cost(draft, block, causal=is_peagle, writes_cache=False, dtype=dtype, extra_inputs=extra)
    owner = target if draft.borrows_head else draft
    vocab_size = target.vocab_size if draft.borrows_head else (draft.draft_vocab_size or draft.vocab_size)
    rows = sizes.batch * num_drafts
    cost = body + embedding_cost(target, block.tokens, dtype) + head_cost(owner, vocab_size, rows, dtype)
    cost = cost + _correction(draft, vocab_size, sizes, dtype) + _convolutions(draft, block, dtype)
    return cost.scaled(np.where(slots > 0, 1.0, 0.0))


def _correction(draft: ModelSpec, vocab_size: int, sizes: Sizes, dtype: str) -> CostArrays:
    """What is added to the block's logits from left to right, its weights read again for every draft.

    DSpark: a row of the previous token times a matrix [rank, vocabulary]. Domino: a GRU over the drafts so far, whose state and the
    slot's hidden state go through a layer of `rank` to the vocabulary. DFlash 2: see `_selector`.
    """
    if draft.mixing is not None:
        return _selector(draft, draft.mixing, sizes, dtype)
    if not draft.correction_rank:
        return CostArrays()
    rank, state, hidden = draft.correction_rank, draft.correction_state, draft.hidden_size
    matrices = rank * vocab_size
    if state:
        matrices += 3 * state * (hidden + state) + (hidden + state) * rank
    num_drafts = sizes.queries - 1
    rows = sizes.batch * num_drafts
    return CostArrays(
        flops=2.0 * rows * matrices,
        weight_bytes=num_drafts * matrices * weight_element_bytes(draft, dtype) + rows * rank * dtype_bytes(dtype),
        activation_bytes=rows * 2 * vocab_size * LOGIT_BYTES,
    )


def _selector(draft: ModelSpec, mixing: BlockMixing, sizes: Sizes, dtype: str) -> CostArrays:
    """DFlash 2's choice from left to right: a projection of every slot to `rank`, then per draft the code of the token before
    times it, against the codes of the slot's candidates; of both code books only these rows are read.
    """
    rank, candidates, hidden = draft.correction_rank, mixing.num_candidates, draft.hidden_size
    num_drafts = sizes.queries - 1
    rows, wide = sizes.batch * num_drafts, dtype_bytes(dtype)
    projection = np.where(num_drafts > 0, hidden * rank * weight_element_bytes(draft, dtype), 0.0)
    return CostArrays(
        flops=rows * (2.0 * hidden * rank + rank + 2.0 * candidates * rank),
        weight_bytes=projection + rows * (1 + candidates) * rank * wide,
        activation_bytes=rows * (hidden + 2 * rank) * wide,
    )


def _convolutions(draft: ModelSpec, block: Sizes, dtype: str) -> CostArrays:
    """DFlash 2's two convolutions around each of a layer's two branches; their kernels' changing part is a product of its own."""
    mixing = draft.mixing
    if mixing is None:
        return CostArrays()
    hidden, branches = draft.hidden_size, 2 * draft.num_layers
    coefficients = 2 * mixing.taps * (hidden // mixing.group_size)
    kernel, base = hidden * coefficients, 2 * mixing.taps * hidden
    wide = dtype_bytes(dtype)
    return CostArrays(
        flops=2.0 * block.tokens * branches * (kernel + base),
        weight_bytes=branches * (kernel * weight_element_bytes(draft, dtype) + base * wide) + 0.0 * block.tokens,
        activation_bytes=block.tokens * branches * (5 * hidden + 2 * coefficients) * wide,
    )


def correction_weights(draft: ModelSpec) -> int:
    """Weights that a relative of DFlash holds beside layers, fusion and head: code books, corrections, convolutions."""
    rank, state, hidden = draft.correction_rank, draft.correction_state, draft.hidden_size
    vocab_size = draft.draft_vocab_size or draft.vocab_size
    if draft.mixing is not None:
        per_branch = 2 * draft.mixing.taps * hidden * (1 + hidden // draft.mixing.group_size)
        return 2 * draft.num_layers * per_branch + hidden * rank + 2 * vocab_size * rank
    recurrent = 3 * state * (hidden + state) + (hidden + state) * rank if state else vocab_size * rank
    return recurrent + vocab_size * rank if rank else 0


def _chained(draft: ModelSpec, sizes: Sizes, dtype: str) -> CostArrays:
    """K - 1 passes, one token each, every one reading the layer and its head again (EAGLE-3, arXiv 2503.01840).

    Pass i sees i tokens more than the first. Work is linear in the context, so K - 1 times the mean of first and last pass is
    the sum.
    """
    if has_window(draft):
        raise InputError(f"{draft.name} has windowed layers, not priced for EAGLE-3", "use a drafter with full attention")
    num_passes = sizes.queries - 1
    last = np.maximum(sizes.context + num_passes - 1, 0)
    first_pass, last_pass = (_one_pass(draft, sizes.batch, context, dtype) for context in (sizes.context, last))
    return (first_pass + last_pass).scaled(num_passes / 2)


def _one_pass(draft: ModelSpec, batch: np.ndarray, context: np.ndarray, dtype: str) -> CostArrays:
    one = Sizes(batch, np.ones_like(context), context)
    extra = draft.num_layers * draft.hidden_size
    layers = layers_cost(draft, one, causal=True, writes_cache=True, dtype=dtype, extra_inputs=extra)
    vocab_size = draft.draft_vocab_size or draft.vocab_size
    return layers + embedding_cost(draft, batch, dtype) + head_cost(draft, vocab_size, batch, dtype)


def commit_cost(draft: ModelSpec, sizes: Sizes, dtype: str) -> CostArrays:
    """Features of every verified row through `fc`, then each layer's key and value projection, into the drafter's cache.

    DFlare has no `fc`: each layer weighs the features itself. P-EAGLE's deeper layers read the layer below, so all of its
    layers run on the verified rows.
    """
    num_features = len(draft.target_layer_ids) or 3
    feature_width = num_features * (draft.target_hidden_size or draft.hidden_size)
    key, layers, tokens = draft.num_kv_heads * draft.head_dim, draft.num_layers, sizes.tokens
    fuse = 0 if draft.drafter == "dflare" else feature_width * draft.hidden_size
    wide, element = dtype_bytes(dtype), weight_element_bytes(draft, dtype)
    if draft.drafter == "peagle":
        through = layers_cost(draft, sizes, causal=True, writes_cache=True, dtype=dtype, extra_inputs=draft.hidden_size)
        return through + CostArrays(
            flops=2.0 * tokens * fuse, weight_bytes=fuse * element + 0.0 * tokens, activation_bytes=tokens * feature_width * wide
        )
    input_width = 2 * draft.hidden_size if draft.drafter in _TWO_STREAMS else draft.hidden_size
    matrices = fuse + layers * 2 * key * input_width
    norms = draft.hidden_size + (layers * draft.head_dim if draft.qk_norm else 0)
    features_read = layers * feature_width if draft.drafter == "dflare" else feature_width
    activations = features_read + 2 * draft.hidden_size + layers * input_width
    return CostArrays(
        flops=2.0 * tokens * matrices,
        weight_bytes=matrices * element + norms * wide + 0.0 * tokens,
        kv_bytes=tokens * layers * 2 * key * kv_element_bytes(draft, dtype),
        activation_bytes=tokens * activations * wide,
    )
