"""Targets on which the usual expectation fails: mixtures of experts, and weights of four bits.

A mixture reads more experts as K grows, so verification is not flat even where bandwidth sets the pace; a drafter trained on the full
weights sees other features when the target is quantised to four bits, and the verify pass gets cheaper than the drafter.
"""

import re

from perfmodel.records import Diagnosed

from .finding import diagnosed
from .subject import Subject

_MIXTURE = re.compile(r"(?:\d+b-a\d+(?:\.\d+)?b|moe|mixtral|deepseek-v[234]|gpt-oss|qwen3-next|-a\d+b\b)", re.IGNORECASE)
_FOUR_BITS = re.compile(r"(?:awq|gptq|nvfp4|mxfp4|fp4|int4|w4a\d+|4-?bit|q4_[01k]|iq4)", re.IGNORECASE)


def mixture_target(subject: Subject) -> list[Diagnosed]:
    """`moe-target` where the target's name tells a mixture of experts."""
    name = subject.facts.get("target", "")
    found = _MIXTURE.search(name)
    return [] if found is None else [mixture_finding(subject.name, f"the target is {name} ({found[0]})")]


def mixture_finding(where: str | None, evidence: str) -> Diagnosed:
    """What a mixture of experts does to the choice of K."""
    return diagnosed(
        "moe-target",
        "info",
        where,
        evidence,
        "a mixture of experts reads more experts as K grows, so verify time rises from the first draft on",
        "expect a smaller best K than for a dense target; let perf predict price the experts",
    )


def four_bit_target(subject: Subject) -> list[Diagnosed]:
    """`four-bit-target` where the target's name tells weights of four bits."""
    name = subject.facts.get("target", "")
    found = _FOUR_BITS.search(name)
    return [] if found is None else [four_bit_finding(subject.name, f"the target is {name} ({found[0]})")]


def four_bit_finding(where: str | None, evidence: str) -> Diagnosed:
    """What four-bit weights do to acceptance and cost."""
    return diagnosed(
        "four-bit-target",
        "warning",
        where,
        evidence,
        "a drafter trained on the unquantised target sees other features; reports range from a small loss to near zero. Plain steps"
        " also get cheaper, so the drafter weighs more",
        "measure acceptance with the unquantised target once to tell the two apart; keep the LM head wide",
    )
