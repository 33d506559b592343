"""From a server's points to the answer: acceptance, gains with intervals, checks, and whether any text differs. Pure functions.

A server's time per token is divided by nothing but the server's own time per token at K = 1, so the gain is measured, not modelled; its
interval comes from drawing requests with replacement, the same ones at every K. No roofline is fitted to such times: they hold the
scheduler, the network and the waiting for other requests.
"""

from collections.abc import Sequence

import msgspec
import numpy as np

from perfmodel.acceptance import NUM_DRAWS, SEED, from_committed, tau_interval
from perfmodel.errors import InputError
from perfmodel.imported import imported_profiles
from perfmodel.predict import CycleTime, predict_table
from perfmodel.records import AcceptanceProfile, CheckedK, Finding, KPrediction, KRow, ServedPoint

from ..importers.merging import merge
from .choosing import Seen
from .measuring import steps_by_answer

Scenes = dict[tuple[str, int], list[Seen]]


def scenes_of(points: Sequence[ServedPoint]) -> Scenes:
    """What the points say by task and requests in flight, for choosing the next K."""
    scenes: Scenes = {}
    for point in points:
        if point.block_size is None or point.step_s is None or point.tokens_per_step is None:
            continue
        profile = profile_of(point, "", "", None)
        seen = Seen(point.block_size, point.step_s, point.tokens_per_step, profile.survival if profile is not None else ())
        scenes.setdefault((point.task, point.concurrency), []).append(seen)
    return scenes


def profile_of(point: ServedPoint, target: str, draft: str, trained: int | None) -> AcceptanceProfile | None:
    """Acceptance at a point: step by step where every answer tells its steps, else by the counters."""
    if point.block_size is None or point.block_size < 2 or point.counters is None:
        return None
    answers = steps_by_answer(point)
    if answers is not None:
        return from_committed(
            answers,
            block_size=point.block_size,
            task=point.task,
            target=target,
            draft=draft,
            last_step_cut=[True] * len(answers),
            trained_block_size=trained,
            longest_context=max((r.num_prompt_tokens or 0) + r.num_output_tokens for r in point.requests) or None,
            source=f"{len(answers)} answers of the server, step by step; a step without a draft accepted none",
        )
    try:
        found = imported_profiles(merge([point.counters], []), "the server's counters")[0]
    except InputError:
        return None
    return msgspec.structs.replace(
        found, name=f"{draft}/{point.task}", draft=draft, trained_block_size=trained, num_prompts=len(point.requests)
    )


def usable(points: Sequence[ServedPoint], task: str, concurrency: int) -> list[ServedPoint]:
    """The points of a scene with a step time, narrowest K first."""
    found = [p for p in points if (p.task, p.concurrency) == (task, concurrency) and p.step_s is not None]
    return sorted(found, key=lambda point: point.block_size or 0)


def predict_scene(points: Sequence[ServedPoint], profiles: dict[int, AcceptanceProfile], hardware: str) -> KPrediction | None:
    """The answer for one task and number of requests in flight; None without a K above 1 whose acceptance is known.

    `points` are `usable` and `profiles` their acceptance by K. Each K has its own measured τ and time; nothing is interpolated.
    """
    if not profiles:
        return None
    profile = profiles[max(profiles)]
    table = [CycleTime(p.block_size, p.step_s, p.tokens_per_step) for p in points if p.block_size and p.step_s]
    first = points[0]
    found = predict_table(
        table,
        profile,
        hardware=hardware,
        target=profile.target,
        draft=profile.draft,
        batch=first.concurrency,
        context=first.context or 0,
        trained_block_size=profile.trained_block_size,
        step_draws=_step_draws(points),
    )
    rows = tuple(_with_interval(row, profiles.get(row.block_size)) for row in found.rows)
    best = next(row for row in rows if row.block_size == found.best.block_size)
    return msgspec.structs.replace(found, rows=rows, best=best, acceptance_low=None, acceptance_high=None)


def _with_interval(row: KRow, profile: AcceptanceProfile | None) -> KRow:
    """The row with τ's interval from the answers at that very K."""
    known = tau_interval(profile, profile.block_size) if profile is not None else None
    low, high = known or (None, None)
    return msgspec.structs.replace(row, tau_low=low, tau_high=high)


def _step_draws(points: Sequence[ServedPoint]) -> np.ndarray | None:
    """Draws of the step time at every K [num_draws, K]: requests with replacement, the same ones at every K."""
    lengths = {len(point.requests) for point in points}
    if len(lengths) != 1 or min(lengths) < 2:
        return None
    num = lengths.pop()
    drawn = np.random.default_rng(SEED).integers(num, size=(NUM_DRAWS, num))
    columns = []
    for point in points:
        seconds = np.array([request.decode_s for request in point.requests])[drawn].sum(axis=1)
        tokens = np.array([request.num_decoded for request in point.requests])[drawn].sum(axis=1)
        if not (tokens > 0).all():
            return None
        columns.append(seconds / tokens * (point.tokens_per_step or 1.0))
    return np.stack(columns, axis=1)


def checks_of(points: Sequence[ServedPoint]) -> tuple[CheckedK, ...]:
    """Measured gains of every K of one scene, beside what was expected before it was run. Empty without plain decoding."""
    plain = next((point for point in points if (point.asked or point.block_size) == 1), None)
    if plain is None or not plain.tpot_s:
        return ()
    draws = {id(point): tpot for point in points if (tpot := _tpot_draws(point)) is not None}
    checks = []
    for point in points:
        size, tpot_s = point.block_size or point.asked, point.tpot_s
        if size is None or not tpot_s:
            continue
        low = high = None
        ours, theirs = draws.get(id(point)), draws.get(id(plain))
        if ours is not None and theirs is not None and len(point.requests) == len(plain.requests):
            low, high = (float(value) for value in np.quantile(theirs / ours, [0.025, 0.975]))
        expected = point.expected_speedup
        checks.append(
            CheckedK(
                task=point.task,
                block_size=size,
                predicted_speedup=expected,
                measured_speedup=plain.tpot_s / tpot_s,
                measured_low=low,
                measured_high=high,
                measured_tpot_s=tpot_s,
                predicted_tpot_s=None if expected is None else plain.tpot_s / expected,
                num_tokens=point.num_decoded,
                batch=point.concurrency,
                context=None,
            )
        )
    return tuple(checks)


def _tpot_draws(point: ServedPoint) -> np.ndarray | None:
    draws = _step_draws([msgspec.structs.replace(point, tokens_per_step=1.0)])
    return None if draws is None else draws[:, 0]


def compare_answers(points: Sequence[ServedPoint]) -> tuple[int, int, int]:
    """Tokens compared with plain decoding, answers compared, answers that differ; of single requests in flight where there are any.

    Token ids are compared where the server gives them, else the text. Several requests in flight share matmuls of changing
    widths, which may flip a tie.
    """
    fewest = min((point.concurrency for point in points), default=1)
    chosen = [point for point in points if point.concurrency == fewest]
    plain = {point.task: point for point in chosen if point.block_size == 1}
    num_tokens = num_answers = num_different = 0
    for point in chosen:
        base = plain.get(point.task)
        if base is None or point.block_size in (1, None):
            continue
        for ours, theirs in zip(point.requests, base.requests, strict=False):
            num_answers += 1
            num_tokens += min(ours.num_output_tokens, theirs.num_output_tokens)
            by_id = ours.tokens is not None and theirs.tokens is not None
            num_different += ours.tokens != theirs.tokens if by_id else ours.text != theirs.text
    return num_tokens, num_answers, num_different


def comparison_finding(num_answers: int, num_different: int, is_exact: bool) -> tuple[Finding, ...]:
    """What the comparison says: a loss where floats leave no room for ties, else a note."""
    if not num_different:
        return ()
    text = f"{num_different} of {num_answers} answers differ from those of plain decoding"
    if is_exact:
        hint = "in float32 that is a fault of the engine or a near-tie; no gain below can be trusted"
        return (Finding(code="not-lossless", severity="error", message=text, hint=hint, where="decoding"),)
    hint = "in half precision near-ties flip; start the server in float32 and say --dtype float32 to have it judged"
    return (Finding(code="answers-differ", severity="info", message=text, hint=hint, where="decoding"),)
