"""Training: batches hold what they say, the packed network is the decoder's, and a drafter learns what can be learned."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_decoding_draft import CONFIG as DRAFT
from test_decoding_target import CONFIG as TARGET

from decoding import draft, target
from decoding.checkpoint import load_draft, random_draft, random_target
from decoding.train import export, split_examples
from decoding.train_blocks import Sampler, assemble
from decoding.train_dflash import block_drafts, block_embeddings, block_hidden, fit_blocks, initial_params
from decoding.train_evaluate import Evaluator
from decoding.train_features import Answer, Example, read_answers, read_examples, top_tokens, write_features
from decoding.train_fit import Recipe, channel_scale, initial_state, load_state, save_state
from decoding.train_generate import answer_batch
from perfmodel.errors import InputError

PARAMS = random_target(TARGET, 0, jnp.float32)
LAYERS = DRAFT.target_layer_ids


def counting_answers(num: int, length: int = 24) -> list[Answer]:
    """Answers that count upwards from the prompt's last token: a drafter needs the anchor alone."""
    generator = np.random.default_rng(0)
    rows = []
    for _ in range(num):
        start = int(generator.integers(0, 29))
        tokens = [(start + i) % 29 for i in range(length + 4)]
        rows.append(Answer("math", tuple(tokens[:4]), tuple(tokens[4:]), 0.0))
    return rows


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> list[Example]:
    folder = tmp_path_factory.mktemp("features")
    assert (
        len(list(write_features(PARAMS, TARGET, counting_answers(24), LAYERS, folder, tokens_per_batch=256))) == 3
    )  # 8 × 32 a shard
    assert list(write_features(PARAMS, TARGET, counting_answers(24), LAYERS, folder, tokens_per_batch=256)) == []  # all there
    return read_examples(folder)


def test_features_and_teacher_are_the_targets(examples: list[Example]) -> None:
    example = examples[7]
    tokens = jnp.asarray(example.tokens)[None]
    positions = jnp.arange(tokens.shape[1])[None]
    cache = target.init_cache(TARGET, 1, tokens.shape[1], jnp.float32)
    hidden, features, _ = target.forward(PARAMS, TARGET, tokens, positions, cache, LAYERS)
    np.testing.assert_allclose(example.features, features[0], rtol=2e-3, atol=2e-3)
    probs = np.asarray(jax.nn.softmax(target.logits(PARAMS, TARGET, hidden)[0]))
    for i in (0, 10):
        row = probs[example.prompt_length - 1 + i]  # the token before predicts answer token i
        assert example.teacher_ids[i, 0] == row.argmax()
        np.testing.assert_allclose(example.teacher_probs[i], row[example.teacher_ids[i]], atol=2e-3)


def test_top_tokens_is_exact() -> None:
    logits = jax.random.normal(jax.random.key(0), (3, 64 * 40))
    values, ids = top_tokens(logits, 24)
    expected_values, expected_ids = jax.lax.top_k(logits, 24)
    np.testing.assert_array_equal(values, expected_values)
    np.testing.assert_array_equal(ids, expected_ids)


def test_labels_sit_at_their_own_position(examples: list[Example]) -> None:
    anchors = np.array([[5, 20], [4, 26]])
    batch = assemble(examples[:2], anchors, 4, 32, np.arange(31), 31, np.random.default_rng(0))
    labels = batch.candidates[batch.labels]
    for row in range(2):
        for block in range(2):
            for slot in range(1, 4):
                position = anchors[row, block] + slot
                inside = position < len(examples[row].tokens)
                assert batch.weights[row, block, slot - 1] == inside
                if inside:
                    assert labels[row, block, slot - 1] == examples[row].tokens[position]
    assert batch.weights[1, 1].tolist() == [1, 0, 0]  # 28 tokens: only position 27 is left behind anchor 26
    np.testing.assert_array_equal(batch.anchor_tokens[0], examples[0].tokens[anchors[0]])


def test_packed_blocks_are_the_decoders_blocks(examples: list[Example]) -> None:
    params = random_draft(DRAFT, 3, jnp.float32)
    example, anchors = examples[0], np.array([6, 9, 20])
    features = jnp.asarray(example.features, jnp.float32)[None]
    inputs = block_embeddings(PARAMS["embed"], DRAFT, jnp.asarray(example.tokens)[anchors][None], 4)
    packed = block_hidden(params, DRAFT, features, jnp.asarray(anchors)[None], inputs)
    for i, anchor in enumerate(anchors):
        cache = draft.init_state(DRAFT, 1, 32, jnp.float32)
        cache = draft.extend_context(
            params, DRAFT, PARAMS, TARGET, features[:, :anchor], jnp.zeros((1, anchor), int), jnp.arange(anchor)[None],
            jnp.array([anchor]), cache,
        )  # fmt: skip
        alone = draft.forward(params, DRAFT, inputs[:, i], jnp.array([anchor]), cache)
        np.testing.assert_allclose(packed[0, i], alone[0], atol=2e-5)


def test_a_batch_depends_on_seed_and_step_only(examples: list[Example]) -> None:
    a, b = (Sampler(examples, 31, 4, 6, 31, seed=1) for _ in range(2))
    np.testing.assert_array_equal(a.batch(5, 4).anchors, b.batch(5, 4).anchors)
    assert not np.array_equal(a.batch(5, 4).anchors, a.batch(6, 4).anchors)


def test_drafter_learns_to_count_and_training_resumes(examples: list[Example], tmp_path: Path) -> None:
    # The target is random and knows nothing of counting, so its opinion is left out.
    recipe = Recipe(
        num_steps=120, num_answers=4, num_anchors=8, num_candidates=31, learning_rate=3e-3, warmup_steps=10, soft_share=0.0
    )
    scale = channel_scale(examples)
    sampler = Sampler(examples, 31, recipe.num_answers, recipe.num_anchors, recipe.num_candidates, 0)
    losses = []

    def after(step: int, state: object, report: dict, seconds: float) -> None:
        losses.append(float(report["loss"]))
        if step == 60:
            save_state(tmp_path / "state.npz", state)

    start = initial_state(initial_params(DRAFT, PARAMS, 0))
    head = PARAMS["head"].T
    end = fit_blocks(start, DRAFT, recipe, sampler, PARAMS["embed"], head, scale, after)
    assert np.mean(losses[-10:]) < 0.5 * losses[0]
    evaluator = Evaluator(block_drafts(DRAFT, PARAMS["embed"], head, scale, DRAFT.block_size), DRAFT.block_size)
    (walked,) = evaluator.walked(end.average, examples[:6])
    assert walked.tau > 2.5  # of at most 4; an untrained drafter has about 1
    again = load_state(tmp_path / "state.npz", initial_state(initial_params(DRAFT, PARAMS, 0)))
    resumed = fit_blocks(again, DRAFT, recipe, sampler, PARAMS["embed"], head, scale, lambda *_: None)
    np.testing.assert_allclose(resumed.params["fc"], end.params["fc"], atol=1e-5)

    export(tmp_path / "draft", DRAFT, end.average, scale, 120)
    config, params = load_draft(tmp_path / "draft", jnp.float32)
    drafts = block_drafts(config, PARAMS["embed"], head, np.ones(1, np.float32), 4)
    (exported,) = Evaluator(drafts, 4).walked(params, examples[:6])
    assert exported.tau == pytest.approx(walked.tau, abs=0.2)  # bfloat16 weights, scale folded into fc


def test_walk_counts_what_decoding_would_commit(examples: list[Example]) -> None:
    class Perfect(Evaluator):
        def _committed(self, params: dict, example: Example, anchors: np.ndarray) -> np.ndarray:
            left = len(example.tokens) - 1 - anchors
            return 1 + np.minimum(self.block_size - 1, left)

    drafts = block_drafts(DRAFT, PARAMS["embed"], PARAMS["head"].T, np.ones(1, np.float32), 4)
    evaluator = Perfect(drafts, 4)
    (row,) = evaluator.walked({}, examples[:1])
    # 24 answer tokens, the first is the anchor: 23 to commit in steps of 4, and the last step drafts 3 and has a bonus to spare.
    assert (row.num_steps, row.tau) == (6, 4.0)


def test_answers_continue_greedily_and_stop() -> None:
    prompts = [[3, 1, 4], [1, 5, 9, 2, 6]]
    answers = answer_batch(PARAMS, TARGET, prompts, 6, 0.0, (), 0)
    for prompt, answer in zip(prompts, answers, strict=True):
        tokens = jnp.array([[*prompt, *answer]])
        cache = target.init_cache(TARGET, 1, 16, jnp.float32)
        hidden, _, _ = target.forward(PARAMS, TARGET, tokens, jnp.arange(tokens.shape[1])[None], cache)
        best = np.asarray(target.logits(PARAMS, TARGET, hidden).argmax(-1))[0]
        assert best[len(prompt) - 1 : -1].tolist() == list(answer)
    stop = answers[0][2]
    assert answer_batch(PARAMS, TARGET, prompts, 6, 0.0, (stop,), 0)[0] == answers[0][: answers[0].index(stop) + 1]


def test_split_keeps_answers_to_a_prompt_together(examples: list[Example]) -> None:
    train, held_out = split_examples(examples)
    assert len(train) + len(held_out) == len(examples)
    prompts = {tuple(e.tokens[:4].tolist()) for e in held_out}
    assert not prompts & {tuple(e.tokens[:4].tolist()) for e in train}


def test_answers_file(tmp_path: Path) -> None:
    path = tmp_path / "answers.json"
    path.write_text(json.dumps({"rows": [["math", [1, 2], [3], 0.7]]}))
    assert read_answers(path) == [Answer("math", (1, 2), (3,), 0.7)]
    path.write_text("{}")
    with pytest.raises(InputError, match="no answers"):
        read_answers(path)
