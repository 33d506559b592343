"""Every published config file at hand: parameter counts against published figures, and new kinds of layer by hand."""

import msgspec
import numpy as np
import pytest

from decoding.config_draft import DraftConfig
from perfmodel import modelspec
from perfmodel.cost import Sizes, step_cost, step_costs
from perfmodel.errors import InputError
from perfmodel.footprint import resident_bytes
from perfmodel.records import ModelSpec, StepShape
from perfmodel.records.model import CompressedAttention, LatentAttention, LinearAttention

PUBLISHED_TARGETS = {
    "target_Llama-3.1-8B.json": (8_030_261_248, 1e-9),
    "target_Meta-Llama-3.1-70B.json": (70_553_706_496, 1e-9),
    "target_Qwen3-4B.json": (4_022_468_096, 1e-9),
    "target_Qwen3-8B.json": (8_190_735_360, 1e-9),
    "target_Qwen3-32B.json": (32_762_123_264, 1e-9),
    "target_Qwen3-30B-A3B.json": (30_532_122_624, 1e-9),
    "target_Qwen3-30B-A3B-FP8.json": (30_532_122_624, 1e-9),
    "target_DeepSeek-V3.json": (671_026_419_200, 1e-5),  # "671B", prediction heads left out
    "target_DeepSeek-V4-Flash.json": (284e9, 2e-3),  # model card: 284B
    "target_Qwen3.5-27B.json": (26.9e9, 2e-3),  # the decoder of a "27B" with a vision tower of its own
    "target_Qwen3.5-35B-A3B.json": (34.66e9, 1e-3),
    "target_Qwen3.5-397B-A17B-FP8.json": (396.3e9, 1e-3),
    "target_qwen3-next-80B-A3B.json": (79.67e9, 1e-3),  # "80B"
}
"""File → parameters of the decoder with both embedding and head, as its checkpoint or model card says, and how exactly."""

ACTIVE = {
    "target_Qwen3-30B-A3B.json": (3.3e9, 0.02),
    "target_DeepSeek-V3.json": (37e9, 0.03),
    "target_DeepSeek-V4-Flash.json": (13e9, 0.065),
    "target_Qwen3.5-397B-A17B-FP8.json": (17e9, 0.05),
    "target_qwen3-next-80B-A3B.json": (3.9e9, 0.05),
}
"""File → parameters that one token uses, embedding table included, as published."""

EVERYTHING = Sizes(np.array(1e9), np.array(1.0), np.array(0.0))
"""So many tokens that every expert is touched and every embedding row is gathered."""

ONE = Sizes(np.array(1.0), np.array(1.0), np.array(0.0))


def widened(spec: ModelSpec) -> ModelSpec:
    """The same dimensions in bfloat16, so that bytes are twice the parameters."""
    return msgspec.structs.replace(spec, weight_bits=16.0, head_bits=None, expert_bits=None)


def shape(phase="verify", batch=1, query_tokens=1, context=0):
    return StepShape(phase=phase, batch=batch, query_tokens=query_tokens, context=context)


@pytest.mark.parametrize("file", PUBLISHED_TARGETS)
def test_parameters_of_published_targets(shared_data, file):
    spec = widened(modelspec.load_model(str(shared_data / "configs" / file)))
    weights = float(step_costs(spec, None, "verify", EVERYTHING).weight_bytes) / 2
    if spec.tied_embeddings:  # one table is both embedding and head: count it once
        weights -= spec.vocab_size * spec.hidden_size
    published, tolerance = PUBLISHED_TARGETS[file]
    assert weights == pytest.approx(published, rel=tolerance)


@pytest.mark.parametrize("file", ACTIVE)
def test_active_parameters_of_published_mixtures(shared_data, file):
    spec = widened(modelspec.load_model(str(shared_data / "configs" / file)))
    cost = step_costs(spec, None, "verify", ONE)
    active = float(cost.flops - cost.attention_flops) / 2 + spec.vocab_size * spec.hidden_size
    published, tolerance = ACTIVE[file]
    assert active == pytest.approx(published, rel=tolerance)


def layer(hidden, heads, kv, head_dim, width, wide=0):
    """Weights of one decoder layer with its norms; `wide` more inputs of query, key and value."""
    projections = (hidden + wide) * (heads + 2 * kv) * head_dim + heads * head_dim * hidden
    return projections + 3 * hidden * width


DRAFTERS = {
    # file: (layers, hidden, heads, kv heads, head size, MLP width, features, kind, own head rows or 0)
    "draft_angelslim_qwen3_dflash.json": (5, 2560, 32, 8, 128, 9728, 5, "dflash", 0),
    "draft_angelslim_qwen3_dflare.json": (7, 2560, 32, 8, 128, 9728, 9, "dflare", 0),
    "draft_issue613_speculators_dflash_qwen36_35b.json": (8, 2048, 16, 2, 256, 6144, 5, "dflash", 0),
    "draft_specforge_lfm2.5-1.2b-instruct-dflash.json": (8, 2048, 32, 8, 64, 6144, 5, "dflash", 0),
    "draft_specforge_longcat-flash-dflash.json": (5, 6144, 32, 8, 128, 12288, 5, "dflash", 0),
    "draft_specforge_qwen2.5-0.5b-dflash.json": (5, 896, 14, 2, 64, 4864, 5, "dflash", 0),
    "draft_specforge_qwen3-4b-dflash.json": (5, 2560, 32, 8, 128, 9728, 5, "dflash", 0),
    "draft_specforge_qwen3-8b-dflash.json": (5, 4096, 32, 8, 128, 12288, 5, "dflash", 0),
    "draft_specforge_qwen3-8b-domino.json": (5, 4096, 32, 8, 128, 12288, 5, "domino", 0),
    "draft_specforge_qwen3-8b-dspark.json": (5, 4096, 32, 8, 128, 12288, 5, "dspark", 0),
    "draft_specforge_qwen3.5-35b-a3b-dflash.json": (8, 2048, 32, 4, 128, 6144, 5, "dflash", 0),
    "draft_specforge_qwen3.5-4b-dflash.json": (5, 2560, 32, 8, 128, 9728, 5, "dflash", 0),
    "draft_specforge_qwen3.6-27b-dflash.json": (5, 5120, 32, 8, 128, 17408, 5, "dflash", 0),
    "draft_zlab_dflash_qwen36_35b.json": (8, 2048, 32, 4, 128, 6144, 5, "dflash", 0),
    "draft_angelslim_qwen3-8b-eagle3.json": (1, 4096, 32, 8, 128, 12288, 3, "eagle3", 32000),
    "draft_specforge_gpt-oss-20B-eagle3.json": (1, 2880, 64, 8, 64, 17280, 3, "eagle3", 32000),
    "draft_specforge_llama3-8B-eagle3.json": (1, 4096, 32, 8, 128, 14336, 3, "eagle3", 32000),
    "draft_specforge_qwen3-30B-A3B-eagle3.json": (1, 2048, 32, 4, 128, 12288, 3, "eagle3", 32000),
    "draft_specforge_qwen3-4b-eagle3.json": (1, 2560, 32, 8, 128, 9728, 3, "eagle3", 32000),
    "draft_specforge_qwen3-8b-eagle3.json": (1, 4096, 32, 8, 128, 12288, 3, "eagle3", 32000),
    "draft_specforge_qwen3-8b-peagle.json": (4, 4096, 32, 8, 128, 12288, 3, "peagle", 32000),
}


@pytest.mark.parametrize("file", DRAFTERS)
def test_drafters_read_what_hand_arithmetic_says(shared_data, file):
    """FLOP of two slots at an empty context: every matrix twice per slot, the head on the one row that drafts."""
    layers, hidden, heads, kv, head_dim, width, features, kind, own_head = DRAFTERS[file]
    draft = modelspec.load_model(str(shared_data / "configs" / file))
    assert draft.drafter == kind
    assert (len(draft.target_layer_ids) or 3) == features
    target = msgspec.structs.replace(
        modelspec.load_model("qwen3-4b"), hidden_size=hidden, vocab_size=draft.vocab_size, head_dim=head_dim
    )
    cost = step_cost(target, draft, shape("draft", query_tokens=2))
    slots = 1 if kind in ("dspark", "domino", "eagle3", "peagle") else 2
    wide = hidden if kind in ("eagle3", "peagle") else 0
    body = layers * layer(hidden, heads, kv, head_dim, width) + wide * (heads + 2 * kv) * head_dim
    head = hidden * (own_head or draft.vocab_size)
    correction = {"dspark": 256 * 151936, "domino": 3 * 1024 * (hidden + 1024) + (hidden + 1024) * 256 + 256 * 151936}.get(
        kind, 0
    )
    assert cost.flops - cost.attention_flops == 2 * (slots * body + head + correction)
    key = kv * head_dim
    commit = step_cost(target, draft, shape("commit", query_tokens=2))
    fused = 0 if kind == "dflare" else features * hidden * hidden
    kept = {"peagle": body}.get(kind, layers * 2 * key * (hidden + wide))
    assert commit.flops - commit.attention_flops == 2 * 2 * (fused + kept)


DFLASH2 = {"conv_kernel_size": 3, "conv_group_size": 4, "selector_rank": 2, "selector_top_k": 5}


def tiny_drafter(**keys):
    network = {"architectures": ["DFlashDraftModel"], "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2,
               "num_key_value_heads": 1, "head_dim": 4, "intermediate_size": 16, "vocab_size": 32, "block_size": 4,
               "dflash_config": {"target_layer_ids": [0, 1], "mask_token_id": 3} | keys}  # fmt: skip
    return modelspec.from_config(network, "tiny")


def test_dflash2_by_hand():
    """Two layers of two branches: kernels of 2 sides × 3 taps × 2 groups from width 8, and as many per-channel base kernels."""
    plain, drafter = tiny_drafter(), tiny_drafter(**DFLASH2)
    assert (plain.drafter, drafter.drafter, drafter.correction_rank) == ("dflash", "dflash2", 2)
    target = msgspec.structs.replace(modelspec.load_model("qwen3-4b"), hidden_size=8, vocab_size=32)
    before, after = (step_cost(target, d, shape("draft", query_tokens=4)) for d in (plain, drafter))
    coefficients = 2 * 3 * (8 // 4)
    base = 2 * 3 * 8
    branches = 2 * 2
    slots, drafts = 4, 3
    convolution = slots * branches * 2 * (8 * coefficients + base)
    selector = drafts * (2 * 8 * 2 + 2 + 2 * 5 * 2)
    assert after.flops - before.flops == convolution + selector
    read = branches * (8 * coefficients + base) + 8 * 2 + drafts * (1 + 5) * 2
    assert after.weight_bytes - before.weight_bytes == 2 * read
    moved = slots * branches * (5 * 8 + 2 * coefficients) + drafts * (8 + 2 * 2)
    assert after.activation_bytes - before.activation_bytes == 2 * moved
    commits = [step_cost(target, d, shape("commit", query_tokens=4)) for d in (plain, drafter)]
    assert commits[0] == commits[1]  # the context is extended as in DFlash
    held = [resident_bytes(target, d, 1, 0) for d in (plain, drafter)]
    assert held[1] - held[0] == 2 * (branches * (8 * coefficients + base) + 8 * 2 + 2 * 32 * 2)


@pytest.mark.parametrize("key", DFLASH2)
def test_dflash2_must_give_all_its_keys_and_other_drafters_none(key):
    with pytest.raises(InputError, match=key):
        tiny_drafter(**{name: value for name, value in DFLASH2.items() if name != key})
    with pytest.raises(InputError, match="conv_group_size"):
        tiny_drafter(**DFLASH2 | {"conv_group_size": 3})
    with pytest.raises(InputError, match=key):
        modelspec.from_config({"architectures": ["Qwen3ForCausalLM"], key: 3}, "target")


@pytest.mark.parametrize(
    ("role", "key", "value"),
    [
        ("target", "layer_types", 1),
        ("target", "layer_types", {"a": 1}),
        ("target", "hidden_size", 10**30),
        ("target", "mlp_only_layers", 3.7),
        ("target", "first_k_dense_replace", "x"),
        ("draft", "target_layer_ids", "ab"),
        ("draft", "target_layer_ids", [None]),
        ("draft", "aux_hidden_state_layer_ids", [0]),
        ("draft", "target_hidden_size", -5),
        ("draft", "draft_vocab_size", [1]),
    ],
)
def test_a_damaged_config_is_refused_by_key(role, key, value):
    target = {"architectures": ["Qwen3MoeForCausalLM"], "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2,
              "num_key_value_heads": 1, "head_dim": 4, "intermediate_size": 16, "vocab_size": 32, "num_experts": 4,
              "num_experts_per_tok": 2, "moe_intermediate_size": 8}  # fmt: skip
    draft = target | {"architectures": ["DFlashDraftModel"], "block_size": 4, "target_layer_ids": [0]}
    if key == "aux_hidden_state_layer_ids":
        del draft["target_layer_ids"]
    config = (target if role == "target" else draft) | {key: value}
    with pytest.raises(InputError) as caught:
        modelspec.from_config(config, "odd")
    assert key in caught.value.message
    assert len(caught.value.message) < 200


def test_what_runs_is_what_is_priced():
    document = {"architectures": ["DFlash2DraftModel"], "model_type": "qwen3", "hidden_size": 8, "num_hidden_layers": 2,
                "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 4, "intermediate_size": 16, "vocab_size": 32,
                "block_size": 4, "num_target_layers": 4, "rms_norm_eps": 1e-6, "rope_theta": 1e4, "tie_word_embeddings": False,
                "dflash_config": DFLASH2 | {"target_layer_ids": [0, 1], "mask_token_id": 3, "sample_from_anchor": True}}  # fmt: skip
    run = DraftConfig.from_json(document).spec("tiny")
    priced = modelspec.from_config(document, "tiny")
    assert run.block_size == priced.block_size == 5  # shifted: four drafts
    assert run == priced


def test_every_published_config_has_a_hand_figure(shared_data):
    files = {path.name for path in (shared_data / "configs").glob("*.json")}
    assert files == PUBLISHED_TARGETS.keys() | DRAFTERS.keys()


def test_a_published_drafter_has_half_a_billion_weights(shared_data):
    """Qwen3-4B's drafter: 537 million = 5 layers of 100.9 million and `fc` of 32.8 million (no head, no embedding)."""
    draft = modelspec.load_model(str(shared_data / "configs" / "draft_specforge_qwen3-4b-dflash.json"))
    assert 5 * layer(2560, 32, 8, 128, 9728) + 5 * 2560 * 2560 == pytest.approx(537e6, rel=2e-3)
    target = modelspec.load_model("qwen3-4b")
    drafted, committed = (step_cost(target, draft, shape(phase, query_tokens=2)) for phase in ("draft", "commit"))
    keys_and_values = 5 * 2 * 1024 * 2560
    head_and_rows = 2560 * 151936 + 2 * 2560
    read = (drafted.weight_bytes + committed.weight_bytes) / 2 - keys_and_values - head_and_rows
    assert read == pytest.approx(537e6, rel=2e-3)


def test_windowed_drafter_reads_at_most_its_window(shared_data):
    draft = modelspec.load_model(str(shared_data / "configs" / "draft_specforge_qwen3.6-27b-dflash.json"))
    target = modelspec.load_model("qwen3-4b")
    row = 2 * 8 * 128 * 2
    for context, rows in ((1000, 5 * 1000), (8192, 4 * 2048 + 8192)):
        assert step_cost(target, draft, shape("draft", query_tokens=4, context=context)).kv_bytes == rows * row


# hidden 8, 4 layers, 4 heads, 2 KV heads of 3, MLP 10, vocabulary 20
TOY = ModelSpec(
    name="toy", role="target", hidden_size=8, num_layers=4, num_heads=4, num_kv_heads=2, head_dim=3, intermediate_size=10,
    vocab_size=20, tied_embeddings=True,
)  # fmt: skip
MLP, HEAD = 3 * 8 * 10, 8 * 20


def test_linear_attention_by_hand():
    """Three of four layers keep a state: 2 key heads of 4, 3 value heads of 5, a convolution over 4 tokens."""
    linear = LinearAttention(num_layers=3, num_key_heads=2, num_value_heads=3, key_dim=4, value_dim=5, conv_kernel=4)
    spec = msgspec.structs.replace(TOY, linear=linear, num_full_attention_layers=1, attention_gate=True)
    cost = step_cost(spec, None, shape(batch=2, query_tokens=3, context=7), "float32")
    keys, values = 2 * 4, 3 * 5
    channels = 2 * keys + values
    recurrent = 8 * (channels + values + 2 * 3) + values * 8 + channels * 4
    full = 8 * (12 + 12 + 2 * 6) + 12 * 8  # the gate doubles the query projection
    state = values * 4
    tokens = 2 * 3
    pairs = 2 * (3 * 7 + 1 + 2 + 3)
    assert cost.attention_flops == 4 * 12 * pairs + 6 * 3 * state * tokens
    assert cost.flops - cost.attention_flops == 2 * tokens * (3 * recurrent + full + 4 * MLP + HEAD)
    moved = 2 * (state * 4 + channels * 4 * 4)  # state and convolution window, read and written, float32
    assert cost.kv_bytes == 2 * ((7 + 3) * 12 * 4 + 3 * moved)
    longer = step_cost(spec, None, shape(context=1007), "float32")
    assert longer.kv_bytes - step_cost(spec, None, shape(context=7), "float32").kv_bytes == 1000 * 12 * 4  # one layer grows


def test_latent_attention_by_hand():
    """Queries through rank 5, one latent row of 6 + 2 per token; 4 heads of 3 + 2, values of 3."""
    latent = LatentAttention(q_rank=5, kv_rank=6, nope_dim=3, rope_dim=2, value_dim=3)
    spec = msgspec.structs.replace(TOY, latent=latent)
    cost = step_cost(spec, None, shape(query_tokens=2, context=9), "float32")
    attention = 8 * (5 + 6 + 2) + 5 * 4 * 5 + 6 * 4 * (3 + 3) + 4 * 3 * 8
    assert cost.flops - cost.attention_flops == 2 * 2 * (4 * (attention + MLP) + HEAD)
    assert cost.kv_bytes == 4 * (9 + 2) * (6 + 2) * 4
    pairs = 4 * (2 * 9 + 3)
    absorbed = 2 * 4 * (2 * 6 + 2) * pairs
    expanded = 2 * (4 * 5 + 4 * 3) * pairs + 2 * 4 * 9 * 6 * 4 * 6
    assert cost.attention_flops == min(absorbed, expanded) == absorbed
    wide = step_cost(spec, None, shape(query_tokens=400, context=9), "float32")  # many queries: expand the rows once instead
    pairs = 4 * (400 * 9 + 400 * 401 / 2)
    assert wide.attention_flops == 2 * (4 * 5 + 4 * 3) * pairs + 2 * 4 * 9 * 6 * 4 * 6


def test_compressed_attention_by_hand():
    """Four layers: window only, indexed pools of 4, pools of 8, window only; rows of 3; two residual streams."""
    known = CompressedAttention(
        ratios=(0, 4, 8, 0), window=6, q_rank=5, output_rank=2, output_groups=2, indexed_ratio=4, index_heads=2, index_dim=3,
        index_top_k=7, num_streams=2,
    )  # fmt: skip
    spec = msgspec.structs.replace(TOY, num_kv_heads=1, compressed=known)
    cost = step_cost(spec, None, shape(query_tokens=2, context=80), "float32")
    common = 8 * 5 + 5 * 12 + 8 * 3 + 12 * 2 + 2 * 2 * 8
    indexed = 2 * 8 * 2 * 3 + 5 * 6 + 8 * 2 + 2 * 8 * 2 * 3
    pooled = 2 * 8 * 3
    streams = 4 * 2 * (2 * 8) * (2 + 2) * 2
    assert cost.flops - cost.attention_flops == 2 * 2 * (4 * common + indexed + pooled + streams + 4 * MLP + HEAD)
    window = 2 * 6
    seen = 4 * window + 2 * 7 + 2 * 80 / 8  # the indexer picks 7 of 20 pooled rows; the other layer reads all 10
    assert cost.attention_flops == 4 * 12 * seen + 2 * 6 * 2 * 20
    rows = 4 * (6 + 2) + (14 + 20) + 10  # window and block rows; picked rows and index keys as wide as rows; pooled rows
    assert cost.kv_bytes == rows * 3 * 4


def test_storage_widths_are_kept_apart():
    fp8 = {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}
    spec = modelspec.from_config(QWEN | fp8, "toy")
    assert spec.weight_bits == 8 + 32 / 128**2  # a float32 scale per block
    assert spec.head_bits == 16
    mixed = modelspec.from_config(QWEN | fp8 | {"expert_dtype": "fp4"}, "toy")
    assert (mixed.weight_bits, mixed.expert_bits) == (spec.weight_bits, 4.25)  # an 8-bit scale per 32 weights
    packed = {"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": {"num_bits": 4, "group_size": 128}}}}
    assert modelspec.from_config(QWEN | {"quantization_config": packed}, "toy").weight_bits == 4 + 16 / 128
    nvfp4 = {"quant_method": "modelopt", "quant_algo": "NVFP4"}
    assert modelspec.from_config(QWEN | {"quantization_config": nvfp4}, "toy").weight_bits == 4.5
    mxfp4 = modelspec.from_config(QWEN | {"quantization_config": {"quant_method": "mxfp4"}}, "toy")
    assert (mxfp4.weight_bits, mxfp4.expert_bits) == (16.0, 4.25)
    for bad in ({"expert_dtype": "int3"}, {"quantization_config": {"quant_method": "rot13"}}):
        with pytest.raises(InputError):
            modelspec.from_config(QWEN | bad, "toy")


QWEN = {
    "architectures": ["Qwen3MoeForCausalLM"], "hidden_size": 8, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 3, "vocab_size": 20, "num_experts": 6, "num_experts_per_tok": 2,
    "moe_intermediate_size": 5,
}  # fmt: skip


def test_experts_stored_narrower_cost_their_own_width():
    spec = modelspec.from_config(QWEN | {"expert_dtype": "fp4"}, "toy")
    cost = step_cost(spec, None, shape(), "bfloat16")
    assert cost.expert_bytes == pytest.approx(4 * 2 * (3 * 8 * 5) * 4.25 / 8)  # one token touches two of six experts in 4 layers


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"layer_types": ["full_attention"] * 3}, "3 layer types for 4"),
        ({"layer_types": ["mystery"] * 4}, "mystery"),
        ({"decoder_sparse_step": 2}, "decoder_sparse_step"),
        ({"full_attention_interval": 2}, "linear_num_key_heads"),
        ({"architectures": ["DeepseekV3ForCausalLM"]}, "q_lora_rank"),
        ({"architectures": ["DeepseekV3ForCausalLM"], "index_topk": 4}, "indexer"),
        ({"architectures": ["DeepseekV4ForCausalLM"], "compress_ratios": [4]}, "compress_ratios"),
        ({"architectures": ["DeepseekV4ForCausalLM"], "compress_ratios": "4"}, "list of whole numbers"),
        ({"mamba_d_state": 16}, "state-space"),
    ],
)
def test_bad_configs_are_refused_by_key(changes, said):
    with pytest.raises(InputError) as caught:
        modelspec.from_config(QWEN | changes, "toy")
    assert said in caught.value.message


@pytest.mark.parametrize("name", modelspec.names("target"))
def test_every_shipped_target_costs_more_with_every_token_request_and_cached_row(name):
    spec = modelspec.load_model(name)
    grid = Sizes(
        np.array([1.0, 2.0, 8.0])[:, None, None],
        np.array([1.0, 2.0, 16.0, 300.0])[None, :, None],
        np.array([0.0, 5.0, 100.0, 9000.0]),
    )
    cost = step_costs(spec, None, "verify", grid)
    for part in (cost.flops, cost.weight_bytes + cost.kv_bytes + cost.activation_bytes):
        assert all((np.diff(np.broadcast_to(part, (3, 4, 4)), axis=axis) >= 0).all() for axis in range(3))
    assert np.all(cost.attention_flops <= cost.flops)
    assert np.all(cost.least_expert_bytes <= cost.expert_bytes * (1 + 1e-12))
