"""A model's dimensions and what one step of it costs."""

from typing import Literal

from ..phases import Phase
from .base import Record

ModelRole = Literal["target", "draft"]
DrafterKind = Literal["dflash", "dflash2", "dflare", "domino", "dspark", "eagle3", "peagle"]


class LatentAttention(Record):
    """Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434): one latent row of `kv_rank + rope_dim` is cached per token."""

    q_rank: int
    kv_rank: int
    nope_dim: int
    rope_dim: int
    value_dim: int


class LinearAttention(Record):
    """Layers with a recurrent state in place of a cache (gated delta rule, arXiv 2412.06464): `num_layers` of the model's."""

    num_layers: int
    num_key_heads: int
    num_value_heads: int
    key_dim: int
    value_dim: int
    conv_kernel: int


class CompressedAttention(Record):
    """Attention over a window and over pooled rows, one per `ratio` tokens (DeepSeek-V4): one shared row serves as key and value.

    `ratios` has one entry per layer: 0 sees the window only, `indexed_ratio` the `index_top_k` pooled rows that a small indexer
    picks, any other all pooled rows. The output projection goes through `output_groups` blocks of `output_rank`, and
    `num_streams` copies of the residual stream are mixed around every block.
    """

    ratios: tuple[int, ...]
    window: int
    q_rank: int
    output_rank: int
    output_groups: int
    indexed_ratio: int
    index_heads: int
    index_dim: int
    index_top_k: int
    num_streams: int


class BlockMixing(Record):
    """What DFlash 2 adds to a block drafter: convolutions along the block, and a choice among the likeliest tokens of each slot.

    A convolution looks `taps` slots back, its own included, with an input-dependent kernel per `group_size` channels, before and
    after attention and MLP of every layer; the selector weighs `num_candidates` tokens per slot.
    """

    taps: int
    group_size: int
    num_candidates: int


class ModelSpec(Record):
    """Dimensions that decide a step's cost. `head_dim` is read, never derived from hidden / heads.

    `weight_bits` and `kv_bits` below 16 are quantised storage; at 16 the run's dtype decides. `head_bits` is the LM head's own
    width where it differs (None: as the body), `expert_bits` that of routed experts. Layers beyond `num_full_attention_layers`
    and those of `linear` see at most `sliding_window` tokens. `attention_gate` doubles the query projection.
    A draft has `role="draft"`, its own kind, block size and feature layers, and borrows embedding and head from its target
    when `borrows_head`; `correction_rank` is the inner width of what a DSpark, Domino or DFlash 2 drafter adds to its logits,
    `correction_state` the width of Domino's recurrent state, `mixing` the rest of what DFlash 2 adds.
    """

    name: str
    role: ModelRole
    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int
    vocab_size: int
    tied_embeddings: bool
    weight_bits: float = 16.0
    head_bits: float | None = None
    expert_bits: float | None = None
    kv_bits: float = 16.0
    qk_norm: bool = False
    attention_gate: bool = False
    num_experts: int = 0
    num_experts_per_token: int = 0
    moe_intermediate_size: int = 0
    shared_expert_intermediate_size: int = 0
    num_dense_layers: int | None = None
    sliding_window: int | None = None
    num_full_attention_layers: int | None = None
    latent: LatentAttention | None = None
    linear: LinearAttention | None = None
    compressed: CompressedAttention | None = None
    drafter: DrafterKind | None = None
    block_size: int | None = None
    target_layer_ids: tuple[int, ...] = ()
    target_hidden_size: int | None = None
    draft_vocab_size: int | None = None
    borrows_head: bool = False
    sample_from_anchor: bool = False
    correction_rank: int = 0
    correction_state: int = 0
    mixing: BlockMixing | None = None
    hub_ids: tuple[str, ...] = ()
    source: str = ""
    notes: tuple[str, ...] = ()


class StepShape(Record):
    """The shape of one phase of one step: K query tokens for each of `batch` requests over `context` cached tokens."""

    phase: Phase
    batch: int
    query_tokens: int
    context: int

    @property
    def tokens(self) -> int:
        """Query tokens in the whole batch."""
        return self.batch * self.query_tokens


class StepCost(Record):
    """Work of one phase: FLOP and bytes to and from main memory. Costs add; `scaled` multiplies.

    `kv_bytes` are all that a request remembers: cached keys and values, latent rows, recurrent states.
    `attention_flops` is the part of `flops` spent on queries against keys and values; `expert_bytes` the part of
    `weight_bytes` that routed experts cause when tokens spread evenly, `least_expert_bytes` when all tokens pick the same ones.
    """

    flops: float
    weight_bytes: float
    kv_bytes: float
    activation_bytes: float
    attention_flops: float = 0.0
    expert_bytes: float = 0.0
    least_expert_bytes: float = 0.0

    @property
    def hbm_bytes(self) -> float:
        """All bytes that cross the memory bus when nothing but a kernel's own tiles stays on chip, B."""
        return self.weight_bytes + self.kv_bytes + self.activation_bytes

    @property
    def floor_bytes(self) -> float:
        """Bytes that must cross the memory bus whatever the program: weights and cached keys and values, B."""
        return self.weight_bytes - self.expert_bytes + self.least_expert_bytes + self.kv_bytes

    def __add__(self, other: "StepCost") -> "StepCost":
        return StepCost(
            flops=self.flops + other.flops,
            weight_bytes=self.weight_bytes + other.weight_bytes,
            kv_bytes=self.kv_bytes + other.kv_bytes,
            activation_bytes=self.activation_bytes + other.activation_bytes,
            attention_flops=self.attention_flops + other.attention_flops,
            expert_bytes=self.expert_bytes + other.expert_bytes,
            least_expert_bytes=self.least_expert_bytes + other.least_expert_bytes,
        )

    def scaled(self, factor: float) -> "StepCost":
        """The cost of `factor` such steps."""
        return StepCost(
            flops=self.flops * factor,
            weight_bytes=self.weight_bytes * factor,
            kv_bytes=self.kv_bytes * factor,
            activation_bytes=self.activation_bytes * factor,
            attention_flops=self.attention_flops * factor,
            expert_bytes=self.expert_bytes * factor,
            least_expert_bytes=self.least_expert_bytes * factor,
        )
