"""Acceptance profiles: from committed counts, from a survival list, from mean lengths, from a file or by a shipped name.

Acceptance belongs to a drafter, a target and a text, not to a chip; so it is measured once and combined with any step time.
It is kept as a survival curve by position rather than as one α, because conditional acceptance is not constant: it drops after
the first draft and often rises again (docs/model.md, Acceptance). How τ(K) follows from a profile is in `perfmodel.taucurve`.
"""

import difflib
import math
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np

from . import catalogue, codec
from .errors import InputError
from .imported import imported_profiles
from .meanlength import check_points, contradictions
from .records import AcceptanceProfile, AcceptanceSet, Finding, Imported
from .records.acceptance import Drafting
from .speculation import is_speculation_profile, read_profile
from .survival import Counts, count_steps, product_limit
from .taucurve import (
    NUM_DRAWS,
    SEED,
    Share,
    ceiling_share,
    measured_block_size,
    position_counts,
    tau,
    tau_curve,
    tau_draws,
    tau_interval,
    tau_source,
)

__all__ = [
    "NUM_DRAWS",
    "SEED",
    "Share",
    "alpha",
    "ceiling_share",
    "from_committed",
    "from_survival",
    "from_tau_points",
    "load_acceptance",
    "load_profile",
    "measured_block_size",
    "names",
    "pool",
    "resolve",
    "tau",
    "tau_curve",
    "tau_draws",
    "tau_interval",
    "tau_per_answer",
    "tau_pooled",
    "tau_source",
]

LARGEST_BLOCK = 65_536
"""No block is wider: a file that says so is damaged."""

_FEW_PROMPTS = 8
_DEFINITION = "survival[i-1] = P(at least i drafts accepted); anchor and bonus excluded; last steps of answers censored"


def _check_committed(committed: Sequence[Sequence[int]], last_step_cut: Sequence[bool], block_size: int) -> None:
    if block_size < 1:
        raise InputError(f"block size {block_size} is impossible", "block sizes start at 1, plain decoding")
    if last_step_cut and len(last_step_cut) != len(committed):
        raise InputError(
            f"{len(last_step_cut)} flags of cut last steps for {len(committed)} answers", "give one flag per answer or none"
        )
    if not any(len(steps) for steps in committed):
        raise InputError("no decoding step was recorded, so nothing is known of acceptance", "decode at least one step")
    for answer, steps in enumerate(committed):
        for count in steps:
            if not 1 <= count <= block_size:
                raise InputError(
                    f"answer {answer} has a step that committed {count} tokens at block size {block_size}",
                    "a step commits 1 … K tokens, bonus included; check the block size and the counting convention",
                )


def from_committed(
    committed: Sequence[Sequence[int]],
    *,
    block_size: int,
    task: str,
    target: str,
    draft: str,
    name: str = "",
    last_step_cut: Sequence[bool] = (),
    trained_block_size: int | None = None,
    longest_context: int | None = None,
    synthetic: bool = False,
    source: str = "",
) -> AcceptanceProfile:
    """The acceptance profile of committed tokens per step (1 … K, bonus included), one list per answer.

    `last_step_cut` says per answer whether a stop token or the length limit ended it in its last step: that count means only
    "at least" and is treated as censored. Positions that no step could show are left off the survival curve, with a finding.
    """
    _check_committed(committed, last_step_cut, block_size)
    cut = tuple(bool(flag) for flag in last_step_cut) or (False,) * len(committed)
    counts = count_steps(committed, cut, block_size)
    pooled = Counts(counts.at_risk.sum(axis=0), counts.accepted.sum(axis=0))
    survival = product_limit(pooled)
    num_known = int(np.sum(~np.isnan(survival)))
    answers = [steps for steps in committed if len(steps)]
    findings = []
    if num_known < block_size - 1:
        findings.append(
            Finding(
                code="positions-unseen",
                severity="warning",
                message=f"every step that reached draft {num_known + 1} was cut there; acceptance ends at K={num_known + 1}",
                hint="decode more tokens or more prompts",
            )
        )
    if len(answers) < _FEW_PROMPTS:
        findings.append(
            Finding(
                code="few-prompts",
                severity="info",
                message=f"acceptance of {task} rests on {len(answers)} answers; its interval is itself uncertain",
                hint=f"use {_FEW_PROMPTS} prompts or more",
            )
        )
    return AcceptanceProfile(
        name=name or f"{draft}/{task}",
        task=task,
        target=target,
        draft=draft,
        block_size=block_size,
        survival=tuple(survival[:num_known].tolist()),
        at_risk=tuple(pooled.at_risk[:num_known].tolist()),
        committed=tuple(tuple(int(count) for count in steps) for steps in committed),
        last_step_cut=cut if any(cut) else (),
        num_steps=sum(len(steps) for steps in committed),
        num_prompts=len(answers),
        tau_per_answer=float(np.mean([np.mean(steps) for steps in answers])),
        trained_block_size=trained_block_size,
        longest_context=longest_context,
        synthetic=synthetic,
        source=source,
        definition=_DEFINITION,
        findings=tuple(findings),
    )


def from_survival(
    survival: Sequence[float],
    *,
    task: str = "given",
    target: str = "",
    draft: str = "",
    name: str = "given",
    num_steps: int | None = None,
    trained_block_size: int | None = None,
    source: str = "given as a survival list",
) -> AcceptanceProfile:
    """The profile of a survival list S_1, S_2, … (anchor and bonus excluded), measured at block size len + 1.

    With `num_steps` the list gets a sampling error as if steps were independent; without it, intervals are None.
    """
    values = [float(value) for value in survival]
    _check_survival(values, "the survival list")
    findings = []
    if values[0] == 1.0 and len(values) > 1 and values[1] < 1.0:
        findings.append(
            Finding(
                code="anchor-in-survival",
                severity="warning",
                message="the survival list starts with 1: some tools count the anchor, which always survives, as its first entry",
                hint="drop the first entry if it is the anchor",
            )
        )
    at_risk = [None] * len(values) if num_steps is None else [num_steps * share for share in [1.0, *values[:-1]]]
    return AcceptanceProfile(
        name=name,
        task=task,
        target=target,
        draft=draft,
        block_size=len(values) + 1,
        survival=tuple(values),
        at_risk=tuple(at_risk),
        num_steps=num_steps,
        trained_block_size=trained_block_size,
        source=source,
        definition=_DEFINITION,
        findings=tuple(findings),
    )


def _check_survival(values: Sequence[float], where: str) -> None:
    if not values:
        raise InputError(f"{where} is empty", "give P(at least 1 draft accepted), P(at least 2), …")
    for position, value in enumerate(values, start=1):
        if not (math.isfinite(value) and 0.0 <= value <= 1.0):
            raise InputError(f"{where} has {value:g} at position {position}", "survival is a share between 0 and 1, not per cent")
        if position > 1 and value > values[position - 2]:
            raise InputError(
                f"{where} rises at position {position} ({values[position - 2]:g} → {value:g})",
                "survival cannot rise; conditional rates must be multiplied up first",
            )


def from_tau_points(
    points: Sequence[tuple[int, float]],
    *,
    task: str = "given",
    target: str = "",
    draft: str = "",
    trained_block_size: int | None = None,
    drafting: Drafting | None = None,
) -> AcceptanceProfile:
    """The profile of mean acceptance lengths (K, τ), bonus included: exact at these K, estimated between and beyond.

    `drafting` narrows the curves that an estimate considers to those of block or of sequential drafters.
    """
    checked = check_points(points)
    shown = ", ".join(f"τ({block}) = {value:g}" for block, value in checked[1:])
    finding = Finding(
        code="curve-estimated",
        severity="warning",
        message=f"only {shown} is known; τ at other K is estimated, and the interval holds the spread of curve families only",
        hint="give a survival list or measured counts for an interval that includes the sampling error",
    )
    return AcceptanceProfile(
        name="given",
        task=task,
        target=target,
        draft=draft,
        block_size=checked[-1][0],
        survival=(),
        at_risk=(),
        tau_points=checked,
        trained_block_size=trained_block_size,
        drafting=drafting,
        source="given as mean acceptance lengths",
        definition="mean committed tokens per step, bonus included, at each block size",
        findings=(finding, *contradictions(checked)),
    )


def pool(profiles: Sequence[AcceptanceProfile], name: str, task: str) -> AcceptanceProfile:
    """One profile of several tasks measured at one block size: their steps thrown together.

    With raw counts the answers are joined. Without them the steps at risk are added; a published interval is then combined as
    that of a mean weighted by steps, so it holds the sampling error of these tasks and not the spread between them.
    """
    if not profiles or len({profile.block_size for profile in profiles}) != 1:
        raise InputError("only profiles of one block size can be pooled", "measure the tasks at the same block size")
    first = profiles[0]
    synthetic = any(profile.synthetic for profile in profiles)
    reached = [profile.longest_context for profile in profiles]
    longest_context = None if None in reached else max(length or 0 for length in reached)
    source = "; ".join(dict.fromkeys(profile.source for profile in profiles if profile.source))
    if all(profile.committed for profile in profiles):
        flags = [profile.last_step_cut or (False,) * len(profile.committed) for profile in profiles]
        return from_committed(
            [steps for profile in profiles for steps in profile.committed],
            block_size=first.block_size,
            task=task,
            target=first.target,
            draft=first.draft,
            name=name,
            last_step_cut=[flag for answer_flags in flags for flag in answer_flags],
            trained_block_size=first.trained_block_size,
            longest_context=longest_context,
            synthetic=synthetic,
            source=source,
        )
    counts = [position_counts(profile) for profile in profiles]
    known = [count for count in counts if count is not None and len(count.at_risk) == first.block_size - 1]
    if len(known) < len(profiles):
        raise InputError(
            f"{name} cannot be pooled: the number of steps is unknown for some of its tasks", "use profiles with step counts"
        )
    pooled = Counts(np.sum([count.at_risk for count in known], axis=0), np.sum([count.accepted for count in known], axis=0))
    steps = np.array([count.at_risk[0] for count in known])
    num_prompts = [profile.num_prompts for profile in profiles]
    result = AcceptanceProfile(
        name=name,
        task=task,
        target=first.target,
        draft=first.draft,
        block_size=first.block_size,
        survival=tuple(product_limit(pooled).tolist()),
        at_risk=tuple(pooled.at_risk.tolist()),
        num_steps=round(float(steps.sum())),
        num_prompts=None if None in num_prompts else sum(number or 0 for number in num_prompts),
        trained_block_size=first.trained_block_size,
        drafting=first.drafting,
        longest_context=longest_context,
        synthetic=synthetic,
        source=source,
        definition=f"{first.definition}; pooled by steps over {', '.join(profile.task for profile in profiles)}",
    )
    widths = [None if p.tau_low is None or p.tau_high is None else p.tau_high - p.tau_low for p in profiles]
    if None in widths:
        return result
    half = float(np.sqrt(np.sum((steps / steps.sum() * np.array(widths, dtype=np.float64) / 2) ** 2)))
    middle = tau(result, result.block_size)
    return msgspec.structs.replace(result, tau_low=max(1.0, middle - half), tau_high=middle + half)


def alpha(profile: AcceptanceProfile) -> tuple[float | None, ...]:
    """Conditional acceptance α_i = S_i / S_(i−1) by position; None where no step got that far."""
    previous = (1.0, *profile.survival[:-1])
    return tuple(value / before if before > 0 else None for value, before in zip(profile.survival, previous, strict=True))


def tau_pooled(profile: AcceptanceProfile) -> float:
    """Mean committed tokens per step at the measured block, over all steps: the τ that throughput needs."""
    return tau(profile, profile.block_size)


def tau_per_answer(profile: AcceptanceProfile) -> float | None:
    """Mean over answers of the answer's mean committed tokens per step (the paper's τ), as counted; None where unknown."""
    return profile.tau_per_answer


def names() -> tuple[str, ...]:
    """Names of the acceptance profiles that ship: one per published data set, and pooled ones for math, code and chat."""
    return tuple(sorted([*catalogue.shipped(), *catalogue.groups()]))


def load_profile(name: str) -> AcceptanceProfile:
    """A shipped acceptance profile by name. Raises `InputError` with the nearest names for an unknown one."""
    shipped = catalogue.shipped()
    if name in shipped:
        return shipped[name]
    members = catalogue.groups().get(name)
    if members is None:
        alike = [known for known in names() if known.rpartition("/")[2] == name.lower()]
        close = alike[:3] or difflib.get_close_matches(name, names(), n=3, cutoff=0.4)
        hint = f"did you mean {' or '.join(close)}?" if close else "`perf list acceptance` shows what ships"
        raise InputError(f"there is no file and no acceptance profile named {name[:120]!r}", hint)
    return pool([shipped[member] for member in members], name, name.rpartition("/")[2])


def load_acceptance(path: Path) -> tuple[AcceptanceProfile, ...]:
    """The acceptance profiles of a `perf.acceptance_profile` or `perf.acceptance` file, or of NVIDIA's. Raises `InputError`."""
    document = codec.read_json(path)
    if is_speculation_profile(document):
        return (read_profile(document, str(path)),)
    record = codec.from_document(document, str(path))
    if isinstance(record, AcceptanceSet):
        profiles = record.profiles
    elif isinstance(record, AcceptanceProfile):
        profiles = (record,)
    elif isinstance(record, Imported):
        profiles = imported_profiles(record, str(path))
    else:
        raise InputError(f"{path} holds no acceptance", "give acceptance.json of a sweep, or an acceptance profile")
    for profile in profiles:
        if profile.survival:
            _check_survival(profile.survival, f"{path}: {profile.name}")
        if len(profile.at_risk) != len(profile.survival) or len(profile.survival) >= profile.block_size:
            raise InputError(
                f"{path}: {profile.name} has {len(profile.survival)} positions at block size {profile.block_size}",
                "a block of K has K − 1 drafts; the file may be edited",
            )
        _check_counts(profile, f"{path}: {profile.name}")
        if profile.tau_points and profile.tau_points != check_points(profile.tau_points):
            raise InputError(f"{path}: {profile.name} has mean lengths out of order", "the file may be edited")
    return profiles


def _check_counts(profile: AcceptanceProfile, where: str) -> None:
    """Raises `InputError` for counts that no decoder can have: a block beyond any, steps outside the block, negative numbers."""
    if profile.block_size > LARGEST_BLOCK or (profile.trained_block_size or 1) > LARGEST_BLOCK:
        raise InputError(f"{where} names a block size beyond {LARGEST_BLOCK:,}", "the file may be edited")
    if profile.committed:
        _check_committed(profile.committed, profile.last_step_cut, profile.block_size)
    for known in (profile.num_steps, profile.num_prompts, *profile.at_risk):
        if known is not None and not 0 <= known < 1e15:
            raise InputError(f"{where} has a count of {known:g}", "counts start at 0; the file may be edited")


def resolve(text: str) -> tuple[AcceptanceProfile, ...]:
    """The profiles of a file, if there is one of that name, else the shipped profile: what `--acceptance` takes."""
    path = Path(text)
    return load_acceptance(path) if path.is_file() else (load_profile(text),)
