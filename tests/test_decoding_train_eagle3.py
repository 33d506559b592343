"""Training an EAGLE-3 drafter: its unrolled chains are the decoder's, its teacher is cut to its vocabulary, and it learns."""

import json
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from eagle3_reference import Tensors
from test_decoding_eagle3 import CONFIG, EMBED, drafted, inputs, read
from test_decoding_target import CONFIG as TARGET

from decoding import eagle3
from decoding.checkpoint import load_draft, random_target
from decoding.config_eagle3 import Eagle3Config
from decoding.train import main
from decoding.train_blocks import Drawn, Sampler
from decoding.train_chains import ChainSampler, assemble_chains, frequent_tokens
from decoding.train_dflash import fold_scale
from decoding.train_eagle3 import (
    chain_drafts,
    chain_hidden,
    feature_columns,
    fit_chains,
    initial_params,
    nearest_layers,
    write_eagle3,
)
from decoding.train_evaluate import Evaluator
from decoding.train_features import Example
from decoding.train_fit import Recipe, initial_state

EVERYTHING = slice(None)
HIDDEN = jax.jit(chain_hidden, static_argnames=("config", "num_drafts"))


def test_unrolled_chains_are_the_decoders_chains() -> None:
    tensors = Tensors(CONFIG)
    params = eagle3.params_from(tensors, CONFIG, jnp.float32)
    features, tokens = inputs(10)
    anchors = [4, 7]
    for_all = []
    for anchor in anchors:
        state = read(CONFIG, params, [(features[:anchor], tokens[1 : anchor + 1])])
        drafts, logits = drafted(CONFIG, params, state, tokens[anchor], anchor, 4)
        # Training feeds the tokens of the text: make the text say what was drafted.
        text = [*tokens[: anchor + 1], *drafts, *([0] * 10)]
        outputs = HIDDEN(
            params, CONFIG, jnp.asarray(EMBED), jnp.asarray(features)[None], jnp.array([text[:14]]), jnp.array([[anchor]]), 3
        )
        for_all.append(text)
        np.testing.assert_allclose(
            np.concatenate([eagle3.logits(params, CONFIG, hidden)[0] for hidden in outputs]), logits, rtol=1e-4, atol=1e-4
        )
    assert for_all[0] != for_all[1]


def test_chains_of_one_text_do_not_see_each_other() -> None:
    params = eagle3.params_from(Tensors(CONFIG), CONFIG, jnp.float32)
    features, tokens = inputs(10)
    text = jnp.array([[*tokens, 0, 0, 0]])

    def last(anchors: list[int]) -> np.ndarray:
        return np.asarray(
            HIDDEN(params, CONFIG, jnp.asarray(EMBED), jnp.asarray(features)[None], text, jnp.array([anchors]), 3)[-1]
        )

    np.testing.assert_allclose(last([3, 6])[0, 1], last([6])[0, 0], atol=1e-5)


def example(tokens: list[int], prompt_length: int, teacher_ids: list[list[int]], teacher_probs: list[list[float]]) -> Example:
    features = np.random.default_rng(len(tokens)).standard_normal((len(tokens), 6)).astype(np.float16)
    return Example(
        0, "math", 0.0, prompt_length, np.array(tokens), features, np.array(teacher_ids), np.array(teacher_probs, np.float16)
    )


def test_teacher_is_cut_to_the_draft_vocabulary() -> None:
    # Answer tokens 5, 6, 7 behind a prompt of two. Draft vocabulary {4, 5, 7}: 6, the target's choice, is outside.
    teacher = example([1, 2, 5, 6, 7], 2, [[5, 4], [6, 4], [7, 6]], [[0.75, 0.25], [0.5, 0.5], [0.5, 0.25]])
    places = np.full(10, -1)
    places[[4, 5, 7]] = [0, 1, 2]
    drawn = Drawn([teacher], np.array([[1, 2]]), 8, np.random.default_rng(0))
    batch = assemble_chains(drawn, 4, places, EVERYTHING)
    assert batch.weights[0].tolist() == [[1, 0, 1], [0, 1, 0]]  # behind 1: tokens 5, 6 (outside), 7; behind 2: 6, 7, and no more
    assert batch.teacher_places[0, 0, 0].tolist() == [1, 0]
    np.testing.assert_allclose(batch.teacher_probs[0, 0, 0], [0.75, 0.25])
    np.testing.assert_allclose(batch.teacher_probs[0, 0, 2], [1.0, 0.0])  # 7 alone is left of {7, 6}: renormalised
    assert batch.tokens[0].tolist() == [1, 2, 5, 6, 7, *[0] * 7]
    np.testing.assert_array_equal(frequent_tokens([teacher], 2, 10), [5, 6])  # answers only, ties by id


def test_columns_of_cached_features() -> None:
    np.testing.assert_array_equal(feature_columns((1, 8, 14), (14, 1), 2), [4, 5, 0, 1])
    assert nearest_layers((1, 8, 14, 20, 27), (1, 14, 26)) == (1, 14, 27)
    assert nearest_layers((2, 4), (3,)) == (4,)


def counting(num: int) -> list[Example]:
    """Answers that count upwards, modulo 29; features are noise, so the token fed is all a drafter can go by."""
    generator = np.random.default_rng(0)
    examples = []
    for index in range(num):
        tokens = (int(generator.integers(29)) + np.arange(28)) % 29
        teacher = np.stack([tokens[4:], (tokens[4:] + 1) % 29], axis=1)
        features = generator.standard_normal((28, 72)).astype(np.float16)
        probs = np.tile(np.array([0.9, 0.1], np.float16), (24, 1))
        examples.append(Example(index, "math", 0.0, 4, tokens, features, teacher, probs))
    return examples


@pytest.mark.slow
def test_a_drafter_learns_to_count_and_is_written_and_read(tmp_path: Path) -> None:
    config = replace(CONFIG, draft_vocab_size=29, norm_before_residual=True)
    examples, ids, scale = counting(24), np.arange(29), np.full(72, 2.0, np.float32)
    target = random_target(TARGET, 0, jnp.float32)
    recipe = Recipe(num_steps=200, num_answers=4, num_anchors=8, learning_rate=5e-3, warmup_steps=10, average_decay=0.95)
    sampler = ChainSampler(Sampler(examples, 31, 4, 8, 31, 0), ids, EVERYTHING)
    state = initial_state(initial_params(config, target, np.asarray(target["head"]).T[ids], 0))
    end = fit_chains(state, config, recipe, sampler, target["embed"], scale, 4, lambda *_: None)
    drafts = chain_drafts(config, target["embed"], scale, ids, EVERYTHING, 4)
    (walked,) = Evaluator(drafts, 4).walked(end.average, examples[:6])
    assert walked.tau > 3  # of at most 4; an untrained drafter has about 1

    write_eagle3(tmp_path, config, fold_scale(end.average, scale) | {"d2t": ids}, {})
    read_config, params = load_draft(tmp_path, jnp.float32)
    assert read_config == config
    raw = chain_drafts(config, target["embed"], np.ones(1, np.float32), params["d2t"], EVERYTHING, 4)
    (exported,) = Evaluator(raw, 4).walked(params, examples[:6])
    assert exported.tau == pytest.approx(walked.tau, abs=0.3)  # bfloat16 weights, scale folded into fc


@pytest.mark.slow
def test_the_command_line_from_prompts_to_an_eagle3_drafter(tmp_path: Path) -> None:
    prompts = "".join(json.dumps({"family": "math", "prompt": f"What is {i} plus {i + 3}?"}) + "\n" for i in range(40))
    (tmp_path / "prompts.jsonl").write_text(prompts)
    answers, features, out = (str(tmp_path / name) for name in ("answers.json", "features", "run"))
    common = ["--target", "tiny"]
    generate = ["generate", *common, "--prompts", str(tmp_path / "prompts.jsonl"), "--out", answers, "--max-new-tokens", "24"]
    assert main(generate) == 0
    assert main(["features", *common, "--answers", answers, "--out", features, "--feature-layers", "1", "2", "4"]) == 0
    fitting = [
        "fit", *common, "--kind", "eagle3", "--features", features, "--out", out, "--steps", "12", "--evaluate-every", "6",
        "--draft-vocab", "64", "--answers-per-step", "4", "--anchors", "4", "--feature-layers", "1", "2", "4",
    ]  # fmt: skip
    assert main(fitting) == 0
    config, _ = load_draft(tmp_path / "run" / "best", jnp.float32)
    assert isinstance(config, Eagle3Config)
    assert (config.target_layer_ids, config.draft_vocab_size) == ((1, 2, 4), 64)
    assert main(["evaluate", *common, "--features", features, "--draft", str(tmp_path / "run" / "best")]) == 0
    assert main([*fitting, "--steps", "13"]) == 0  # resumes: one step more
    steps = [json.loads(line)["step"] for line in (tmp_path / "run" / "curve.jsonl").read_text().splitlines()]
    assert steps[-1] == 13
    assert steps.count(12) == 2  # logged and evaluated once, not twice
