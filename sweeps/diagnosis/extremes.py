"""τ exactly 1 and τ exactly K are not results of a drafter but of a setup."""

from perfmodel.records import Diagnosed

from .finding import diagnosed
from .subject import Subject

ENOUGH_STEPS = 20


def tau_at_the_ends(subject: Subject) -> list[Diagnosed]:
    """`tau-exactly-one` (nothing was ever accepted) and `tau-exactly-k` (everything was)."""
    tau, size, steps = subject.tau, subject.block_size, subject.num_steps
    if tau is None or size is None or size < 2 or (steps is not None and steps < ENOUGH_STEPS):
        return []
    of_steps = "" if steps is None else f" in {steps:,} steps"
    if tau == 1:
        return [
            diagnosed(
                "tau-exactly-one",
                "error",
                subject.name,
                f"not one draft was accepted{of_steps}",
                "features missing or all zero, a drafter with untrained (random) weights, a drafter of another target, or an engine"
                " path that rejects everything",
                "load the pair in the reference implementation; compare the drafter's weights with the published ones",
            )
        ]
    if tau == size:
        return [
            diagnosed(
                "tau-exactly-k",
                "warning",
                subject.name,
                f"every draft was accepted{of_steps}: τ = K = {size}",
                "the drafter is the target itself, the output is one repeated text, acceptance is simulated, or the draft is compared"
                " with itself",
                "read an answer; use sampled prompts of the task; look for a synthetic acceptance setting",
            )
        ]
    return []
