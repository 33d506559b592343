"""Against the reference: the PyPI package `dflash` 0.1.0 on tiny random pairs, recorded by golden/make_reference.py.

Its last block shrinks to the positions left, ours always verifies K tokens and cuts; a smaller block changes the drafts, so
committed counts are compared up to the first shrunken block. Tokens are compared to the end.
"""

import copy
import dataclasses
import functools
import json
import os
import subprocess
from pathlib import Path

import jax
import numpy as np
import pytest
from golden import make_reference

from decoding import draft, draft2, drafter
from decoding import target as model
from decoding.config_draft import Draft2Config
from decoding.loop import Decoder, generate, required_capacity
from decoding.pair import load_pair
from decoding.steps import block_positions

RELATIVE = 1e-4


class Case:
    """One recorded pair: our copy of it, and what the reference made of it."""

    def __init__(self, name, folder, golden):
        target, draft = make_reference.write_pair(make_reference.CASES[name], folder)
        self.pair = load_pair(str(target), str(draft), "float32")
        self.expected = json.loads((golden / f"reference_{name}.json").read_text())
        self.arrays = np.load(golden / f"reference_{name}.npz")
        self.prompt = self.expected["prompt"]

    @functools.cache  # noqa: B019 - lives as long as the module's fixture
    def decoder(self, block_size):
        capacity = required_capacity(len(self.prompt), make_reference.MAX_NEW_TOKENS, max(make_reference.BLOCK_SIZES))
        decoder = Decoder(self.pair, block_size=block_size, batch=1, capacity=capacity)
        decoder.compile(len(self.prompt))
        return decoder


@functools.cache
def loaded(name, folder, golden):
    return Case(name, folder, golden)


@pytest.fixture(params=sorted(make_reference.CASES))
def case(request, tmp_path_factory, golden):
    return loaded(request.param, tmp_path_factory.getbasetemp() / request.param, golden)


def assert_close(ours, reference):
    scale = np.abs(reference).max()
    assert ours.shape == reference.shape
    assert np.abs(np.asarray(ours) - reference).max() <= RELATIVE * scale


def whole_blocks(committed, block_size):
    """Counts of the steps that had a whole block of positions left."""
    left, counts = make_reference.MAX_NEW_TOKENS, []
    for count in committed:
        if left < block_size:
            break
        counts.append(count)
        left -= count
    return counts


def check_run(case, block_size):
    run = case.expected["runs"][str(block_size)]
    result = generate(case.decoder(block_size), [case.prompt], make_reference.MAX_NEW_TOKENS)
    assert list(result.tokens[0]) == run["tokens"]
    expected = whole_blocks(run["committed"], block_size)
    assert list(result.committed[0][: len(expected)]) == expected
    assert len(expected) >= 9


@pytest.mark.parametrize("block_size", [8])
def test_tokens_and_committed_counts_equal_the_reference(case, block_size):
    check_run(case, block_size)


@pytest.mark.slow
@pytest.mark.parametrize("block_size", [1, 2, 4, 16])
def test_tokens_and_committed_counts_equal_the_reference_at_other_blocks(case, block_size):
    check_run(case, block_size)


def test_the_recorded_runs_accept_none_some_and_all_drafts(case):
    counts = {count for run in case.expected["runs"].values() for count in run["committed"]}
    assert {1, 2, 3, 4} <= counts
    assert max(counts) >= 6
    assert case.expected["smallest_gap_of_best_two"] > 5e-4  # no near-tie that rounding (about 1e-5) could turn


def test_target_features_and_logits_equal_the_reference(case):
    pair, config = case.pair, case.pair.target_config
    layer_ids = pair.draft_config.target_layer_ids
    assert list(layer_ids) == case.expected["target_layer_ids"]
    tokens = np.array([case.prompt], dtype=np.int32)
    positions = np.arange(len(case.prompt), dtype=np.int32)[None]
    cache = model.init_cache(config, 1, len(case.prompt), np.float32)
    hidden, features, _ = jax.jit(model.forward, static_argnums=(1, 5))(
        pair.target_params, config, tokens, positions, cache, layer_ids
    )
    assert_close(features[0], case.arrays["features"])
    assert_close(model.logits(pair.target_params, config, hidden)[0], case.arrays["prompt_logits"])


@functools.partial(jax.jit, static_argnums=0)
def draft_logits(configs, params, anchor, position, state):
    """The logits that the drafter chooses from; position need not be the state's own."""
    target_config, draft_config, block_size = configs
    layer = draft2.block_layer if isinstance(draft_config, Draft2Config) else draft.block_layer
    hidden = draft.predicting_states(params[1], draft_config, params[0], anchor, position, state, block_size, layer)
    return draft.draft_logits(params[1], draft_config, params[0], target_config, hidden)[0]


@functools.partial(jax.jit, static_argnums=0)
def verify_logits(config, params, block, position, cache):
    """The logits whose argmax `steps.verify` gives."""
    hidden, _, _ = model.forward(params, config, block, block_positions(position, block.shape[1]), cache)
    return model.logits(params, config, hidden)[0]


def test_logits_of_every_step_equal_the_reference_and_shifted_positions_do_not(case):
    """Step by step, after partly accepted blocks: a cache that kept a rejected row, or a position off by one, would show."""
    pair = case.pair
    decoder = case.decoder(make_reference.LOGGED_BLOCK_SIZE)
    configs = (pair.target_config, pair.draft_config, make_reference.LOGGED_BLOCK_SIZE)
    params = (pair.target_params, pair.draft_params)
    state = decoder.prefill([case.prompt], make_reference.MAX_NEW_TOKENS)
    for step in range(make_reference.LOGGED_STEPS):
        drafted = draft_logits(configs, params, state.anchor, state.position, state.draft_state)
        assert_close(drafted, case.arrays["draft_logits"][step])
        block, _, _ = drafter.propose(
            params[1], pair.draft_config, params[0], pair.target_config, state.anchor, state.position, state.draft_state,
            make_reference.LOGGED_BLOCK_SIZE, drafter.argmax,
        )  # fmt: skip
        block = np.concatenate([state.anchor, block], axis=1)
        verified = verify_logits(pair.target_config, params[0], block, state.position, state.target_cache)
        assert_close(verified, case.arrays["verify_logits"][step])
        for shift in (-1, 1):
            shifted = draft_logits(configs, params, state.anchor, state.position + shift, state.draft_state)
            assert np.abs(shifted - drafted).max() > 100 * RELATIVE * np.abs(drafted).max()
        state, _ = decoder.step(state)


def test_stopping_inside_an_accepted_run_counts_as_the_reference_does(case):
    stopped = case.expected["stopped"]
    decoder = case.decoder(make_reference.LOGGED_BLOCK_SIZE)
    free = generate(decoder, [stopped["prompt"]], make_reference.MAX_NEW_TOKENS)
    steps = len(stopped["committed"])
    assert list(free.tokens[0][: len(stopped["tokens"])]) == stopped["tokens"]
    assert free.committed[0][steps - 1] > stopped["committed"][-1]  # the run went on behind the stop token
    case_pair = load_stopping(case, (stopped["stop_token_id"],))
    result = generate(case_pair, [stopped["prompt"]], make_reference.MAX_NEW_TOKENS)
    assert list(result.tokens[0]) == stopped["tokens"]
    assert list(result.committed[0]) == stopped["committed"]


def load_stopping(case, stop_token_ids):
    """The case's decoder at the logged block size with stop tokens: only the two programs that know them are compiled anew."""
    decoder = copy.copy(case.decoder(make_reference.LOGGED_BLOCK_SIZE))
    decoder.pair = dataclasses.replace(case.pair, stop_token_ids=stop_token_ids)
    lowered = decoder._lower(len(case.prompt))
    decoder._programs = decoder._programs | {name: lowered[name].compile() for name in ("prefill", "commit")}
    return decoder


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_the_recorded_results_can_be_made_again(tmp_path, golden):
    """Needs PERF_REFERENCE_PYTHON: an interpreter with torch, transformers, safetensors and dflash 0.1.0."""
    python = os.environ.get("PERF_REFERENCE_PYTHON")
    if not python:
        pytest.skip("PERF_REFERENCE_PYTHON names no interpreter with the reference")
    script = Path(make_reference.__file__)
    subprocess.run([python, str(script), str(tmp_path)], check=True, capture_output=True)
    for name in make_reference.CASES:
        new, old = (json.loads((folder / f"reference_{name}.json").read_text()) for folder in (tmp_path, golden))
        assert new["runs"] == old["runs"]
        assert new["stopped"] == old["stopped"]
        arrays = np.load(tmp_path / f"reference_{name}.npz")
        for key, expected in np.load(golden / f"reference_{name}.npz").items():
            assert_close(arrays[key], expected)
