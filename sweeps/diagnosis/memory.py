"""What the drafter takes of the memory: its weights and, per request, its own keys and values for the whole context.

Engines often allocate the cache of a windowed layer for the full context although it reads the window only: both figures are
given. What the drafter takes, the target's cache lacks, and fewer requests fit.
"""

from perfmodel.records import Diagnosed
from perfmodel.units import format_bytes

from .config_pair import Config, Pair
from .finding import diagnosed
from .target_kind import four_bit_finding, mixture_finding


def check_memory(pair: Pair) -> list[Diagnosed]:
    """`drafter-memory`: weights, and cache per request at the context asked."""
    weights, per_token = _weight_bytes(pair), _cached_bytes(pair.draft)
    if weights is None or per_token is None:
        return []
    evidence = f"drafter weights {format_bytes(weights)}"
    context = pair.context
    if context is not None:
        full, windowed = per_token * context, _windowed_bytes(pair.draft, context)
        evidence += f"; cache at {context:,} tokens {format_bytes(full)} per request"
        if windowed < full:
            evidence += f", {format_bytes(windowed)} where windows are allocated as windows"
    else:
        evidence += f"; cache {format_bytes(per_token)} per token and request"
    return [
        diagnosed(
            "drafter-memory",
            "info",
            pair.draft.name,
            evidence,
            "this is missing from the target's cache: fewer requests fit, and waiting requests raise the time to first token",
            "subtract it from the cache budget; a window-sized drafter cache where the engine has one",
        )
    ]


def check_target_kind(pair: Pair) -> list[Diagnosed]:
    """A mixture of experts, or weights of four bits, by the target's own config."""
    found = []
    experts = next(
        (count for key in ("num_experts", "n_routed_experts", "num_local_experts") if (count := pair.target.count(key))), None
    )
    if experts:
        found.append(mixture_finding(pair.target.name, f"the target has {experts} experts per layer"))
    quantisation = pair.target.raw.get("quantization_config")
    if isinstance(quantisation, dict) and _is_four_bit(quantisation):
        method = quantisation.get("quant_method") or quantisation.get("quant_algo") or "4 bit"
        found.append(four_bit_finding(pair.target.name, f"the target's weights are quantised ({method})"))
    return found


def _is_four_bit(quantisation: dict[str, object]) -> bool:
    text = str(quantisation).lower()
    return quantisation.get("bits") == 4 or any(
        name in text for name in ("nvfp4", "mxfp4", "int4", "w4a16", "load_in_4bit': true", "awq")
    )


def _weight_bytes(pair: Pair) -> int | None:
    """Bytes of the drafter's own weights: layers, and the projection of the features."""
    draft = pair.draft
    keys = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
    hidden, layers, heads, inter = (draft.count(key) for key in keys)
    kv_heads, size = draft.count("num_key_value_heads") or heads, draft.head_dim
    if not (hidden and layers and heads and inter and kv_heads and size):
        return None
    streams = 2 if draft.is_eagle else 1
    layer = streams * hidden * (heads + 2 * kv_heads) * size + heads * size * hidden + 3 * hidden * inter
    features = len(draft.layer_ids[0]) or (3 if draft.is_eagle else layers)
    wide = draft.count("target_hidden_size") or pair.target.count("hidden_size") or hidden
    head = (draft.count("draft_vocab_size") or 0) * hidden if draft.is_eagle else 0
    return (layers * layer + features * wide * hidden + head) * draft.bytes_per_value


def _cached_bytes(draft: Config) -> int | None:
    layers, heads = draft.count("num_hidden_layers"), draft.count("num_key_value_heads") or draft.count("num_attention_heads")
    if layers is None or heads is None or draft.head_dim is None:
        return None
    return 2 * layers * heads * draft.head_dim * draft.bytes_per_value


def _windowed_bytes(draft: Config, context: int) -> int:
    per_token = _cached_bytes(draft) or 0
    layers, kinds, window = draft.count("num_hidden_layers") or 1, draft.values.get("layer_types"), draft.count("sliding_window")
    sliding = kinds.count("sliding_attention") if isinstance(kinds, list) and window else 0
    per_layer = per_token // layers
    return per_layer * ((layers - sliding) * context + sliding * min(context, window or context))
