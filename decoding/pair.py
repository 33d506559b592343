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

from . import drafter
from .checkpoint import (
    Params,
    as_built,
    device_draft,
    device_target,
    draft_config,
    load_draft,
    load_target,
    random_draft,
    random_target,
    read_config,
)
from .config import TargetConfig
from .config_eagle3 import Eagle3Config
from .drafter import AnyDraftConfig
from .embedded import smollm2_folder
from .hub import hub_folder, is_hub_id
from .layout import laid_out
from .tokenizer import id_in, load_tokenizer

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

DRAFTS: dict[str, Callable[[], Path]] = {
    name: _asset(name) for name in ("smollm2-135m-dflash", "smollm2-135m-eagle3", "tiny-dflash")
}
"""Drafters that ship: name → its checkpoint folder."""


@dataclass(frozen=True, eq=False)
class Pair:
    """A target, its drafter (None: plain decoding only), and the target's tokenizer and stop tokens.

    `weights` is "checkpoint", or "random": then times are real, and text and acceptance mean nothing.
    """

    target: str
    draft: str | None
    dtype: str
    target_config: TargetConfig
    target_params: Params
    draft_config: AnyDraftConfig | None = None
    draft_params: Params | None = None
    target_folder: Path | None = None
    tokenizer: Tokenizer | None = None
    stop_token_ids: tuple[int, ...] = ()
    weights: str = "checkpoint"

    @property
    def name(self) -> str:
        """Target and drafter in one word, for messages."""
        return self.target if self.draft is None else f"{self.target} + {self.draft}"

    @property
    def trained_block_size(self) -> int | None:
        """Tokens per verify step that the drafter was trained for (anchor included); None where there is no such number."""
        return None if self.draft_config is None else drafter.trained_block_size(self.draft_config)

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
    """The pair of these names, checkpoint folders or hub ids, weights in `dtype`.

    Raises:
        InputError: an unknown name, a folder that is no such checkpoint, or two that do not belong together.
        UnsupportedError: a known model that is not installed here, or the hub out of reach.
    """
    check_dtype(dtype)
    target_folder = find_folder(target, TARGETS, "target")
    draft_folder = None if draft is None else find_folder(draft, DRAFTS, "draft")
    target_config, target_params = load_target(target_folder, dtype)
    found, draft_params = (None, None) if draft_folder is None else load_draft(draft_folder, dtype, id_in(target_folder))
    if found is not None:
        found = check_compatible(target_config, found)
    has_tokenizer = (target_folder / "tokenizer.json").is_file()
    return Pair(
        target=target,
        draft=draft,
        dtype=dtype,
        target_config=target_config,
        target_params=laid_out(target_params, jax.devices()[0].device_kind),
        draft_config=found,
        draft_params=None if draft_params is None else laid_out(draft_params, jax.devices()[0].device_kind),
        target_folder=target_folder,
        tokenizer=load_tokenizer(target_folder) if has_tokenizer else None,
        stop_token_ids=stop_tokens(target_folder),
    )


def check_dtype(dtype: str) -> None:
    """Raises `InputError` for a type that weights are not kept in here."""
    if dtype not in DTYPES:
        raise InputError(f"dtype {dtype!r} is not supported", f"use one of {', '.join(DTYPES)}")


def load_random_pair(
    target: TargetConfig | str, draft: AnyDraftConfig | str | None, dtype: str, names: tuple[str, str | None], seed: int = 0
) -> Pair:
    """A pair of random weights, made on the device in `dtype`: right times, meaningless text and acceptance.

    Arguments: `target` and `draft` are configurations, or where to find one: a shipped name, a folder or file with a config.json, or a
    hub id (of which only the small files are fetched). `names` is what the two are called in results. There are no stop tokens.
    """
    check_dtype(dtype)
    folder = None
    if isinstance(target, str):
        path = find_config(target, TARGETS, "target")
        folder, target = path.parent, TargetConfig.from_json(read_config(path))
    if isinstance(draft, str):
        mask_id = None if folder is None else id_in(folder)
        draft = draft_config(read_config(find_config(draft, DRAFTS, "draft")), mask_id)
    if draft is not None:
        draft = as_built(check_compatible(target, draft))
    has_tokenizer = folder is not None and (folder / "tokenizer.json").is_file()
    return Pair(
        target=names[0],
        draft=names[1],
        dtype=dtype,
        target_config=target,
        target_params=laid_out(device_target(target, seed, dtype), jax.devices()[0].device_kind),
        draft_config=draft,
        draft_params=None if draft is None else laid_out(device_draft(draft, seed + 1, dtype), jax.devices()[0].device_kind),
        target_folder=folder,
        tokenizer=load_tokenizer(folder) if folder is not None and has_tokenizer else None,
        weights="random",
    )


def random_pair(target_config: TargetConfig, draft_config: AnyDraftConfig | None, seed: int, dtype: str = "float32") -> Pair:
    """A pair of random weights: right shapes, meaningless text, acceptance near zero."""
    if draft_config is not None:
        draft_config = check_compatible(target_config, draft_config)
    return Pair(
        target="random",
        draft=None if draft_config is None else "random-dflash",
        dtype=dtype,
        target_config=target_config,
        target_params=random_target(target_config, seed, dtype),
        draft_config=draft_config,
        draft_params=None if draft_config is None else random_draft(draft_config, seed + 1, dtype),
        weights="random",
    )


def find_folder(name: str, known: dict[str, Callable[[], Path]], role: str) -> Path:
    """The checkpoint folder behind a name that ships or a hub id, or the folder itself. Raises `InputError` with near names."""
    if name in known:
        return known[name]()
    path = Path(name).expanduser()
    if path.is_dir():
        return path
    if is_hub_id(name):
        return hub_folder(name)
    raise unknown_name(name, known, role)


def find_config(name: str, known: dict[str, Callable[[], Path]], role: str) -> Path:
    """The config.json behind a name that ships, a folder, the file itself, or a hub id. Raises `InputError` with near names."""
    path = Path(name).expanduser()
    if name not in known and path.is_file():
        return path
    return (
        hub_folder(name, with_weights=False) if name not in known and is_hub_id(name) else find_folder(name, known, role)
    ) / "config.json"


def unknown_name(name: str, known: dict[str, Callable[[], Path]], role: str) -> InputError:
    """The error for a name that is none, with the nearest that are."""
    near = difflib.get_close_matches(name, known, n=2, cutoff=0.4)
    hint = f"did you mean {' or '.join(near)}? " if near else f"names: {', '.join(known)}. "
    return InputError(f"no {role} named {name!r}, and no such folder", hint + "Or give the folder of a checkpoint, or its hub id")


def stop_tokens(folder: Path) -> tuple[int, ...]:
    """Ids that end an answer: of `generation_config.json` where the checkpoint has one, else of `config.json`."""
    documents: list[Any] = [read_config(folder)]
    path = folder / "generation_config.json"
    if path.is_file():
        try:
            documents.insert(0, msgspec.json.decode(path.read_bytes()))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
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


def check_compatible(target: TargetConfig, draft: AnyDraftConfig) -> AnyDraftConfig:
    """The drafter's configuration with what it leaves to its target filled in. Raises `InputError` for another target's drafter."""
    if isinstance(draft, Eagle3Config):
        return draft.for_target(target)
    hint = "use the drafter that was trained for this target"
    if draft.num_target_layers not in (None, target.num_layers) or max(draft.target_layer_ids) >= target.num_layers:
        made_for = "" if draft.num_target_layers is None else f" of a target with {draft.num_target_layers} layers"
        raise InputError(
            f"the drafter reads layers {list(draft.target_layer_ids)}{made_for}; this target has {target.num_layers}", hint
        )
    if draft.target_hidden_size != target.hidden_size:
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
    if draft.draft_vocab_size is not None and draft.vocab_size != target.vocab_size:
        raise InputError(
            f"the drafter's tokens are those of a vocabulary of {draft.vocab_size}; this target's has {target.vocab_size}", hint
        )
    return draft
