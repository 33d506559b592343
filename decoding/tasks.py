"""The three families of prompts a sweep decodes, as token ids ready for the target.

What a drafter is worth is a property of drafter *and* text: worked math repeats itself and is easy to guess, code less so, free
chat least. A sweep therefore measures acceptance per family. The prompts that ship were written for this project; a benchmark
set in a file takes their place with `--prompts`.
"""

import random
from dataclasses import dataclass
from pathlib import Path

from perfmodel.errors import InputError

from .pair import ASSETS, Pair
from .prompts import TASKS, Prompt, read_prompts
from .tokenizer import render_chat

SHUFFLE_SEED = 42
"""Seed with which the reference benchmark draws rows of a set; the same rows make figures comparable."""


@dataclass(frozen=True)
class TaskPrompt:
    """A prompt as the target reads it: rendered by its chat template, and in tokens."""

    task: str
    id: str
    text: str
    token_ids: tuple[int, ...]


def load_prompts(task: str, pair: Pair, num: int, path: Path | None = None) -> list[TaskPrompt]:
    """Up to `num` prompts of a family: the ones that ship, or those of the file at `path`.

    Of a file, rows of other families are left out, rows of no stated family are taken, and `num` of them are drawn as the
    reference benchmark draws (order shuffled with seed 42). Raises `InputError` when nothing is left.
    """
    if task not in TASKS:
        raise InputError(f"no task named {task!r}", f"tasks: {', '.join(TASKS)}")
    chosen = read_prompts(ASSETS / "prompts" / f"{task}.jsonl") if path is None else drawn_prompts(task, path)
    return [encode_prompt(task, pair, prompt) for prompt in chosen[:num]]


def encode_prompt(task: str, pair: Pair, prompt: Prompt) -> TaskPrompt:
    """The prompt through the target's chat template and tokenizer; thinking is off where the template knows such a mode."""
    if pair.tokenizer is None or pair.target_folder is None:
        raise InputError(f"{pair.target} has no tokenizer, so it cannot read prompts", "use a target with a tokenizer.json")
    text = render_chat(pair.target_folder, prompt.messages, enable_thinking=False)
    return TaskPrompt(task, prompt.id, text, tuple(pair.tokenizer.encode(text, add_special_tokens=False).ids))


def drawn_prompts(task: str, path: Path) -> list[Prompt]:
    """The prompts of a family in a file, in the order in which the reference benchmark draws them. Raises `InputError`."""
    prompts = read_prompts(path)
    fitting = [prompt for prompt in prompts if prompt.task in (task, None)]
    if not fitting:
        families = sorted({str(prompt.task) for prompt in prompts})
        raise InputError(f"{path} holds no {task} prompts, only {', '.join(families)}", f"ask for --task {families[0]}")
    random.Random(SHUFFLE_SEED).shuffle(fitting)
    return fitting
