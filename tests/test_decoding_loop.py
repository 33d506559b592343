"""The decode loop: whatever the drafter says, the answer is the target's own; and every limit holds."""

import copy
import dataclasses
import functools
import logging
from contextlib import contextmanager

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from decoding_pairs import DRAFT as DRAFT_CONFIG
from decoding_pairs import MASK_TOKEN_ID, VOCAB_SIZE, small_pair
from hypothesis import given, settings
from hypothesis import strategies as st

from decoding.checkpoint import random_draft
from decoding.loop import Decoder, generate, no_span, required_capacity
from decoding.pair import load_pair
from decoding.prompts import Prompt
from decoding.steps import Drafted
from decoding.tasks import encode_prompt, load_prompts
from perfmodel.errors import InputError, UnsupportedError
from perfmodel.phases import COMMIT, DRAFT, PREFILL, STEP_ANNOTATION, VERIFY

PROMPT_CAPACITY = 6
NEW_TOKENS = 14
BATCH = 3
BLOCK_SIZES = (3, 8)
CAPACITY = required_capacity(PROMPT_CAPACITY, NEW_TOKENS, max(BLOCK_SIZES))

PROMPTS = [[3, 1, 4, 1, 5], [9], [2, 6]]


@functools.cache
def compiled(block_size, batch=BATCH, stop_token_ids=()):
    pair = small_pair(seed=0, stop_token_ids=stop_token_ids)
    decoder = Decoder(pair, block_size=block_size, batch=batch, capacity=CAPACITY)
    decoder.compile(PROMPT_CAPACITY)
    return decoder


def decoder_for(pair, block_size, batch=BATCH):
    """The compiled programs with another pair's weights: shapes are the same, so nothing is compiled again."""
    decoder = copy.copy(compiled(block_size, batch, pair.stop_token_ids))
    decoder.pair = pair
    decoder.draft_params = pair.draft_params if block_size > 1 else None
    return decoder


def with_drafts(decoder, propose):
    """The decoder with `propose(row, position) -> K-1 tokens` in the drafter's place."""

    def draft(target_params, draft_params, anchor, position, draft_state, keys):
        rows = [propose(row, int(p)) for row, p in enumerate(position)]
        return Drafted(jnp.concatenate([anchor, jnp.asarray(rows, dtype=jnp.int32)], axis=1), None, draft_state)

    decoder = copy.copy(decoder)
    decoder._programs = decoder._programs | {DRAFT: draft}
    return decoder


def perfect_drafts(answers, block_size):
    """A drafter that knows the answers to `PROMPTS`."""
    padded = [answer + (0,) * block_size for answer in answers]

    def propose(row, position):
        at = position - len(PROMPTS[row]) + 1  # index, within the answer, of the first token to be drafted
        return padded[row][at : at + block_size - 1]

    return propose


def plain(pair, prompts, batch=BATCH, max_new_tokens=NEW_TOKENS):
    return generate(decoder_for(pair, 1, batch), prompts, max_new_tokens).tokens


prompt_lists = st.lists(
    st.lists(st.integers(0, VOCAB_SIZE - 1), min_size=1, max_size=PROMPT_CAPACITY), min_size=1, max_size=BATCH
)


@given(
    seed=st.integers(0, 10_000), block_size=st.sampled_from(BLOCK_SIZES), lean=st.sampled_from([0.0, 8.0]), prompts=prompt_lists
)
@settings(deadline=None, max_examples=15)
def test_speculative_equals_plain_for_random_networks(seed, block_size, lean, prompts):
    pair = small_pair(seed, lean)
    result = generate(decoder_for(pair, block_size), prompts, NEW_TOKENS)
    assert result.tokens == plain(pair, prompts)
    for tokens, committed in zip(result.tokens, result.committed, strict=True):
        assert len(tokens) == NEW_TOKENS == 1 + sum(committed)
        assert all(1 <= count <= block_size for count in committed)


@given(seed=st.integers(0, 10_000), block_size=st.sampled_from(BLOCK_SIZES), noise=st.integers(0, 10_000), prompts=prompt_lists)
@settings(deadline=None, max_examples=15)
def test_adversarial_drafts_change_counts_never_tokens(seed, block_size, noise, prompts):
    """Drafts are the true continuation with some tokens spoiled, so what each step must commit is known."""
    pair = small_pair(seed)
    answers = plain(pair, prompts)
    generator = np.random.default_rng(noise)
    kept = []

    def propose(row, position):
        if row >= len(prompts):
            return [MASK_TOKEN_ID] * (block_size - 1)
        at = position - len(prompts[row]) + 1  # index, within the answer, of the first token to be drafted
        truth = (list(answers[row][at : at + block_size - 1]) + [0] * block_size)[: block_size - 1]
        spoiled = generator.random(block_size - 1) < 0.3
        if row == 0 and at < NEW_TOKENS:
            num_right = next((i for i, bad in enumerate(spoiled) if bad), block_size - 1)
            kept.append(min(num_right + 1, NEW_TOKENS - at))
        return [(t + 1 + i) % VOCAB_SIZE if bad else t for i, (t, bad) in enumerate(zip(truth, spoiled, strict=True))]

    result = generate(with_drafts(decoder_for(pair, block_size), propose), prompts, NEW_TOKENS)
    assert result.tokens == answers
    assert list(result.committed[0]) == kept


@pytest.mark.parametrize("block_size", BLOCK_SIZES)
def test_a_perfect_drafter_commits_whole_blocks(block_size):
    pair = small_pair(seed=5)
    answers = plain(pair, PROMPTS)
    decoder = with_drafts(decoder_for(pair, block_size), perfect_drafts(answers, block_size))
    result = generate(decoder, PROMPTS, NEW_TOKENS)
    assert result.tokens == answers
    whole, rest = divmod(NEW_TOKENS - 1, block_size)
    assert set(result.committed) == {(block_size,) * whole + ((rest,) if rest else ())}


def test_mask_tokens_never_leak_into_the_answer():
    pair = small_pair(seed=3)
    decoder = with_drafts(decoder_for(pair, 3), lambda row, position: [MASK_TOKEN_ID] * 2)
    assert generate(decoder, PROMPTS, NEW_TOKENS).tokens == plain(pair, PROMPTS)


def test_a_ragged_batch_equals_single_runs():
    pair = small_pair(seed=11, lean=8.0)
    together = generate(decoder_for(pair, 3), PROMPTS, NEW_TOKENS)
    for row, prompt in enumerate(PROMPTS):
        alone = generate(decoder_for(pair, 3, batch=1), [prompt], NEW_TOKENS)
        assert alone.tokens[0] == together.tokens[row]
        assert alone.committed[0] == together.committed[row]


def test_drafts_are_sometimes_accepted_by_these_pairs():
    """The losslessness tests above would say little if every draft of every network were rejected."""
    counts = [generate(decoder_for(small_pair(seed, 8.0), 8), PROMPTS, NEW_TOKENS).committed for seed in range(8)]
    seen = {count for run in counts for row in run for count in row}
    assert {1, 2, 8} <= seen


STOPS = (4, 17, 25, 33, 48)


def seed_where(condition):
    """The first seed whose plain answer to the first prompt meets the condition."""
    return next(seed for seed in range(200) if condition(plain(small_pair(seed), PROMPTS)[0]))


def test_stops_at_the_first_stop_token_and_counts_up_to_it():
    seed = seed_where(lambda answer: any(token in STOPS for token in answer[4:9]) and not any(t in STOPS for t in answer[:4]))
    answers = plain(small_pair(seed), PROMPTS)

    def cut(answer):
        at = next((i for i, token in enumerate(answer) if token in STOPS), len(answer))
        return answer[: at + 1]

    decoder = decoder_for(small_pair(seed, stop_token_ids=STOPS), 3)
    # with drafts that are all accepted, the stop token stands inside an accepted run
    for drafting in (decoder, with_drafts(decoder, perfect_drafts(answers, 3))):
        result = generate(drafting, PROMPTS, NEW_TOKENS)
        assert result.tokens == tuple(cut(answer) for answer in answers)
        assert [1 + sum(counts) for counts in result.committed] == [len(tokens) for tokens in result.tokens]


def test_a_stop_token_from_the_prefill_ends_the_answer_before_any_step():
    seed = seed_where(lambda answer: answer[0] in STOPS)
    first = plain(small_pair(seed), PROMPTS)[0][0]
    result = generate(decoder_for(small_pair(seed, stop_token_ids=STOPS), 3), PROMPTS[:1], NEW_TOKENS)
    assert result.tokens == ((first,),)
    assert result.committed == ((),)
    assert result.step_wall_s == ()


@pytest.mark.parametrize("max_new_tokens", [1, 2, 3, 7])
def test_length_limit_holds_even_inside_a_block(max_new_tokens):
    pair = small_pair(seed=7, lean=8.0)
    result = generate(decoder_for(pair, 8), PROMPTS, max_new_tokens)
    assert result.tokens == tuple(answer[:max_new_tokens] for answer in plain(pair, PROMPTS))
    assert all(sum(counts) == max_new_tokens - 1 for counts in result.committed)


def test_an_answer_ends_where_the_targets_positions_end():
    limit = 9
    pair = small_pair(seed=0)
    short = dataclasses.replace(pair, target_config=dataclasses.replace(pair.target_config, max_position_embeddings=limit))
    for block_size in (1, 3, 8):
        cut = generate(decoder_for(short, block_size), PROMPTS, NEW_TOKENS)
        whole = generate(decoder_for(pair, block_size), PROMPTS, NEW_TOKENS)
        for prompt, got, full in zip(PROMPTS, cut.tokens, whole.tokens, strict=True):
            assert got == full[: limit - len(prompt)]
    with pytest.raises(InputError, match="9 positions"):
        decoder_for(short, 1).check([[1] * limit], 1)


def test_max_steps_ends_early():
    result = generate(decoder_for(small_pair(seed=1), 1), PROMPTS, NEW_TOKENS, max_steps=4)
    assert [len(tokens) for tokens in result.tokens] == [5, 5, 5]
    assert len(result.step_wall_s) == 4
    assert result.decode_s == sum(result.step_wall_s)
    assert result.num_committed == 12


@pytest.mark.parametrize("block_size", [1, 3])
def test_the_largest_answer_a_cache_can_hold_is_right_and_one_more_is_refused(block_size):
    pair = small_pair(seed=9)
    longest = CAPACITY - PROMPT_CAPACITY - block_size + 1
    prompt = [[8] * PROMPT_CAPACITY]
    decoder = decoder_for(pair, block_size)
    assert generate(decoder, prompt, longest).tokens == plain(pair, prompt, max_new_tokens=longest)
    with pytest.raises(InputError, match="need a cache of"):
        generate(decoder, prompt, longest + 1)


@pytest.mark.parametrize(
    ("prompts", "max_new_tokens", "message"),
    [
        ([], 4, "nothing to decode"),
        ([[1], []], 4, "nothing to decode"),
        ([[1]], 0, "nothing to decode"),
        ([[1]] * (BATCH + 1), 4, "4 prompts for a decoder of batch 3"),
        ([[1] * (PROMPT_CAPACITY + 1)], 4, "compiled for 6"),
        ([[VOCAB_SIZE]], 4, "outside 0…60"),
        ([[-1]], 4, "outside 0…60"),
    ],
)
def test_refuses_what_its_shapes_cannot_hold(prompts, max_new_tokens, message):
    with pytest.raises(InputError, match=message):
        generate(compiled(1), prompts, max_new_tokens)


def test_refuses_impossible_decoders():
    with pytest.raises(InputError, match="at least 1"):
        Decoder(small_pair(0), block_size=0, batch=1, capacity=8)
    with pytest.raises(InputError, match="needs a drafter"):
        Decoder(small_pair(0, draft_config=None, draft_params=None), block_size=2, batch=1, capacity=8)
    with pytest.raises(InputError, match="does not fit"):
        Decoder(small_pair(0), block_size=1, batch=1, capacity=8).compile(9)


@pytest.mark.parametrize(("block_size", "beyond"), [(1, False), (3, False), (4, False), (8, True)])
def test_flags_a_block_wider_than_the_drafter_was_trained_for(block_size, beyond):
    decoder = Decoder(small_pair(0), block_size=block_size, batch=1, capacity=32)
    assert decoder.beyond_trained_block is beyond


def compilations(caplog, action):
    caplog.clear()
    with caplog.at_level(logging.WARNING), jax.log_compiles():
        action()
    return [record for record in caplog.records if record.getMessage().startswith("Finished XLA compilation")]


def test_nothing_is_compiled_after_warm_up(caplog):
    pair = small_pair(seed=4, lean=8.0)
    decoder = decoder_for(pair, 3)
    generate(decoder, [[1]], 3)
    assert not compilations(caplog, lambda: generate(decoder, PROMPTS, NEW_TOKENS))
    assert compilations(caplog, lambda: jax.jit(lambda x: x * 3.5)(1.0))  # the count would notice


def test_programs_carry_the_names_of_their_phases():
    for block_size, phases in ((1, {PREFILL, VERIFY, COMMIT}), (3, {PREFILL, DRAFT, VERIFY, COMMIT})):
        programs = compiled(block_size)._programs
        assert set(programs) == phases
        for phase, program in programs.items():
            assert program.as_text().startswith(f"HloModule jit_{phase},")


def test_caches_are_updated_in_place():
    decoder = compiled(3)
    state = decoder.prefill(PROMPTS, NEW_TOKENS)
    decoder.step(state)
    assert state.target_cache.layers[0][0].is_deleted()
    assert state.draft_state.k[0].is_deleted()


class Recorder:
    """A span that notes what was opened, and how often the loop waited inside."""

    def __init__(self, blocking):
        self.blocking = blocking
        self.regions = []

    @contextmanager
    def __call__(self, name, step_num=None):
        self.regions.append((name, step_num))
        yield


@pytest.mark.parametrize("block_size", [1, 3])
def test_spans_name_every_phase_and_number_the_steps(block_size):
    span = Recorder(blocking=False)
    generate(compiled(block_size), PROMPTS, NEW_TOKENS, span=span, max_steps=2)
    phases = [(VERIFY, None), (COMMIT, None)] if block_size == 1 else [(DRAFT, None), (VERIFY, None), (COMMIT, None)]
    assert span.regions == [(PREFILL, None), (STEP_ANNOTATION, 0), *phases, (STEP_ANNOTATION, 1), *phases]


@pytest.mark.parametrize(("blocking", "waits"), [(True, 6), (False, 0)])
def test_waits_inside_a_phase_only_when_the_span_asks(monkeypatch, blocking, waits):
    calls = []
    wait = jax.block_until_ready
    monkeypatch.setattr(jax, "block_until_ready", lambda result: calls.append(1) or wait(result))
    generate(compiled(3), PROMPTS, NEW_TOKENS, span=Recorder(blocking), max_steps=2)
    assert len(calls) == waits


FRANCE = "What is the capital of France?"


@pytest.fixture(scope="module")
def smollm2():
    """The embedded target with a drafter of random weights."""
    try:
        pair = load_pair("smollm2-135m", None, "float32")
    except UnsupportedError as error:
        pytest.skip(error.message)
    target = pair.target_config
    config = dataclasses.replace(
        DRAFT_CONFIG, vocab_size=target.vocab_size, hidden_size=target.hidden_size, target_hidden_size=target.hidden_size,
        intermediate_size=64, num_target_layers=target.num_layers, target_layer_ids=(9, 18), mask_token_id=16, head_dim=64,
    )  # fmt: skip
    return dataclasses.replace(pair, draft="random-dflash", draft_config=config, draft_params=random_draft(config, 0, "float32"))


@pytest.mark.slow
def test_the_embedded_target_answers_sensibly_and_random_drafts_change_nothing(smollm2):
    prompt = Prompt("chat", "france", ({"role": "user", "content": FRANCE},))
    token_ids = encode_prompt("chat", smollm2, prompt).token_ids
    answers = []
    for block_size in (1, 4):
        decoder = Decoder(smollm2, block_size=block_size, batch=1, capacity=96)
        answers.append(generate(decoder, [token_ids], 16).tokens[0])
    assert smollm2.tokenizer.decode(answers[0]) == "The capital of France is Paris."
    assert answers[0][-1] in smollm2.stop_token_ids
    assert answers[1] == answers[0]


class Inflated(Decoder):
    """The port's classic fault: the drafter's context grows by all tokens of a block, the rejected ones too."""

    def step(self, state, span=no_span):
        state, done = super().step(state, span)
        num_rejected = jnp.where(done.num_committed > 0, self.block_size - done.num_committed, 0)
        return state._replace(num_context=state.num_context + num_rejected), done


@pytest.mark.parametrize(
    "names", [("tiny", "tiny-dflash"), pytest.param(("smollm2-135m", "smollm2-135m-dflash"), marks=pytest.mark.slow)]
)
def test_an_inflated_context_costs_a_trained_drafter_its_acceptance(names):
    """Features of rejected drafts, cache offsets and RoPE positions that run ahead: tokens stay right, the drafter does not."""
    try:
        pair = load_pair(*names, "float32")
    except UnsupportedError as error:
        pytest.skip(error.message)
    prompts = [prompt.token_ids for prompt in load_prompts("math", pair, 4)]
    longest, block_size = max(map(len, prompts)), pair.trained_block_size
    decoder = Decoder(pair, block_size, len(prompts), required_capacity(longest, 48, block_size) + 48 * block_size)
    decoder.compile(longest)
    right = generate(decoder, prompts, 48)
    inflated = copy.copy(decoder)
    inflated.__class__ = Inflated
    wrong = generate(inflated, prompts, 48)
    assert wrong.tokens == right.tokens
    assert tau(right) > 1.2
    assert tau(wrong) - 1 < 0.8 * (tau(right) - 1)


def tau(result):
    """Committed tokens per step, pooled."""
    return result.num_committed / sum(len(counts) for counts in result.committed)
