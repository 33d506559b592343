"""Lengths of sets of intervals. Device time is the length of a union, never a sum.

A device runs several things at once: kernels on parallel streams, copies beside arithmetic, an outer loop event over the events
of its body. Adding their durations counts the same microsecond twice and can exceed 100 % of the wall clock; the length of the
union cannot. Intervals are half-open `[start, end)` in integer picoseconds, so the arithmetic here is exact.
"""

import numpy as np
from jaxtyping import Int64

Intervals = Int64[np.ndarray, "_ 2"]
Lengths = Int64[np.ndarray, " _"]

EMPTY: Intervals = np.empty((0, 2), np.int64)
PS_PER_S = 1e12


def union(intervals: Intervals) -> Intervals:
    """The same set as sorted, disjoint, non-touching intervals, ps; empty ones vanish."""
    kept = intervals[intervals[:, 1] > intervals[:, 0]]
    if len(kept) == 0:
        return EMPTY
    kept = kept[np.argsort(kept[:, 0], kind="stable")]
    reach = np.maximum.accumulate(kept[:, 1])
    opens = np.concatenate(([True], kept[1:, 0] > reach[:-1]))
    last = np.concatenate((np.flatnonzero(opens)[1:] - 1, [len(kept) - 1]))
    return np.stack((kept[opens, 0], reach[last]), axis=1)


def merge(parts: list[Intervals]) -> Intervals:
    """The union of several sets, ps."""
    return union(np.concatenate(parts)) if parts else EMPTY


def total(intervals: Intervals) -> int:
    """Length of the union, ps."""
    joined = union(intervals)
    return int((joined[:, 1] - joined[:, 0]).sum())


def covered(intervals: Intervals, windows: Intervals) -> Lengths:
    """How much of each window the union of `intervals` covers, ps; windows may overlap each other."""
    joined = union(intervals)
    if len(joined) == 0 or len(windows) == 0:
        return np.zeros(len(windows), np.int64)
    before = np.concatenate(([0], np.cumsum(joined[:, 1] - joined[:, 0])))

    def up_to(instants: Lengths) -> Lengths:
        index = np.searchsorted(joined[:, 0], instants, side="left")
        overshoot = np.where(index > 0, np.maximum(joined[index - 1, 1] - instants, 0), 0)
        return before[index] - overshoot

    return up_to(windows[:, 1]) - up_to(windows[:, 0])


def total_by_group(intervals: Intervals, groups: Lengths, num_groups: int) -> tuple[Intervals, Lengths]:
    """For each group 0 … num_groups − 1: its extent and the length of its union, ps. Every group must have an interval."""
    low = np.full(num_groups, np.iinfo(np.int64).max)
    high = np.full(num_groups, np.iinfo(np.int64).min)
    np.minimum.at(low, groups, intervals[:, 0])
    np.maximum.at(high, groups, intervals[:, 1])
    # Laying the groups end to end, with a gap between, turns many unions into one.
    base = np.concatenate(([0], np.cumsum(high - low + 1)[:-1]))
    joined = union(intervals + (base - low)[groups][:, None])
    lengths = np.zeros(num_groups, np.int64)
    np.add.at(lengths, np.searchsorted(base, joined[:, 0], side="right") - 1, joined[:, 1] - joined[:, 0])
    return np.stack((low, high), axis=1), lengths


def clip(intervals: Intervals, start: int, end: int) -> Intervals:
    """The parts inside `[start, end)`, ps."""
    clipped = np.clip(intervals, start, end)
    return clipped[clipped[:, 1] > clipped[:, 0]]


def extent(intervals: Intervals) -> Intervals:
    """One interval from the first start to the last end, ps (none for none)."""
    if len(intervals) == 0:
        return EMPTY
    return np.array([[intervals[:, 0].min(), intervals[:, 1].max()]], np.int64)


def outermost(intervals: Intervals) -> Intervals:
    """Those that begin inside no earlier one, in time order; neighbours that touch stay apart."""
    if len(intervals) == 0:
        return EMPTY
    ordered = intervals[np.lexsort((-intervals[:, 1], intervals[:, 0]))]
    reach = np.maximum.accumulate(ordered[:, 1])
    return ordered[np.concatenate(([True], ordered[1:, 0] >= reach[:-1]))]


def seconds(lengths: Lengths) -> tuple[float, ...]:
    """Picoseconds as seconds."""
    return tuple((lengths / PS_PER_S).tolist())
