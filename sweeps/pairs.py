"""Target and drafter as a command names them: real weights, or random ones in the right shapes.

Random weights need no download: a step takes as long as with trained ones, since a dense network's time does not depend on its values.
What it answers is noise, and how many drafts are accepted says nothing; every result made so carries a finding that says it.
"""

import random
from pathlib import Path

from decoding.checkpoint import draft_config, read_config
from decoding.config import TargetConfig
from decoding.config_shape import draft_of, target_of
from decoding.drafter import AnyDraftConfig
from decoding.hub import is_hub_id
from decoding.pair import DRAFTS, TARGETS, Pair, find_config, load_pair, load_random_pair, unknown_name
from decoding.tokenizer import id_in
from perfmodel.errors import InputError
from perfmodel.modelspec import load_model, names
from perfmodel.records import Finding

CHECKPOINT, RANDOM = "checkpoint", "random"
WEIGHTS = (CHECKPOINT, RANDOM)

OWN_DRAFT = {
    "smollm2-135m": "smollm2-135m-dflash",
    "tiny": "tiny-dflash",
    "qwen3-4b": "qwen3-4b-dflash-b16",
    "qwen3-8b": "qwen3-8b-dflash-b16",
    "llama-3.1-8b": "llama-3.1-8b-dflash",
}
"""The drafter that goes with a target."""

RANDOM_PROMPT_TOKENS = 64

CHAIN_BLOCK_SIZE = 8
"""K for a drafter whose training fixed none: EAGLE-3's authors draft seven tokens deep."""


def open_pair(target: str, draft: str | None, dtype: str, weights: str) -> Pair:
    """The pair of these names, folders or hub ids; with random weights also of a config.json or a model whose dimensions ship.

    Raises:
        InputError: an unknown name, another kind of network, or two that do not belong together.
        UnsupportedError: what is named is not here, and the hub out of reach.
    """
    check_name(target, "target", weights)
    if draft is not None:
        check_name(draft, "draft", weights)
    if weights == CHECKPOINT:
        return load_pair(target, draft, dtype)
    target_config = _target(target)
    drafter = None if draft is None else _draft(draft, target, target_config)
    return load_random_pair(target if _has_config(target, TARGETS) else target_config, drafter, dtype, (target, draft))


def check_name(name: str, role: str, weights: str) -> str:
    """The name as it is, or a folder or file as an absolute path, so that a resumed run finds it from anywhere.

    Raises `InputError` for what no pair can be made of.
    """
    known = TARGETS if role == "target" else DRAFTS
    path = Path(name).expanduser()
    if name not in known and (path.is_dir() or (weights == RANDOM and path.is_file())):
        return str(path.resolve())
    if name in known or is_hub_id(name) or (weights == RANDOM and name in names()):
        return name
    if name in names():
        raise InputError(
            f"only the dimensions of {name} ship", "give the folder of its checkpoint or its hub id, or --weights random"
        )
    raise unknown_name(name, known, role)


def _has_config(name: str, known: object) -> bool:
    return name in known or Path(name).expanduser().exists() or is_hub_id(name)  # type: ignore[operator]


def _target(name: str) -> TargetConfig:
    if _has_config(name, TARGETS):
        return TargetConfig.from_json(read_config(find_config(name, TARGETS, "target")))
    return target_of(load_model(name, "target"))


def _draft(name: str, target: str, target_config: TargetConfig) -> AnyDraftConfig:
    if _has_config(name, DRAFTS):
        mask_id = id_in(find_config(target, TARGETS, "target").parent) if _has_config(target, TARGETS) else None
        return draft_config(read_config(find_config(name, DRAFTS, "draft")), mask_id)
    return draft_of(load_model(name, "draft"), target_config)


def random_prompts(task: str, pair: Pair, num: int) -> tuple[tuple[int, ...], ...]:
    """Prompts of random token ids, for a target of random weights, to which all prompts are alike. Seeded by the task."""
    draws = random.Random(task)
    vocab_size = pair.target_config.vocab_size
    return tuple(tuple(draws.randrange(vocab_size) for _ in range(RANDOM_PROMPT_TOKENS)) for _ in range(num))


def weights_findings(weights: str) -> tuple[Finding, ...]:
    """What every result of random weights has to say of itself."""
    if weights == CHECKPOINT:
        return ()
    return (
        Finding(
            code="random-weights",
            severity="warning",
            message="the weights are random: times and losslessness are real, the text, τ, acceptance and speedups mean nothing",
            hint="give a checkpoint (--weights checkpoint) to learn what the drafter is worth",
            where="weights",
        ),
    )
