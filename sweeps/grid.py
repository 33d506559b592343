"""Which points a sweep measures, and how long that may take.

Block sizes double from 1 to the maximum, so that plateau, knee and compute side are each met by several points at few
compilations. Time is shared out beforehand: a sweep says what it will do, and then keeps to it.
"""

from perfmodel.errors import InputError
from perfmodel.records.base import Record

MAX_BLOCK_SIZE = 8192


class Budget(Record):
    """How long each part of a sweep may take, in seconds."""

    step_times_s: float
    decode_s: float
    check_s: float
    rest_s: float

    @property
    def total_s(self) -> float:
        """The whole sweep, s."""
        return self.step_times_s + self.decode_s + self.check_s + self.rest_s


DEFAULT_BUDGET = Budget(step_times_s=180, decode_s=240, check_s=60, rest_s=60)
QUICK_BUDGET = Budget(step_times_s=20, decode_s=15, check_s=8, rest_s=10)


def block_sizes(maximum: int) -> tuple[int, ...]:
    """1, 2, 4, … up to `maximum`, which is itself included. Raises `InputError` outside 1 … 8192."""
    if not 1 <= maximum <= MAX_BLOCK_SIZE:
        raise InputError(f"--max {maximum} is outside 1 … {MAX_BLOCK_SIZE}", "1024 is the usual choice")
    sizes = [1]
    while sizes[-1] * 2 <= maximum:
        sizes.append(sizes[-1] * 2)
    if sizes[-1] != maximum:
        sizes.append(maximum)
    return tuple(sizes)


def neighbours(best: int, best_drafting: int, trained_block_size: int) -> tuple[int, ...]:
    """Block sizes to run again around a prediction: plain decoding, the best, and one to either side.

    Where plain decoding is the best, the best of those that draft is held to the prediction beside the drafter's own size.
    """
    around = {1, best - 1, best, best + 1} if best > 1 else {1, 2, best_drafting, trained_block_size}
    return tuple(sorted(size for size in around if 1 <= size <= trained_block_size))
