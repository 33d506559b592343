"""High acceptance and slow tokens: what a speculative step costs over a plain one, r, split into its parts. Speedup = τ / r.

r holds the draft pass, the wider verify pass and whatever the host does between them. With a plain step and a whole cycle known the
ratio is arithmetic; with the parts known it says which of them to work on.
"""

from perfmodel.records import Diagnosed

from .finding import diagnosed
from .subject import Subject

GOOD_TAU, POOR_SPEEDUP, HOST_SHARE = 2.0, 1.3, 0.35


def step_ratio(subject: Subject) -> list[Diagnosed]:
    """`speculation-loses` (τ below r), `high-tau-but-slow`, or `step-ratio` for the record."""
    tau, ratio = subject.tau, _ratio(subject)
    if tau is None or ratio is None:
        return []
    speedup = tau / ratio
    evidence = (
        f"τ = {tau:.2f}, a speculative step costs r = {ratio:.2f} plain ones, speedup τ / r = {speedup:.2f}{_parts(subject)}"
    )
    if speedup < 1:
        return [
            diagnosed(
                "speculation-loses",
                "error",
                subject.name,
                evidence,
                "a step costs more than it commits" + _largest(subject),
                f"switch speculation off here, or bring r below τ; at this r it breaks even at τ = {ratio:.2f}",
            )
        ]
    if tau >= GOOD_TAU and speedup < POOR_SPEEDUP:
        return [
            diagnosed(
                "high-tau-but-slow",
                "warning",
                subject.name,
                evidence,
                "acceptance is fine; the step is what costs" + _largest(subject),
                "profile one step; a smaller K or a smaller batch makes verification cheaper, a compiled loop the host",
            )
        ]
    return [diagnosed("step-ratio", "info", subject.name, evidence, "", "")]


def host_bound(subject: Subject) -> list[Diagnosed]:
    """`host-bound` where the device waits for a large part of the step."""
    if not subject.host_s or not subject.cycle_s:
        return []
    share = subject.host_s / subject.cycle_s
    if share < HOST_SHARE:
        return []
    return [
        diagnosed(
            "host-bound",
            "warning",
            subject.name,
            f"the device idles {100 * share:.0f} % of a step ({subject.host_s * 1e3:.2f} of {subject.cycle_s * 1e3:.2f} ms)",
            "dispatch, sampling, acceptance or detokenisation on the host, between the draft and the next step",
            "keep acceptance on the device, capture the step as a graph, or verify more tokens per step while the device is free",
        )
    ]


def _ratio(subject: Subject) -> float | None:
    if subject.plain_s and subject.cycle_s:
        return subject.cycle_s / subject.plain_s
    if subject.plain_tokens_per_s and subject.tokens_per_s and subject.tau:
        return subject.tau * subject.plain_tokens_per_s / subject.tokens_per_s
    return None


def _split(subject: Subject) -> dict[str, float]:
    """Parts of r, in plain steps."""
    if not subject.plain_s:
        return {}
    named = {"draft": subject.draft_s, "verify": subject.verify_s, "host": subject.host_s}
    return {name: seconds / subject.plain_s for name, seconds in named.items() if seconds is not None}


def _parts(subject: Subject) -> str:
    parts = _split(subject)
    return f" (of r: {', '.join(f'{name} {value:.2f}' for name, value in parts.items())})" if parts else ""


def _largest(subject: Subject) -> str:
    parts = _split(subject)
    if not parts:
        return "; its parts are unknown here"
    excess = {name: value - (1.0 if name == "verify" else 0.0) for name, value in parts.items()}
    worst = max(excess, key=lambda name: excess[name])
    return f"; most of the excess is {worst}"
