"""Whole numbers behind printed figures: what was printed from known counts is found again, and nothing else is claimed."""

from hypothesis import given
from hypothesis import strategies as st

from sweeps.importers.rounding import Steps, counts_behind, steps_behind


def printed(steps, counts):
    """What a log prints of these counts: total, mean with the bonus, rates by position."""
    accepted = sum(counts)
    return accepted, round(1 + accepted / steps, 2), [round(count / steps, 3) for count in counts]


@given(
    steps=st.integers(1, 900),
    shares=st.lists(st.floats(0.05, 1.0), min_size=1, max_size=15),
    is_short=st.booleans(),
)
def test_the_true_number_is_found_or_left_open(steps, shares, is_short):
    counts, alive = [], steps
    for share in shares:
        alive = round(alive * share)
        counts.append(alive)
    accepted, mean, rates = printed(steps, counts)
    drafted = steps * len(counts) - (min(steps, steps * len(counts) - accepted) // 2 if is_short else 0)
    found = steps_behind(accepted, drafted, mean, rates)
    if not is_short and accepted:
        assert found is None or found == Steps(steps, True)
    if found is not None and found.num_steps == steps:
        known = counts_behind(steps, accepted, rates)
        assert known is None or known == counts


def test_a_few_steps_are_always_found():
    for steps in range(1, 200):
        counts = [steps, steps // 2, steps // 3]
        accepted, mean, rates = printed(steps, counts)
        assert steps_behind(accepted, 3 * steps, mean, rates) == Steps(steps, True)


def test_low_acceptance_over_many_steps_is_quick_and_right():
    # the mean alone allows every number from 2,667 to 8,000 steps; 4,000 is the one with eight drafts each
    accepted, mean, rates = printed(4000, [40, 0, 0, 0, 0, 0, 0, 0])
    assert mean == 1.01
    assert steps_behind(accepted, 32000, mean, rates) == Steps(4000, True)


def test_several_answers_are_left_open():
    assert steps_behind(5, 100_000, 1.0, []) is None
    assert steps_behind(0, 7, 1.0, [0.0, 0.0]) is None
    assert counts_behind(5000, 2500, [0.5]) is None  # 2,498 to 2,502 all print as 0.500
