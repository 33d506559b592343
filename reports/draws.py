"""Draws of two predictions, made again from the records they rest on: what both sides share then leaves the error of their ratio.

A prediction keeps the interval of its own speedup. Two intervals cannot tell what their errors have in common, and much often
is: answers to the same prompts (easy ones are easy for both drafters), one data sheet whose efficiencies nobody measured, one
fitted model. So the draws are made again with one seed for what is shared and different seeds for what is not. They stand for a
prediction only where their middle gives its rows back: one that came from elsewhere (a table, another version) has none.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from perfmodel.acceptance import tau, tau_draws
from perfmodel.errors import PerfError
from perfmodel.hardware import load_hardware
from perfmodel.modelspec import load_model, names
from perfmodel.records import AcceptanceProfile, KPrediction
from perfmodel.stepmodel import checked
from perfmodel.steptime import StepSeconds, datasheet_steps, fitted_steps
from perfmodel.survival import Array

from .inputs import PageInputs

NUM_DRAWS = 2000
QUANTILES = (2.5, 97.5)
SAME = 1e-6
"""Relative difference up to which a row counts as given back."""


@dataclass(frozen=True)
class Draws:
    """Per block size, draws of seconds per token and of the speedup over the side's own plain decoding."""

    tpot_s: dict[int, Array]
    speedup: dict[int, Array]


@dataclass(frozen=True)
class Shared:
    """What two sides have in common, so that its error is drawn once: `prompts` of the acceptance, and the `steps` (their origin)."""

    prompts: bool
    steps: bool


def profile_of(inputs: PageInputs, prediction: KPrediction) -> AcceptanceProfile | None:
    """The acceptance that a prediction rests on: the record of its task that has its τ at every K; None where there is none."""
    known = inputs.acceptance.profiles if inputs.acceptance else ()
    return next((one for one in known if one.task == prediction.task and _gives_back(prediction, one)), None)


def same_prompts(a: PageInputs, b: PageInputs, one: AcceptanceProfile, other: AcceptanceProfile) -> bool:
    """Whether two acceptances were measured on the same prompts in the same order.

    True of one and the same acceptance, and of two runs that took their prompts from one source and saw the same lengths in tokens.
    """
    if one == other:
        return True
    asked = _prompts(a, one), _prompts(b, other)
    return asked[0] is not None and asked[0] == asked[1]


def _prompts(inputs: PageInputs, profile: AcceptanceProfile) -> tuple[str | None, tuple[int, ...]] | None:
    run = inputs.run
    if run is None or not profile.committed or run.environment.platform == "server":
        return None
    counted = (one for one in run.decodes if one.task == profile.task and one.committed == profile.committed)
    found = next(counted, None)
    return None if found is None else (run.spec.prompts_file, found.prompt_tokens)


def paired_draws(
    a: tuple[PageInputs, KPrediction], b: tuple[PageInputs, KPrediction]
) -> tuple[Draws | None, Draws | None, Shared]:
    """Draws of both predictions (None where they cannot be made again), and what was drawn once for both."""
    profiles = [profile_of(*a), profile_of(*b)]
    one, other = profiles
    prompts = one is not None and other is not None and same_prompts(a[0], b[0], one, other)
    steps = [_steps(*a, seed=0), _steps(*b, seed=0)]
    alike = _num_draws(steps[0]) == _num_draws(steps[1]) > 0 and _origin(*a) == _origin(*b)
    if not alike:
        steps[1] = _steps(*b, seed=1)
    seeds = ((10, 20), (10 if prompts else 11, 20 if alike else 21))
    made = [_draws(prediction, profile, times, *seed) for (_, prediction), profile, times, seed in
            zip((a, b), profiles, steps, seeds, strict=True)]  # fmt: skip
    return made[0], made[1], Shared(prompts, alike)


def _num_draws(steps: StepSeconds | None) -> int:
    return 0 if steps is None or steps.verify_draws is None else len(steps.verify_draws)


def _origin(inputs: PageInputs, prediction: KPrediction) -> Any:
    """What the error of a prediction's step times comes from: the fitted model, or a chip's unmeasured efficiencies."""
    return inputs.model if prediction.source == "measured" else prediction.hardware


def _steps(inputs: PageInputs, prediction: KPrediction, seed: int) -> StepSeconds | None:
    """The step times of a prediction with draws; None where its records do not give its rows back."""
    rows = sorted(prediction.rows, key=lambda row: row.block_size)
    if any(row.draft_s is None or row.verify_s is None or row.host_s is None for row in rows):
        return None
    sizes = [row.block_size for row in rows]
    try:
        if prediction.source == "measured" and inputs.model is not None:
            host_s = rows[-1].host_s or 0.0
            model = checked(inputs.model, "the model")
            steps = fitted_steps(model, sizes, prediction.batch, prediction.context, host_s=host_s, seed=seed)
        elif prediction.source == "datasheet" and {prediction.target, prediction.draft} <= set(names()):
            pair = load_model(prediction.target), load_model(prediction.draft)
            steps = datasheet_steps(
                load_hardware(prediction.hardware), *pair, sizes, prediction.batch, prediction.context, seed=seed
            )
        else:
            return None
    except PerfError:
        return None
    known = np.array([(row.draft_s or 0.0) + (row.verify_s or 0.0) + (row.host_s or 0.0) for row in rows])
    return steps if np.allclose(steps.draft_s + steps.verify_s + steps.host_s, known, rtol=SAME, atol=0.0) else None


def _draws(
    prediction: KPrediction, profile: AcceptanceProfile | None, steps: StepSeconds | None, of_prompts: int, of_steps: int
) -> Draws | None:
    if profile is None or steps is None:
        return None
    sizes = steps.block_sizes
    drafts, verifies, hosts = steps.draft_draws, steps.verify_draws, steps.host_draws
    tokens = tau_draws(profile, int(sizes[-1]), NUM_DRAWS, of_prompts)
    if tokens is None or drafts is None or verifies is None or hosts is None:
        return None
    total = drafts + verifies + hosts
    step_s = total[np.random.default_rng(of_steps).integers(len(total), size=NUM_DRAWS)]
    tpot_s = {int(size): step_s[:, i] / tokens[:, size - 1] for i, size in enumerate(sizes)}
    plain = tpot_s.get(1)
    speedup = {} if plain is None else {size: plain / column for size, column in tpot_s.items()}
    return Draws(tpot_s, speedup)


def _gives_back(prediction: KPrediction, profile: AcceptanceProfile) -> bool:
    """Whether a profile has the τ that a prediction was made with."""
    return all(np.isclose(tau(profile, row.block_size), row.tau, rtol=SAME, atol=0.0) for row in prediction.rows)


def interval(draws: Array) -> tuple[float, float]:
    """The 95 % interval of draws."""
    low, high = np.percentile(draws, QUANTILES)
    return float(low), float(high)
