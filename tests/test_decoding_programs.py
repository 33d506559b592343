"""One phase at a chosen shape: it is the loop's own program, it runs again and again, and impossible shapes are refused."""

import functools

import jax
import pytest
from decoding_pairs import small_pair

from decoding import steps
from decoding.attention import PAGE_SIZE
from decoding.loop import Decoder
from decoding.programs import phase_program
from perfmodel.errors import InputError
from perfmodel.phases import COMMIT, DRAFT, PREFILL, VERIFY

PAIR = small_pair(0)
CONTEXT = 8
BATCH = 2


@functools.cache
def program(phase, block_size):
    return phase_program(PAIR, phase, block_size=block_size, batch=BATCH, context=CONTEXT)


@pytest.mark.parametrize(("phase", "block_size"), [(VERIFY, 1), (COMMIT, 1), (DRAFT, 3), (VERIFY, 3), (COMMIT, 3)])
def test_runs_repeatedly_and_takes_time(phase, block_size):
    seconds = [program(phase, block_size).run() for _ in range(3)]
    assert all(s > 0 for s in seconds)
    assert program(phase, block_size).lower_s > 0
    assert program(phase, block_size).compile_s > 0


def test_the_cache_has_room_for_context_and_block_and_holds_no_zeros():
    cache = program(VERIFY, 3).arguments[program(VERIFY, 3).cache_at]
    per_position = PAIR.target_config.num_kv_heads * PAIR.target_config.head_dim
    for leaf in jax.tree_util.tree_leaves(cache.layers):
        assert leaf.size == BATCH * PAGE_SIZE * per_position  # the 11 positions need one page
        assert (leaf != 0).mean() > 0.99


def test_it_is_the_program_that_decodes():
    """Same capacity, same batch: the compiled text is the loop's, so what is timed is what decodes."""
    decoder = Decoder(PAIR, block_size=3, batch=BATCH, capacity=CONTEXT + 3)
    decoder.compile(prompt_capacity=4)
    for phase in (DRAFT, VERIFY, COMMIT):
        assert program(phase, 3).compiled.as_text() == decoder._programs[phase].as_text()


def test_the_four_programs_are_named_as_the_phases():
    assert all(getattr(steps, phase).__name__ == phase for phase in (PREFILL, DRAFT, VERIFY, COMMIT))


@pytest.mark.parametrize(
    ("phase", "shape", "message"),
    [
        (DRAFT, {"block_size": 1, "batch": 1, "context": 8}, "nothing is drafted"),
        (PREFILL, {"block_size": 4, "batch": 1, "context": 8}, "not part of a step"),
        (VERIFY, {"block_size": 0, "batch": 1, "context": 8}, "is no step"),
        (VERIFY, {"block_size": 4, "batch": 1, "context": -1}, "is no step"),
    ],
)
def test_refuses_what_is_no_step(phase, shape, message):
    with pytest.raises(InputError, match=message):
        phase_program(small_pair(0), phase, **shape)


def test_refuses_a_block_without_a_drafter():
    with pytest.raises(InputError, match="needs a drafter"):
        phase_program(small_pair(0, draft_config=None, draft_params=None), VERIFY, block_size=4, batch=1, context=8)
