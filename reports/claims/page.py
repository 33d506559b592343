"""docs/claims.md: the claims in one table, what they rest on, the model's own regression, and four figures."""

from collections import Counter
from collections.abc import Sequence

from perfmodel.hardware import load_hardware
from perfmodel.records import AcceptanceSet, Run, StepTimes
from perfmodel.roofline import ridge_point

from .acceptances import acceptance_claims, task_shares
from .claim import Claim
from .costs import CHIPS, cost_claims, flat_width
from .figures import flat_figure, served_figure, shares_figure, tasks_figure
from .regression import block_ablation, mean_error, nine_tasks, served_table
from .speedups import speedup_claims

FIGURES = "claims"

_HEAD = """# Every claim, judged

<!-- Written by `python -m reports.claims docs` from the records in docs/records and the figures in reports/claims/published.py. -->

The project starts from public claims about block drafting: DFlash on TPU and on GPU. Here is each of them beside what this
project's model and runs say. K is the block size, the tokens verified per step; vLLM's `num_speculative_tokens` is K − 1. Brackets
are 95 % intervals.

- **reproduced here**: our own run shows it.
- **agrees with the model**: the figure lies inside what the model gives from published acceptance and step times, or from a data sheet.
- **contradicted**: it lies outside, or below what the chip can physically do.
- **not testable here**: nothing at hand bears on it.
"""


def claims_page(acceptance: AcceptanceSet, timings: StepTimes, run: Run) -> tuple[str, dict[str, str]]:
    """The page's text and its figures by file name; the records are those of our own run."""
    claims = (*speedup_claims(), *cost_claims(timings), *acceptance_claims(acceptance, run))
    checks, served = nine_tasks(), served_table()
    figures = {
        "flat.svg": flat_figure(),
        "tasks.svg": tasks_figure(checks),
        "ceiling.svg": shares_figure(task_shares()),
        "concurrency.svg": served_figure(served),
    }
    parts = [
        _HEAD,
        _table(claims),
        "## What the verdicts rest on\n",
        _basis(claims, run),
        "## How flat, chip by chip\n",
        _flat_table(timings),
        "## In pictures\n",
        _pictures(),
        "## The model against published measurements\n",
        _regression_text(),
    ]
    return "\n".join(parts), figures


def _table(claims: Sequence[Claim]) -> str:
    lines = ["| claim | source, and what it assumes | verdict | what we find |", "|---|---|---|---|"]
    for claim in claims:
        cells = (claim.said, f"{claim.source}. Assumes {claim.assumes}.", f"**{claim.verdict}**", f"{claim.found}.")
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join([*lines, ""])


def _basis(claims: Sequence[Claim], run: Run) -> str:
    counts = Counter(claim.basis for claim in claims)
    own = f"{run.environment.host_cpu}, {run.environment.num_cores} cores, jax {run.environment.versions['jax']}"
    lines = [
        f"No TPU or GPU run of our own exists yet. {counts['own measurement']} of {len(claims)} verdicts rest on our own measurement, on a"
        f" CPU ({own}; docs/records/two-cores); {counts['published measurement']} on published measurements;"
        f" {counts['arithmetic']} on arithmetic with data sheets alone. What would settle each:",
        "",
    ]
    lines += [f"- *{claim.said}* ({claim.basis}): {claim.missing}." for claim in claims if claim.missing]
    return "\n".join([*lines, ""])


def _flat_table(timings: StepTimes) -> str:
    lines = [
        "The largest K at which a verify pass of Qwen3-4B in bfloat16 takes at most 10 % more than a plain step (batch 1, 256 cached"
        " tokens), by data sheet; K times the batch counts. The knee is where arithmetic takes as long as reading the weights.",
        "",
        "| chip | flat to K (95 %) | knee, tokens |",
        "|---|---|---|",
    ]
    for chip in CHIPS:
        hardware, width = load_hardware(chip), flat_width(chip)
        lines.append(f"| {hardware.display_name} | {width.text(0)} | {ridge_point(hardware, 'bfloat16'):.0f} |")
    own = {point.block_size: point.median_s for point in timings.points if point.phase == "verify" and point.samples_s}
    lines += [
        "",
        f"Measured here, SmolLM2-135M in float32 on two CPU cores: {1e3 * own[1]:.0f} ms at K=1, {1e3 * own[2]:.0f} at 2,"
        f" {1e3 * own[8]:.0f} at 8, {1e3 * own[64]:.0f} at 64, {1e3 * own[1024]:.0f} at 1024: not flat at all, since a single token runs"
        " on a kernel of its own and arithmetic takes over near K=20.",
        "",
    ]
    return "\n".join(lines)


def _pictures() -> str:
    names = {
        "flat.svg": "Verify time on TPU v5p against K",
        "tasks.svg": "Speedup of nine tasks, predicted and published",
        "ceiling.svg": "Share of the ceiling at K=16",
        "concurrency.svg": "Gain against concurrency on B200",
    }
    return "\n\n".join(f"![{words}]({FIGURES}/{name})" for name, words in names.items()) + "\n"


def _regression_text() -> str:
    checks = nine_tasks()
    served = served_table()
    lines = [
        "Each predicts what it was not given. A test holds these figures; they may only fall.",
        "",
        "| measurement | predicted from | mean error | largest |",
        "|---|---|---|---|",
    ]
    errors = [abs(check.error) for check in checks]
    lines.append(
        "| nine speedups, TPU v5p, Qwen3-4B, K=16 | each task's acceptance curve; plain and speculative step of the other eight"
        f" | {_percent(sum(errors) / len(errors))} | {_percent(max(errors))} |"
    )
    for is_mixture, name in ((False, "Qwen3-4B and 8B"), (True, "Qwen3-Coder-30B-A3B")):
        for which, given in (("from_one", "concurrency 1"), ("from_two", "concurrency 1 and 4")):
            rows = [row for row in served if row.served.is_mixture == is_mixture]
            largest = max(abs(value) for row in rows for value in getattr(row, which) if value is not None)
            lines.append(
                f"| gain to concurrency 32, B200, {name} | data sheet and {given} | {_percent(mean_error(served, which, is_mixture))}"
                f" | {_percent(largest)} |"
            )
    blocks = block_ablation()
    for what, wanted, known in (("τ", "predicted_tau", "published_tau"), ("speedup", "predicted_speedup", "published_speedup")):
        off = [abs(getattr(check, wanted) / getattr(check, known) - 1) for check in blocks]
        lines.append(
            f"| {what} at K=8 of a drafter trained for 16, three tasks | {what} at K=16"
            f" | {_percent(sum(off) / len(off))} | {_percent(max(off))} |"
        )
    lines += [
        "",
        "From concurrency 1 alone the gain under load is always predicted too high: sampling, acceptance and scheduling per request, and"
        " prefill between the steps, do not show at one request. Two concurrencies show them. For a mixture of experts the even routing of"
        " the cost model errs as well. Measure at two loads before trusting a recommendation for a third.",
        "",
    ]
    return "\n".join(lines)


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
