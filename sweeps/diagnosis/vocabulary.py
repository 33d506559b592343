"""Vocabularies: the same table, or a smaller one with its map.

`d2t` holds offsets, target id = draft id + d2t[draft id]. Without it a smaller head names other tokens; with it and equal sizes one engine
at least refuses to load.
"""

from perfmodel.records import Diagnosed

from .config_pair import Pair
from .finding import diagnosed


def check_vocabulary(pair: Pair) -> list[Diagnosed]:
    """Sizes equal, or a draft vocabulary that is smaller and mapped."""
    draft = pair.draft
    mine, theirs, reduced = draft.count("vocab_size"), pair.target.count("vocab_size"), draft.count("draft_vocab_size")
    found = []
    if mine is not None and theirs is not None and mine != theirs:
        evidence = f"the drafter's vocabulary has {mine:,} entries, the target's {theirs:,}"
        cause = "another tokenizer, or a table padded differently: every draft names another token and acceptance is near zero"
        found.append(diagnosed("vocabulary-differs", "error", draft.name, evidence, cause, "use the drafter's own target"))
    if reduced is None or theirs is None:
        return found
    if reduced > theirs:
        evidence = f"a draft vocabulary of {reduced:,} is larger than the target's {theirs:,}"
        found.append(
            diagnosed(
                "draft-vocabulary-large",
                "error",
                draft.name,
                evidence,
                "drafts name tokens that do not exist",
                "check draft_vocab_size",
            )
        )
    elif reduced < theirs:
        evidence = f"drafts come from {reduced:,} of {theirs:,} tokens"
        cause = (
            "the checkpoint must bring d2t (offsets) and its own head; without the map drafts name other tokens, with the target's head"
            " in place of its own acceptance fell from 25 % to 1.7 %. Tokens outside can never be drafted, which costs most on"
            " other languages"
        )
        found.append(
            diagnosed("draft-vocabulary-reduced", "info", draft.name, evidence, cause, "see that d2t and lm_head are in the file")
        )
    elif draft.is_eagle:
        evidence = f"draft and target vocabulary are equal ({reduced:,})"
        cause = "a file that still carries d2t and t2d does not load in vLLM (no parameter of that name)"
        found.append(
            diagnosed("draft-vocabulary-equal", "info", draft.name, evidence, cause, "leave d2t and t2d out of the file")
        )
    return found
