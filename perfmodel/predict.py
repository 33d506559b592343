"""Best K for one task on one chip: step times × acceptance → a row per K, the best, and how sure that is.

speedup(K) = τ(K) · t(1) / (t_draft + t_verify(K) + t_host), with t(1) the plain step (verify and host at K = 1, no draft). A
block drafter's cost hardly depends on K, so the gain grows with τ(K) until the verify pass leaves the flat part of the roofline.
Both uncertainties are carried by draws: acceptance by resampling answers, cost by the draws of the step-time model; each alone
is reported too. A drafter is trained for one block size: larger K are listed, flagged and never recommended.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .acceptance import (
    NUM_DRAWS,
    SEED,
    Share,
    ceiling_share,
    from_tau_points,
    measured_block_size,
    tau_curve,
    tau_draws,
    tau_source,
)
from .choice import Candidates, Choice, choose
from .errors import InputError
from .price import usd_per_million_tokens
from .records import AcceptanceProfile, Finding, KPrediction, KRow, Severity
from .records.acceptance import Drafting
from .records.prediction import PredictionSource
from .steptime import CONTEXT_REACH, StepSeconds
from .survival import Array, Mask, Whole


@dataclass(frozen=True)
class CycleTime:
    """A measured time of one whole step at a block size, seconds, with the mean committed tokens seen there if known."""

    block_size: int
    seconds: float
    tau: float | None = None


@dataclass(frozen=True)
class _Question:
    """What is asked, as it stands in the answer."""

    profile: AcceptanceProfile
    hardware: str
    target: str
    draft: str
    batch: int
    context: int
    source: PredictionSource
    trained: int | None
    label: str
    usd_per_hour: float | None = None


def _finding(code: str, severity: Severity, message: str, hint: str = "") -> Finding:
    return Finding(code=code, severity=severity, message=message, hint=hint)


def _paired_draws(steps: StepSeconds, is_plain: Mask, num_draws: int, seed: int) -> Array | None:
    """Draws of the whole step [num_draws, K]; None when the step times carry no draws."""
    drafts, verifies, hosts = steps.draft_draws, steps.verify_draws, steps.host_draws
    if drafts is None or verifies is None or hosts is None or len(verifies) < 2:
        return None
    total = np.where(is_plain, 0.0, drafts) + verifies + hosts
    if len(total) == num_draws:
        return total
    return total[np.random.default_rng(seed).integers(len(total), size=num_draws)]


def _trained(profile: AcceptanceProfile, trained_block_size: int | None) -> int | None:
    return trained_block_size if trained_block_size is not None else profile.trained_block_size


def _bounds(draws: Array | None, num_rows: int) -> tuple[list[float | None], list[float | None]]:
    if draws is None:
        return [None] * num_rows, [None] * num_rows
    low, high = np.percentile(draws, [2.5, 97.5], axis=0)
    return low.tolist(), high.tolist()


def _check_steps(steps: StepSeconds) -> None:
    blocks = np.asarray(steps.block_sizes)
    if not blocks.size:
        raise InputError("no block size was given to predict for", "give at least one K")
    if blocks[0] < 1 or np.any(np.diff(blocks) <= 0):
        raise InputError("block sizes must be rising and start at 1 or above", "sort them and drop repeats")
    total = steps.draft_s + steps.verify_s + steps.host_s
    if not np.all(np.isfinite(total)) or np.any(steps.verify_s <= 0):
        raise InputError("a step time is not a positive number of seconds", "check the timings or the fitted model")


def predict(
    steps: StepSeconds,
    profile: AcceptanceProfile,
    *,
    hardware: str,
    target: str,
    draft: str,
    batch: int,
    context: int,
    source: PredictionSource | None = None,
    trained_block_size: int | None = None,
    candidates: Sequence[int] | None = None,
    label: str = "",
    usd_per_hour: float | None = None,
    num_draws: int = NUM_DRAWS,
    seed: int = SEED,
) -> KPrediction:
    """The prediction for one task, batch and context: a row per block size of `steps`, the best among those in training.

    `trained_block_size` defaults to the profile's, else to the largest K its acceptance was measured at. `candidates` limits
    what may be recommended further (for example to the K an engine can run). `usd_per_hour` is the price of all chips at work.
    """
    _check_steps(steps)
    blocks = np.asarray(steps.block_sizes, dtype=np.int64)
    is_plain = blocks == 1
    draft_s = np.where(is_plain, 0.0, steps.draft_s)
    trained = _trained(profile, trained_block_size)
    in_training = blocks <= (trained if trained is not None else measured_block_size(profile))
    eligible = in_training if candidates is None else in_training & np.isin(blocks, np.asarray(candidates))
    if not eligible.any():
        hint = f"include K=1 or a K up to the drafter's block size ({trained or measured_block_size(profile)})"
        raise InputError("none of the block sizes can be recommended", hint)
    curve = tau_curve(profile, int(blocks[-1]))
    draws = tau_draws(profile, int(blocks[-1]), num_draws, seed)
    problem = Candidates(
        block_sizes=blocks,
        tau=curve[blocks - 1],
        step_s=draft_s + steps.verify_s + steps.host_s,
        eligible=eligible,
        tau_curve=curve,
        tau_draws=None if draws is None else draws[:, blocks - 1],
        step_draws=_paired_draws(steps, is_plain, num_draws, seed + 2),
    )
    phases = np.stack([draft_s, steps.verify_s, steps.host_s], axis=1).tolist()
    details = [
        {"draft_s": phases[i][0], "verify_s": phases[i][1], "host_s": phases[i][2], "bound": steps.bound[i]}
        | {"extrapolated": bool(steps.extrapolated[i]) or block > measured_block_size(profile)}
        | {"tau_source": tau_source(profile, block), "in_training": bool(in_training[i])}
        for i, block in enumerate(blocks.tolist())
    ]
    asked = source if source is not None else steps.source
    return _answer(
        _Question(profile, hardware, target, draft, batch, context, asked, trained, label, usd_per_hour), problem, details
    )


def _answer(question: _Question, problem: Candidates, details: Sequence[dict[str, Any]]) -> KPrediction:
    """The record for a problem; `details` holds the fields of each row that the choice does not know."""
    choice = choose(problem)
    tau_low, tau_high = _bounds(problem.tau_draws, len(problem.block_sizes))
    # Draws that are all alike between 1 and K come from a mean length that was given without its error: no interval is known.
    sizes, taus = problem.block_sizes.tolist(), problem.tau.tolist()
    unknown = [tau_low[i] == tau_high[i] and 1.0 < taus[i] < size for i, size in enumerate(sizes)]
    price = question.usd_per_hour
    dollars = None if price is None else usd_per_million_tokens(problem.step_s, problem.tau, question.batch, price)
    rows = tuple(
        KRow(
            block_size=block,
            batch=question.batch,
            context=question.context,
            tau=float(problem.tau[i]),
            tpot_s=float(problem.step_s[i] / problem.tau[i]),
            speedup=None if choice.speedup is None else float(choice.speedup[i]),
            speedup_low=None if choice.low is None else float(choice.low[i]),
            speedup_high=None if choice.high is None else float(choice.high[i]),
            tau_low=None if unknown[i] else tau_low[i],
            tau_high=None if unknown[i] else tau_high[i],
            usd_per_million_tokens=None if dollars is None else float(dollars[i]),
            **details[i],
        )
        for i, block in enumerate(problem.block_sizes.tolist())
    )
    cost_low, cost_high = choice.cost or (None, None)
    acceptance_low, acceptance_high = choice.acceptance or (None, None)
    best_low, best_high = choice.best_block_size or (None, None)
    profile = question.profile
    share = ceiling_share(profile, rows[choice.best].block_size) if profile.survival else Share(None, None, None)
    about = _profile_findings(profile, question.target, question.draft, question.context)
    return KPrediction(
        hardware=question.hardware,
        target=question.target,
        draft=question.draft,
        task=profile.task,
        source=question.source,
        batch=question.batch,
        context=question.context,
        rows=rows,
        best=rows[choice.best],
        plateau=choice.plateau,
        worth_it=choice.worth_it,
        break_even_tau=choice.break_even_tau,
        ceiling=choice.ceiling,
        cost_low=cost_low,
        cost_high=cost_high,
        acceptance_low=acceptance_low,
        acceptance_high=acceptance_high,
        best_block_size_low=best_low,
        best_block_size_high=best_high,
        reach=choice.reach,
        trained_block_size=question.trained,
        label=question.label,
        sensitivity=choice.sensitivity,
        tau_share=share.value,
        tau_share_low=share.low,
        tau_share_high=share.high,
        usd_per_hour=price,
        findings=(*_still_true(profile.findings, rows), *about, *_choice_findings(choice, rows, problem)),
    )


def _still_true(findings: Sequence[Finding], rows: Sequence[KRow]) -> list[Finding]:
    """A profile's findings; where no row needed an estimated curve, that one says what is left of it: no error of τ is known."""
    if any(row.tau_source != "measured" for row in rows):
        return list(findings)
    message = "mean acceptance lengths were given without their error, so no interval holds it"
    known = _finding("acceptance-without-error", "info", message, "give a survival list with counts, or the raw counts")
    return [known if finding.code == "curve-estimated" else finding for finding in findings]


def _profile_findings(profile: AcceptanceProfile, target: str, draft: str, context: int) -> list[Finding]:
    """What the acceptance does not speak for: another pair, a longer context, real text."""
    findings = []
    if profile.synthetic:
        message = f"acceptance profile {profile.name!r} comes from a synthetic pair: its figures are not results"
        findings.append(_finding("synthetic-acceptance", "warning", message, "measure acceptance on prompts of the task"))
    if profile.survival and not profile.committed and profile.tau_low is None and profile.at_risk[0] is not None:
        message = "the counts of single answers are unknown, so steps are taken as independent: the true interval is wider"
        findings.append(_finding("steps-as-independent", "info", message, "keep the committed tokens of each answer"))
    if profile.longest_context is not None and context > CONTEXT_REACH * profile.longest_context:
        message = f"acceptance was measured up to context {profile.longest_context}, and {context} is asked for"
        hint = "a drafter trained on short text may accept far less on long: measure there"
        findings.append(_finding("acceptance-beyond-context", "warning", message, hint))
    pairs = [("target", profile.target, target), ("drafter", profile.draft, draft)]
    foreign = [f"{what} {measured}, not {asked}" for what, measured, asked in pairs if measured and asked and measured != asked]
    if foreign:
        message = f"acceptance profile {profile.name!r} was measured with {' and '.join(foreign)}"
        hint = "measure acceptance of this pair, or name the pair it belongs to"
        findings.append(_finding("foreign-acceptance", "warning", message, hint))
    return findings


def _choice_findings(choice: Choice, rows: Sequence[KRow], problem: Candidates) -> list[Finding]:
    best = rows[choice.best]
    largest = rows[int(np.flatnonzero(problem.eligible)[-1])]
    findings = []
    if choice.worth_it is False and choice.break_even_tau is not None:
        findings.append(
            _finding(
                "speculation-loses",
                "warning",
                f"plain decoding is fastest: a step at K={largest.block_size} takes {choice.break_even_tau:.2f} plain steps and"
                f" commits {largest.tau:.2f} tokens",
                "switch speculation off for this task, batch and chip",
            )
        )
        if choice.plateau[1] > 1:
            message = f"K up to {choice.plateau[1]} cannot be told from plain decoding within the error"
            findings.append(_finding("loss-uncertain", "info", message, "use more prompts or more timing repeats"))
    elif best.speedup_low is not None and best.speedup_low < 1.0:
        findings.append(
            _finding(
                "gain-uncertain",
                "warning",
                f"at K={best.block_size} the 95 % interval of the speedup reaches down to {best.speedup_low:.2f}: it may lose",
                "use more prompts or more timing repeats",
            )
        )
    if best.block_size == largest.block_size > 1:
        findings.append(
            _finding(
                "best-at-edge",
                "info",
                f"the best K is the largest that may be recommended ({largest.block_size})",
                "a drafter trained for a longer block might gain more",
            )
        )
    if any(not row.in_training for row in rows):
        findings.append(
            _finding(
                "beyond-training",
                "info",
                "K beyond the drafter's own block are listed with an extrapolated τ and never recommended",
                "a drafter run beyond its block accepts less at every position",
            )
        )
    if best.extrapolated:
        findings.append(
            _finding(
                "best-extrapolated",
                "warning",
                f"K={best.block_size} lies outside what was measured, in acceptance or in step time",
                "measure there before relying on it",
            )
        )
    if choice.speedup is not None and choice.low is None:
        unknown = "step times" if choice.cost is None else "acceptance"
        findings.append(_finding("no-interval", "info", f"the error of the {unknown} is unknown, so the speedup has no interval"))
    return findings


def _table_cycles(table: Sequence[CycleTime]) -> tuple[Whole, Array, dict[int, float]]:
    """Block sizes, seconds (median of repeated rows) and the τ given beside them."""
    if not table:
        raise InputError("the step-time table is empty", "give rows of block_size and ms")
    seconds: dict[int, list[float]] = {}
    given: dict[int, list[float]] = {}
    for row in table:
        if row.block_size < 1 or not (np.isfinite(row.seconds) and row.seconds > 0):
            raise InputError(
                f"block size {row.block_size} with {row.seconds:g} s per step is impossible",
                "block sizes start at 1, times above 0",
            )
        seconds.setdefault(row.block_size, []).append(row.seconds)
        if row.tau is not None:
            if not 1.0 <= row.tau <= row.block_size:
                raise InputError(
                    f"a mean acceptance length of {row.tau:g} at block size {row.block_size} is impossible",
                    "it counts the bonus token and lies in 1 … K",
                )
            given.setdefault(row.block_size, []).append(row.tau)
    blocks = np.array(sorted(seconds), dtype=np.int64)
    taus = {block: float(np.mean(values)) for block, values in sorted(given.items())}
    return blocks, np.array([float(np.median(seconds[block])) for block in blocks.tolist()]), taus


def predict_table(
    table: Sequence[CycleTime],
    profile: AcceptanceProfile | None = None,
    *,
    hardware: str = "",
    target: str = "",
    draft: str = "",
    batch: int = 1,
    context: int = 0,
    trained_block_size: int | None = None,
    drafting: Drafting | None = None,
    label: str = "",
    usd_per_hour: float | None = None,
    step_draws: Array | None = None,
    num_draws: int = NUM_DRAWS,
    seed: int = SEED,
) -> KPrediction:
    """The prediction from measured step times alone: no cost model, candidates exactly the table's block sizes.

    τ comes from the table where it stands beside the time, else from the profile, else from a curve through the table's τ
    (flagged). Without a row at block size 1 there is no plain decoding to compare with: `speedup`, `worth_it` and
    `break_even_tau` are None and the best K has the least time per token. Without `step_draws` (draws of the times [num_draws, K],
    K rising) the error of the times is unknown, and only the acceptance interval is given.
    """
    blocks, step_s, given = _table_cycles(table)
    if profile is None:
        if not any(block > 1 for block in given):
            raise InputError("step times alone do not tell a gain", "add a tau column, or give acceptance beside the table")
        points = list(given.items())
        profile = from_tau_points(points, target=target, draft=draft, trained_block_size=trained_block_size, drafting=drafting)
    trained = _trained(profile, trained_block_size)
    limit = trained if trained is not None else measured_block_size(profile)
    is_given = np.isin(blocks, np.array(list(given), dtype=np.int64))
    eligible = (blocks <= limit) | is_given
    if not eligible.any():
        raise InputError(f"no block size of the table is within the drafter's block ({limit})", "add a τ measured at these K")
    curve = tau_curve(profile, int(blocks[-1]))
    draws = tau_draws(profile, int(blocks[-1]), num_draws, seed)
    measured = np.array([given.get(block, np.nan) for block in blocks.tolist()])
    tau_drawn = None if draws is None else np.where(is_given, measured, draws[:, blocks - 1])
    if draws is None and step_draws is not None and is_given.all():
        tau_drawn = np.tile(measured, (len(step_draws), 1))
    problem = Candidates(
        block_sizes=blocks,
        tau=np.where(is_given, measured, curve[blocks - 1]),
        step_s=step_s,
        eligible=eligible,
        tau_curve=curve,
        tau_draws=tau_drawn,
        step_draws=step_draws,
    )
    sources = ["measured" if is_given[i] else tau_source(profile, block) for i, block in enumerate(blocks.tolist())]
    details = [
        {"draft_s": None, "verify_s": None, "host_s": None, "extrapolated": source == "extrapolated", "tau_source": source}
        | {"in_training": bool(eligible[i])}
        for i, source in enumerate(sources)
    ]
    question = _Question(profile, hardware, target, draft, batch, context, "measured", trained, label, usd_per_hour)
    return _answer(question, problem, details)
