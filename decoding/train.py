"""Train a DFlash drafter for a target: `python -m decoding.train --help`.

Four steps, each resumable: `generate` lets the target write answers, `features` computes what the drafter learns from, `fit`
trains, and `evaluate` measures the acceptance length on answers that were held out. A drafter learns one target's way of writing, so the
answers must be the target's own; the prompts must not be those it is judged on.
"""

import argparse
import hashlib
import logging
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import jax.numpy as jnp
import numpy as np

from perfmodel.errors import InputError, PerfError

from . import train_eagle3
from .checkpoint import load_draft, load_target, save_draft
from .config import TargetConfig
from .config_draft import DraftConfig, default_feature_layers
from .config_eagle3 import Eagle3Config
from .config_eagle3 import default_feature_layers as default_eagle3_layers
from .pair import TARGETS, find_folder
from .train_blocks import Sampler
from .train_chains import ChainSampler, frequent_tokens
from .train_dflash import block_drafts, fit_blocks, fold_scale, initial_params
from .train_eagle3 import chain_drafts, eagle3_config, feature_columns, fit_chains, nearest_layers, write_eagle3
from .train_evaluate import Acceptance, Evaluator
from .train_features import Example, read_answers, read_examples, read_settings, write_features, write_settings
from .train_fit import Params, Recipe, State, channel_scale, initial_state, load_state
from .train_generate import read_prompts, write_answers
from .train_keeper import Keeper, checkpoints, watched

HELD_OUT_SHARE = 0.05
"""Share of the prompts kept from training, chosen by a hash of the prompt, so that every answer to a prompt is on one side."""

_log = logging.getLogger(__name__)


def head_of(params: Params) -> jnp.ndarray:
    """The target's head as [v d], tied or not."""
    return params["head"].T if "head" in params else params["embed"]


def is_held_out(example: Example) -> bool:
    """Whether the example's prompt belongs to the held-out share."""
    digest = hashlib.sha256(np.asarray(example.tokens[: example.prompt_length], np.int64).tobytes()).digest()
    return int.from_bytes(digest[:4]) < HELD_OUT_SHARE * 2**32


def split_examples(examples: Sequence[Example]) -> tuple[list[Example], list[Example]]:
    """Examples to train on, and those held out."""
    return [e for e in examples if not is_held_out(e)], [e for e in examples if is_held_out(e)]


def draft_config(
    config: TargetConfig, feature_layers: tuple[int, ...], num_layers: int, block_size: int, mask_token_id: int
) -> DraftConfig:
    """A drafter of the target's own width and heads."""
    return DraftConfig(
        vocab_size=config.vocab_size,
        hidden_size=config.hidden_size,
        intermediate_size=config.intermediate_size,
        num_layers=num_layers,
        num_heads=config.num_heads,
        num_kv_heads=config.num_kv_heads,
        head_dim=config.head_dim,
        rms_norm_eps=config.rms_norm_eps,
        rope_theta=config.rope_theta,
        block_size=block_size,
        mask_token_id=mask_token_id,
        target_layer_ids=feature_layers,
        num_target_layers=config.num_layers,
        target_hidden_size=config.hidden_size,
        rope_scaling=config.rope_scaling,
    )


def export(folder: Path, config: DraftConfig, average: Params, scale: np.ndarray, step: int) -> None:
    """Write trained parameters as a drafter folder that any loader of the z-lab layout reads."""
    save_draft(folder, config, fold_scale(average, scale), {"trained_steps": str(step)})


def _target(options: argparse.Namespace) -> Path:
    return find_folder(options.target, TARGETS, "target")


def run_generate(options: argparse.Namespace) -> None:
    """Let the target answer prompts."""
    prompts = read_prompts(options.prompts)
    write_answers(
        _target(options), prompts, options.out, options.max_new_tokens, options.temperature, options.batch, options.seed
    )


def run_features(options: argparse.Namespace) -> None:
    """Write feature shards for the target's answers."""
    config, params = load_target(_target(options), jnp.float32)
    layers = tuple(options.feature_layers or default_feature_layers(config.num_layers, options.num_features))
    write_settings(options.out, {"target": options.target, "answers": options.answers.name, "feature_layers": layers})
    for number, path in enumerate(write_features(params, config, read_answers(options.answers), layers, options.out), start=1):
        _log.info("shard %d: %s", number, path.name)


def run_fit(options: argparse.Namespace) -> None:
    """Fit a drafter to feature shards, resuming from the last checkpoint in the output folder."""
    config, params = load_target(_target(options), jnp.float32)
    cached = tuple(read_settings(options.features)["feature_layers"])
    train, held_out = split_examples(read_examples(options.features))
    options.out.mkdir(parents=True, exist_ok=True)
    scale_path = options.out / "scale.npy"
    if not scale_path.exists():
        np.save(scale_path, channel_scale(train))
    data = Data(config, params, cached, train, held_out, np.load(scale_path))
    (fit_eagle3 if options.kind == "eagle3" else fit_dflash)(data, options)


@dataclass(frozen=True)
class Data:
    """What a drafter of any kind is fitted to: the target, and examples with the features of its layers `cached`."""

    config: TargetConfig
    params: Params
    cached: tuple[int, ...]
    train: list[Example]
    held_out: list[Example]
    scale: np.ndarray


def fit_dflash(data: Data, options: argparse.Namespace) -> None:
    """Fit a DFlash drafter."""
    if options.mask_token_id is None:
        raise InputError("a DFlash drafter needs a mask token", "give --mask-token-id: an id the target never writes")
    block_size, recipe = options.block_size or 8, _recipe(options, data.config, short_block_size=5)
    draft = draft_config(data.config, data.cached, options.layers, block_size, options.mask_token_id)
    embed, head = data.params["embed"], head_of(data.params)
    state = _resumed(initial_state(initial_params(draft, data.params, recipe.seed)), options.out)
    drafts = block_drafts(draft, embed, head, data.scale, block_size)

    def export_step(folder: Path, average: Params, step: int) -> None:
        export(folder, draft, average, data.scale, step)

    keeper = _keeper(data, options, recipe, Evaluator(drafts, block_size), export_step)
    sampler = _sampler(data, recipe, options)
    with watched(keeper, int(state.step)) as after_step:
        fit_blocks(state, draft, recipe, sampler, embed, head, data.scale, after_step)


def fit_eagle3(data: Data, options: argparse.Namespace) -> None:
    """Fit an EAGLE-3 drafter whose draft vocabulary is the most frequent tokens of the training answers."""
    block_size, recipe = options.block_size or 5, _recipe(options, data.config, short_block_size=3)
    layers = tuple(options.feature_layers or nearest_layers(data.cached, default_eagle3_layers(data.config.num_layers)))
    columns = feature_columns(data.cached, layers, data.config.hidden_size)
    scale = data.scale[columns]
    ids = frequent_tokens(data.train, options.draft_vocab, data.config.vocab_size)
    draft = eagle3_config(data.config, layers, len(ids), options.intermediate or data.config.intermediate_size)
    _log.info("features of layers %s, %d draft tokens", layers, len(ids))
    embed = data.params["embed"]
    head = np.asarray(head_of(data.params))[ids]
    state = _resumed(initial_state(train_eagle3.initial_params(draft, data.params, head, recipe.seed)), options.out)
    drafts = chain_drafts(draft, embed, scale, ids, columns, block_size)

    def export_step(folder: Path, average: Params, step: int) -> None:
        params = fold_scale(average, scale) | {"d2t": ids}
        write_eagle3(folder, draft, params, {"trained_steps": str(step)})

    keeper = _keeper(data, options, recipe, Evaluator(drafts, block_size), export_step)
    sampler = ChainSampler(_sampler(data, recipe, options), ids, columns)
    with watched(keeper, int(state.step)) as after_step:
        fit_chains(state, draft, recipe, sampler, embed, scale, block_size, after_step)


def _recipe(options: argparse.Namespace, config: TargetConfig, short_block_size: int) -> Recipe:
    return Recipe(
        num_steps=options.steps,
        learning_rate=options.learning_rate,
        num_answers=options.answers_per_step,
        num_anchors=options.anchors,
        num_candidates=min(options.candidates, config.vocab_size),
        short_block_size=options.short_block_size or short_block_size,
        short_block_share=options.short_block_share,
        seed=options.seed,
    )


def _resumed(state: State, folder: Path) -> State:
    found = checkpoints(folder)
    if not found:
        return state
    _log.info("resumed from %s", found[-1].name)
    return load_state(found[-1], state)


def _sampler(data: Data, recipe: Recipe, options: argparse.Namespace) -> Sampler:
    weights = dict(options.family_weight)
    vocab_size = data.config.vocab_size
    return Sampler(data.train, vocab_size, recipe.num_answers, recipe.num_anchors, recipe.num_candidates, recipe.seed, weights)


def _keeper(
    data: Data, options: argparse.Namespace, recipe: Recipe, evaluator: Evaluator, export: Callable[[Path, Params, int], None]
) -> Keeper:
    keeper = Keeper(options.out, export, evaluator, data.held_out, recipe.num_steps, options.evaluate_every)
    keeper.saved_at = time.monotonic()
    return keeper


def run_evaluate(options: argparse.Namespace) -> list[Acceptance]:
    """Acceptance of a drafter folder on the held-out answers, as greedy decoding would commit them."""
    _, params = load_target(_target(options), jnp.float32)
    draft, draft_params = load_draft(options.draft, jnp.float32)
    cached = tuple(read_settings(options.features)["feature_layers"])
    _, held_out = split_examples(read_examples(options.features))
    chosen = [
        e for family in sorted({e.family for e in held_out}) for e in [h for h in held_out if h.family == family][: options.num]
    ]
    one = np.ones(1, np.float32)
    if isinstance(draft, Eagle3Config):
        block_size = options.block_size or 5
        columns = feature_columns(cached, draft.target_layer_ids, draft.target_hidden_size)
        drafts = chain_drafts(draft, params["embed"], one, draft_params["d2t"], columns, block_size)
    else:
        block_size = options.block_size or draft.block_size
        drafts = block_drafts(draft, params["embed"], head_of(params), one, block_size)
    rows = Evaluator(drafts, block_size).walked(draft_params, chosen)
    for row in rows:
        _log.info("%s: tau %.3f over %d steps, first draft held in %.3f", row.family, row.tau, row.num_steps, row.first)
    return rows


def _family_weight(text: str) -> tuple[str, float]:
    family, separator, weight = text.partition("=")
    if not separator or not float(weight) > 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not FAMILY=WEIGHT with a positive weight")
    return family, float(weight)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    top = argparse.ArgumentParser(
        prog="python -m decoding.train", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    verbs = top.add_subparsers(dest="verb", required=True)

    def verb(name: str, text: str, run: object) -> argparse.ArgumentParser:
        sub = verbs.add_parser(name, help=text, description=text, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
        sub.add_argument("--target", default="smollm2-135m", help="name or checkpoint folder")
        sub.set_defaults(run=run)
        return sub

    generate = verb("generate", "let the target write answers to prompts", run_generate)
    generate.add_argument("--prompts", type=Path, required=True, help='JSON lines {"family": …, "prompt": …}')
    generate.add_argument("--out", type=Path, required=True, help="JSON file; answers already in it are kept")
    generate.add_argument("--max-new-tokens", type=int, default=192)
    generate.add_argument("--temperature", type=float, default=0.0)
    generate.add_argument("--batch", type=int, default=32)
    generate.add_argument("--seed", type=int, default=0)
    features = verb("features", "compute features and teacher distributions of answers", run_features)
    features.add_argument("--answers", type=Path, required=True, help="what `generate` wrote")
    features.add_argument("--out", type=Path, required=True, help="folder of shards; those already there are kept")
    features.add_argument("--num-features", type=int, default=5, help="layers, placed by the default rule")
    features.add_argument("--feature-layers", type=int, nargs="+", help="layers by index instead")
    fitting = verb("fit", "train a drafter; resumes", run_fit)
    fitting.add_argument("--features", type=Path, required=True, help="what `features` wrote")
    fitting.add_argument("--out", type=Path, required=True, help="folder for checkpoints, curve.jsonl and best/")
    fitting.add_argument("--kind", choices=("dflash", "eagle3"), default="dflash")
    fitting.add_argument("--block-size", type=int, help="anchor and drafts; 8 for dflash, 5 for eagle3 when not given")
    fitting.add_argument("--layers", type=int, default=2, help="dflash: layers of the drafter")
    fitting.add_argument(
        "--mask-token-id", type=int, help="dflash, required: an id the target never writes, with a row in its embedding"
    )
    fitting.add_argument("--draft-vocab", type=int, default=4096, help="eagle3: size of the draft vocabulary")
    fitting.add_argument("--intermediate", type=int, help="eagle3: width of the MLP; the target's when not given")
    fitting.add_argument(
        "--feature-layers", type=int, nargs="+", help="eagle3: which of the computed layers to read; nearest to the default rule"
    )
    fitting.add_argument("--steps", type=int, default=4000)
    fitting.add_argument("--learning-rate", type=float, default=1.2e-3)
    fitting.add_argument("--answers-per-step", type=int, default=8)
    fitting.add_argument("--anchors", type=int, default=24, help="blocks per answer and step")
    fitting.add_argument("--candidates", type=int, default=4096, help="columns of the head in the loss")
    fitting.add_argument("--short-block-size", type=int, help="5 for dflash, 3 for eagle3 when not given")
    fitting.add_argument("--short-block-share", type=float, default=0.6, help="share of the steps with the short block")
    fitting.add_argument(
        "--family-weight",
        type=_family_weight,
        action="append",
        default=[],
        metavar="FAMILY=WEIGHT",
        help="visit a family more often",
    )
    fitting.add_argument("--evaluate-every", type=int, default=250)
    fitting.add_argument("--seed", type=int, default=0)
    evaluate = verb("evaluate", "acceptance on held-out answers", run_evaluate)
    evaluate.add_argument("--features", type=Path, required=True)
    evaluate.add_argument("--draft", type=Path, required=True, help="drafter folder")
    evaluate.add_argument("--num", type=int, default=10, help="answers per family")
    evaluate.add_argument("--block-size", type=int, help="the drafter's own when not given")
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a subcommand; 0 when done, else the error's exit code."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S", stream=sys.stderr)
    options = parser().parse_args(arguments)
    try:
        options.run(options)
    except PerfError as error:
        _log.error("%s\n  %s", error.message, error.hint)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
