"""A target and the drafter that guesses for it: found by name or folder, loaded, and checked to belong together.

A DFlash drafter is not a model of its own. It reads the residual streams of given target layers and borrows the target's
embedding and head, so a drafter beside the wrong target still runs, and only its acceptance tells. What the two configurations
can contradict each other about is therefore refused here.
"""

import difflib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import msgspec
from tokenizers import Tokenizer

from perfmodel.errors import InputError, UnsupportedError
from perfmodel.units import format_bytes

from .checkpoint import Params, load_draft, load_target, random_draft, random_target, read_config
from .config import DraftConfig, TargetConfig
from .embedded import smollm2_folder
from .tokenizer import load_tokenizer

ASSETS = Path(__file__).parent / "assets"

DTYPES = ("float32", "bfloat16")


def _asset(name: str) -> Callable[[], Path]:
    def folder() -> Path:
        path = ASSETS / name
        if not (path / "config.json").is_file():
            raise UnsupportedError(f"{name} is not part of this installation", f"expected it in {path}")
        return path

    return folder


TARGETS: dict[str, Callable[[], Path]] = {"smollm2-135m": smollm2_folder, "tiny": _asset("tiny")}
"""Targets that ship, or are converted on first use: name → its checkpoint folder."""

DRAFTS: dict[str, Callable[[], Path]] = {name: _asset(name) for name in ("smollm2-135m-dflash", "tiny-dflash")}
"""Drafters that ship: name → its checkpoint folder."""


@dataclass(frozen=True, eq=False)
class Pair:
    """A target, its drafter (None: plain decoding only), and the target's tokenizer and stop tokens."""

    target: str
    draft: str | None
    dtype: str
    target_config: TargetConfig
    target_params: Params
    draft_config: DraftConfig | None = None
    draft_params: Params | None = None
    target_folder: Path | None = None
    tokenizer: Tokenizer | None = None
    stop_token_ids: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        """Target and drafter in one word, for messages."""
        return self.target if self.draft is None else f"{self.target} + {self.draft}"

    @property
    def trained_block_size(self) -> int | None:
        """Tokens per verify step that the drafter was trained for (anchor included); None without a drafter."""
        return None if self.draft_config is None else self.draft_config.block_size

    def shortage(self, batch: int, num_slots: int, num_queries: int) -> str | None:
        """What does not fit this machine's memory, in words; None when it fits, or when an accelerator's allocator will tell.

        A host hands out memory it does not have and later kills the process, so caches, scores and logits are counted beforehand.
        """
        if jax.default_backend() != "cpu":
            return None
        config = self.target_config
        cache = 2 * config.num_layers * config.num_kv_heads * config.head_dim * num_slots * (4 if self.dtype == "float32" else 2)
        needed = batch * (cache + 4 * num_queries * (config.num_heads * num_slots + config.vocab_size))
        present = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        if needed <= present:
            return None
        return (
            f"batch {batch} with {num_slots} cached tokens and {num_queries} at once needs {format_bytes(needed)}; "
            f"this machine has {format_bytes(present)}"
        )


def load_pair(target: str, draft: str | None, dtype: str) -> Pair:
    """The pair of these names or checkpoint folders, weights in `dtype`.

    Raises:
        InputError: an unknown name, a folder that is no such checkpoint, or two that do not belong together.
        UnsupportedError: a known model that is not installed here.
    """
    if dtype not in DTYPES:
        raise InputError(f"dtype {dtype!r} is not supported", f"use one of {', '.join(DTYPES)}")
    target_folder = find_folder(target, TARGETS, "target")
    draft_folder = None if draft is None else find_folder(draft, DRAFTS, "draft")
    target_config, target_params = load_target(target_folder, dtype)
    draft_config, draft_params = (None, None) if draft_folder is None else load_draft(draft_folder, dtype)
    if draft_config is not None:
        check_compatible(target_config, draft_config)
    has_tokenizer = (target_folder / "tokenizer.json").is_file()
    return Pair(
        target=target,
        draft=draft,
        dtype=dtype,
        target_config=target_config,
        target_params=target_params,
        draft_config=draft_config,
        draft_params=draft_params,
        target_folder=target_folder,
        tokenizer=load_tokenizer(target_folder) if has_tokenizer else None,
        stop_token_ids=stop_tokens(target_folder),
    )


def random_pair(target_config: TargetConfig, draft_config: DraftConfig | None, seed: int, dtype: str = "float32") -> Pair:
    """A pair of random weights: right shapes, meaningless text, acceptance near zero."""
    if draft_config is not None:
        check_compatible(target_config, draft_config)
    return Pair(
        target="random",
        draft=None if draft_config is None else "random-dflash",
        dtype=dtype,
        target_config=target_config,
        target_params=random_target(target_config, seed, dtype),
        draft_config=draft_config,
        draft_params=None if draft_config is None else random_draft(draft_config, seed + 1, dtype),
    )


def find_folder(name: str, known: dict[str, Callable[[], Path]], role: str) -> Path:
    """The checkpoint folder behind a name that ships, or the folder itself. Raises `InputError` with the nearest names."""
    if name in known:
        return known[name]()
    path = Path(name).expanduser()
    if path.is_dir():
        return path
    near = difflib.get_close_matches(name, known, n=2, cutoff=0.4)
    hint = f"did you mean {' or '.join(near)}? " if near else f"names: {', '.join(known)}. "
    raise InputError(f"no {role} named {name!r}, and no such folder", hint + "Or give the folder of a checkpoint")


def stop_tokens(folder: Path) -> tuple[int, ...]:
    """Ids that end an answer: of `generation_config.json` where the checkpoint has one, else of `config.json`."""
    documents: list[Any] = [read_config(folder)]
    path = folder / "generation_config.json"
    if path.is_file():
        try:
            documents.insert(0, msgspec.json.decode(path.read_bytes()))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise InputError(f"{path} is not JSON: {error}", "the download may be incomplete") from error
    for document in documents:
        ids = document.get("eos_token_id") if isinstance(document, dict) else None
        if ids is not None:
            ids = ids if isinstance(ids, list) else [ids]
            if not all(isinstance(token, int) and 0 <= token < 1 << 31 for token in ids):
                raise InputError(
                    f"{folder}: eos_token_id is {ids}, not token ids", "check config.json and generation_config.json"
                )
            return tuple(ids)
    return ()


def check_compatible(target: TargetConfig, draft: DraftConfig) -> None:
    """Refuse a drafter that was made for another target, with the fact that shows it. Raises `InputError`."""
    hint = "use the drafter that was trained for this target"
    if draft.num_target_layers != target.num_layers or max(draft.target_layer_ids) >= target.num_layers:
        raise InputError(
            f"the drafter reads layers {list(draft.target_layer_ids)} of a target with {draft.num_target_layers} layers; "
            f"this target has {target.num_layers}",
            hint,
        )
    if draft.target_hidden_size != target.hidden_size or draft.hidden_size != target.hidden_size:
        raise InputError(
            f"the drafter has width {draft.hidden_size} for a target of width {draft.target_hidden_size}; "
            f"this target's is {target.hidden_size}",
            hint,
        )
    if draft.mask_token_id >= target.vocab_size:
        raise InputError(
            f"the drafter's mask token {draft.mask_token_id} has no row in the target's embedding table of {target.vocab_size}",
            hint,
        )
