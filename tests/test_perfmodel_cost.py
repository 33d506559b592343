"""FLOP and bytes of a step, the arithmetic in the open on tiny dimensions."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfmodel import modelspec
from perfmodel.cost import dtype_bytes, experts_touched, step_cost
from perfmodel.errors import InputError
from perfmodel.records import ModelSpec, StepShape

# hidden 8, 2 layers, 4 heads and 2 KV heads of 3, MLP 10, vocabulary 20
TARGET = ModelSpec(
    name="toy", role="target", hidden_size=8, num_layers=2, num_heads=4, num_kv_heads=2, head_dim=3, intermediate_size=10,
    vocab_size=20, tied_embeddings=True,
)  # fmt: skip
DRAFT = ModelSpec(
    name="toy-dflash", role="draft", drafter="dflash", hidden_size=8, num_layers=1, num_heads=4, num_kv_heads=2, head_dim=3,
    intermediate_size=10, vocab_size=20, tied_embeddings=True, qk_norm=True, block_size=4, target_layer_ids=(0, 1),
    target_hidden_size=8, borrows_head=True,
)  # fmt: skip

ATTENTION = 8 * (12 + 2 * 6) + 12 * 8  # q, k, v and o of one layer: 288 weights
MLP = 3 * 8 * 10  # gate, up, down: 240 weights
HEAD = 8 * 20


def shape(phase="verify", batch=1, query_tokens=1, context=0):
    return StepShape(phase=phase, batch=batch, query_tokens=query_tokens, context=context)


def test_verify_by_hand():
    """Two requests, three query tokens each, five cached tokens, float32."""
    cost = step_cost(TARGET, None, shape(batch=2, query_tokens=3, context=5), "float32")
    tokens = 2 * 3
    # Each request: 3 queries see 5 cached tokens and 1, 2, 3 block tokens; 2 layers; 4 FLOP per head channel (12 of them).
    pairs = 2 * 2 * (3 * 5 + 1 + 2 + 3)
    assert cost.attention_flops == 4 * 12 * pairs
    assert cost.flops == 2 * tokens * (2 * (ATTENTION + MLP) + HEAD) + 4 * 12 * pairs
    norms = 2 * (2 * 8) + 8
    embedding_rows = tokens * 8
    assert cost.weight_bytes == 4 * (2 * (ATTENTION + MLP) + HEAD + norms + embedding_rows)
    # Cached keys and values: 2 x 2 KV heads x 3 wide; five rows read and three written, 2 layers, 2 requests.
    assert cost.kv_bytes == 2 * 2 * (5 + 3) * (2 * 2 * 3) * 4
    # Activations: 4 hidden + 4 query + 2 key widths and 3 MLP widths per layer; head input; logits written and read.
    per_layer = 4 * 8 + 4 * 12 + 2 * 6 + 3 * 10
    assert cost.activation_bytes == tokens * (2 * per_layer * 4 + 8 * 4 + 2 * 20 * 4)
    assert cost.hbm_bytes == cost.weight_bytes + cost.kv_bytes + cost.activation_bytes
    assert cost.floor_bytes == cost.weight_bytes + cost.kv_bytes


def test_prefill_runs_the_head_on_one_row_per_request():
    verify = step_cost(TARGET, None, shape(query_tokens=6), "float32")
    prefill = step_cost(TARGET, None, shape("prefill", query_tokens=6), "float32")
    assert verify.flops - prefill.flops == 2 * 5 * HEAD
    with_draft = step_cost(TARGET, DRAFT, shape("prefill", query_tokens=6), "float32")
    commit = step_cost(TARGET, DRAFT, shape("commit", query_tokens=6), "float32")
    assert with_draft.flops == prefill.flops + commit.flops


def test_draft_by_hand():
    """One bidirectional pass over K = 4 slots on 5 cached tokens; the head, borrowed from the target, on 3 rows."""
    cost = step_cost(TARGET, DRAFT, shape("draft", query_tokens=4, context=5), "bfloat16")
    pairs = 4 * 5 + 4 * 4
    assert cost.flops == 2 * 4 * (ATTENTION + MLP) + 2 * 3 * HEAD + 4 * 12 * pairs
    norms = 2 * 8 + 2 * 3 + 8  # two layer norms, query and key norms, the final one
    assert cost.weight_bytes == 2 * (ATTENTION + MLP + HEAD + norms + 4 * 8)
    assert cost.kv_bytes == 5 * 12 * 2  # read only: the block's own rows are thrown away


def test_commit_by_hand():
    """Two features of width 8 through fc, then keys and values of one layer."""
    cost = step_cost(TARGET, DRAFT, shape("commit", query_tokens=4, context=5), "bfloat16")
    matrices = 16 * 8 + 2 * 6 * 8
    assert cost.flops == 2 * 4 * matrices
    assert cost.weight_bytes == 2 * (matrices + 8 + 3)
    assert cost.kv_bytes == 4 * 12 * 2
    for draft, query_tokens in ((None, 4), (DRAFT, 1)):  # nothing to prepare without a drafter, or in plain decoding
        plain = step_cost(TARGET, draft, shape("commit", query_tokens=query_tokens), "bfloat16")
        assert (plain.flops, plain.hbm_bytes) == (0, 0)


def test_a_shifted_drafter_needs_one_slot_less():
    shifted = msgspec.structs.replace(DRAFT, sample_from_anchor=True)
    cost = step_cost(TARGET, shifted, shape("draft", query_tokens=4), "bfloat16")
    assert cost.flops == 2 * 3 * (ATTENTION + MLP) + 2 * 3 * HEAD + 4 * 12 * 9
    assert step_cost(TARGET, shifted, shape("draft", query_tokens=1), "bfloat16").flops == 0


def test_eagle_draft_grows_with_k_and_reads_two_streams():
    eagle = msgspec.structs.replace(DRAFT, drafter="eagle3", borrows_head=False, draft_vocab_size=6, qk_norm=False)
    one = step_cost(TARGET, eagle, shape("draft", query_tokens=2, context=5), "bfloat16")
    wide_attention = 16 * (12 + 2 * 6) + 12 * 8
    assert one.flops == 2 * (wide_attention + MLP + 8 * 6) + 4 * 12 * 6
    three = step_cost(TARGET, eagle, shape("draft", query_tokens=4, context=5), "bfloat16")
    assert three.weight_bytes == 3 * one.weight_bytes
    assert three.attention_flops == 4 * 12 * (6 + 7 + 8)
    assert three.kv_bytes == (5 + 6 + 7 + 3) * 12 * 2  # rows read by each pass, and three written
    assert step_cost(TARGET, eagle, shape("draft", query_tokens=1), "bfloat16").flops == 0
    windowed = msgspec.structs.replace(eagle, num_full_attention_layers=0, sliding_window=4)
    with pytest.raises(InputError, match="windowed"):
        step_cost(TARGET, windowed, shape("draft", query_tokens=2), "bfloat16")
    commit = step_cost(TARGET, eagle, shape("commit", query_tokens=2), "bfloat16")
    assert commit.flops == 2 * 2 * (16 * 8 + 2 * 6 * 16)


def test_experts_by_hand():
    """4 experts, 2 per token: 3 tokens touch 4 (1 - (1/2)^3) = 3.5 of them on average, and at least 2."""
    sparse = msgspec.structs.replace(
        TARGET,
        num_experts=4,
        num_experts_per_token=2,
        moe_intermediate_size=5,
        shared_expert_intermediate_size=3,
        num_dense_layers=1,
    )
    cost = step_cost(sparse, None, shape(query_tokens=3), "bfloat16")
    expert, shared, router = 3 * 8 * 5, 3 * 8 * 3, 8 * 4
    assert cost.expert_bytes == pytest.approx(2 * 3.5 * expert)
    assert cost.least_expert_bytes == 2 * 2 * expert
    assert cost.floor_bytes == pytest.approx(cost.weight_bytes + cost.kv_bytes - 2 * 1.5 * expert)
    body = 2 * ATTENTION + MLP + router + shared
    assert cost.weight_bytes == pytest.approx(2 * (body + 3.5 * expert + HEAD + 2 * 16 + 8 + 3 * 8))
    assert cost.flops - cost.attention_flops == 2 * 3 * (body + 2 * expert + HEAD)


def test_experts_touched_limits():
    assert experts_touched(128, 8, 1) == pytest.approx(8)
    assert experts_touched(128, 8, 10_000) == pytest.approx(128)
    assert experts_touched(128, 8, 16) == pytest.approx(128 * (1 - (1 - 1 / 16) ** 16))


def test_windowed_layers_stop_growing_with_context():
    """One full and one windowed layer (window 4): two queries on 10 cached tokens see 10 + 1, 10 + 2, and 4, 4."""
    windowed = msgspec.structs.replace(TARGET, num_full_attention_layers=1, sliding_window=4)
    cost = step_cost(windowed, None, shape(query_tokens=2, context=10), "float32")
    assert cost.attention_flops == 4 * 12 * ((11 + 12) + (4 + 4))
    assert cost.kv_bytes == ((10 + 4) + 2 * 2) * 12 * 4
    rising = step_cost(windowed, None, shape(query_tokens=3, context=2), "float32")
    assert rising.attention_flops == 4 * 12 * ((3 + 4 + 5) + (3 + 4 + 4))
    with pytest.raises(InputError, match="no window"):
        step_cost(msgspec.structs.replace(windowed, sliding_window=None), None, shape(), "float32")


def test_quantised_storage_stays_whatever_the_dtype():
    small = msgspec.structs.replace(TARGET, weight_bits=4.0, head_bits=16.0, kv_bits=8.0)
    cost = step_cost(small, None, shape(context=10), "float32")
    norms_and_row = 2 * 16 + 8 + 8
    assert cost.weight_bytes == 0.5 * 2 * (ATTENTION + MLP) + 4 * HEAD + 4 * norms_and_row
    assert cost.kv_bytes == 2 * 11 * 12 * 1
    all_small = msgspec.structs.replace(small, head_bits=None)
    assert step_cost(all_small, None, shape(), "float32").weight_bytes == 0.5 * (2 * (ATTENTION + MLP) + HEAD) + 4 * norms_and_row


def test_published_sizes():
    """Qwen3-4B has 4.02 billion parameters, 8.04 GB in bfloat16; SmolLM2 135 million; 147 kB of cache per token."""
    cost = step_cost(modelspec.load_model("qwen3-4b"), None, shape(), "bfloat16")
    assert cost.weight_bytes == pytest.approx(2 * 4.022e9, rel=1e-3)
    assert step_cost(modelspec.load_model("smollm2-135m"), None, shape(), "float32").weight_bytes == pytest.approx(
        4 * 134.5e6, rel=1e-3
    )
    assert step_cost(modelspec.load_model("qwen3-4b"), None, shape(context=1), "bfloat16").kv_bytes == 2 * 36 * 2 * 8 * 128 * 2


@pytest.mark.parametrize(
    ("target", "draft", "bad", "said"),
    [
        (TARGET, None, shape("draft"), "without a drafter"),
        (TARGET, None, shape(batch=0), "no step"),
        (TARGET, None, shape(query_tokens=0), "no step"),
        (TARGET, None, shape(context=-1), "no step"),
        (DRAFT, None, shape(), "not a target"),
        (TARGET, TARGET, shape(), "not a drafter"),
    ],
)
def test_bad_questions_are_refused(target, draft, bad, said):
    with pytest.raises(InputError, match=said):
        step_cost(target, draft, bad)


def test_unknown_dtypes_are_refused():
    assert dtype_bytes("bfloat16") == 2
    with pytest.raises(InputError, match="float7"):
        dtype_bytes("float7")


@given(
    phase=st.sampled_from(["verify", "draft", "commit", "prefill"]),
    batch=st.integers(1, 8),
    tokens=st.integers(1, 64),
    context=st.integers(0, 300),
)
def test_costs_rise_with_everything_and_parts_stay_parts(phase, batch, tokens, context):
    here = step_cost(TARGET, DRAFT, shape(phase, batch, tokens, context))
    for wider in (
        shape(phase, batch + 1, tokens, context),
        shape(phase, batch, tokens + 1, context),
        shape(phase, batch, tokens, context + 1),
    ):
        more = step_cost(TARGET, DRAFT, wider)
        assert more.flops >= here.flops
        assert more.hbm_bytes >= here.hbm_bytes
    assert 0 <= here.attention_flops <= here.flops
    assert here.floor_bytes <= here.hbm_bytes
    twice = here + here
    assert twice == here.scaled(2)


def test_flops_of_a_verify_step_agree_with_xla():
    """XLA's count of one verify step of a tiny target, less what it counts beyond matrix products.

    The loop's attention covers every cache slot of its static capacity, seen or masked, so its attention is K x capacity pairs
    per layer where the necessary work is the causal part; norms, softmax and rotations come on top and shrink with width.
    """
    jax = pytest.importorskip("jax")
    target = pytest.importorskip("decoding.target")
    config_module = pytest.importorskip("decoding.config")
    checkpoint = pytest.importorskip("decoding.checkpoint")
    dims = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 128, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "intermediate_size": 512, "vocab_size": 1024,
        "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": True, "max_position_embeddings": 256,
        "hidden_act": "silu",
    }  # fmt: skip
    config = config_module.TargetConfig.from_json(dims)
    spec = modelspec.from_config(dims, "tiny")
    queries, context, capacity = 16, 48, 64
    params = jax.eval_shape(lambda: checkpoint.random_target(config, 0, jax.numpy.float32))
    cache = jax.eval_shape(lambda: target.init_cache(config, 1, capacity, jax.numpy.float32))
    integers = jax.ShapeDtypeStruct((1, queries), jax.numpy.int32)

    def verify(params, tokens, positions, cache):
        hidden, _, cache = target.forward(params, config, tokens, positions, cache)
        return target.logits(params, config, hidden), cache

    analysis = jax.jit(verify).lower(params, integers, integers, cache).compile().cost_analysis()
    counted = (analysis[0] if isinstance(analysis, list) else analysis)["flops"]
    cost = step_cost(spec, None, shape(query_tokens=queries, context=context), "float32")
    over_capacity = 4 * 4 * 32 * 2 * queries * capacity
    expected = cost.flops - cost.attention_flops + over_capacity
    assert expected <= counted * 1.001
    assert counted == pytest.approx(expected, rel=0.10)
