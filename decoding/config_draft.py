"""Dimensions of a DFlash drafter, read from the `config.json` of any layout they are published in.

Layouts: z-lab (own keys at the top or inside `dflash_config`) and `speculators` (the layers' dimensions inside
`transformer_layer_config`, feature layers counted from the embedding). Both are first made one flat document, in which a nested value
has replaced a top-level one of the same name, as the reference and vLLM read it; then every key is used, known not to matter, or
refused by name.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from perfmodel.errors import InputError
from perfmodel.records import ModelSpec
from perfmodel.records.model import BlockMixing, DrafterKind

from .config_layout import MaskId, flat_document
from .config_reader import ConfigReader, check_heads
from .config_rope import RopeScaling, take_rope

ARCHITECTURES = (
    "DFlashDraftModel", "QwenDFlashDraftModel", "DFlashSpeculator", "DFlash2DraftModel", "DFlash2Speculator",
    "MuseGlimmerAssistantModel",
)  # fmt: skip
"""Names under which the networks of this module are published."""

DFLASH2_KEYS = ("conv_kernel_size", "conv_group_size", "selector_rank", "selector_top_k")


@dataclass(frozen=True)
class DraftConfig:
    """Dimensions of a DFlash drafter: Qwen3-type layers over `target_layer_ids` features of the target.

    `windows` and `causal` say per layer how far it looks back (None: everything) and whether its block is causal; empty means
    full and bidirectional throughout. `value_scale` multiplies attention's values. `block_size` is the
    trained block, anchor included. `num_target_layers` is None where the file does not say.
    Embedding and head are the target's unless the file brings its own, of `draft_vocab_size` rows.
    """

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rms_norm_eps: float
    rope_theta: float
    block_size: int
    mask_token_id: int
    target_layer_ids: tuple[int, ...]
    num_target_layers: int | None
    target_hidden_size: int
    rope_scaling: RopeScaling | None = None
    windows: tuple[int | None, ...] = ()
    causal: tuple[bool, ...] = ()
    input_embedding_scale: float = 1.0
    output_multiplier: float = 1.0
    final_logit_softcapping: float | None = None
    logit_scale: float = 1.0
    sample_from_anchor: bool = False
    draft_vocab_size: int | None = None
    attention_sinks: bool = False
    rope_interleaved: bool = False
    value_scale: float = 1.0

    @classmethod
    def from_json(cls, document: Mapping[str, Any], mask_id: MaskId | None = None) -> "DraftConfig":
        """The configuration in a decoded `config.json`: a `Draft2Config` when it describes DFlash 2. Raises `InputError`."""
        reader = ConfigReader(flat_document(document, mask_id), "draft config.json")
        _take_architecture(reader)
        common = _take_common(reader)
        kind: type[DraftConfig] = DraftConfig
        if any(reader.left.get(key) is not None for key in DFLASH2_KEYS) or _says_dflash2(document):
            kind = Draft2Config
            common |= {key: reader.count(key) for key in DFLASH2_KEYS}
        config = kind(**common)
        reader.finish()
        check_heads(config)
        config.check()
        return config

    @property
    def trained_block_size(self) -> int:
        """K the drafter was trained for, anchor included: a block whose anchor's slot predicts too yields one draft more."""
        return self.block_size + 1 if self.sample_from_anchor else self.block_size

    @property
    def layer_windows(self) -> tuple[int | None, ...]:
        """Per layer, how many positions it sees, its own included; None is all of them."""
        return self.windows or (None,) * self.num_layers

    @property
    def layer_causality(self) -> tuple[bool, ...]:
        """Per layer, whether a slot of the block sees only the slots before it and itself."""
        return self.causal or (False,) * self.num_layers

    @property
    def num_head_rows(self) -> int:
        """Tokens the drafter chooses among."""
        return self.vocab_size if self.draft_vocab_size is None else self.draft_vocab_size

    def check(self) -> None:
        """Raises `InputError` naming what contradicts itself."""
        if not self.target_layer_ids or not all(isinstance(i, int) and self._is_target_layer(i) for i in self.target_layer_ids):
            upper = "" if self.num_target_layers is None else str(self.num_target_layers - 1)
            raise InputError(
                f"target_layer_ids {list(self.target_layer_ids)} do not lie in 0…{upper}",
                "they are 0-indexed decoder layers; other formats count the embedding as entry 0",
            )
        if self.mask_token_id >= self.vocab_size:
            raise InputError(f"mask_token_id {self.mask_token_id} has no row in a table of {self.vocab_size}", "check the config")
        if self.num_head_rows > self.vocab_size:
            raise InputError(f"draft_vocab_size {self.draft_vocab_size} exceeds vocab_size {self.vocab_size}", "check the config")

    def _is_target_layer(self, layer: int) -> bool:
        return layer >= 0 and (self.num_target_layers is None or layer < self.num_target_layers)

    def to_json(self) -> dict[str, Any]:
        """The `config.json` document of this drafter, in the z-lab layout."""
        nested: dict[str, Any] = {"mask_token_id": self.mask_token_id, "target_layer_ids": list(self.target_layer_ids)}
        scalars = {"input_embedding_scale": 1.0, "output_multiplier": 1.0, "logit_scale": 1.0, "final_logit_softcapping": None,
                   "sample_from_anchor": False, "draft_vocab_size": None}  # fmt: skip
        nested |= {name: getattr(self, name) for name, usual in scalars.items() if getattr(self, name) != usual}
        if self.attention_sinks:
            nested["attention_sink_bias"] = True
        if self.value_scale != 1.0:
            nested["attention_value_scale"] = self.value_scale
        windows = self.layer_windows
        usual_causality = tuple(window is not None for window in windows)
        document = {
            "architectures": ["DFlashDraftModel"],
            "model_type": "qwen3",
            "attention_bias": False,
            "block_size": self.block_size,
            "dflash_config": nested,
            "dtype": "bfloat16",
            "head_dim": self.head_dim,
            "hidden_act": "silu",
            "hidden_size": self.hidden_size,
            "intermediate_size": self.intermediate_size,
            "layer_types": ["full_attention" if window is None else "sliding_attention" for window in windows],
            "num_attention_heads": self.num_heads,
            "num_hidden_layers": self.num_layers,
            "num_key_value_heads": self.num_kv_heads,
            "num_target_layers": self.num_target_layers,
            "rms_norm_eps": self.rms_norm_eps,
            "rope_scaling": None if self.rope_scaling is None else self.rope_scaling.to_json(),
            "rope_theta": self.rope_theta,
            "target_hidden_size": self.target_hidden_size,
            "tie_word_embeddings": False,
            "vocab_size": self.vocab_size,
        }
        if any(usual_causality):
            document |= {"sliding_window": max(window for window in windows if window), "use_sliding_window": True}
        if self.layer_causality != usual_causality:
            document["is_causal"] = self.layer_causality[0]
        if self.rope_interleaved:
            document["is_neox_style"] = False
        return document

    def spec(self, name: str) -> ModelSpec:
        """The dimensions that decide a step's cost."""
        windows = [window for window in self.layer_windows if window is not None]
        return ModelSpec(
            name=name,
            role="draft",
            hidden_size=self.hidden_size,
            num_layers=self.num_layers,
            num_heads=self.num_heads,
            num_kv_heads=self.num_kv_heads,
            head_dim=self.head_dim,
            intermediate_size=self.intermediate_size,
            vocab_size=self.vocab_size,
            tied_embeddings=False,
            qk_norm=True,
            sliding_window=max(windows) if windows else None,
            num_full_attention_layers=self.num_layers - len(windows) if windows else None,
            drafter=self.kind,
            block_size=self.trained_block_size,
            target_layer_ids=self.target_layer_ids,
            target_hidden_size=self.target_hidden_size,
            draft_vocab_size=self.draft_vocab_size,
            borrows_head=self.num_head_rows == self.vocab_size,
            sample_from_anchor=self.sample_from_anchor,
            correction_rank=self.correction_rank,
            mixing=self.mixing,
            source="config.json",
        )

    @property
    def correction_rank(self) -> int:
        """Inner width of what is added to the head's logits; 0: nothing."""
        return 0

    @property
    def mixing(self) -> BlockMixing | None:
        """Dimensions of what mixes the block's slots beside attention."""
        return None

    @property
    def kind(self) -> DrafterKind:
        """The drafter's kind as records name it."""
        return "dflash"


@dataclass(frozen=True, kw_only=True)
class Draft2Config(DraftConfig):
    """A DFlash drafter with convolutions along the block (taps, channels per group) and a candidate selector (rank, candidates)."""

    conv_kernel_size: int
    conv_group_size: int
    selector_rank: int
    selector_top_k: int

    def check(self) -> None:
        """Raises `InputError` naming what contradicts itself."""
        super().check()
        if self.hidden_size % self.conv_group_size:
            raise InputError(
                f"conv_group_size {self.conv_group_size} does not divide hidden_size {self.hidden_size}", "check the config"
            )
        if self.selector_top_k > self.vocab_size:
            raise InputError(f"selector_top_k {self.selector_top_k} exceeds the vocabulary", "check the config")
        if self.num_head_rows != self.vocab_size:
            raise InputError(
                f"draft_vocab_size {self.draft_vocab_size} with a candidate selector",
                "the selector's codebooks index the target's vocabulary here",
            )

    def to_json(self) -> dict[str, Any]:
        """The `config.json` document of this drafter, in the z-lab layout."""
        document = super().to_json()
        document["dflash_config"] |= {key: getattr(self, key) for key in DFLASH2_KEYS}
        return document | {"architectures": ["DFlash2DraftModel"]}

    @property
    def correction_rank(self) -> int:
        """Inner width of the selector's product."""
        return self.selector_rank

    @property
    def mixing(self) -> BlockMixing | None:
        """Taps and groups of the convolutions, candidates of the selector."""
        return BlockMixing(taps=self.conv_kernel_size, group_size=self.conv_group_size, num_candidates=self.selector_top_k)

    @property
    def kind(self) -> DrafterKind:
        """The drafter's kind as records name it."""
        return "dflash2"


def default_feature_layers(num_target_layers: int, num_features: int) -> tuple[int, ...]:
    """The 0-indexed target layers a DFlash drafter reads when its config lists none: spread from the second to the third last.

    Source: the reference implementation; one feature is the middle layer, else round(1 + i (L − 4) / (n − 1)), ties to even.
    """
    if num_features == 1:
        return (num_target_layers // 2,)
    return tuple(round(1 + i * (num_target_layers - 4) / (num_features - 1)) for i in range(num_features))


def _take_common(reader: ConfigReader) -> dict[str, Any]:
    hidden_size, num_heads = reader.count("hidden_size"), reader.count("num_attention_heads")
    num_layers, vocab_size = reader.count("num_hidden_layers"), reader.count("vocab_size")
    windows, causal = _take_attention_kinds(reader, num_layers)
    rope_theta, rope_scaling = take_rope(reader)
    num_target_layers, layer_ids = _take_feature_layers(reader, num_layers)
    draft_vocab_size = reader.count("draft_vocab_size", default=vocab_size)
    reader.take("tie_word_embeddings", default=None)
    mask_token_id = reader.count("mask_token_id", minimum=0)
    return {
        "vocab_size": vocab_size,
        "hidden_size": hidden_size,
        "intermediate_size": reader.count("intermediate_size"),
        "num_layers": num_layers,
        "num_heads": num_heads,
        "num_kv_heads": reader.count("num_key_value_heads", default=num_heads),
        "head_dim": reader.count("head_dim"),
        "rms_norm_eps": reader.number("rms_norm_eps"),
        "rope_theta": rope_theta,
        "block_size": reader.count("block_size"),
        "mask_token_id": mask_token_id,
        "target_layer_ids": layer_ids,
        "num_target_layers": num_target_layers,
        "target_hidden_size": reader.count("target_hidden_size", default=hidden_size),
        "rope_scaling": rope_scaling,
        "windows": windows,
        "causal": causal,
        "input_embedding_scale": reader.number("input_embedding_scale", default=1.0),
        "output_multiplier": reader.number("output_multiplier", default=1.0),
        "final_logit_softcapping": _take_softcap(reader),
        "logit_scale": reader.number("logit_scale", default=1.0),
        "sample_from_anchor": bool(reader.flag("sample_from_anchor", False)),
        "draft_vocab_size": None if draft_vocab_size == vocab_size else draft_vocab_size,
        "attention_sinks": bool(reader.flag("attention_sink_bias", reader.flag("add_swa_attention_sink_bias", False))),
        "rope_interleaved": not reader.flag("is_neox_style", True),
        "value_scale": reader.number("attention_value_scale", default=1.0),
    }


def _take_architecture(reader: ConfigReader) -> None:
    names = reader.take("architectures", default=None) or []
    others = [name for name in names if name not in ARCHITECTURES] if isinstance(names, list) else [names]
    if others:
        raise InputError(
            f"{reader.where}: drafters of architecture {', '.join(map(str, others))} are not implemented",
            f"DFlash ({', '.join(ARCHITECTURES)}) and EAGLE-3 run here",
        )


def _says_dflash2(document: Mapping[str, Any]) -> bool:
    named = [*(document.get("architectures") or ()), document.get("speculators_model_type")]
    return any(str(name).lower().startswith("dflash2") for name in named)


def _take_softcap(reader: ConfigReader) -> float | None:
    value = reader.take("final_logit_softcapping", default=None)
    if value in (None, 0):
        return None
    reader.left["final_logit_softcapping"] = value
    return reader.number("final_logit_softcapping")


def _take_feature_layers(reader: ConfigReader, num_layers: int) -> tuple[int | None, tuple[int, ...]]:
    """Layers of the target and which of them are read; the default rule needs the first to find the second."""
    ids = reader.take("target_layer_ids", default=None)
    if ids is None:
        num_target_layers = reader.count("num_target_layers")
        return num_target_layers, default_feature_layers(num_target_layers, num_layers)
    if not isinstance(ids, list):
        raise InputError(f"{reader.where}: target_layer_ids is {ids!r}, not a list of layers", "check the file")
    known = reader.left.get("num_target_layers") is not None
    return reader.count("num_target_layers") if known else reader.take("num_target_layers", default=None), tuple(ids)


def _take_attention_kinds(reader: ConfigReader, num_layers: int) -> tuple[tuple[int | None, ...], tuple[bool, ...]]:
    """Window and causality of every layer; both empty when all layers are full and bidirectional.

    A windowed layer is causal inside the block, a full one is not, unless the config says otherwise for all of them (`is_causal`, or
    `causal`) or for the windowed ones (`sliding_window_non_causal`). `use_swa` makes every layer windowed and changes no causality.
    """
    kinds = _take_layer_types(reader, num_layers)
    is_sliding = [kind == "sliding_attention" for kind in kinds]
    window = reader.take("sliding_window", default=None)
    enabled = reader.flag("use_sliding_window", True if reader.left.get("model_type") != "qwen3" else None)
    swa_window = reader.take("swa_window_size", default=None)
    window = window if swa_window is None else swa_window
    causal = _take_causality(reader, is_sliding)
    if reader.flag("use_swa", False):
        enabled = True
        is_sliding = is_sliding if any(is_sliding) else [True] * num_layers
    if not any(is_sliding):
        return (), causal if any(causal) else ()
    if not enabled:
        raise InputError(
            f"{reader.where}: layer_types names sliding layers, and use_sliding_window is {enabled}: a contradiction",
            "set use_sliding_window to true, or make the layers full, as the drafter was trained",
        )
    reader.left["sliding_window"] = window
    width = reader.count("sliding_window")
    return tuple(width if sliding else None for sliding in is_sliding), causal


def _take_layer_types(reader: ConfigReader, num_layers: int) -> list[str]:
    kinds = reader.words("layer_types")
    if kinds is None:
        # The rule of the Qwen3 configuration: layers from max_window_layers on are windowed, if windows are in use at all.
        first = num_layers
        if reader.left.get("use_sliding_window") and reader.left.get("sliding_window") is not None:
            first = reader.count("max_window_layers", minimum=0)
        return ["full_attention" if layer < first else "sliding_attention" for layer in range(num_layers)]
    unknown = sorted(set(kinds) - {"full_attention", "sliding_attention"})
    if unknown:
        raise InputError(f"{reader.where}: layer_types holds {', '.join(unknown)}", "full and sliding attention run here")
    if len(kinds) != num_layers:
        raise InputError(f"{reader.where}: {len(kinds)} layer_types for {num_layers} layers", "check the file")
    return kinds


def _take_causality(reader: ConfigReader, is_sliding: list[bool]) -> tuple[bool, ...]:
    given = {key: reader.flag(key, None) for key in ("is_causal", "causal")}
    values = {value for value in given.values() if value is not None}
    non_causal = reader.flag("sliding_window_non_causal", None)
    if len(values) > 1 or (values and non_causal is not None):
        raise InputError(
            f"{reader.where}: is_causal={given['is_causal']}, causal={given['causal']}, sliding_window_non_causal={non_causal} "
            "say it more than once",
            "keep the one the drafter was trained with",
        )
    if values:
        return (values.pop(),) * len(is_sliding)
    return tuple(sliding and not non_causal for sliding in is_sliding)
