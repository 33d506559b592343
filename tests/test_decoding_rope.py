"""Rotary scalings against their published rules, computed here the long way."""

import math

import numpy as np
import pytest

from decoding.config_reader import ConfigReader
from decoding.config_rope import LinearScaling, Llama3Scaling, YarnScaling, plain_frequencies, take_rope
from decoding.layers import rope_frequencies, rope_table
from perfmodel.errors import InputError

YARN = {"rope_type": "yarn", "factor": 64.0, "original_max_position_embeddings": 4096, "beta_fast": 32.0, "beta_slow": 1.0}


def take(document: dict) -> tuple:
    return take_rope(ConfigReader(document, "test"))


def test_yarn_leaves_fast_pairs_and_slows_the_others() -> None:
    theta, scaling = take({"rope_theta": 1e7, "rope_scaling": YARN})
    assert scaling == YarnScaling(64.0, 4096, 32.0, 1.0, 0.1 * math.log(64) + 1)
    plain, scaled = plain_frequencies(128, theta), scaling.frequencies(128, theta)
    turns = 4096 * plain / (2 * math.pi)
    np.testing.assert_allclose(scaled[turns > 40], plain[turns > 40])
    np.testing.assert_allclose(scaled[turns < 0.8], plain[turns < 0.8] / 64)
    # The ramp is linear in the pair's index, from floor(pair that turns 32 times) to ceil(pair that turns once).
    first = math.floor(128 * math.log(4096 / (32 * 2 * math.pi)) / (2 * math.log(1e7)))
    last = math.ceil(128 * math.log(4096 / (2 * math.pi)) / (2 * math.log(1e7)))
    middle = (first + last) // 2
    slowed = (middle - first) / (last - first)
    np.testing.assert_allclose(scaled[middle], plain[middle] * ((1 - slowed) + slowed / 64))


def test_yarn_amplifies_cosines_and_sines() -> None:
    scaling = YarnScaling(4.0, 32, attention_factor=1.25)
    cos, sin = rope_table(np.arange(5)[None], 8, 1e4, scaling)
    np.testing.assert_allclose(np.asarray(cos) ** 2 + np.asarray(sin) ** 2, 1.25**2, rtol=1e-5)


def test_linear_and_plain_frequencies() -> None:
    assert take({"rope_theta": 100.0, "rope_scaling": {"type": "linear", "factor": 2.0}}) == (100.0, LinearScaling(2.0))
    np.testing.assert_allclose(rope_frequencies(4, 100.0, None), [1.0, 0.1], rtol=1e-6)
    np.testing.assert_allclose(rope_frequencies(4, 100.0, LinearScaling(2.0)), [0.5, 0.05], rtol=1e-6)


@pytest.mark.parametrize(
    "scaling", [Llama3Scaling(8.0, 1.0, 4.0, 64), LinearScaling(2.0), YarnScaling(4.0, 32, 8.0, 0.5, 1.1, False)]
)
def test_scalings_survive_a_round_trip(scaling: object) -> None:
    assert take({"rope_theta": 1e4, "rope_scaling": scaling.to_json()}) == (1e4, scaling)


def test_the_base_may_stand_in_the_entry_and_the_original_context_beside_it() -> None:
    entry = {key: value for key, value in YARN.items() if key != "original_max_position_embeddings"} | {"rope_theta": 5e5}
    theta, scaling = take({"rope_theta": 1e4, "rope_parameters": entry, "max_position_embeddings": 2048})
    assert theta == 5e5  # the entry's own counts
    assert scaling.original_max_position_embeddings == 2048


@pytest.mark.parametrize(
    ("entry", "named"),
    [
        ({"rope_type": "dynamic", "factor": 2.0}, "dynamic"),
        ({"rope_type": "default", "partial_rotary_factor": 0.25}, "partial_rotary_factor"),
        (YARN | {"beta_medium": 3.0}, "beta_medium"),
        ({"rope_type": "yarn"}, "factor"),
        ({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 4.0, "high_freq_factor": 1.0}, "high_freq_factor"),
    ],
)
def test_what_is_not_understood_is_named(entry: dict, named: str) -> None:
    with pytest.raises(InputError, match=named):
        take({"rope_theta": 1e4, "rope_scaling": entry, "max_position_embeddings": 64})


def test_two_entries_that_differ_are_refused() -> None:
    with pytest.raises(InputError, match="differ"):
        take({"rope_theta": 1e4, "rope_scaling": YARN, "rope_parameters": YARN | {"factor": 2.0}})
