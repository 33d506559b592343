"""One flat document out of the layouts in which a DFlash drafter's `config.json` is published.

z-lab puts the drafter's own keys into `dflash_config`, or leaves them at the top. `speculators` puts the layers' dimensions into
`transformer_layer_config` and counts feature layers as Hugging Face counts hidden states, where entry 0 is the embedding. A nested
value replaces a top-level one of the same name.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from perfmodel.errors import InputError

SPECULATORS_BLOCK_SIZE = 8
"""Block size of a `speculators` config that leaves it out: that format's own default."""

TRAINING_KEYS = (
    "auf", "emb_dim", "gru_hidden_dim", "has_no_defaults_at_init", "lambda_base_decay_ratio", "lambda_base_start", "max_anchors",
    "pure_draft_prefix_len", "speculators_config", "speculators_version",
)  # fmt: skip
"""Keys of a `speculators` config that say how it was trained or is served, or belong to a head that `projector_type` rules out."""

CAUSALITY_KEYS = ("sliding_window_non_causal", "is_causal", "causal")


MaskId: TypeAlias = Callable[[str], int]
"""The id that the target's tokenizer gives a mask token."""


def flat_document(document: Mapping[str, Any], mask_id: MaskId | None = None) -> dict[str, Any]:
    """The config as one level of keys with z-lab's names. Raises `InputError` when a section is no object.

    `mask_id` answers for a file that names its mask token in words only.
    """
    if "speculators_model_type" in document or "transformer_layer_config" in document:
        return _mask_as_id(_from_speculators(document), mask_id)
    nested = _section(document, "dflash_config")
    return _mask_as_id({key: value for key, value in document.items() if key != "dflash_config"} | nested, mask_id)


def _mask_as_id(flat: dict[str, Any], mask_id: MaskId | None) -> dict[str, Any]:
    name = flat.pop("mask_token", None)
    if name is None or flat.get("mask_token_id") is not None:
        return flat
    if mask_id is None or not isinstance(name, str):
        raise InputError(
            f"mask_token is {name!r}, and neither mask_token_id nor a tokenizer of the target says which row of its table that is",
            "add mask_token_id to the drafter's config.json",
        )
    return flat | {"mask_token_id": mask_id(name)}


def _from_speculators(document: Mapping[str, Any]) -> dict[str, Any]:
    flat = {key: value for key, value in document.items() if key not in (*TRAINING_KEYS, "transformer_layer_config")}
    kind = flat.pop("speculators_model_type", None)
    if kind not in ("dflash", "dflash2"):
        raise InputError(f"the speculators config is of type {kind!r}", "dflash and dflash2 run here, and eagle3")
    if (projector := flat.pop("projector_type", "dflash")) != "dflash":
        raise InputError(f"projector_type is {projector!r}", "only the plain dflash head runs here")
    if shifted := flat.pop("shift_label", None):
        raise InputError(f"shift_label is {shifted!r}", "shifted labels are read from sample_from_anchor here")
    flat |= _section(document, "transformer_layer_config") | _section(document, "dflash_config")
    flat.pop("dflash_config", None)
    flat.setdefault("block_size", SPECULATORS_BLOCK_SIZE)
    ids = flat.pop("aux_hidden_state_layer_ids", None)
    if not isinstance(ids, list) or not ids or not all(isinstance(i, int) and i >= 1 for i in ids):
        raise InputError(
            f"aux_hidden_state_layer_ids is {ids!r}, not a list of hidden-state numbers from 1 on",
            "entry 0 is the embedding, which is no feature here",
        )
    flat["target_layer_ids"] = [i - 1 for i in ids]
    kinds = flat.get("layer_types")
    is_sliding = isinstance(kinds, list) and "sliding_attention" in kinds
    if is_sliding and not any(flat.get(key) is not None for key in CAUSALITY_KEYS):
        # Its own library takes such layers for causal, vLLM for non-causal: files older than the key were of the second kind.
        raise InputError(
            "the speculators config has windowed layers and does not say sliding_window_non_causal",
            "add how the drafter was trained",
        )
    flat["model_type"] = "llama"  # its layers are of the Qwen3 type whatever they call themselves, its windows need no switch
    return flat


def _section(document: Mapping[str, Any], name: str) -> dict[str, Any]:
    section = document.get(name)
    if section is None:
        return {}
    if not isinstance(section, Mapping):
        raise InputError(f"{name} is not an object", "see the published checkpoints for the layout")
    return dict(section)
