"""The first draft is the easiest; when even it fails, drafter and target do not understand each other.

A sound drafter has its first draft accepted in 70 to 95 % of steps. Below a half something general is wrong, and it harms every
position: the features come from other layers, the mask id is not the trained one, the text is not what the drafter was trained
on, labels are shifted by one, or the target's weights are of another revision.
"""

from perfmodel.records import Diagnosed

from .finding import diagnosed
from .subject import Subject

LOW, NEAR_ZERO, ENOUGH_STEPS = 0.5, 0.05, 30


def low_first_position(subject: Subject) -> list[Diagnosed]:
    """`first-position-near-zero` below 5 %, `low-first-position` below 50 %."""
    if not subject.survival or (subject.num_steps is not None and subject.num_steps < ENOUGH_STEPS):
        return []
    first = subject.survival[0]
    if subject.tau == 1 or first >= LOW:
        return []
    steps = "" if subject.num_steps is None else f" of {subject.num_steps:,} steps"
    evidence = f"the first draft is accepted in {100 * first:.1f} %{steps}"
    if first < NEAR_ZERO:
        return [
            diagnosed(
                "first-position-near-zero",
                "error",
                subject.name,
                evidence,
                "label layout (a drafter trained to predict the next token from each slot, read the ordinary way, stays below 1 %),"
                " feature layer ids, mask id, or an engine that does not fill the features",
                "run `perf diagnose --target … --draft …`; try sample_from_anchor; test the pair in the reference implementation",
            )
        ]
    return [
        diagnosed(
            "low-first-position",
            "warning",
            subject.name,
            evidence,
            "layer ids off by one, a wrong mask id, the chat template or thinking mode differs from training, label layout, another"
            " revision of the target, or text far from the training data (prose, another language)",
            "run `perf diagnose --target … --draft …`; repeat with the drafter's template and thinking mode; compare one prompt with the"
            " reference implementation",
        )
    ]
