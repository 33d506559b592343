"""Which constants a set of points may determine: names, units, bounds, priors and the point that would make each visible."""

import numpy as np

from .leastsquares import Knob, Problem
from .records import Hardware
from .roofline import peak_flops_per_s
from .stepmodel import EXPERTS, PRIORS, ROOFLINE, Prior

ATTENTION_SHARE = 0.02
"""Attention below this share of every point's FLOP cannot show a price of its own."""

CACHE_SHARE = 0.005
"""Cached bytes whose share of a step moves by less than this over the points cannot show a price of their own."""

OVERHEAD_VISIBLE = 0.1
"""An additive time known to within this share of the phase's fastest point counts as seen."""

EFFICIENCIES = ("memory_efficiency", "compute_efficiency")

MEASURED_HEADROOM = 1.3
"""How far step times may beat a micro-benchmarked peak before the fit stops following: the peak is then raised, so that
efficiencies stay in (0, 1]. There is headroom only where a point's own rate beats the peak; a data sheet's has none."""

HEADROOM_MARGIN = 1.05
"""A point that beats a peak stands for a true one a little higher still, since no step runs at its peak."""

_KNEE = "a point well beyond the knee (larger K or batch)"
_SIZES = "points whose bytes differ much: a long context, a larger batch, or another model size"


def base_knobs(problem: Problem, form: str, lead: str) -> tuple[Knob, ...]:
    """The constants of the plain law for these points."""
    if form != ROOFLINE or problem.hardware is None:
        return (*_dense_knobs(problem), *(_expert_knobs(problem) if form == EXPERTS else ()))
    others = [str(phase) for phase in np.unique(problem.work.phases) if phase != lead]
    return (
        _efficiency("memory_efficiency", problem.hardware, _beaten_bandwidth(problem, problem.hardware, lead), _SIZES),
        _compute(problem, problem.hardware, lead),
        _exponent(),
        _overhead(problem, lead, lead, "overhead_s"),
        *(_overhead(problem, phase, lead, f"{phase}_overhead_s") for phase in others),
    )


def optional_knobs(problem: Problem, form: str, lead: str) -> tuple[Knob, ...]:
    """Terms beyond the plain law that these points could show, each to be kept only if they do."""
    knobs = []
    work = problem.work
    fastest = float(problem.measured_s.min())
    if len(np.unique(work.batch)) > 1:
        knobs.append(
            Knob(
                name="batch_overhead_s",
                unit="s",
                start=0.01 * fastest / float(work.batch.max()),
                low=0.0,
                high=float(np.min(problem.measured_s / work.batch)),
                log=False,
                prior=Prior(0.0, 0.0, 0.0, "none"),
                remedy="more batch sizes",
                optional=True,
                visible=OVERHEAD_VISIBLE * fastest / float(work.batch.max()),
            )
        )
    if form == ROOFLINE and np.max(work.attention / (work.attention + work.linear)) > ATTENTION_SHARE:
        knobs.append(_ratio("attention_slowdown", 1.0, 100.0, 2.0))
    reads = work.cached / (work.cached + work.memory)
    several_contexts = len(np.unique(work.context[work.phases == lead])) > 1
    if form == ROOFLINE and several_contexts and np.ptp(reads[work.phases == lead]) > CACHE_SHARE:
        knobs.append(_ratio("cache_slowdown", 1.0, 100.0, 2.0))
    if work.single.any() and not work.single.all():
        knobs.append(_ratio("kernel", 0.05, 20.0, 1.0))
    for phase in np.unique(work.phases):
        if form == ROOFLINE and phase != lead and len(np.unique(work.linear[work.phases == phase])) >= 3:
            knobs += [_ratio(f"{phase}_ratio", 0.2, 5.0, 1.0), _ratio(f"{phase}_compute_ratio", 0.2, 5.0, 1.0)]
    return tuple(knobs)


def _ratio(name: str, low: float, high: float, start: float) -> Knob:
    return Knob(
        name=name,
        unit="1",
        start=start,
        low=low,
        high=high,
        log=True,
        prior=Prior(1.0, 1.0, 1.0, "the common curve"),
        remedy=_KNEE,
        optional=True,
    )


def _beaten_bandwidth(problem: Problem, hardware: Hardware, lead: str) -> float:
    """By how much the fastest point of the phase beats the bandwidth peak; below 1 when none does."""
    rates = (problem.work.memory + problem.work.cached) / problem.measured_s
    return float(np.max(rates[problem.work.phases == lead])) / hardware.bandwidth_bytes_per_s.value


def _beaten_rate(problem: Problem, peak: float, lead: str) -> float:
    """By how much the fastest point of the phase beats the arithmetic peak; below 1 when none does."""
    rates = (problem.work.linear + problem.work.attention) / problem.measured_s
    return float(np.max(rates[problem.work.phases == lead])) / peak


def _efficiency(name: str, hardware: Hardware, beaten: float, remedy: str) -> Knob:
    high = min(max(1.0, HEADROOM_MARGIN * beaten), MEASURED_HEADROOM) if hardware.source == "measured" else 1.0
    return Knob(name=name, unit="1", start=PRIORS[name].mode, low=0.005, high=high, log=True, prior=PRIORS[name], remedy=remedy)


def _compute(problem: Problem, hardware: Hardware, lead: str) -> Knob:
    """An efficiency of the peak, or, where nobody published the peak, the rate itself."""
    peak = peak_flops_per_s(hardware, problem.dtype)
    if peak is not None:
        return _efficiency("compute_efficiency", hardware, _beaten_rate(problem, peak, lead), _KNEE)
    reached = float(np.max((problem.work.linear + problem.work.attention) / problem.measured_s))
    return Knob(
        name="compute_flops_per_s",
        unit="FLOP/s",
        start=2.0 * reached,
        low=0.9 * reached,
        high=1000.0 * reached,
        log=True,
        prior=Prior(4.0 * reached, 1.5 * reached, 20.0 * reached, "the fastest point, which bounds it from below only"),
        remedy=_KNEE,
    )


def _exponent() -> Knob:
    return Knob(
        name="exponent",
        unit="1",
        start=PRIORS["exponent"].mode,
        low=1.0,
        high=20.0,
        log=True,
        prior=PRIORS["exponent"],
        remedy="points between half the knee and twice the knee",
    )


def _is_one_size(problem: Problem, phase: str) -> bool:
    """Whether all points of a phase read the same weights and cache, so that only K differs."""
    here = problem.work.phases == phase
    return len(np.unique(problem.work.batch[here])) == 1 and len(np.unique(problem.work.context[here])) == 1


def _overhead(problem: Problem, phase: str, lead: str, name: str) -> Knob:
    fastest = float(problem.measured_s[problem.work.phases == phase].min())
    hardware = problem.hardware
    prior = PRIORS.get(name, PRIORS["overhead_s"])
    if hardware is not None and hardware.dispatch_s is not None:
        dispatch = hardware.dispatch_s.value
        prior = Prior(dispatch, 0.5 * dispatch, 3.0 * dispatch, f"the chip's dispatch time ({hardware.dispatch_s.source})")
    high = 0.999 * fastest
    if phase == lead and hardware is not None and hardware.dispatch_s is not None and _is_one_size(problem, phase):
        high = min(high, prior.high)  # one size: an overhead and an efficiency would stand in for each other
    capped = Prior(min(prior.mode, 0.5 * high), min(prior.low, 0.25 * high), min(prior.high, high), prior.source)
    return Knob(
        name=name,
        unit="s",
        start=0.05 * fastest,
        low=0.0,
        high=high,
        log=False,
        prior=capped,
        remedy=_SIZES,
        visible=OVERHEAD_VISIBLE * fastest,
    )


def _dense_knobs(problem: Problem) -> tuple[Knob, ...]:
    fastest = float(problem.measured_s.min())
    per_token = float(np.min(problem.measured_s / problem.work.linear))
    knobs = [
        Knob(
            name="plateau_s",
            unit="s",
            start=0.8 * fastest,
            low=1e-3 * fastest,
            high=1.5 * fastest,
            log=True,
            prior=Prior(fastest, 0.5 * fastest, fastest, "the fastest point"),
            remedy="a point at small K",
        ),
        Knob(
            name="token_s",
            unit="s/token",
            start=0.5 * per_token,
            low=1e-4 * per_token,
            high=1.2 * per_token,
            log=True,
            prior=Prior(0.25 * per_token, 0.02 * per_token, 0.7 * per_token, "the widest point, which bounds it from above only"),
            remedy=_KNEE,
        ),
        _exponent(),
    ]
    cached = problem.work.cached
    if len(np.unique(cached)) > 1:
        longest = float(cached.max())
        slope = float(np.max(problem.measured_s)) / longest
        knobs.append(
            Knob(
                name="cached_token_s",
                unit="s/token",
                start=0.2 * slope,
                low=0.0,
                high=slope,
                log=False,
                prior=Prior(0.0, 0.0, 0.0, "no growth with context"),
                remedy="points at a longer context",
                visible=OVERHEAD_VISIBLE * fastest / longest,
            )
        )
    return tuple(knobs)


def _expert_knobs(problem: Problem) -> tuple[Knob, ...]:
    """The part of the plateau that fills as experts are touched, and the share of all experts that one token uses."""
    fastest, slowest = float(problem.measured_s.min()), float(problem.measured_s.max())
    shares = "one token uses 2 to 8 of 8 to 512 experts in published mixtures"
    return (
        Knob(
            name="experts_s",
            unit="s",
            start=0.5 * fastest,
            low=1e-3 * fastest,
            high=slowest,
            log=True,
            prior=Prior(fastest, 0.1 * fastest, slowest, "the fastest and slowest points"),
            remedy=_KNEE,
            optional=True,
        ),
        Knob(
            name="expert_share",
            unit="1",
            start=0.06,
            low=0.005,
            high=0.6,
            log=True,
            prior=Prior(0.06, 0.015, 0.25, shares),
            remedy="more block sizes from 2 to 32",
            optional=True,
        ),
    )
