"""Values that cannot be, each with what most likely made it. They are reported as read: never clipped, never dropped silently."""

from itertools import pairwise

from perfmodel.records import Finding, ImportedRun, Severity

_ROUNDING = 0.006
"""Differences below this are the rounding of printed figures."""


def findings_of(
    run: ImportedRun, stated_tau: float | None = None, stated_steps: int | None = None, impossible_size: int | None = None
) -> list[Finding]:
    """A finding for every impossible or contradictory value of a run."""
    found = [
        *_nothing_drafted(run),
        *_size(impossible_size),
        *_rates(run),
        *_tau(run, stated_tau),
        *_positions(run),
        *_short_proposals(run),
        *_contradictions(run, stated_steps),
    ]
    return [
        Finding(code=code, severity=severity, message=f"{run.name}: {text}", hint=hint) for code, severity, text, hint in found
    ]


_Found = tuple[str, Severity, str, str]


def _nothing_drafted(run: ImportedRun) -> list[_Found]:
    if run.num_steps == 0 or run.num_draft_tokens == 0:
        text = "nothing was drafted: steps or draft tokens are zero, so acceptance is unknown"
        return [("zero-drafts", "warning", text, "speculation was off, gated away, or the scrape came before the first request")]
    return []


def _size(impossible: int | None) -> list[_Found]:
    if impossible is None:
        return []
    text = f"K = {impossible:,} by the counts, which no drafter gives; it is left open"
    return [("block-size-impossible", "error", text, "steps and draft tokens are of different runs, or one of them is damaged")]


def _rates(run: ImportedRun) -> list[_Found]:
    found: list[_Found] = []
    accepted, drafted, steps = run.num_accepted, run.num_draft_tokens, run.num_steps
    if accepted is not None and drafted is not None and accepted > drafted:
        text = f"{accepted:,} drafts accepted of {drafted:,} proposed, a rate above 1"
        cause = (
            "the bonus token seems to be counted as accepted"
            if steps and accepted <= drafted + steps
            else "counters read at different moments, or of different servers"
        )
        found.append(("rate-above-one", "error", f"{text}: {cause}", "take both counters from one scrape"))
    if run.survival and max(run.survival) > 1:
        position = next(index for index, value in enumerate(run.survival) if value > 1)
        text = f"position {position} was accepted more often than it was drafted ({run.survival[position]:.4g} per step)"
        found.append(("rate-above-one", "error", text, "a rate in per cent, or counters of different moments"))
    return found


def _tau(run: ImportedRun, stated: float | None) -> list[_Found]:
    found: list[_Found] = []
    tau = run.tau
    if tau is not None and tau < 1:
        text = f"τ = {tau:.3f} is below 1, though every step commits its bonus token: this mean seems to leave the bonus out"
        found.append(
            ("tau-out-of-range", "error", text, f"with the bonus it would be {tau + 1:.3f}; check the tool's definition")
        )
    longest = 1 + max((index for index, value in enumerate(run.survival or (), start=1) if value > 0), default=0)
    if tau is not None and run.block_size is not None and tau > max(run.block_size, longest) + _ROUNDING:
        text = f"τ = {tau:.3f} is above K = {run.block_size} ({run.block_size - 1} drafts and the bonus)"
        found.append(
            ("tau-out-of-range", "error", text, "K was read without the anchor, or tokens of several steps were counted as one")
        )
    if stated is not None and tau is not None and abs(stated - tau) > max(_ROUNDING, 0.005 * tau):
        text = f"the source states a mean of {stated:.3f}, its counts give {tau:.3f} with the bonus"
        found.append(
            ("tau-disagrees", "warning", text, "the counts are used; the stated mean may be over answers, or without bonus")
        )
    if tau is not None and run.survival and not run.histogram and abs(1 + sum(run.survival) - tau) > 0.02 * tau:
        text = f"1 + Σ of the survival list is {1 + sum(run.survival):.3f}, but τ is {tau:.3f}"
        found.append(("positions-disagree", "warning", text, "the list may be truncated, or belong to other steps than τ"))
    return found


def _positions(run: ImportedRun) -> list[_Found]:
    found: list[_Found] = []
    values = run.survival or ()
    rise = next((index for index, (a, b) in enumerate(pairwise(values), start=1) if b > a + 1e-9), None)
    if rise is not None:
        text = (
            f"acceptance rises at position {rise}, from {values[rise - 1]:.4g} to {values[rise]:.4g}: P(at least i) cannot rise"
        )
        found.append(
            ("survival-rises", "error", text, "conditional rates need multiplying up; or counters of several runs were mixed")
        )
    if len(values) > 1 and values[0] == 1.0 and 0 < values[1] < 0.97 and run.source not in ("tpu-standalone",):
        text = f"the first position is accepted in every step, the second in {values[1]:.3f} of them"
        found.append(
            ("anchor-in-survival", "warning", text, "some tools count the anchor, which always survives, as the first entry")
        )
    if run.block_size is not None and len(values) > run.block_size - 1:
        extra = values[run.block_size - 1 :]
        if not any(extra) and any(values):
            text = f"{len(values)} positions are listed, but {run.block_size - 1} tokens were drafted per step"
            hint = "the flag asked for more drafts than the drafter's block gives; K was read from what was drafted"
            found.append(("positions-beyond-draft", "warning", text, hint))
    return found


def _short_proposals(run: ImportedRun) -> list[_Found]:
    values, steps, drafted = run.survival, run.num_steps, run.num_draft_tokens
    if not steps or not drafted or not values:
        return []
    mean, limit = drafted / steps, max((index for index, value in enumerate(values, start=1) if value > 0), default=0)
    if mean < limit - 0.05:
        text = f"drafts were {mean:.2f} tokens long on average and up to {limit}: later positions fall partly because of short drafts"
        return [("short-proposals", "info", text, "steps without any draft are not counted by most engines")]
    return []


def _contradictions(run: ImportedRun, stated_steps: int | None) -> list[_Found]:
    found: list[_Found] = []
    if run.survival and run.num_steps and run.num_accepted is not None and run.histogram is None:
        total = sum(run.survival) * run.num_steps
        if abs(total - run.num_accepted) > 0.5 + 0.006 * run.num_steps * len(run.survival):
            text = f"the positions add up to {total:,.0f} accepted drafts, the total says {run.num_accepted:,}"
            found.append(("positions-disagree", "warning", text, "counters of different moments, or a list cut short"))
    if run.histogram is not None and stated_steps is not None and stated_steps != run.num_steps:
        text = f"the source states {stated_steps:,} steps, its histogram holds {run.num_steps:,}"
        found.append(("steps-disagree", "warning", text, "the histogram is used"))
    return found
