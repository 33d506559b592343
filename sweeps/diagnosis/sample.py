"""Whether the sample can carry the conclusion: warm-up in it, and too few answers to choose K."""

from itertools import pairwise
from statistics import median

from perfmodel.acceptance import tau_interval
from perfmodel.errors import InputError
from perfmodel.records import AcceptanceProfile, Diagnosed

from .finding import diagnosed
from .subject import Subject

WARMUP_FACTOR, FEW_ANSWERS, WIDE = 2.0, 8, 0.25


def warm_up(subject: Subject) -> list[Diagnosed]:
    """`warm-up-in-sample` where the first time of a series stands far above the others; says how many rows were left out."""
    for samples in subject.samples_s:
        if len(samples) < 3:
            continue
        rest = median(samples[1:])
        if samples[0] > WARMUP_FACTOR * rest:
            return [
                diagnosed(
                    "warm-up-in-sample",
                    "warning",
                    subject.name,
                    f"the first step took {samples[0] * 1e3:.1f} ms, the others {rest * 1e3:.1f} ms in the median",
                    "compilation, allocation or a cold cache counted as a measurement",
                    "drop the first samples, or run warm-up requests of the same shape",
                )
            ]
    return []


def too_few_answers(subject: Subject) -> list[Diagnosed]:
    """`too-few-prompts` where the interval of τ is too wide to choose K, or fewer than eight answers are known."""
    answers = len(subject.committed) or subject.num_requests
    interval = _interval(subject)
    if interval is not None and subject.tau and (interval[1] - interval[0]) / subject.tau > WIDE:
        evidence = f"τ = {subject.tau:.2f} with a 95 % interval of {interval[0]:.2f} to {interval[1]:.2f}"
        if answers is not None:
            evidence += f" from {answers} answers"
        return [_few(subject, evidence)]
    if interval is None and answers is not None and answers < FEW_ANSWERS and not subject.is_plain and subject.tau is not None:
        return [_few(subject, f"τ = {subject.tau:.2f} from {answers} answer{'s' if answers > 1 else ''}")]
    return []


def _few(subject: Subject, evidence: str) -> Diagnosed:
    return diagnosed(
        "too-few-prompts",
        "warning",
        subject.name,
        evidence,
        "too few prompts: answers differ among each other more than steps do, so neighbouring K cannot be told apart",
        "measure 32 prompts or more of the task",
    )


def _interval(subject: Subject) -> tuple[float, float] | None:
    """The 95 % interval of τ over answers, or over steps where answers are not kept apart."""
    size, steps = subject.block_size, subject.num_steps
    if size is None or size < 2 or not subject.survival or not steps or max(subject.survival) > 1:
        return None
    length = min(size - 1, len(subject.survival))
    survival = subject.survival[:length]
    if any(b > a + 1e-9 for a, b in pairwise(survival)):
        return None
    fits = all(1 <= count <= length + 1 for answer in subject.committed for count in answer)
    if subject.committed and fits and len(subject.committed) < 2:
        return None
    profile = AcceptanceProfile(
        name=subject.name,
        task="",
        target="",
        draft="",
        block_size=length + 1,
        survival=survival,
        at_risk=tuple(steps * share for share in (1.0, *survival[:-1])),
        committed=subject.committed if fits else (),
        num_steps=steps,
    )
    try:
        return tau_interval(profile, length + 1)
    except InputError:
        return None
