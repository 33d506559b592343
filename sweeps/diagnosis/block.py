"""K against the drafter's block, in every engine's own way of counting.

A block of B holds the anchor and B − 1 masks, so B − 1 drafts. vLLM and tpu-inference ask for the drafts, SGLang for the block. A drafter
that samples from the anchor too, or is trained to predict the next token from each slot, gives B drafts. Slots beyond the trained block
were never trained; some engines run them without a word, and in some every position collapses.
"""

from perfmodel.records import Diagnosed

from .config_pair import Pair
from .finding import diagnosed


def check_block(pair: Pair) -> list[Diagnosed]:
    """K within the block, and the count each engine wants."""
    draft = pair.draft
    if draft.is_eagle:
        return []
    size = draft.count("block_size")
    found: list[Diagnosed] = [*_layout(pair, size)]
    if size is None:
        evidence = "the drafter's config has no block_size, at the top level or in dflash_config"
        cause = "loaders assume 8 or 16; above the trained block acceptance collapses, often at all positions"
        return [*found, diagnosed("block-size-missing", "error", draft.name, evidence, cause, "add the trained block size")]
    if size < 2:
        evidence = f"a block of {size} holds no draft"
        return [
            *found,
            diagnosed("block-size-impossible", "error", draft.name, evidence, "the config may be edited", "check block_size"),
        ]
    shifted = _is_shifted(pair)
    largest = size + 1 if shifted else size
    if pair.block_size is None:
        return found
    k = pair.block_size
    counts = f"num_speculative_tokens {k - 1} in vLLM and tpu-inference, num-draft-tokens {k} in SGLang"
    if k > largest:
        evidence = f"K = {k} ({counts}) is above the block of {size}, which gives {largest - 1} drafts"
        if k == largest + 1:
            evidence += "; it looks like a block size given where drafts are counted"
        found.append(
            diagnosed(
                "k-above-block",
                "error",
                draft.name,
                evidence,
                "slots beyond the block were never trained: zeros there at best, in some engines all positions collapse (0.18, 0.07, …)",
                f"use K ≤ {largest}: num_speculative_tokens ≤ {largest - 1}",
            )
        )
    elif k > 1:
        found.append(diagnosed("k-counts", "info", draft.name, f"K = {k} of a block of {size}: {counts}", "", ""))
    return found


def _is_shifted(pair: Pair) -> bool:
    return pair.draft.values.get("sample_from_anchor") is True


def _layout(pair: Pair, size: int | None) -> list[Diagnosed]:
    """Blocks of 7 without a word on the label layout: the known family is trained with labels shifted by one."""
    draft = pair.draft
    text = f"{draft.name} {draft.architectures}".lower()
    if _is_shifted(pair) or "sample_from_anchor" in draft.values or not (size == 7 or "dspark" in text or "deepspec" in text):
        return []
    evidence = f"block_size {size}, and the config does not say `sample_from_anchor`"
    cause = "drafters of this family predict the next token from every slot; read the ordinary way acceptance is below 1 %"
    return [
        diagnosed(
            "label-layout-unknown",
            "warning",
            draft.name,
            evidence,
            cause,
            "set sample_from_anchor: true if the authors say so, and compare the first position",
        )
    ]
