"""Two configurations held against each other: every check by name, each with what it does to acceptance when wrong."""

from collections.abc import Callable

from perfmodel.records import Diagnosed

from .block import check_block
from .config_pair import Pair, load_config
from .finding import diagnosed
from .geometry import check_head_dim, check_hidden, check_rope, check_window
from .layer_ids import check_layer_ids
from .mask import check_mask
from .memory import check_memory, check_target_kind
from .vocabulary import check_vocabulary

CHECKS: dict[str, Callable[[Pair], list[Diagnosed]]] = {
    "layer ids": check_layer_ids,
    "block size": check_block,
    "mask id": check_mask,
    "hidden size": check_hidden,
    "head size": check_head_dim,
    "RoPE": check_rope,
    "window and positions": check_window,
    "vocabulary": check_vocabulary,
    "memory": check_memory,
    "kind of target": check_target_kind,
}
"""In the order in which a mistake costs most."""


def check_configs(target: str, draft: str, block_size: int | None, context: int | None) -> list[Diagnosed]:
    """Findings about a pair of configurations. Raises `InputError` for what is no configuration."""
    pair = Pair(load_config(target), load_config(draft), block_size, context)
    found = [finding for check in CHECKS.values() for finding in check(pair)]
    return found if pair.draft.is_whole else [*found, _not_whole(pair.draft.name)]


def _not_whole(name: str) -> Diagnosed:
    return diagnosed(
        "config-not-whole",
        "info",
        name,
        f"of {name} only the dimensions ship with perf",
        "mask id, RoPE and dtype are in its config.json alone, so they were not checked",
        "give the drafter's config.json",
    )
