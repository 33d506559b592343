"""The EAGLE-3 drafter against a dense NumPy reference, its files in both layouts, and what a step must leave behind."""

import json
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from eagle3_reference import Tensors, chain_logits
from test_decoding_target import CONFIG as TARGET

from decoding import eagle3
from decoding.config_eagle3 import Eagle3Config, default_feature_layers, is_eagle3
from perfmodel.errors import InputError

CONFIG = Eagle3Config(
    vocab_size=31, draft_vocab_size=12, hidden_size=24, intermediate_size=40, num_heads=4, num_kv_heads=2, head_dim=8,
    rms_norm_eps=1e-5, rope_theta=1e4, target_hidden_size=24, target_layer_ids=(0, 1, 2),
)  # fmt: skip
CAPACITY = 20
EMBED = np.random.default_rng(9).standard_normal((31, 24)).astype(np.float32)
BORROWED = {"embed": jnp.asarray(EMBED)}
EXTEND = jax.jit(eagle3.extend_context, static_argnames=("config", "target_config"))
PROPOSE = jax.jit(eagle3.propose, static_argnames=("config", "target_config", "block_size", "choose"))


def inputs(num_rows: int, seed: int = 1) -> tuple[np.ndarray, list[int]]:
    generator = np.random.default_rng(seed)
    return generator.standard_normal((num_rows, 72)).astype(np.float32), generator.integers(31, size=num_rows + 1).tolist()


def with_logits(logits: jax.Array, slot: object = 0) -> tuple[jax.Array, jax.Array]:
    """Greedy, handing out the logits where a sampler would hand out its probabilities."""
    return jnp.argmax(logits, axis=-1).astype(jnp.int32), logits


def read(config: Eagle3Config, params: dict, rows: list[tuple[np.ndarray, list[int]]], padding: int = 0) -> eagle3.State:
    """The state after one `extend_context` per entry of `rows`; `padding` rows of noise behind each."""
    state, start = eagle3.init_state(config, 1, CAPACITY, jnp.float32), 0
    noise = np.random.default_rng(5)
    for features, following in rows:
        num = len(features)
        padded = np.concatenate([features, noise.standard_normal((padding, 72)).astype(np.float32)])
        tokens = np.array([*following, *[-1] * padding])
        positions = start + np.arange(num + padding)
        state = EXTEND(params, config, BORROWED, TARGET, padded[None], tokens[None], positions[None], jnp.array([num]), state)
        start += num
    return state


def drafted(config: Eagle3Config, params: dict, state: eagle3.State, anchor: int, position: int, block_size: int) -> tuple:
    drafts, logits, _ = PROPOSE(
        params, config, BORROWED, TARGET, jnp.array([[anchor]]), jnp.array([position]), state, block_size, with_logits
    )
    return drafts[0].tolist(), np.asarray(logits)[0][:, np.asarray(params["d2t"])]


@pytest.mark.parametrize(("norm_before_residual", "own_embedding"), [(False, True), (True, False)])
def test_matches_the_dense_reference(norm_before_residual: bool, own_embedding: bool) -> None:
    config = replace(CONFIG, norm_before_residual=norm_before_residual)
    tensors = Tensors(config, own_embedding=own_embedding)
    features, tokens = inputs(7)
    expected, expected_drafts = chain_logits(config, tensors.tensors, EMBED, features, tokens, 5)
    params = eagle3.params_from(tensors, config, jnp.float32)
    state = read(config, params, [(features, tokens[1:])])
    drafts, logits = drafted(config, params, state, tokens[-1], 7, 6)
    np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-4)
    assert drafts == expected_drafts


def test_rows_read_in_pieces_with_rejected_ones_behind_are_rows_read_at_once() -> None:
    tensors = Tensors(CONFIG)
    params = eagle3.params_from(tensors, CONFIG, jnp.float32)
    features, tokens = inputs(9)
    pieces = [(features[:4], tokens[1:5]), (features[4:5], tokens[5:6]), (features[5:], tokens[6:])]
    state = read(CONFIG, params, pieces, padding=3)
    _, logits = drafted(CONFIG, params, state, tokens[-1], 9, 4)
    np.testing.assert_allclose(logits, chain_logits(CONFIG, tensors.tensors, EMBED, features, tokens, 3)[0], rtol=1e-4, atol=1e-4)


def test_rows_of_drafts_are_overwritten_by_the_next_context() -> None:
    tensors = Tensors(CONFIG)
    params = eagle3.params_from(tensors, CONFIG, jnp.float32)
    features, tokens = inputs(8)
    state = read(CONFIG, params, [(features[:5], tokens[1:6])])
    _, _, state = PROPOSE(params, CONFIG, BORROWED, TARGET, jnp.array([[tokens[5]]]), jnp.array([5]), state, 6, with_logits)
    state = EXTEND(
        params, CONFIG, BORROWED, TARGET, features[None, 5:], np.array([tokens[6:]]), np.arange(5, 8)[None], jnp.array([3]), state
    )
    _, logits = drafted(CONFIG, params, state, tokens[-1], 8, 3)
    np.testing.assert_allclose(logits, chain_logits(CONFIG, tensors.tensors, EMBED, features, tokens, 2)[0], rtol=1e-4, atol=1e-4)


def test_a_finished_request_keeps_its_feature() -> None:
    params = eagle3.params_from(Tensors(CONFIG), CONFIG, jnp.float32)
    features, tokens = inputs(4)
    state = read(CONFIG, params, [(features, tokens[1:])])
    after = EXTEND(
        params, CONFIG, BORROWED, TARGET, features[None, :2], np.array([[1, 2]]), np.array([[4, 5]]), jnp.array([0]), state
    )
    np.testing.assert_array_equal(after.feature, state.feature)


def test_features_and_tokens_matter() -> None:
    params = eagle3.params_from(Tensors(CONFIG), CONFIG, jnp.float32)
    features, tokens = inputs(6)
    _, logits = drafted(CONFIG, params, read(CONFIG, params, [(features, tokens[1:])]), tokens[-1], 6, 3)
    blank = read(CONFIG, params, [(np.zeros_like(features), tokens[1:])])
    assert np.abs(drafted(CONFIG, params, blank, tokens[-1], 6, 3)[1] - logits).max() > 0.1
    shifted = read(CONFIG, params, [(features, tokens[:-1])])  # feature t with token t: the pairing before EAGLE-3's shift
    assert np.abs(drafted(CONFIG, params, shifted, tokens[-1], 6, 3)[1] - logits).max() > 0.01


def test_both_layouts_give_the_same_network() -> None:
    original, nested = Tensors(CONFIG), Tensors(CONFIG, prefix="layers.0.")
    a, b = (eagle3.params_from(t, CONFIG, jnp.float32) for t in (original, nested))
    jax.tree.map(np.testing.assert_array_equal, a, b)
    document = CONFIG.to_json()
    layer_keys = ("hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "head_dim", "rms_norm_eps",
                  "rope_theta", "vocab_size", "num_hidden_layers", "model_type")  # fmt: skip
    speculators = {
        "architectures": ["Eagle3Speculator"], "speculators_model_type": "eagle3", "speculators_version": "0.3",
        "draft_vocab_size": 12, "norm_before_residual": False, "target_hidden_size": 24,
        "eagle_aux_hidden_state_layer_ids": [1, 2, 3], "transformer_layer_config": {key: document[key] for key in layer_keys},
    }  # fmt: skip
    assert Eagle3Config.from_json(speculators) == Eagle3Config.from_json(document) == CONFIG
    assert is_eagle3(speculators)
    assert is_eagle3(document)
    del speculators["norm_before_residual"]
    with pytest.raises(InputError, match="norm_before_residual"):
        Eagle3Config.from_json(speculators)


def test_tensors_survive_writing() -> None:
    tensors = Tensors(CONFIG)
    params = eagle3.params_from(tensors, CONFIG, jnp.float32)
    written = eagle3.tensors_of(CONFIG, params)
    assert written.keys() == tensors.tensors.keys()
    for name, value in tensors.tensors.items():
        np.testing.assert_allclose(written[name].astype(np.float32), value.astype(np.float32), rtol=1e-2)  # bfloat16


def test_maps_that_do_not_fit_are_refused() -> None:
    tensors = Tensors(CONFIG)
    tensors.tensors["t2d"] = np.roll(tensors.tensors["t2d"], 1)
    with pytest.raises(InputError, match="t2d and d2t"):
        eagle3.params_from(tensors, CONFIG, jnp.float32)
    tensors = Tensors(CONFIG)
    tensors.tensors["d2t"] = np.full(12, 25)
    with pytest.raises(InputError, match="d2t does not map"):
        eagle3.params_from(tensors, CONFIG, jnp.float32)
    del tensors.tensors["d2t"]
    with pytest.raises(InputError, match="no tensor d2t"):
        eagle3.params_from(tensors, CONFIG, jnp.float32)


def test_feature_layers_follow_the_target() -> None:
    assert default_feature_layers(32) == (1, 15, 28)
    assert default_feature_layers(36) == (1, 17, 32)
    with pytest.raises(InputError, match="not three in order"):
        default_feature_layers(6)  # 1, 2, 2
    unsaid = replace(CONFIG, target_layer_ids=())
    with pytest.raises(InputError, match="target is not known"):
        eagle3.feature_layer_ids(unsaid)
    deep = replace(TARGET, num_layers=32, hidden_size=24, vocab_size=31)
    assert unsaid.for_target(deep).target_layer_ids == (1, 15, 28)
    with pytest.raises(InputError, match="features of width"):
        unsaid.for_target(replace(deep, hidden_size=32))
    with pytest.raises(InputError, match="vocabulary"):
        unsaid.for_target(replace(deep, vocab_size=32))


@pytest.mark.parametrize(
    ("name", "layers"),
    [
        ("angelslim_qwen3-8b", ()),  # says for which family it was trained, not which layers: the default ones
        ("specforge_gpt-oss-20B", (0, 10, 20)),  # in a section of its own, counted as what enters a layer
        ("specforge_llama3-8B", ()),
        ("specforge_qwen3-4b", ()),
    ],
)
def test_published_drafters(shared_data: Path, name: str, layers: tuple[int, ...]) -> None:
    document = json.loads((shared_data / "configs" / f"draft_{name}-eagle3.json").read_text())
    config = Eagle3Config.from_json(document)
    assert (config.draft_vocab_size, config.target_layer_ids) == (32_000, layers)
    assert config.head_dim == document.get("head_dim", 128)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_hidden_layers": 2}, "more than one layer"),
        ({"eagle_config": {"eagle_aux_hidden_state_layer_ids": [2, 3, 4]}}, "eagle_aux_hidden_state_layer_ids inside"),
        ({"eagle_config": {"use_aux_hidden_state": False}}, "use_aux_hidden_state"),
        ({"eagle_config": [1]}, "not an object"),
        ({"norm_before_fc": True}, "norm_before_fc"),
        ({"attention_bias": True}, "attention_bias"),
        ({"eagle_aux_hidden_state_layer_ids": [0, 3, 5]}, "from 1 on"),
        ({"parallel_drafting": True}, "parallel_drafting"),
        ({"draft_vocab_size": 99}, "draft vocabulary"),
    ],
)
def test_what_is_not_understood_is_refused(change: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Eagle3Config.from_json(CONFIG.to_json() | change)
