"""NVIDIA's `speculation_profile.json`: acceptance that travels with a drafter's weights, read and written.

Model-Optimizer (pull requests 2247, 2313, 2315 and 2316, schema 1.0) publishes two vectors over draft positions, and tools that
want the one misread the other in silence: `marginal_accept_rates` are survival, P(the first i drafts all accepted), and
`conditional_accept_rates` are P(draft i accepted | those before it were). Their `num_speculative_tokens` and `max_supported_k`
count drafts, one fewer than our block size K; the keys of their histogram count committed tokens, bonus included. Their mean
length averages steps, as our pooled τ does; the mean over requests stands beside it.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from .errors import InputError
from .records import AcceptanceProfile, Finding
from .survival import Counts, product_limit

SCHEMA_VERSION = "1.0"
_BLOCK_METHODS = ("dflash", "dspark")
_CHAIN_METHODS = ("eagle", "eagle1", "eagle2", "eagle3", "draft_model")
_TOLERANCE = 0.02  # of a mean length; theirs
_HINT = "see Model-Optimizer's speculation profiles: schema 1.0"


def is_speculation_profile(document: Any) -> bool:
    """Whether a decoded JSON document is NVIDIA's layout and not one of our own records."""
    return (
        isinstance(document, dict)
        and "schema" not in document
        and "num_speculative_tokens" in document
        and "measured" in document
    )


def read_profile(document: Mapping[str, Any], where: str) -> AcceptanceProfile:
    """The acceptance that a `speculation_profile.json` holds. Raises `InputError` where it holds none, or contradicts itself."""
    if document.get("measured") is not True:
        raise InputError(f"{where} is a stub: its acceptance was never measured", "measure it, or give another profile")
    if str(document.get("schema_version", SCHEMA_VERSION)).partition(".")[0] != SCHEMA_VERSION.partition(".")[0]:
        raise InputError(f"{where} has schema version {document['schema_version']}; this perf reads {SCHEMA_VERSION}", _HINT)
    if document.get("verification_method", "longest_prefix") != "longest_prefix":
        raise InputError(
            f"{where} was measured with {document['verification_method']} verification, whose rates are no survival curve",
            "measure with longest-prefix verification",
        )
    num_drafts = document["num_speculative_tokens"]
    if not isinstance(num_drafts, int) or isinstance(num_drafts, bool) or num_drafts < 1:
        raise InputError(f"{where} has no usable num_speculative_tokens ({num_drafts!r})", _HINT)
    histogram = _histogram(document.get("acceptance_length_histogram"), num_drafts, where)
    survival, findings = _survival(document, histogram, num_drafts, where)
    conditions = document.get("measurement_conditions") or {}
    num_steps = _whole(histogram.sum() if histogram is not None else conditions.get("num_steps"))
    at_risk = [None] * num_drafts if num_steps is None else [num_steps * share for share in [1.0, *survival[:-1]]]
    method = document.get("method")
    limit = _whole(document.get("max_supported_k"))
    return AcceptanceProfile(
        name=f"{_name(document.get('draft_checkpoint'))}/{conditions.get('dataset') or 'unnamed'}",
        task=str(conditions.get("dataset") or "unnamed"),
        target=_name(document.get("target_model")),
        draft=_name(document.get("draft_checkpoint")),
        block_size=num_drafts + 1,
        survival=tuple(survival),
        at_risk=tuple(at_risk),
        num_steps=num_steps,
        num_prompts=_whole(conditions.get("num_samples")),
        tau_per_answer=document.get("mean_accept_length_per_request"),
        trained_block_size=limit + 1 if limit and str(method).lower() in _BLOCK_METHODS else None,
        source=f"{where}: speculation_profile.json" + (f", method {method}" if method else ""),
        definition="marginal_accept_rates: share of steps that accepted at least i drafts, bonus excluded",
        findings=tuple(findings),
    )


def write_profile(profile: AcceptanceProfile, method: str | None = None) -> dict[str, Any]:
    """The `speculation_profile.json` of a profile, a JSON-ready dict. Raises `InputError` where no curve by position is known.

    The histogram is written where it is certain: raw counts without a cut last step, or whole counts per position.
    """
    if not profile.survival or len(profile.survival) < profile.block_size - 1:
        raise InputError(
            f"acceptance profile {profile.name!r} has no rate for every draft of its block, so it cannot be published",
            "measure acceptance by position",
        )
    survival = np.array(profile.survival)
    previous = np.concatenate([[1.0], survival[:-1]])
    conditional = np.divide(survival, previous, out=np.zeros_like(survival), where=previous > 0)
    num_drafts = profile.block_size - 1
    tau = 1.0 + float(survival.sum())
    marginal = [round(value, 6) for value in survival.tolist()]
    implied = 1.0 + sum(marginal)
    return {
        "schema_version": SCHEMA_VERSION,
        "measured": True,
        "method": method,
        "draft_checkpoint": {"path": profile.draft} if profile.draft else None,
        "target_model": {"path": profile.target} if profile.target else None,
        "num_speculative_tokens": num_drafts,
        "block_size": profile.trained_block_size,
        "max_supported_k": (profile.trained_block_size or profile.block_size) - 1,
        "verification_method": "longest_prefix",
        "conditional_accept_rates": [round(value, 6) for value in conditional.tolist()],
        "marginal_accept_rates": marginal,
        "mean_accept_length": round(tau, 6),
        "mean_accept_length_per_request": profile.tau_per_answer,
        "accept_length_model": "chain_analytic" if method in _CHAIN_METHODS else "measured_per_k",
        "accept_length_by_k": {str(num_drafts): round(tau, 6)},
        "acceptance_length_histogram": _histogram_of(profile),
        "per_category": None,
        "measurement_conditions": {
            "dataset": profile.task,
            "num_samples": profile.num_prompts,
            "num_steps": profile.num_steps,
            "source": profile.source,
        },
        "validation": {
            "mean_consistency": {
                "implied_mean_accept_length": round(implied, 6),
                "reported_mean_accept_length": round(tau, 6),
                "abs_delta": round(abs(implied - tau), 6),
                "tolerance": _TOLERANCE,
                "passed": abs(implied - tau) <= _TOLERANCE,
            },
            "marginal_monotonicity": {"passed": bool(np.all(np.diff(survival) <= 0)), "violations": []},
        },
    }


def _survival(
    document: Mapping[str, Any], histogram: np.ndarray | None, num_drafts: int, where: str
) -> tuple[list[float], list[Finding]]:
    marginal = _rates(document.get("marginal_accept_rates"), num_drafts, f"{where}: marginal_accept_rates")
    conditional = _rates(document.get("conditional_accept_rates"), num_drafts, f"{where}: conditional_accept_rates")
    findings = []
    if marginal is not None:
        survival = np.array(marginal)
    elif conditional is not None:
        survival = np.cumprod(conditional)
    else:
        raise InputError(f"{where} has neither marginal nor conditional accept rates", _HINT)
    if np.any(np.diff(survival) > 1e-9):
        raise InputError(f"{where}: marginal_accept_rates rise, and survival cannot", "they may hold conditional rates")
    if conditional is not None and np.max(np.abs(np.cumprod(conditional) - survival)) > 1e-3:
        message = "its conditional and marginal rates disagree; the marginal ones are used"
        findings.append(Finding(code="profile-contradicts", severity="warning", message=message, hint=_HINT, where=where))
    mean = document.get("mean_accept_length")
    if isinstance(mean, int | float) and abs(1.0 + float(survival.sum()) - mean) > _TOLERANCE:
        message = (
            f"its mean length {mean:g} is not 1 + the sum of its rates, {1.0 + float(survival.sum()):.3f}: rates may be cut off"
        )
        findings.append(Finding(code="profile-contradicts", severity="warning", message=message, hint=_HINT, where=where))
    if histogram is not None:
        # six published decimals are less than the counts they came from
        at_least = np.cumsum(histogram[::-1])[::-1]
        counted = product_limit(Counts(at_least[:-1].astype(float), at_least[1:].astype(float)), np.zeros(num_drafts))
        if np.max(np.abs(counted - survival)) < 1e-5:
            survival = counted
    return survival.tolist(), findings


def _rates(values: Any, num_drafts: int, where: str) -> list[float] | None:
    if values is None:
        return None
    if not isinstance(values, list) or len(values) != num_drafts:
        raise InputError(f"{where} must have {num_drafts} entries, one per draft", _HINT)
    if not all(isinstance(value, int | float) and not isinstance(value, bool) and 0.0 <= value <= 1.0 for value in values):
        raise InputError(f"{where} holds something that is no share between 0 and 1", _HINT)
    return [float(value) for value in values]


def _histogram(value: Any, num_drafts: int, where: str) -> np.ndarray | None:
    """Steps that committed 1 … K tokens, or None where the file has no counts."""
    if not value:
        return None
    try:
        lengths = {int(length): int(count) for length, count in value.items()}
    except (AttributeError, TypeError, ValueError):
        raise InputError(f"{where}: acceptance_length_histogram is no map of lengths to counts", _HINT) from None
    if min(lengths) < 1 or max(lengths) > num_drafts + 1 or min(lengths.values()) < 0 or sum(lengths.values()) == 0:
        raise InputError(
            f"{where}: its histogram has lengths {min(lengths)} to {max(lengths)} at {num_drafts} drafts",
            "a step commits 1 … drafts + 1 tokens; num_speculative_tokens may be wrong",
        )
    return np.array([lengths.get(length, 0) for length in range(1, num_drafts + 2)])


def _histogram_of(profile: AcceptanceProfile) -> dict[str, int] | None:
    if profile.committed:
        if profile.last_step_cut:
            return None  # a cut step committed "at least" that much
        lengths = np.concatenate([np.array(steps, dtype=np.int64) for steps in profile.committed])
        counts = np.bincount(lengths, minlength=profile.block_size + 1)[1:]
    elif profile.num_steps is None or None in profile.at_risk:
        return None
    else:
        reached = profile.num_steps * np.array([1.0, *profile.survival])
        if np.max(np.abs(reached - np.round(reached))) > 1e-2:
            return None
        counts = -np.diff(np.append(np.round(reached), 0.0)).astype(np.int64)
    return {str(length): int(count) for length, count in enumerate(counts, start=1)}


def _whole(value: Any) -> int | None:
    return None if value is None or isinstance(value, bool) else int(value)


def _name(model: Any) -> str:
    """Their model entry is a dict with a path, or nothing."""
    return str(model.get("path") or "unnamed") if isinstance(model, Mapping) else "unnamed"
