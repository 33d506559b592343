"""Which K to start a server for next: the one from which most is to be learnt about where the optimum lies.

A start costs half a minute to many minutes, so few are made. Plain decoding comes first (everything is a ratio to it), then the
widest block: its survival curve holds τ of every narrower one, and its step time bounds theirs. The next K is the one whose rate
can be expected to exceed the best seen by most (expected improvement, Mockus 1978); below one part in a hundred the sweep is done.

Between two measured K the step time is not known, only its shape. From plain decoding on, a jump (the drafter, another kernel) and a
slope share the difference in unknown parts; among drafting K verification is flat first and rises later, so the time lies below
the line between its neighbours.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

MAX_SERVERS = 6
"""Servers that are started where the tool chooses."""

LEAST_IMPROVEMENT = 0.01
_SHARES = (np.arange(64) + 0.5) / 64
"""The unknown part of the shape, each value as likely as the next."""


@dataclass(frozen=True)
class Seen:
    """What one K gave in one scene: seconds per step, tokens per step, and survival by position where it is known."""

    block_size: int
    step_s: float
    tokens_per_step: float
    survival: tuple[float, ...] = ()


@dataclass(frozen=True)
class Next:
    """The K to run next, and why."""

    block_size: int
    reason: str


Scenes = Mapping[tuple[str, int], Sequence[Seen]]


def choose_next(candidates: Sequence[int], scenes: Scenes, tried: Collection[int], exhaustive: bool = False) -> Next | None:
    """The next K among `candidates`, or None when enough is known. `tried` were run, with or without success."""
    left = [size for size in sorted(candidates) if size not in tried]
    if not left:
        return None
    if 1 in left:
        return Next(1, "plain decoding, which every gain is measured against")
    if exhaustive:
        return Next(left[0], "asked for")
    if max(_measured(scenes), default=1) < left[-1]:
        return Next(left[-1], "the widest block: its acceptance tells that of all narrower ones")
    if len(tried) >= MAX_SERVERS:
        return None
    gains = {size: max((improvement(seen, size) for seen in scenes.values()), default=0.0) for size in left}
    best = max(left, key=lambda size: gains[size])
    if gains[best] < LEAST_IMPROVEMENT:
        return None
    return Next(best, f"expected to gain {gains[best]:.1%} on the best so far")


def _measured(scenes: Scenes) -> set[int]:
    return {seen.block_size for points in scenes.values() for seen in points}


def improvement(seen: Sequence[Seen], block_size: int) -> float:
    """Expected relative gain in tokens per second of a K over the best one seen; 0 where nothing can be expected."""
    times, tau = _step_times(seen, block_size), expected_tau(seen, block_size)
    if times is None or tau is None:
        return 0.0
    best = max(point.tokens_per_step / point.step_s for point in seen)
    return float(np.mean(np.maximum(0.0, tau / times - best)) / best)


def expected_speedup(seen: Sequence[Seen], block_size: int) -> float | None:
    """What the points so far let expect of a K: τ by survival over the mean of the step times that may be."""
    times, tau = _step_times(seen, block_size), expected_tau(seen, block_size)
    plain = next((point for point in seen if point.block_size == 1), None)
    if times is None or tau is None or plain is None:
        return None
    return tau * plain.step_s / float(np.mean(times))


def expected_tau(seen: Sequence[Seen], block_size: int) -> float | None:
    """Tokens per step at a K by the survival curve of the next wider one; None where there is none."""
    wider = [point for point in seen if point.block_size >= block_size and len(point.survival) >= block_size - 1]
    if not wider:
        return None
    nearest = min(wider, key=lambda point: point.block_size)
    return 1.0 + sum(nearest.survival[: block_size - 1])


def _step_times(seen: Sequence[Seen], block_size: int) -> np.ndarray | None:
    """Step times that a K may have, s; None outside what was measured."""
    narrower = [point for point in seen if point.block_size < block_size]
    wider = [point for point in seen if point.block_size > block_size]
    if not narrower or not wider:
        return None
    left, right = max(narrower, key=lambda point: point.block_size), min(wider, key=lambda point: point.block_size)
    way = (block_size - left.block_size) / (right.block_size - left.block_size)
    reached = _SHARES + (1.0 - _SHARES) * way if left.block_size == 1 else way * _SHARES
    return left.step_s + (right.step_s - left.step_s) * reached
