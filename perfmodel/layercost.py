"""Work of a stack of decoder layers, for many step shapes at once: every kind of token mixer and both kinds of MLP.

All quantities are arrays that broadcast over shapes, so a grid of a hundred thousand shapes costs a handful of array operations.
A layer is a token mixer and an MLP. The mixer is attention over cached keys and values (grouped heads, full or windowed), over
one latent row per token (MLA), over a window and pooled rows, or a recurrent state that is read and written once per step
whatever the context. The MLP is dense, or a mixture of routed and shared experts, whose weights are read as far as they are
touched.
"""

from dataclasses import dataclass, fields

import numpy as np

from .errors import InputError
from .records import ModelSpec, StepCost

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

STATE_BYTES = 4.0
"""Recurrent states are kept in float32."""

DELTA_RULE_FLOPS = 6.0
"""FLOP per state element and token of the gated delta rule: state times key, outer-product update, state times query."""

Amount = float | np.ndarray


@dataclass(frozen=True)
class Sizes:
    """Step shapes as arrays that broadcast together: requests, query tokens of each, cached tokens of each."""

    batch: np.ndarray
    queries: np.ndarray
    context: np.ndarray

    @property
    def tokens(self) -> np.ndarray:
        """Query tokens in the whole batch."""
        return self.batch * self.queries


@dataclass(frozen=True)
class CostArrays:
    """`StepCost` for many shapes: the same quantities as arrays that broadcast together."""

    flops: Amount = 0.0
    weight_bytes: Amount = 0.0
    kv_bytes: Amount = 0.0
    activation_bytes: Amount = 0.0
    attention_flops: Amount = 0.0
    expert_bytes: Amount = 0.0
    least_expert_bytes: Amount = 0.0

    def __add__(self, other: "CostArrays") -> "CostArrays":
        return CostArrays(**{name: getattr(self, name) + getattr(other, name) for name in _NAMES})

    def scaled(self, factor: Amount) -> "CostArrays":
        """The cost of `factor` such steps."""
        return CostArrays(**{name: getattr(self, name) * factor for name in _NAMES})

    def record(self) -> StepCost:
        """The cost of a single shape."""
        return StepCost(**{name: float(getattr(self, name)) for name in _NAMES})


_NAMES = tuple(field.name for field in fields(CostArrays))


def dtype_bytes(dtype: str) -> float:
    """Bytes per element of a dtype by its JAX name. Raises `InputError` for a name it does not know."""
    if dtype not in DTYPE_BYTES:
        raise InputError(f"no dtype called {dtype!r}", f"known: {', '.join(DTYPE_BYTES)}")
    return DTYPE_BYTES[dtype]


def weight_element_bytes(spec: ModelSpec, dtype: str) -> float:
    """Bytes per weight of the body: the quantised width where there is one, else the dtype's."""
    return _stored(spec.weight_bits, dtype)


def head_element_bytes(spec: ModelSpec, dtype: str) -> float:
    """Bytes per weight of the LM head, which quantised models often keep wide."""
    return _stored(spec.weight_bits if spec.head_bits is None else spec.head_bits, dtype)


def expert_element_bytes(spec: ModelSpec, dtype: str) -> float:
    """Bytes per weight of the routed experts, which may be stored narrower than the rest."""
    return _stored(spec.weight_bits if spec.expert_bits is None else spec.expert_bits, dtype)


def kv_element_bytes(spec: ModelSpec, dtype: str) -> float:
    """Bytes per cached key or value element."""
    return _stored(spec.kv_bits, dtype)


def _stored(bits: float, dtype: str) -> float:
    return bits / 8.0 if bits < 16.0 else dtype_bytes(dtype)


def experts_touched(num_experts: int, num_experts_per_token: int, tokens: Amount) -> Amount:
    """Expected number of distinct experts of a layer that `tokens` tokens route to: E·(1 - (1 - k/E)^tokens).

    MoESD (arXiv 2505.19645); assumes even, independent routing, so it is an upper estimate for related tokens.
    """
    return num_experts * (1.0 - (1.0 - num_experts_per_token / num_experts) ** tokens)


@dataclass(frozen=True)
class _Mixers:
    """The token mixers of all layers: weights of the body's width and of the dtype's, work on the context, activations per token."""

    matrices: float
    norms: float
    context_flops: Amount
    kv_bytes: Amount
    activations: float

    def __add__(self, other: "_Mixers") -> "_Mixers":
        return _Mixers(
            matrices=self.matrices + other.matrices,
            norms=self.norms + other.norms,
            context_flops=self.context_flops + other.context_flops,
            kv_bytes=self.kv_bytes + other.kv_bytes,
            activations=self.activations + other.activations,
        )


def layers_cost(
    spec: ModelSpec, sizes: Sizes, *, causal: bool, writes_cache: bool, dtype: str, extra_inputs: int = 0
) -> CostArrays:
    """All decoder layers with the final norm. `extra_inputs` widens what query, key and value projections read, over all layers."""
    mixers = _mixers(spec, sizes, causal, writes_cache, dtype, extra_inputs)
    tokens, layers, hidden = sizes.tokens, spec.num_layers, spec.hidden_size
    element, wide = weight_element_bytes(spec, dtype), dtype_bytes(dtype)
    num_dense = layers if spec.num_experts == 0 else (spec.num_dense_layers or 0)
    num_sparse = layers - num_dense
    dense = 3 * hidden * spec.intermediate_size
    router = hidden * spec.num_experts
    expert = 3 * hidden * spec.moe_intermediate_size
    shared = 3 * hidden * spec.shared_expert_intermediate_size
    chosen = spec.num_experts_per_token
    touched = experts_touched(spec.num_experts, chosen, tokens) if num_sparse else 0.0
    expert_bytes = num_sparse * expert * expert_element_bytes(spec, dtype)
    streams, mixing = _streams(spec)
    matrices = mixers.matrices + num_dense * dense + num_sparse * (router + shared + chosen * expert) + mixing
    body = mixers.matrices + num_dense * dense + num_sparse * shared
    norms = mixers.norms + layers * 2 * hidden + hidden
    width = num_dense * spec.intermediate_size + num_sparse * (
        chosen * spec.moe_intermediate_size + spec.shared_expert_intermediate_size
    )
    activations = mixers.activations + layers * 4 * hidden * streams + 3 * width + num_sparse * spec.num_experts
    return CostArrays(
        flops=2.0 * tokens * matrices + mixers.context_flops,
        # The router is small and decides much, so quantised models keep it wide.
        weight_bytes=body * element + (num_sparse * router + mixing + norms) * wide + expert_bytes * touched,
        kv_bytes=mixers.kv_bytes,
        activation_bytes=tokens * activations * wide,
        attention_flops=mixers.context_flops,
        expert_bytes=expert_bytes * touched,
        least_expert_bytes=float(expert_bytes * chosen),
    )


def _streams(spec: ModelSpec) -> tuple[int, int]:
    """Copies of the residual stream, and the weights of all layers that mix them (hyper-connections, two per layer)."""
    if spec.compressed is None:
        return 1, 0
    num = spec.compressed.num_streams
    return num, spec.num_layers * 2 * num * spec.hidden_size * (num + 2) * num


def _mixers(spec: ModelSpec, sizes: Sizes, causal: bool, writes_cache: bool, dtype: str, extra_inputs: int) -> _Mixers:
    if spec.compressed is not None:
        return _compressed(spec, sizes, dtype)
    if spec.latent is not None:
        return _latent(spec, sizes, dtype)
    attention = _grouped(spec, sizes, causal, writes_cache, dtype, extra_inputs)
    return attention if spec.linear is None else attention + _linear(spec, sizes, dtype)


def _grouped(spec: ModelSpec, sizes: Sizes, causal: bool, writes_cache: bool, dtype: str, extra_inputs: int) -> _Mixers:
    """Attention with grouped heads: n·h query channels share k·h key and value channels, all rows cached."""
    query, key = spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim
    layers = sum(_layer_kinds(spec))
    gated = query if spec.attention_gate else 0
    row = 2 * key * kv_element_bytes(spec, dtype)
    num_full, num_windowed = _layer_kinds(spec)
    rows = num_full * sizes.context + (
        num_windowed * np.minimum(sizes.context, spec.sliding_window or 0) if num_windowed else 0.0
    )
    written = layers * sizes.queries if writes_cache else 0.0
    return _Mixers(
        matrices=layers * (spec.hidden_size * (query + gated + 2 * key) + query * spec.hidden_size)
        + extra_inputs * (query + 2 * key),
        norms=layers * 2 * spec.head_dim if spec.qk_norm else 0,
        context_flops=4.0 * query * _pairs(spec, sizes, causal),
        kv_bytes=sizes.batch * (rows + written) * row,
        activations=layers * (4 * query + 2 * gated + 2 * key),
    )


def _layer_kinds(spec: ModelSpec) -> tuple[int, int]:
    """How many attention layers see the whole context, and how many only a window of it."""
    num_attention = spec.num_layers - (0 if spec.linear is None else spec.linear.num_layers)
    num_full = num_attention if spec.num_full_attention_layers is None else spec.num_full_attention_layers
    if num_full < num_attention and not spec.sliding_window:
        raise InputError(f"{spec.name} has windowed layers but no window", "set sliding_window")
    return num_full, num_attention - num_full


def has_window(spec: ModelSpec) -> bool:
    """Whether some layers see only a window of the context."""
    return spec.compressed is None and spec.latent is None and _layer_kinds(spec)[1] > 0


def _pairs(spec: ModelSpec, sizes: Sizes, causal: bool) -> Amount:
    """Query-key pairs over all layers and requests. Causal: query i of K sees the context and i block tokens; else all K."""
    queries, context = sizes.queries, sizes.context
    num_full, num_windowed = _layer_kinds(spec)
    pairs: Amount = num_full * (queries * context + (queries * (queries + 1) / 2 if causal else queries * queries))
    if num_windowed:
        # Windowed layers are causal inside the block, drafters included: query i sees the last `window` of context + i tokens.
        pairs = pairs + num_windowed * _windowed_pairs(sizes, spec.sliding_window or 0)
    return sizes.batch * pairs


def _windowed_pairs(sizes: Sizes, window: int) -> Amount:
    """Pairs of one request and layer when query i sees the last `window` of context + i tokens."""
    rising = np.clip(window - sizes.context, 0, sizes.queries)
    return rising * sizes.context + rising * (rising + 1) / 2 + (sizes.queries - rising) * window


def _latent(spec: ModelSpec, sizes: Sizes, dtype: str) -> _Mixers:
    """Multi-head latent attention: queries and outputs through low-rank matrices, one latent row cached per token.

    Two programs give the same result: queries projected into the latent space (absorbed), dearer per pair; or cached rows
    expanded to keys and values, once per step. The cheaper one is counted.
    """
    latent = spec.latent
    if latent is None:
        raise ValueError("not a latent attention")
    layers, heads, hidden = spec.num_layers, spec.num_heads, spec.hidden_size
    query = heads * (latent.nope_dim + latent.rope_dim)
    value = heads * latent.value_dim
    expand = latent.kv_rank * heads * (latent.nope_dim + latent.value_dim)
    down = hidden * (latent.q_rank + latent.kv_rank + latent.rope_dim)
    pairs = layers * sizes.batch * (sizes.queries * sizes.context + sizes.queries * (sizes.queries + 1) / 2)
    absorbed = 2.0 * heads * (2 * latent.kv_rank + latent.rope_dim) * pairs
    expanded = 2.0 * (query + value) * pairs + 2.0 * layers * sizes.batch * sizes.context * expand
    row = (latent.kv_rank + latent.rope_dim) * kv_element_bytes(spec, dtype)
    return _Mixers(
        matrices=layers * (down + latent.q_rank * query + expand + value * hidden),
        norms=layers * (latent.q_rank + latent.kv_rank),
        context_flops=np.minimum(absorbed, expanded),
        kv_bytes=sizes.batch * layers * (sizes.context + sizes.queries) * row,
        activations=layers
        * (2 * latent.q_rank + 2 * query + 4 * heads * latent.kv_rank + 2 * value + latent.kv_rank + latent.rope_dim),
    )


def _linear(spec: ModelSpec, sizes: Sizes, dtype: str) -> _Mixers:
    """Gated delta rule: a short convolution and a matrix state per head, read and written once per step and request."""
    linear = spec.linear
    if linear is None:
        raise ValueError("not a linear attention")
    keys, values = linear.num_key_heads * linear.key_dim, linear.num_value_heads * linear.value_dim
    channels = 2 * keys + values
    state = values * linear.key_dim
    projections = spec.hidden_size * (channels + values + 2 * linear.num_value_heads) + values * spec.hidden_size
    moved = 2 * (state * STATE_BYTES + channels * linear.conv_kernel * dtype_bytes(dtype))
    return _Mixers(
        matrices=linear.num_layers * (projections + channels * linear.conv_kernel),
        norms=linear.num_layers * (linear.value_dim + 2 * linear.num_value_heads),
        context_flops=DELTA_RULE_FLOPS * linear.num_layers * state * sizes.tokens,
        kv_bytes=sizes.batch * linear.num_layers * moved,
        activations=linear.num_layers * (2 * channels + 4 * values),
    )


def _compressed(spec: ModelSpec, sizes: Sizes, dtype: str) -> _Mixers:
    """Windowed attention plus pooled rows; one row of `head_dim` serves all heads as key and as value."""
    known = spec.compressed
    if known is None:
        raise ValueError("not a compressed attention")
    hidden, width = spec.hidden_size, spec.head_dim
    query = spec.num_heads * width
    common = hidden * known.q_rank + known.q_rank * query + hidden * width + query * known.output_rank
    groups_out = known.output_rank * known.output_groups
    matrices, flops, rows, norms = 0.0, 0.0 * sizes.tokens, 0.0 * sizes.context, 0.0
    for ratio in sorted(set(known.ratios)):
        num = known.ratios.count(ratio)
        seen = _windowed_pairs(sizes, known.window)
        kept = np.minimum(sizes.context, known.window) + sizes.queries
        weights = common + groups_out * hidden
        index_flops: Amount = 0.0
        if ratio:
            pooled = sizes.context / ratio
            # An indexed layer pools twice as wide (overlapping windows): keys-values and gates, both of the hidden size.
            is_indexed = ratio == known.indexed_ratio
            overlap = 2 if is_indexed else 1
            weights += 2 * hidden * overlap * width
            picked = np.minimum(pooled, known.index_top_k) if is_indexed else pooled
            seen = seen + sizes.queries * picked
            # Different queries of a block may pick different rows; at most all of them are read.
            kept = kept + np.minimum(pooled, sizes.queries * picked)
            if is_indexed:
                scorers = known.index_heads * known.index_dim
                weights += known.q_rank * scorers + hidden * known.index_heads + 2 * hidden * overlap * known.index_dim
                index_flops = 2.0 * scorers * sizes.queries * pooled
                kept = kept + pooled * known.index_dim / width
        matrices += num * weights
        norms += num * (known.q_rank + 2 * width)
        flops = flops + num * sizes.batch * (4.0 * query * seen + index_flops)
        rows = rows + num * kept
    return _Mixers(
        matrices=matrices,
        norms=norms,
        context_flops=flops,
        kv_bytes=sizes.batch * rows * width * kv_element_bytes(spec, dtype),
        activations=spec.num_layers * (2 * known.q_rank + 4 * query + 2 * width + 2 * groups_out),
    )
