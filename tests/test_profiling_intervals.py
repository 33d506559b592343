import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from profiling.intervals import EMPTY, clip, covered, extent, merge, total, total_by_group, union

INTERVALS = st.lists(st.tuples(st.integers(-20, 40), st.integers(0, 15)), max_size=12)


def as_array(pairs: list[tuple[int, int]]) -> np.ndarray:
    return np.array([(start, start + length) for start, length in pairs], np.int64).reshape(-1, 2)


def points(intervals: np.ndarray) -> set[int]:
    return {point for start, end in intervals.tolist() for point in range(start, end)}


@given(INTERVALS)
def test_union_covers_the_same_integers_as_brute_force(pairs):
    intervals = as_array(pairs)
    joined = union(intervals)
    assert points(joined) == points(intervals)
    assert total(intervals) == len(points(intervals))
    assert (joined[1:, 0] > joined[:-1, 1]).all(), "sorted, disjoint and not touching"
    assert (joined[:, 1] > joined[:, 0]).all(), "no empty interval"


@given(INTERVALS, INTERVALS)
def test_covered_counts_the_integers_inside_each_window(pairs, windows):
    intervals, windows = as_array(pairs), as_array(windows)
    expected = [len(points(intervals) & set(range(start, end))) for start, end in windows.tolist()]
    assert covered(intervals, windows).tolist() == expected


@given(INTERVALS.filter(bool), st.data())
def test_total_by_group_equals_one_union_per_group(pairs, data):
    intervals = as_array(pairs)
    num_groups = data.draw(st.integers(1, len(pairs)))
    extra = data.draw(
        st.lists(st.integers(0, num_groups - 1), min_size=len(pairs) - num_groups, max_size=len(pairs) - num_groups)
    )
    groups = np.array([*range(num_groups), *extra], np.int64)
    spans, lengths = total_by_group(intervals, groups, num_groups)
    for group in range(num_groups):
        mine = intervals[groups == group]
        assert lengths[group] == len(points(mine))
        assert spans[group].tolist() == [mine[:, 0].min(), mine[:, 1].max()]


@given(INTERVALS, st.integers(-20, 40), st.integers(0, 30))
def test_clip_keeps_what_is_inside(pairs, start, length):
    intervals = as_array(pairs)
    assert points(clip(intervals, start, start + length)) == points(intervals) & set(range(start, start + length))


def test_a_union_never_exceeds_the_window_where_a_sum_does():
    # An operation from 0 to 10 waits for a copy from 2 to 9 beside it: the sum is 17 in a window of 10.
    intervals = as_array([(0, 10), (2, 7)])
    assert int((intervals[:, 1] - intervals[:, 0]).sum()) == 17
    assert total(intervals) == 10


def test_nothing_has_no_length():
    assert total(EMPTY) == 0
    assert len(extent(EMPTY)) == 0
    assert len(merge([])) == 0
    assert covered(EMPTY, as_array([(0, 5)])).tolist() == [0]
