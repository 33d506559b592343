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
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import jax.numpy as jnp
import msgspec
import numpy as np

from perfmodel.errors import PerfError

from .checkpoint import load_draft, load_target, save_draft
from .config import DraftConfig, TargetConfig, default_feature_layers
from .pair import TARGETS, find_folder
from .train_blocks import Sampler
from .train_evaluate import Acceptance, Evaluator
from .train_features import Example, read_answers, read_examples, read_settings, write_features, write_settings
from .train_fit import (
    Params,
    Recipe,
    State,
    channel_scale,
    fit,
    fold_scale,
    initial_params,
    initial_state,
    load_state,
    save_state,
)
from .train_generate import read_prompts, write_answers

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


@dataclass
class Keeper:
    """What happens between steps: the log line, the held-out figure, the checkpoint, and the export of the best so far."""

    folder: Path
    config: DraftConfig
    scale: np.ndarray
    evaluator: Evaluator
    held_out: list[Example]
    num_steps: int
    evaluate_every: int
    save_every_s: float = 420.0
    num_anchors: int = 8
    best: float = 0.0
    saved_at: float = 0.0

    def __call__(self, step: int, state: State, report: dict, seconds: float) -> None:
        """Log every 25th step, evaluate every `evaluate_every`th, save by the clock; all three at the end."""
        last = step == self.num_steps
        if step % 25 == 0 or last:
            self._write(
                {"step": step, "step_s": round(seconds, 3), **{name: round(float(value), 5) for name, value in report.items()}}
            )
        if self.held_out and (step % self.evaluate_every == 0 or last):
            rows = self.evaluator.uniform(state.average, self.held_out, self.num_anchors)
            self._write(
                {"step": step, "held_out": {row.family: [round(row.tau, 3), round(row.first, 3), row.num_steps] for row in rows}}
            )
            mean = float(np.mean([row.tau for row in rows])) if rows else 0.0
            if mean >= self.best:
                self.best = mean
                export(self.folder / "best", self.config, state.average, self.scale, step)
        if last or time.monotonic() - self.saved_at > self.save_every_s:
            save_state(self.folder / f"ckpt-{step:06d}.npz", state)
            self.saved_at = time.monotonic()
            for old in checkpoints(self.folder)[:-2]:
                old.unlink()

    def _write(self, row: dict) -> None:
        _log.info("%s", row)
        with (self.folder / "curve.jsonl").open("ab") as stream:
            stream.write(msgspec.json.encode(row) + b"\n")


def checkpoints(folder: Path) -> list[Path]:
    """The checkpoints in a training folder, oldest first."""
    return sorted(path for path in folder.glob("ckpt-*.npz") if ".part" not in path.name)


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
    layers = tuple(read_settings(options.features)["feature_layers"])
    draft = draft_config(config, layers, options.layers, options.block_size, options.mask_token_id)
    train, held_out = split_examples(read_examples(options.features))
    options.out.mkdir(parents=True, exist_ok=True)
    recipe = Recipe(
        num_steps=options.steps,
        learning_rate=options.learning_rate,
        num_answers=options.answers_per_step,
        num_anchors=options.anchors,
        num_candidates=min(options.candidates, config.vocab_size),
        short_block_size=options.short_block_size,
        short_block_share=options.short_block_share,
        seed=options.seed,
    )
    scale_path = options.out / "scale.npy"
    if not scale_path.exists():
        np.save(scale_path, channel_scale(train))
    scale = np.load(scale_path)
    state = initial_state(initial_params(draft, params, options.seed))
    if found := checkpoints(options.out):
        state = load_state(found[-1], state)
        _log.info("resumed from %s", found[-1].name)
    embed, head = params["embed"], head_of(params)
    weights = dict(options.family_weight)
    sampler = Sampler(
        train, config.vocab_size, recipe.num_answers, recipe.num_anchors, recipe.num_candidates, recipe.seed, weights
    )
    evaluator = Evaluator(draft, embed, head, scale, draft.block_size)
    keeper = Keeper(options.out, draft, scale, evaluator, held_out, recipe.num_steps, options.evaluate_every)
    keeper.saved_at = time.monotonic()
    fit(state, draft, recipe, sampler, embed, head, scale, keeper)


def run_evaluate(options: argparse.Namespace) -> list[Acceptance]:
    """Acceptance of a drafter folder on the held-out answers, as greedy decoding would commit them."""
    _, params = load_target(_target(options), jnp.float32)
    draft, draft_params = load_draft(options.draft, jnp.float32)
    _, held_out = split_examples(read_examples(options.features))
    chosen = [
        e for family in sorted({e.family for e in held_out}) for e in [h for h in held_out if h.family == family][: options.num]
    ]
    block_size = options.block_size or draft.block_size
    evaluator = Evaluator(draft, params["embed"], head_of(params), np.ones(1, np.float32), block_size)
    rows = evaluator.walked(draft_params, chosen)
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
    fitting.add_argument("--layers", type=int, default=2)
    fitting.add_argument("--block-size", type=int, default=8)
    fitting.add_argument(
        "--mask-token-id", type=int, required=True, help="an id the target never writes, with a row in its embedding"
    )
    fitting.add_argument("--steps", type=int, default=4000)
    fitting.add_argument("--learning-rate", type=float, default=1.2e-3)
    fitting.add_argument("--answers-per-step", type=int, default=8)
    fitting.add_argument("--anchors", type=int, default=24, help="blocks per answer and step")
    fitting.add_argument("--candidates", type=int, default=4096, help="columns of the head in the loss")
    fitting.add_argument("--short-block-size", type=int, default=5)
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
