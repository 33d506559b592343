"""Shapes and positions: hidden and head sizes, RoPE, attention windows, and how far the drafter's positions reach."""

from perfmodel.records import Diagnosed, Severity

from .config_pair import Pair
from .finding import diagnosed


def check_hidden(pair: Pair) -> list[Diagnosed]:
    """The drafter borrows embedding and head, so it is as wide as the target unless its config says otherwise."""
    mine, theirs = pair.draft.count("hidden_size"), pair.target.count("hidden_size")
    stated = pair.draft.count("target_hidden_size")
    if mine is None or theirs is None or stated == theirs or (stated is None and mine == theirs):
        return []
    evidence = f"drafter hidden size {mine}{f', made for {stated}' if stated else ''}; the target's is {theirs}"
    cause = "the drafter borrows the target's embedding and head and reads its features: the weights cannot fit"
    return [diagnosed("hidden-size-differs", "error", pair.draft.name, evidence, cause, "use the drafter's own target")]


def check_head_dim(pair: Pair) -> list[Diagnosed]:
    """Stated, for it is often not hidden size over heads."""
    draft = pair.draft
    hidden, heads, stated = draft.count("hidden_size"), draft.count("num_attention_heads"), draft.head_dim
    if stated is None:
        derived = f"{hidden} / {heads} = {hidden // heads}" if hidden and heads else "unknown"
        evidence = f"the drafter's config has no head_dim; hidden size over heads would be {derived}"
        cause = "Qwen3-type layers have a head_dim of their own; with the derived one the projections are cut wrongly"
        return [diagnosed("head-dim-missing", "warning", draft.name, evidence, cause, "add head_dim from the weights' shapes")]
    if stated % 2:
        evidence = f"head_dim {stated} is odd"
        return [diagnosed("head-dim-odd", "error", draft.name, evidence, "RoPE turns pairs of channels", "check head_dim")]
    if stated >= 256:
        evidence = f"head_dim {stated}"
        cause = "some engines have no attention kernel without a causal mask for heads of 256 and refuse or fall back"
        return [diagnosed("head-dim-large", "info", draft.name, evidence, cause, "try the pair in your engine before a sweep")]
    return []


def check_rope(pair: Pair) -> list[Diagnosed]:
    """The drafter's own rotation, which may differ from the target's but must be the trained one."""
    draft, target = pair.draft, pair.target
    mine, theirs = draft.rope_theta, target.rope_theta
    if mine is None and not draft.is_whole:
        return []
    if mine is None:
        evidence = "the drafter's config has no rope_theta"
        cause = "an engine falls back to 10000 or to the target's; with a wrong base the first draft is good and later ones decay"
        return [diagnosed("rope-missing", "warning", draft.name, evidence, cause, "add the base the drafter was trained with")]
    if theirs is not None and (mine != theirs or draft.rope_kind != target.rope_kind):
        evidence = (
            f"RoPE of the drafter: {draft.rope_kind}, base {mine:,.0f}; of the target: {target.rope_kind}, base {theirs:,.0f}"
        )
        cause = "legal, but engines that take the target's RoPE for the drafter turn it wrongly: good first position, then decay"
        return [
            diagnosed(
                "rope-differs", "warning", draft.name, evidence, cause, "check that the engine reads the drafter's own RoPE"
            )
        ]
    return []


def check_window(pair: Pair) -> list[Diagnosed]:
    """Windowed layers need a window that the engine honours, and positions must reach as far as the context."""
    return [*_windows(pair), *_reach(pair)]


def _windows(pair: Pair) -> list[Diagnosed]:
    draft = pair.draft
    kinds = draft.values.get("layer_types")
    layers = draft.count("num_hidden_layers")
    sliding = kinds.count("sliding_attention") if isinstance(kinds, list) else 0
    found = []
    if isinstance(kinds, list) and layers is not None and len(kinds) != layers:
        evidence = f"{len(kinds)} layer types for {layers} layers"
        found.append(
            diagnosed(
                "layer-types-differ",
                "error",
                draft.name,
                evidence,
                "windows land on other layers than trained",
                "check layer_types",
            )
        )
    window = draft.count("sliding_window")
    if sliding and not window:
        evidence = f"{sliding} layers are windowed and no sliding_window is given"
        cause = "an engine then attends to everything; acceptance falls with the context (11 % was seen)"
        found.append(diagnosed("window-missing", "error", draft.name, evidence, cause, "add sliding_window"))
    elif sliding and window:
        evidence = (
            f"{sliding} of {layers} layers see {window:,} tokens, causally inside the block unless the config says otherwise"
        )
        cause = "an engine that ignores the window loses acceptance beyond it (11 % was seen)"
        severity: Severity = "warning" if pair.context is not None and pair.context > window else "info"
        found.append(
            diagnosed(
                "window-to-honour", severity, draft.name, evidence, cause, "compare acceptance at a short and at a long prompt"
            )
        )
    return found


def _reach(pair: Pair) -> list[Diagnosed]:
    if pair.context is None:
        return []
    found = []
    for config, what in ((pair.target, "target"), (pair.draft, "drafter")):
        reach = config.count("max_position_embeddings")
        if reach is not None and pair.context > reach:
            evidence = f"a context of {pair.context:,} tokens is past the {what}'s {reach:,} positions"
            cause = "positions beyond training: good at short prompts, decay at long ones"
            found.append(
                diagnosed(
                    "context-past-positions",
                    "warning",
                    config.name,
                    evidence,
                    cause,
                    "limit the context or switch speculation off beyond",
                )
            )
    return found
