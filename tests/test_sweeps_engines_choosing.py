"""Which K is run next: plain decoding, the widest, then the one that promises most; few in all."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweeps.engines.choosing import (
    LEAST_IMPROVEMENT,
    MAX_SERVERS,
    Seen,
    choose_next,
    expected_speedup,
    expected_tau,
    improvement,
)


def world(alpha: float, plain_s: float, draft_s: float, token_s: float, width: int):
    """A server whose every draft is accepted with probability α and whose step time is a line in K."""

    def at(size: int) -> Seen:
        survival = tuple(alpha**position for position in range(1, size))
        return Seen(size, plain_s if size == 1 else plain_s + draft_s + token_s * size, 1 + sum(survival), survival)

    return at


def sweep(at, candidates, exhaustive=False) -> list[int]:
    order: list[int] = []
    while (chosen := choose_next(candidates, {("t", 1): [at(size) for size in order]}, order, exhaustive)) is not None:
        order.append(chosen.block_size)
    return order


def test_plain_then_widest_then_the_most_promising() -> None:
    order = sweep(world(alpha=0.8, plain_s=1.0, draft_s=0.1, token_s=0.3, width=16), range(1, 17))
    assert order[:2] == [1, 16]
    assert len(order) <= MAX_SERVERS


def test_the_optimum_is_found_with_few_servers() -> None:
    """At every setting the best K among those run is within 3 % of the best of all 16."""
    for alpha in (0.3, 0.6, 0.8, 0.95):
        for token_s in (0.0, 0.02, 0.1, 0.5):
            at = world(alpha, 1.0, 0.2, token_s, 16)
            order = sweep(at, range(1, 17))
            rate = {size: at(size).tokens_per_step / at(size).step_s for size in range(1, 17)}
            assert max(rate[size] for size in order) >= 0.97 * max(rate.values()), (alpha, token_s, order)
            assert len(order) <= MAX_SERVERS


def test_a_drafter_that_never_agrees_ends_the_sweep_at_two() -> None:
    assert sweep(world(0.0, 1.0, 0.2, 0.05, 8), range(1, 9)) == [1, 8]


def test_what_was_asked_for_is_run_in_full() -> None:
    assert sweep(world(0.0, 1.0, 0.2, 0.05, 8), (1, 2, 4, 8), exhaustive=True) == [1, 2, 4, 8]


def test_a_widest_block_that_failed_is_followed_by_the_next() -> None:
    chosen = choose_next(range(1, 9), {("t", 1): [Seen(1, 1.0, 1.0)]}, [1, 8])
    assert chosen is not None
    assert chosen.block_size == 7


def test_expectations_by_hand() -> None:
    seen = [Seen(1, 1.0, 1.0), Seen(5, 2.0, 2.5, (0.8, 0.4, 0.2, 0.1))]
    assert expected_tau(seen, 3) == pytest.approx(1 + 0.8 + 0.4)
    # Halfway, so the time is even over 1.5 s (all slope) … 2 s (all jump), 1.75 s in the mean.
    assert expected_speedup(seen, 3) == pytest.approx(2.2 / 1.75)
    # ∫ max(0, 2.2/t − 2.5/2) dt over 1.5 … 1.76 = 2.2 ln(1.76/1.5) − 1.25 · 0.26 = 0.0266; over 0.5 and over 1.25 it is 0.0426.
    assert improvement(seen, 3) == pytest.approx(0.0426, abs=0.001)
    assert expected_speedup(seen, 6) is None  # nothing wider was seen
    assert improvement(seen, 6) == 0.0


@given(
    st.floats(0.0, 0.99),
    st.floats(0.0, 1.0),
    st.floats(0.0, 0.5),
    st.integers(1, 24),
    st.floats(0.1, 10.0),
)
def test_laws(alpha: float, draft_s: float, token_s: float, width: int, scale: float) -> None:
    at = world(alpha, 1.0, draft_s, token_s, width)
    order = sweep(at, range(1, width + 1))
    assert len(order) == len(set(order)) <= max(2, MAX_SERVERS)
    assert set(order) <= set(range(1, width + 1))

    def slower(size: int) -> Seen:
        seen = at(size)
        return Seen(size, seen.step_s * scale, seen.tokens_per_step, seen.survival)

    assert sweep(slower, range(1, width + 1))[:2] == order[:2]
    seen = [at(size) for size in order]
    left = [size for size in range(1, width + 1) if size not in order]
    if len(order) < MAX_SERVERS:
        assert all(improvement(seen, size) < LEAST_IMPROVEMENT for size in left)
