"""The EAGLE-3 head that ships for the embedded target: small, of the published layout, lossless, and worth its steps."""

import jax.numpy as jnp
import numpy as np
import pytest

from decoding.checkpoint import load_draft
from decoding.config_eagle3 import Eagle3Config
from decoding.loop import Decoder, generate, required_capacity
from decoding.pair import DRAFTS, load_pair
from decoding.tasks import load_prompts
from perfmodel.errors import UnsupportedError

NAME = "smollm2-135m-eagle3"


def test_the_files_are_small_and_of_the_published_layout() -> None:
    folder = DRAFTS[NAME]()
    assert sum(path.stat().st_size for path in folder.iterdir()) < 12e6
    config, params = load_draft(folder, jnp.float32)
    assert isinstance(config, Eagle3Config)
    assert config.target_layer_ids == (1, 14, 27)  # written as 2, 15, 28: the streams that enter layers
    ids = np.asarray(params["d2t"])
    assert len(np.unique(ids)) == config.draft_vocab_size == 4096
    assert "embed" not in params  # borrowed from the target


@pytest.mark.slow
def test_worked_math_is_drafted_well_and_the_answers_are_the_targets_own() -> None:
    try:
        pair = load_pair("smollm2-135m", NAME, "float32")
    except UnsupportedError as error:
        pytest.skip(error.message)
    prompts = [prompt.token_ids for prompt in load_prompts("math", pair, 4)]
    longest, num_new = max(map(len, prompts)), 48
    given = {}
    for block_size in (1, 4):
        decoder = Decoder(pair, block_size, len(prompts), required_capacity(longest, num_new, block_size))
        given[block_size] = generate(decoder, prompts, num_new)
    assert given[4].tokens == given[1].tokens
    assert given[4].num_committed / sum(len(counts) for counts in given[4].committed) > 1.5
