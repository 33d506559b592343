"""Make the tiny synthetic pair from nothing: `python -m decoding.tiny OUT_FOLDER`.

A pair small enough to ship and to decode in milliseconds, for tests and for a quick look at the tool. Random weights would not do:
nothing would be accepted, and answers would never end. So a target of a few hundred thousand weights learns templated text
(`decoding.tiny_text`), answers prompts of the same kind, and a DFlash drafter learns those answers by the very recipe that any
drafter is trained with. Every draw is seeded; what is left to chance is the order of float sums in matrix products.
Its figures say nothing of a real model.
"""

import argparse
import functools
import logging
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

from perfmodel.codec import encode, write_atomic

from . import target
from .checkpoint import load_target, random_target, save_draft, save_target
from .config import TargetConfig
from .config_draft import default_feature_layers
from .tiny_text import Exchange, exchanges
from .tokenizer import load_tokenizer, render_chat
from .train import draft_config, head_of
from .train_blocks import Sampler
from .train_dflash import fit_blocks, fold_scale, initial_params
from .train_features import read_answers, read_examples, write_features
from .train_fit import Recipe, State, channel_scale, descend, initial_state
from .train_generate import write_answers

SEED = 20
VOCAB_SIZE = 1024
END, MASK = "<|im_end|>", "<|mask|>"
SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", END, MASK)
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)

TARGET_DOCUMENT = {
    "_name_or_path": "tiny: synthetic, made by decoding.tiny for tests",
    "architectures": ["Qwen3ForCausalLM"],
    "attention_bias": False,
    "eos_token_id": SPECIAL_TOKENS.index(END),
    "head_dim": 16,
    "hidden_act": "silu",
    "hidden_size": 64,
    "intermediate_size": 192,
    "max_position_embeddings": 2048,
    "model_type": "qwen3",
    "num_attention_heads": 4,
    "num_hidden_layers": 6,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "vocab_size": VOCAB_SIZE,
}

NUM_EXCHANGES = 4500
ROW_TOKENS = 256
"""Length of a training row; longer than any exchange."""
TARGET_RECIPE = Recipe(
    num_steps=900, num_answers=4, learning_rate=6e-3, warmup_steps=30, weight_decay=0.01, average_decay=0.98, seed=SEED
)

NUM_ANSWERS = 360
MAX_NEW_TOKENS = 112
NUM_FEATURES = 3
FEATURE_TOKENS = 16384
"""Tokens of a feature shard: so many that each length of text is compiled for once."""
DRAFT_RECIPE = Recipe(
    num_steps=1200, num_answers=6, num_anchors=16, num_candidates=VOCAB_SIZE, learning_rate=4e-3, warmup_steps=50, average_decay=0.99,
    seed=SEED,
)  # fmt: skip
BLOCK_SIZE = 8

README = """# tiny: a synthetic pair

A target of a few hundred thousand weights and its DFlash drafter (`../tiny-dflash`), for tests and for `perf sweep-k --quick`.
Trained from nothing on templated text by `python -m decoding.tiny OUT_FOLDER`; all text, weights and the recipe are this project's own.
Its answers are nonsense in the form of answers, and its figures are not results: they say nothing of a real model.
"""

_log = logging.getLogger(__name__)


def make(folder: Path) -> None:
    """Write the pair as `tiny` and `tiny-dflash` under the folder."""
    texts = list(exchanges(NUM_EXCHANGES, SEED))
    write_text_side(folder / "tiny", texts)
    tokens, is_answer = training_rows(folder / "tiny", texts)
    config = TargetConfig.from_json(TARGET_DOCUMENT)
    params = fit_target(config, tokens, is_answer)
    save_target(folder / "tiny", config, params, {"synthetic": "true"})
    make_draft(folder / "tiny", folder / "tiny-dflash")


def write_text_side(folder: Path, texts: Sequence[Exchange]) -> None:
    """Write all that a checkpoint folder holds beside its weights: configuration, tokenizer, chat template, README."""
    folder.mkdir(parents=True, exist_ok=True)
    write_atomic(folder / "config.json", encode(TARGET_DOCUMENT))
    write_atomic(folder / "generation_config.json", encode({"eos_token_id": TARGET_DOCUMENT["eos_token_id"]}))
    names = {"bos_token": "<|im_start|>", "eos_token": END, "pad_token": "<|endoftext|>"}
    document = {**names, "chat_template": CHAT_TEMPLATE, "tokenizer_class": "PreTrainedTokenizerFast"}
    write_atomic(folder / "tokenizer_config.json", encode(document))
    write_atomic(folder / "README.md", README.encode())
    train_tokenizer(texts).save(str(folder / "tokenizer.json"))


def train_tokenizer(texts: Sequence[Exchange]) -> Tokenizer:
    """A byte-level BPE of `VOCAB_SIZE` entries, digits one by one, over the texts."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    special = [AddedToken(token, special=True, normalized=False) for token in SPECIAL_TOKENS]
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE,
        special_tokens=special,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator((part for text in texts for part in (text.prompt, text.answer)), trainer)
    return tokenizer


def training_rows(folder: Path, texts: Sequence[Exchange]) -> tuple[Int[np.ndarray, "b t"], Bool[np.ndarray, "b t"]]:
    """Exchanges packed into rows of tokens, as many whole ones as fit in each, and which tokens are answers."""
    tokenizer = load_tokenizer(folder)
    prompts = [render_chat(folder, [{"role": "user", "content": text.prompt}]) for text in texts]
    heads = tokenizer.encode_batch(prompts, add_special_tokens=False)
    tails = tokenizer.encode_batch([text.answer + END for text in texts], add_special_tokens=False)
    rows: list[tuple[list[int], list[bool]]] = [([], [])]
    for head, tail in zip(heads, tails, strict=True):
        if len(rows[-1][0]) + len(head.ids) + len(tail.ids) > ROW_TOKENS:
            rows.append(([], []))
        tokens, is_answer = rows[-1]
        tokens += head.ids + tail.ids
        is_answer += [False] * len(head.ids) + [True] * len(tail.ids)
    padded = np.zeros((len(rows), ROW_TOKENS), np.int32), np.zeros((len(rows), ROW_TOKENS), bool)
    for number, (tokens, is_answer) in enumerate(rows):
        padded[0][number, : len(tokens)] = tokens
        padded[1][number, : len(tokens)] = is_answer
    return padded


def fit_target(config: TargetConfig, tokens: Int[np.ndarray, "b t"], is_answer: Bool[np.ndarray, "b t"]) -> target.Params:
    """Train the target on the answers of the rows; gives the averaged parameters."""
    recipe = TARGET_RECIPE

    @functools.partial(jax.jit, donate_argnames=("state",))
    def step(state: State, tokens: Array, is_answer: Array) -> tuple[State, Array]:
        value, gradient = jax.value_and_grad(answer_loss)(state.params, config, tokens, is_answer)
        state, _ = descend(state, gradient, recipe)
        return state, value

    state = initial_state(initial_target(config, recipe.seed))
    for number in range(recipe.num_steps):
        chosen = np.random.default_rng([recipe.seed, number]).choice(len(tokens), recipe.num_answers, replace=False)
        state, value = step(state, tokens[chosen], is_answer[chosen])
        if (number + 1) % 100 == 0:
            _log.info("target step %d of %d: %.3f nats per answer token", number + 1, recipe.num_steps, value)
    return state.average


def initial_target(config: TargetConfig, seed: int) -> target.Params:
    """Random parameters fit for training: embeddings small, since they are the head too, and residual branches quiet."""
    params = random_target(config, seed, jnp.float32)
    layers = [layer | {"o": 0.2 * layer["o"], "down": 0.2 * layer["down"]} for layer in params["layers"]]
    return params | {"embed": 0.05 * params["embed"], "layers": layers}


def answer_loss(
    params: target.Params, config: TargetConfig, tokens: Int[Array, "b t"], is_answer: Bool[Array, "b t"]
) -> Float[Array, ""]:
    """Mean cross-entropy of the answers' tokens, nats per token."""
    batch, length = tokens.shape
    positions = jnp.broadcast_to(jnp.arange(length), tokens.shape)
    hidden, _, _ = target.forward(params, config, tokens, positions, target.init_cache(config, batch, length, jnp.float32))
    log_probs = jax.nn.log_softmax(target.logits(params, config, hidden[:, :-1]), axis=-1)
    right = jnp.take_along_axis(log_probs, tokens[:, 1:, None], axis=-1)[..., 0]
    return -jnp.sum(right * is_answer[:, 1:]) / jnp.sum(is_answer[:, 1:])


def make_draft(target_folder: Path, folder: Path) -> None:
    """Train the drafter on the target's own greedy answers to new prompts, and write it."""
    config, params = load_target(target_folder, jnp.float32)
    layers = default_feature_layers(config.num_layers, NUM_FEATURES)
    draft = draft_config(config, layers, num_layers=1, block_size=BLOCK_SIZE, mask_token_id=SPECIAL_TOKENS.index(MASK))
    prompts = list(dict.fromkeys((text.family, text.prompt) for text in exchanges(NUM_ANSWERS, SEED + 1)))
    with tempfile.TemporaryDirectory() as scratch:
        answers, features = Path(scratch) / "answers.json", Path(scratch) / "features"
        write_answers(target_folder, prompts, answers, MAX_NEW_TOKENS, temperature=0.0, batch=120, seed=SEED)
        for path in write_features(params, config, read_answers(answers), layers, features, FEATURE_TOKENS):
            _log.info("features: %s", path.name)
        examples = read_examples(features)
    recipe, scale = DRAFT_RECIPE, channel_scale(examples)
    sampler = Sampler(examples, config.vocab_size, recipe.num_answers, recipe.num_anchors, recipe.num_candidates, recipe.seed)
    state = initial_state(initial_params(draft, params, recipe.seed))
    state = fit_blocks(state, draft, recipe, sampler, params["embed"], head_of(params), scale, _log_draft)
    save_draft(folder, draft, fold_scale(state.average, scale), {"synthetic": "true"})


def _log_draft(step: int, state: State, report: dict[str, Array], seconds: float) -> None:
    if step % 200 == 0:
        _log.info("drafter step %d: loss %.3f, %.2f tokens per step in training", step, report["loss"], report["tau"])


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the pair; 0 when done."""
    parser = argparse.ArgumentParser(
        prog="python -m decoding.tiny", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, metavar="OUT_FOLDER", help="gets the folders tiny and tiny-dflash")
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S", stream=sys.stderr)
    started = time.process_time()
    make(parser.parse_args(arguments).folder)
    _log.info("done in %.0f s of processor time", time.process_time() - started)
    return 0


if __name__ == "__main__":
    sys.exit(main())
