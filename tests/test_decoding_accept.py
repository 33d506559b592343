"""The accept rule by table: what is kept, what is cut, where the next step begins."""

import jax.numpy as jnp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decoding.accept import NO_TOKEN, Accepted, accept_greedy, cut_answer, last_committed

X = NO_TOKEN


@pytest.mark.parametrize(
    ("drafts", "predicted", "num_accepted", "committed"),
    [
        ([5, 6, 7], [9, 6, 7, 8], 0, [9, X, X, X]),  # first draft wrong: later agreement does not count
        ([5, 6, 7], [5, 9, 7, 8], 1, [5, 9, X, X]),
        ([5, 6, 7], [5, 6, 9, 8], 2, [5, 6, 9, X]),
        ([5, 6, 7], [5, 6, 7, 8], 3, [5, 6, 7, 8]),  # all accepted: the last row gives the bonus
        ([], [4], 0, [4]),  # K = 1 is plain decoding: nothing drafted, one token
    ],
)
def test_keeps_leading_agreement_and_adds_the_bonus(drafts, predicted, num_accepted, committed):
    result = accept_greedy(jnp.array([drafts], dtype=jnp.int32), jnp.array([predicted]))
    assert result.num_accepted.tolist() == [num_accepted]
    assert result.committed.tolist() == [committed]


def test_requests_of_a_batch_are_judged_apart():
    drafts = jnp.array([[1, 2], [1, 2], [1, 2]])
    predicted = jnp.array([[1, 2, 3], [1, 9, 3], [9, 2, 3]])
    result = accept_greedy(drafts, predicted)
    assert result.num_accepted.tolist() == [2, 1, 0]
    assert result.committed.tolist() == [[1, 2, 3], [1, 9, X], [9, X, X]]


@pytest.mark.parametrize(
    ("committed", "num_accepted", "remaining", "stops", "num_committed", "left"),
    [
        ([5, 6, 7, 8], 3, 10, (), 4, 6),
        ([5, 6, 7, 8], 3, 10, (2,), 4, 6),  # no stop token in it
        ([5, 2, 7, 8], 3, 10, (2,), 2, 0),  # stop inside the accepted run: it is kept, the rest is not
        ([5, 2, 7, 2], 3, 10, (2,), 2, 0),  # the first of two
        ([5, 6, 3, X], 2, 10, (2, 3), 3, 0),  # the bonus is the stop; several stop ids
        ([5, 6, 7, 8], 3, 2, (), 2, 0),  # length limit
        ([5, 6, 2, 8], 3, 2, (2,), 2, 0),  # the stop lies behind the limit
        ([5, 2, 7, 8], 3, 2, (2,), 2, 0),  # limit and stop at the same token
        ([5, 6, 7, 8], 3, 1, (2,), 1, 0),  # one token left
        ([5, 2, 7, 8], 3, 0, (2,), 0, 0),  # finished: keeps its place, commits nothing
    ],
)
def test_cuts_at_limit_and_first_stop(committed, num_accepted, remaining, stops, num_committed, left):
    accepted = Accepted(jnp.array([num_accepted]), jnp.array([committed]))
    cut = cut_answer(accepted, jnp.array([remaining]), stops)
    assert cut.num_committed.tolist() == [num_committed]
    assert cut.remaining.tolist() == [left]


def test_next_anchor_is_the_last_token_that_counts():
    committed = jnp.array([[5, 6, 7], [8, X, X], [5, 6, 7]])
    anchor = last_committed(jnp.array([[1], [2], [3]]), committed, jnp.array([2, 1, 0]))
    assert anchor.tolist() == [[6], [8], [3]]


def _blocks(k):
    tokens = st.integers(0, 3)
    return st.tuples(st.lists(tokens, min_size=k - 1, max_size=k - 1), st.lists(tokens, min_size=k, max_size=k))


@given(st.integers(1, 6).flatmap(_blocks))
@settings(deadline=None)
def test_committed_tokens_are_always_the_targets_own(block):
    drafts, predicted = block
    expected = []
    for i, token in enumerate(predicted):
        expected.append(token)
        if i == len(drafts) or drafts[i] != token:
            break
    result = accept_greedy(jnp.array([drafts], dtype=jnp.int32), jnp.array([predicted]))
    assert [t for t in result.committed[0].tolist() if t != X] == expected
    assert 1 <= int(result.num_accepted[0]) + 1 <= len(predicted)
