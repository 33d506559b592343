"""The mask id: the token that stands in every slot that is to be drafted.

The target's embedding table must have a row for it, and the row must be the trained one. Pad or end-of-sequence train without an error
and lower acceptance silently; an id beyond the table is read from nowhere.
"""

from perfmodel.records import Diagnosed

from .config_pair import Pair
from .finding import diagnosed


def check_mask(pair: Pair) -> list[Diagnosed]:
    """Present, inside the embedding table, and no token with another job."""
    draft = pair.draft
    if draft.is_eagle:
        return []
    ids = draft.ids("mask_token_id")
    if not ids:
        named = draft.values.get("mask_token")
        if isinstance(named, str):
            evidence = f"the mask is given as the text {named!r}"
            cause = "only some engines look it up in the tokenizer"
            return [diagnosed("mask-id-text", "warning", draft.name, evidence, cause, "add mask_token_id as a number")]
        if not draft.is_whole:
            return []
        evidence = "the drafter's config has no mask_token_id"
        cause = "an engine that falls back to pad or 0 feeds slots the drafter never saw; acceptance falls at every position"
        return [diagnosed("mask-id-missing", "error", draft.name, evidence, cause, "add dflash_config.mask_token_id")]
    mask, rows = ids[0], pair.target.count("vocab_size")
    if rows is not None and mask >= rows:
        evidence = f"mask id {mask} is beyond the target's embedding table of {rows:,} rows"
        cause = "the drafter borrows the target's embedding, so there is no row for it: another target, or garbage in every slot"
        return [diagnosed("mask-id-outside", "error", draft.name, evidence, cause, "use the id the drafter was trained with")]
    for config in (pair.target, draft):
        for kind in ("pad", "eos", "bos"):
            if mask in config.ids(f"{kind}_token_id"):
                evidence = f"mask id {mask} is the {kind} token of {config.name}"
                cause = "it trains and runs without an error and lowers acceptance silently, since the row means something else"
                return [
                    diagnosed(
                        "mask-id-taken",
                        "error",
                        draft.name,
                        evidence,
                        cause,
                        "use an id of its own, such as a padding row of the table",
                    )
                ]
    return []
