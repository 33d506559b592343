"""NVIDIA's `speculation_profile.json`: conditional and marginal acceptance by draft position, measured at one K.

Marginal rates are the survival S_i; conditional ones multiply up to it, S_i = c_1 · … · c_i. Its histogram is keyed by acceptance
length, bonus included. The mean is over steps; that over requests stands beside it. For drafters that plan the whole block anew
(`measured_per_k`) the vector holds for this K only. An unmeasured stub is said to be one.
"""

import re
from collections.abc import Mapping
from itertools import accumulate
from operator import mul

from perfmodel.records import Finding, ImportedRun

from .counting import run_of
from .fields import Fields
from .reader import Likeness, Reader, likeness
from .source import Source

NAME = "speculation-profile"
DEFINITION = (
    "marginal_accept_rates[i] = P(at least i + 1 drafts accepted), anchor and bonus excluded; mean and histogram over steps, bonus"
    " included"
)

_MOST_TOKENS = 4096


def sniff(source: Source) -> Likeness:
    """Whether one of the two vectors stands in the document."""
    found = source.document_or_none
    if not isinstance(found, Mapping):
        return Likeness.NO
    return likeness("conditional_accept_rates" in found or "marginal_accept_rates" in found)


def read(source: Source) -> list[ImportedRun]:
    """One run."""
    fields = Fields.of_document(source, source.document)
    if fields.values.get("measured") is False:
        finding = Finding(
            code="not-measured",
            severity="error",
            message=f"{source.path.name} is a stub: it says itself that nothing was measured",
            hint="measure acceptance, then attach the profile",
        )
        return [ImportedRun(name=source.path.stem, source=NAME, definition=DEFINITION, findings=(finding,))]
    marginal, conditional = fields.numbers("marginal_accept_rates"), fields.numbers("conditional_accept_rates")
    drafts = fields.count("num_speculative_tokens")
    length = len(marginal or conditional or ())
    histogram = _histogram(source, fields.section("acceptance_length_histogram"), length)
    conditions = fields.section("measurement_conditions")
    steps = sum(histogram) if histogram else None
    run = run_of(
        name=source.path.stem,
        source=NAME,
        definition=DEFINITION,
        num_draft_tokens=None,
        survival=marginal or (list(accumulate(conditional, mul)) if conditional else None),
        histogram=histogram,
        num_steps=steps,
        block_size=(drafts if drafts is not None else length) + 1 if length else None,
        tau=fields.number("mean_accept_length"),
        tau_per_answer=fields.number("mean_accept_length_per_request"),
        method=fields.text("method"),
        target=_checkpoint(fields, "target_model"),
        draft=_checkpoint(fields, "draft_checkpoint"),
        task=conditions.text("dataset") if conditions else None,
        temperature=conditions.number("temperature") if conditions else None,
        num_requests=conditions.count("num_samples", "num_requests") if conditions else None,
        batch=conditions.number("concurrency") if conditions else None,
        trained_block_size=fields.count("block_size"),
        findings=_notes(fields, marginal, conditional),
    )
    return [run]


def _histogram(source: Source, section: Fields | None, length: int) -> list[int] | None:
    """Steps by committed tokens; a gap means that no step ended there."""
    if section is None or not section.values:
        return None
    counts = [0] * (length + 1)
    for key in section.values:
        if not re.fullmatch(r"\d{1,4}", key) or not 1 <= int(key) <= _MOST_TOKENS:
            source.refuse(source.line_of(key), f"{key[:40]!r} is no acceptance length; they start at 1, the bonus alone")
        counts += [0] * (int(key) - len(counts))
        counts[int(key) - 1] = section.count(key) or 0
    return counts


def _checkpoint(fields: Fields, key: str) -> str | None:
    value = fields.values.get(key)
    if isinstance(value, Mapping):
        return Fields(value, fields.where).text("id", "name", "path", "checkpoint")
    return fields.text(key)


def _notes(fields: Fields, marginal: list[float] | None, conditional: list[float] | None) -> tuple[Finding, ...]:
    notes = []
    if marginal and conditional:
        products = list(accumulate(conditional, mul))
        worst = max((abs(a - b) for a, b in zip(products, marginal, strict=False)), default=0.0)
        if len(products) != len(marginal) or worst > 2e-3:
            text = f"the conditional rates multiply up to other values than the marginal ones (off by {worst:.3g})"
            notes.append(Finding(code="positions-disagree", severity="warning", message=text, hint="the marginal rates are used"))
    if fields.text("accept_length_model") == "measured_per_k":
        text = "this drafter plans the whole block anew for each K, so the vector holds for this K; other K need their own"
        notes.append(Finding(code="measured-per-k", severity="info", message=text, hint="measure at each K you consider"))
    if (verification := fields.text("verification_method")) not in (None, "longest_prefix"):
        text = f"verification is {verification!r}, not longest prefix: survival by position does not describe it"
        notes.append(Finding(code="other-verification", severity="warning", message=text))
    return tuple(notes)


READER = Reader(
    name=NAME,
    description="NVIDIA speculation_profile.json",
    cannot_know="what each answer did; steps where the histogram is left out",
    sniff=sniff,
    read=read,
)
