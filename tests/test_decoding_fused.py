"""Two loops over one step: the same tokens and counts, stepwise or without returning to the host, alone or in a batch."""

import copy
import dataclasses
import functools
import logging
import re

import jax
import numpy as np
import pytest
from decoding_pairs import VOCAB_SIZE, small_pair

from decoding.fused import compile_fused, generate_fused
from decoding.loop import Decoder, generate, padded_length, required_capacity
from decoding.sampling import Sampling
from perfmodel.errors import InputError
from perfmodel.phases import COMMIT, DRAFT, VERIFY

PROMPT_CAPACITY = 20
NEW_TOKENS = 18
BLOCK_SIZE = 4
BATCH = 8
CAPACITY = required_capacity(PROMPT_CAPACITY, NEW_TOKENS, BLOCK_SIZE)
PROMPTS = [
    np.random.default_rng(length).integers(VOCAB_SIZE, size=length).tolist() for length in (5, 1, 20, 2, 16, 17, 3, 9)
]  # fmt: skip
SAMPLED = Sampling(temperature=0.9, top_p=0.95, proposals="sampled")


@functools.cache
def loops(block_size, batch, sampling=None, stop_token_ids=()):
    """A decoder and its fused loop, compiled once; `with_weights` gives them other weights."""
    pair = small_pair(seed=0, stop_token_ids=stop_token_ids)
    decoder = Decoder(pair, block_size, batch, CAPACITY, sampling=sampling)
    decoder.compile(PROMPT_CAPACITY)
    return decoder, compile_fused(decoder, PROMPT_CAPACITY, NEW_TOKENS)


def with_weights(ready, pair):
    decoder, fused = ready
    decoder = copy.copy(decoder)
    decoder.pair = pair
    decoder.draft_params = pair.draft_params if decoder.block_size > 1 else None
    return decoder, dataclasses.replace(fused, decoder=decoder)


def same(a, b):
    assert a.tokens == b.tokens
    assert a.committed == b.committed


@pytest.mark.parametrize(("block_size", "sampling"), [(1, None), (BLOCK_SIZE, None), (BLOCK_SIZE, SAMPLED)])
def test_both_loops_give_the_same_tokens_and_counts(block_size, sampling):
    for seed, lean in ((3, 8.0), (4, 0.0)):
        decoder, fused = with_weights(loops(block_size, BATCH, sampling), small_pair(seed, lean))
        stepwise = generate(decoder, PROMPTS, NEW_TOKENS, seed=seed)
        whole = generate_fused(fused, PROMPTS, NEW_TOKENS, seed=seed)
        same(whole, stepwise)
        assert whole.step_wall_s == ()
        assert whole.decode_s > 0
        limited = generate_fused(fused, PROMPTS[:3], NEW_TOKENS, seed=seed, max_steps=2)
        same(limited, generate(decoder, PROMPTS[:3], NEW_TOKENS, seed=seed, max_steps=2))
    if sampling is not None:
        assert generate(decoder, PROMPTS, NEW_TOKENS, seed=seed + 1).tokens != stepwise.tokens


@pytest.mark.parametrize("sampling", [None, pytest.param(SAMPLED, marks=pytest.mark.slow)])
def test_a_batch_of_eight_equals_eight_single_runs(sampling):
    """Unlike prompts, lengths, accepted counts and stop points; requests end at different steps, and what they then do is seen by none."""
    stops = (4, 17, 25)
    pair = small_pair(seed=19, lean=8.0, stop_token_ids=stops)
    decoder, fused = with_weights(loops(BLOCK_SIZE, BATCH, sampling, stops), pair)
    together = generate(decoder, PROMPTS, NEW_TOKENS, seed=2)
    same(generate_fused(fused, PROMPTS, NEW_TOKENS, seed=2), together)
    assert len({len(tokens) for tokens in together.tokens}) >= 3  # they do stop at different points
    assert {1, 2} <= {count for counts in together.committed for count in counts}
    alone, _ = with_weights(loops(BLOCK_SIZE, 1, sampling, stops), pair)
    for row, prompt in enumerate(PROMPTS):
        single = generate(alone, [prompt], NEW_TOKENS, seed=2, request_ids=[row])
        assert single.tokens[0] == together.tokens[row]
        assert single.committed[0] == together.committed[row]


def test_the_order_of_pages_changes_nothing():
    decoder, _ = with_weights(loops(BLOCK_SIZE, BATCH), small_pair(seed=5, lean=8.0))
    expected = generate(decoder, PROMPTS, NEW_TOKENS)
    decoder.page_table = np.random.default_rng(0).permutation(decoder.page_table.ravel()).reshape(BATCH, -1).astype(np.int32)
    same(generate(decoder, PROMPTS, NEW_TOKENS), expected)
    # and pages do matter: two requests that share theirs spoil each other
    decoder.page_table = np.repeat(decoder.page_table[:1], BATCH, axis=0)
    assert generate(decoder, PROMPTS, NEW_TOKENS).tokens != expected.tokens


def test_context_consumed_by_the_drafter_follows_what_was_committed():
    decoder, _ = with_weights(loops(BLOCK_SIZE, BATCH), small_pair(seed=6, lean=8.0))
    state = decoder.prefill(PROMPTS, NEW_TOKENS)
    lengths = np.array([len(prompt) for prompt in PROMPTS])
    assert np.array_equal(state.num_context, lengths)
    for _ in range(3):
        state, done = decoder.step(state)
        lengths = lengths + np.asarray(done.num_committed)
        assert np.array_equal(state.num_context, lengths)
        assert np.array_equal(state.position, lengths)


def test_the_fused_program_names_its_phases():
    _, fused = loops(BLOCK_SIZE, BATCH)
    text = fused.program.as_text()
    assert text.startswith("HloModule jit_decode,")
    for phase in (DRAFT, VERIFY, COMMIT):
        assert re.search(rf'op_name="jit\(decode\)/while/body/[^"]*\b{phase}/', text)


def compilations(caplog, action):
    caplog.clear()
    with caplog.at_level(logging.WARNING), jax.log_compiles():
        action()
    return [record for record in caplog.records if record.getMessage().startswith("Finished XLA compilation")]


def test_a_long_run_of_unlike_prompts_compiles_nothing_after_warm_up(caplog):
    """Whatever is accepted, and however long a prompt is: shapes are fixed by batch, capacity and block size."""
    decoder, fused = loops(BLOCK_SIZE, BATCH)
    ready = with_weights((decoder, fused), small_pair(seed=7, lean=8.0))
    generate(ready[0], PROMPTS[:1], 3)
    generate_fused(ready[1], PROMPTS[:1], 3)

    def long_run():
        seen = set()
        for seed in range(12):
            prompts = [[(seed * 7 + i * n) % VOCAB_SIZE for i in range(n)] for n in range(1 + seed % 3, 9 + seed % 3)]
            for run, loop in ((generate, ready[0]), (generate_fused, ready[1])):
                seen |= {count for row in run(loop, prompts, 1 + seed).committed for count in row}
        assert {1, 2} <= seen

    assert not compilations(caplog, long_run)
    assert compilations(caplog, lambda: jax.jit(lambda x: x * 4.5)(1.0))  # the count would notice


def test_prompts_are_padded_to_powers_of_two():
    assert [padded_length(n, 1000) for n in (1, 16, 17, 32, 33, 500)] == [16, 16, 32, 32, 64, 512]
    assert padded_length(20, 27) == 27  # no longer than the cache


def test_an_answer_of_one_token_takes_no_step_and_a_longer_one_than_compiled_for_is_refused():
    decoder, fused = loops(BLOCK_SIZE, BATCH)
    one = generate_fused(fused, PROMPTS, 1)
    same(one, generate(decoder, PROMPTS, 1))
    assert one.committed == ((),) * BATCH
    with pytest.raises(InputError, match="compiled for 18"):
        generate_fused(fused, PROMPTS[:1], NEW_TOKENS + 1)
    with pytest.raises(InputError, match="is none"):
        compile_fused(decoder, PROMPT_CAPACITY, 0)
