"""Work of one phase of one step by hand arithmetic: FLOP, and bytes that cross the memory bus.

A decode step reads every weight once, whatever the number K of tokens it verifies; that is why verifying 16 tokens can cost what
one costs. What grows with K is arithmetic (2 FLOP per weight and token), attention (4 FLOP per query, key and head channel), and
the activations. What grows with the context is reading cached keys and values, once per step and not once per query. In a
mixture of experts the weights read grow with K too, until every expert has been touched. Formulas: docs/model.md, "Cost".

Counted: matrix products, attention, the gathered embedding rows, cache rows read and written, and activations as if every matrix
product read its input and wrote its output once, with elementwise work riding along and scores kept on chip. Not counted:
softmax, norms, rotations and activation functions as FLOP (below 1 % of a step), and biases.
"""

from .errors import InputError
from .phases import COMMIT, DRAFT, PREFILL, VERIFY
from .records import ModelSpec, StepCost, StepShape

DTYPE_BYTES = {
    "float64": 8.0,
    "float32": 4.0,
    "bfloat16": 2.0,
    "float16": 2.0,
    "float8_e4m3fn": 1.0,
    "float8_e4m3fnuz": 1.0,
    "float8_e5m2": 1.0,
    "int8": 1.0,
    "float4_e2m1fn": 0.5,
    "int4": 0.5,
}
"""JAX dtype name → bytes per element."""

_LOGIT_BYTES = 4.0
"""Logits are float32 whatever the weights are."""

_NO_COST = StepCost(flops=0.0, weight_bytes=0.0, kv_bytes=0.0, activation_bytes=0.0)


def dtype_bytes(dtype: str) -> float:
    """Bytes per element of a dtype by its JAX name. Raises `InputError` for a name it does not know."""
    if dtype not in DTYPE_BYTES:
        raise InputError(f"no dtype called {dtype!r}", f"known: {', '.join(DTYPE_BYTES)}")
    return DTYPE_BYTES[dtype]


def step_cost(target: ModelSpec, draft: ModelSpec | None, shape: StepShape, dtype: str = "bfloat16") -> StepCost:
    """FLOP and bytes of one phase of one step at a shape, over the whole batch.

    `dtype` is that of activations, and of weights and cache unless the spec stores them quantised (below 16 bits).
    `verify` and `prefill` are the target's; with a draft, prefill also builds the drafter's context. `draft` is the drafter with
    the head it borrows; `commit` projects the verified rows into the drafter's cache (no work without a draft, nor at K=1,
    which is plain decoding).
    Raises `InputError` for a shape that is none, or a phase that needs the drafter nobody named.
    """
    _check(target, draft, shape)
    if shape.phase == VERIFY:
        return _target_pass(target, draft, shape, shape.tokens, dtype)
    if shape.phase == PREFILL:
        cost = _target_pass(target, draft, shape, shape.batch, dtype)
        return cost if draft is None else cost + _commit(draft, shape, dtype)
    if shape.phase == COMMIT:
        # Plain decoding (K=1) keeps no drafter's context: committing is the accept rule alone.
        return _NO_COST if draft is None or shape.query_tokens == 1 else _commit(draft, shape, dtype)
    if draft is None:
        raise InputError("the draft phase has no cost without a drafter", "name the drafter")
    return _eagle3_draft(draft, shape, dtype) if draft.drafter == "eagle3" else _dflash_draft(target, draft, shape, dtype)


def experts_touched(num_experts: int, num_experts_per_token: int, tokens: float) -> float:
    """Expected number of distinct experts of a layer that `tokens` tokens route to: E·(1 - (1 - k/E)^tokens).

    MoESD (arXiv 2505.19645); assumes even, independent routing, so it is an upper estimate for related tokens.
    """
    return num_experts * (1.0 - (1.0 - num_experts_per_token / num_experts) ** tokens)


def weight_element_bytes(spec: ModelSpec, dtype: str) -> float:
    """Bytes per weight of the body: the quantised width where there is one, else the dtype's."""
    return spec.weight_bits / 8.0 if spec.weight_bits < 16.0 else dtype_bytes(dtype)


def head_element_bytes(spec: ModelSpec, dtype: str) -> float:
    """Bytes per weight of the LM head, which quantised models often keep wide."""
    bits = spec.weight_bits if spec.head_bits is None else spec.head_bits
    return bits / 8.0 if bits < 16.0 else dtype_bytes(dtype)


def kv_element_bytes(spec: ModelSpec, dtype: str) -> float:
    """Bytes per cached key or value element."""
    return spec.kv_bits / 8.0 if spec.kv_bits < 16.0 else dtype_bytes(dtype)


def _check(target: ModelSpec, draft: ModelSpec | None, shape: StepShape) -> None:
    if shape.batch < 1 or shape.query_tokens < 1 or shape.context < 0:
        raise InputError(
            f"batch {shape.batch}, {shape.query_tokens} query tokens, context {shape.context} is no step",
            "batch and query tokens start at 1, context at 0",
        )
    if target.role != "target":
        raise InputError(f"{target.name} is a {target.role}, not a target", "give the target first")
    if draft is not None and draft.role != "draft":
        raise InputError(f"{draft.name} is a {draft.role}, not a drafter", "give the drafter second")


def _target_pass(target: ModelSpec, draft: ModelSpec | None, shape: StepShape, head_rows: int, dtype: str) -> StepCost:
    features = 0.0 if draft is None else shape.tokens * len(draft.target_layer_ids) * target.hidden_size * dtype_bytes(dtype)
    kept = StepCost(flops=0.0, weight_bytes=0.0, kv_bytes=0.0, activation_bytes=features)
    body = _layers(target, shape, causal=True, writes_cache=True, dtype=dtype)
    return body + _embedding(target, shape.tokens, dtype) + _head(target, target.vocab_size, head_rows, dtype) + kept


def _layers(spec: ModelSpec, shape: StepShape, *, causal: bool, writes_cache: bool, dtype: str, input_width: int = 0) -> StepCost:
    """All decoder layers. `input_width` widens what the query, key and value projections read (EAGLE-3 reads two streams)."""
    tokens, layers = shape.tokens, spec.num_layers
    query, key = spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim
    attention = (input_width or spec.hidden_size) * (query + 2 * key) + query * spec.hidden_size
    norms = 2 * spec.hidden_size + (2 * spec.head_dim if spec.qk_norm else 0)
    num_dense = layers if spec.num_experts == 0 else (spec.num_dense_layers or 0)
    num_sparse = layers - num_dense
    dense = 3 * spec.hidden_size * spec.intermediate_size
    router = spec.hidden_size * spec.num_experts
    expert = 3 * spec.hidden_size * spec.moe_intermediate_size
    shared = 3 * spec.hidden_size * spec.shared_expert_intermediate_size
    touched = experts_touched(spec.num_experts, spec.num_experts_per_token, tokens) if num_sparse else 0.0

    pairs = _pairs(spec, shape, causal)
    attention_flops = 4.0 * query * pairs
    matrices = layers * attention + num_dense * dense + num_sparse * (router + shared + spec.num_experts_per_token * expert)
    element = weight_element_bytes(spec, dtype)
    expert_bytes = num_sparse * touched * expert * element
    weights = layers * attention + num_dense * dense + num_sparse * (router + shared)
    width = num_dense * spec.intermediate_size + num_sparse * (
        spec.num_experts_per_token * spec.moe_intermediate_size + spec.shared_expert_intermediate_size
    )
    activations = layers * (4 * spec.hidden_size + 4 * query + 2 * key) + 3 * width + num_sparse * spec.num_experts
    return StepCost(
        flops=2.0 * tokens * matrices + attention_flops,
        weight_bytes=weights * element + (layers * norms + spec.hidden_size) * dtype_bytes(dtype) + expert_bytes,
        kv_bytes=_cache_bytes(spec, shape, writes_cache, dtype),
        activation_bytes=tokens * activations * dtype_bytes(dtype),
        attention_flops=attention_flops,
        expert_bytes=expert_bytes,
        least_expert_bytes=num_sparse * spec.num_experts_per_token * expert * element,
    )


def _layer_kinds(spec: ModelSpec) -> tuple[int, int]:
    """How many layers see the whole context, and how many only a window of it."""
    num_full = spec.num_layers if spec.num_full_attention_layers is None else spec.num_full_attention_layers
    if num_full < spec.num_layers and not spec.sliding_window:
        raise InputError(f"{spec.name} has windowed layers but no window", "set sliding_window")
    return num_full, spec.num_layers - num_full


def _pairs(spec: ModelSpec, shape: StepShape, causal: bool) -> float:
    """Query-key pairs over all layers and requests. Causal: query i of K sees the context and i block tokens; else all K."""
    queries, context = shape.query_tokens, shape.context
    num_full, num_windowed = _layer_kinds(spec)
    full = queries * context + (queries * (queries + 1) / 2 if causal else queries * queries)
    pairs = num_full * full
    if num_windowed:
        # Windowed layers are causal inside the block, drafters included: query i sees the last `window` of context + i tokens.
        window = spec.sliding_window or 0
        rising = max(0, min(queries, window - context))
        pairs += num_windowed * (rising * context + rising * (rising + 1) / 2 + (queries - rising) * window)
    return shape.batch * pairs


def _cache_bytes(spec: ModelSpec, shape: StepShape, writes_cache: bool, dtype: str) -> float:
    """Cached rows read once per step, and the new rows written."""
    row = 2 * spec.num_kv_heads * spec.head_dim * kv_element_bytes(spec, dtype)
    num_full, num_windowed = _layer_kinds(spec)
    read = num_full * shape.context
    if num_windowed:
        read += num_windowed * min(shape.context, spec.sliding_window or 0)
    written = spec.num_layers * shape.query_tokens if writes_cache else 0
    return shape.batch * (read + written) * row


def _embedding(spec: ModelSpec, tokens: int, dtype: str) -> StepCost:
    """Only the rows of the tokens at hand are gathered, never the whole table."""
    rows = float(min(tokens, spec.vocab_size))
    return StepCost(flops=0.0, weight_bytes=rows * spec.hidden_size * dtype_bytes(dtype), kv_bytes=0.0, activation_bytes=0.0)


def _head(spec: ModelSpec, vocab_size: int, rows: int, dtype: str) -> StepCost:
    """The LM head on `rows` rows: the whole matrix is read; logits are written and read once more by the argmax."""
    if rows == 0:
        return _NO_COST
    weights = spec.hidden_size * vocab_size
    return StepCost(
        flops=2.0 * rows * weights,
        weight_bytes=weights * head_element_bytes(spec, dtype),
        kv_bytes=0.0,
        activation_bytes=rows * (spec.hidden_size * dtype_bytes(dtype) + 2 * vocab_size * _LOGIT_BYTES),
    )


def _dflash_draft(target: ModelSpec, draft: ModelSpec, shape: StepShape, dtype: str) -> StepCost:
    """One pass over the whole block, both directions; the block's own keys and values are thrown away.

    The anchor's slot proposes nothing, so the head runs on K - 1 rows; a shifted drafter needs K - 1 slots only.
    """
    num_drafts = shape.query_tokens - 1
    if draft.sample_from_anchor and num_drafts == 0:
        return _NO_COST
    slots = num_drafts if draft.sample_from_anchor else shape.query_tokens
    block = StepShape(phase=DRAFT, batch=shape.batch, query_tokens=slots, context=shape.context)
    body = _layers(draft, block, causal=False, writes_cache=False, dtype=dtype)
    owner = target if draft.borrows_head else draft
    vocab_size = target.vocab_size if draft.borrows_head else (draft.draft_vocab_size or draft.vocab_size)
    return body + _embedding(target, block.tokens, dtype) + _head(owner, vocab_size, shape.batch * num_drafts, dtype)


def _eagle3_draft(draft: ModelSpec, shape: StepShape, dtype: str) -> StepCost:
    """K - 1 passes, one token each, every one reading the layer and its head again (EAGLE-3, arXiv 2503.01840).

    Pass i sees i tokens more than the first. Work is linear in the context, so K - 1 times the mean of first and last pass is
    the sum.
    """
    num_passes = shape.query_tokens - 1
    if num_passes == 0:
        return _NO_COST
    if _layer_kinds(draft)[1]:
        raise InputError(f"{draft.name} has windowed layers, not priced for EAGLE-3", "use a drafter with full attention")
    ends = [_eagle3_pass(draft, shape.batch, context, dtype) for context in (shape.context, shape.context + num_passes - 1)]
    return (ends[0] + ends[1]).scaled(num_passes / 2)


def _eagle3_pass(draft: ModelSpec, batch: int, context: int, dtype: str) -> StepCost:
    one = StepShape(phase=DRAFT, batch=batch, query_tokens=1, context=context)
    layers = _layers(draft, one, causal=True, writes_cache=True, dtype=dtype, input_width=2 * draft.hidden_size)
    vocab_size = draft.draft_vocab_size or draft.vocab_size
    return layers + _embedding(draft, batch, dtype) + _head(draft, vocab_size, batch, dtype)


def _commit(draft: ModelSpec, shape: StepShape, dtype: str) -> StepCost:
    """Features of every verified row through `fc`, then each layer's key and value projection, into the drafter's cache."""
    num_features = len(draft.target_layer_ids) or 3
    feature_width = num_features * (draft.target_hidden_size or draft.hidden_size)
    key = draft.num_kv_heads * draft.head_dim
    input_width = 2 * draft.hidden_size if draft.drafter == "eagle3" else draft.hidden_size
    matrices = feature_width * draft.hidden_size + draft.num_layers * 2 * key * input_width
    norms = draft.hidden_size + (draft.num_layers * draft.head_dim if draft.qk_norm else 0)
    row = 2 * key * kv_element_bytes(draft, dtype)
    activations = feature_width + 2 * draft.hidden_size + draft.num_layers * input_width
    return StepCost(
        flops=2.0 * shape.tokens * matrices,
        weight_bytes=matrices * weight_element_bytes(draft, dtype) + norms * dtype_bytes(dtype),
        kv_bytes=shape.tokens * draft.num_layers * row,
        activation_bytes=shape.tokens * activations * dtype_bytes(dtype),
    )
