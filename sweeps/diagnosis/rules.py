"""Every rule by name, and the diagnosis of files: what was found, worst first, and what could not be looked at."""

from collections.abc import Callable, Sequence
from pathlib import Path

from perfmodel.records import Diagnosed, Diagnosis

from ..progress import Reporter, silent
from .decay import fast_decay, k_above_trained
from .extremes import tau_at_the_ends
from .finding import ORDER
from .first_position import low_first_position
from .load import falls_with_batch, falls_with_context, predicted_to_fall
from .mixture import rising_alpha
from .sameness import not_one_sweep
from .sample import too_few_answers, warm_up
from .step_ratio import host_bound, step_ratio
from .subject import Subject, subjects_of, with_plain
from .target_kind import four_bit_target, mixture_target
from .values import impossible_values
from .zeros import exact_zeros

RULES: dict[str, Callable[[Subject], list[Diagnosed]]] = {
    "impossible values": impossible_values,
    "τ at its ends": tau_at_the_ends,
    "first position": low_first_position,
    "decay": fast_decay,
    "trained block": k_above_trained,
    "exact zeros": exact_zeros,
    "rising conditional rates": rising_alpha,
    "step ratio": step_ratio,
    "host": host_bound,
    "mixture of experts": mixture_target,
    "four-bit target": four_bit_target,
    "warm-up": warm_up,
    "number of prompts": too_few_answers,
    "predicted by batch": predicted_to_fall,
}
"""Rules that look at one run."""

GROUP_RULES: dict[str, Callable[[Sequence[Subject]], list[Diagnosed]]] = {
    "batch": falls_with_batch,
    "context": falls_with_context,
    "one sweep": not_one_sweep,
}
"""Rules that look at several."""


def diagnose_files(paths: Sequence[Path], report: Reporter = silent) -> Diagnosis:
    """The diagnosis of files and run folders. Raises `InputError` for what cannot be read."""
    subjects = subjects_of(paths, report)
    return Diagnosis(
        files=tuple(str(path) for path in paths),
        findings=worst_first(diagnose(subjects)),
        checked=(*RULES, *(GROUP_RULES if len(subjects) > 1 else ())),
        not_checked=_missing(subjects),
    )


def diagnose(subjects: Sequence[Subject]) -> list[Diagnosed]:
    """All findings about some runs, in the order of the rules."""
    subjects = with_plain(subjects)
    found = [finding for subject in subjects for rule in RULES.values() for finding in rule(subject)]
    return found + [finding for rule in GROUP_RULES.values() for finding in rule(subjects)]


def worst_first(findings: Sequence[Diagnosed]) -> tuple[Diagnosed, ...]:
    """Errors before warnings before information, otherwise as they came."""
    return tuple(sorted(findings, key=lambda finding: ORDER.index(finding.severity)))


def _missing(subjects: Sequence[Subject]) -> dict[str, str]:
    """What no run holds, and what it would take."""
    missing = {}
    if not any(subject.survival for subject in subjects):
        missing["positions"] = "no run has acceptance by position"
    if not any(subject.plain_s or subject.plain_tokens_per_s for subject in subjects) and not any(s.is_plain for s in subjects):
        missing["speed"] = "no plain decoding stands beside the speculative runs"
    if not any(subject.host_s for subject in subjects):
        missing["host share"] = "no trace is given"
    return missing
