"""NVIDIA's speculation profile: read, written, and back."""

import json

import pytest

from perfmodel import acceptance
from perfmodel.errors import InputError
from perfmodel.speculation import is_speculation_profile, read_profile, write_profile

PAIR = "qwen3-4b-dflash-b16"

# The histogram of 100 steps of the schema's own test: 40 steps commit 1 token, 30 commit 2, 30 commit 3; 3 drafts a step.
SMALL = {
    "schema_version": "1.0",
    "measured": True,
    "method": "eagle3",
    "draft_checkpoint": {"path": "org/draft"},
    "target_model": {"path": "org/target"},
    "num_speculative_tokens": 3,
    "block_size": None,
    "max_supported_k": 3,
    "verification_method": "longest_prefix",
    "conditional_accept_rates": [0.6, 0.5, 0.0],
    "marginal_accept_rates": [0.6, 0.3, 0.0],
    "mean_accept_length": 1.9,
    "mean_accept_length_per_request": 2.1,
    "accept_length_model": "chain_analytic",
    "accept_length_by_k": {"3": 1.9},
    "acceptance_length_histogram": {"1": 40, "2": 30, "3": 30},
    "measurement_conditions": {"dataset": "mt_bench", "num_samples": 80},
}


def test_drafts_become_a_block_and_steps_are_counted():
    found = read_profile(SMALL, "p.json")
    assert (found.block_size, found.num_steps, found.num_prompts) == (4, 100, 80)
    assert found.survival == pytest.approx((0.6, 0.3, 0.0))
    assert found.at_risk == pytest.approx((100, 60, 30))
    assert acceptance.tau_pooled(found) == pytest.approx(1.9)
    assert (found.tau_per_answer, found.task, found.draft, found.target) == (2.1, "mt_bench", "org/draft", "org/target")
    assert found.trained_block_size is None  # a chain drafter has no block of its own
    assert found.findings == ()


def test_a_published_measurement_reads_as_published():
    # MiniMax-M2.7 with its DFlash drafter on MT-Bench: 112,844 steps, mean length 2.924887
    rates = {"conditional_accept_rates": [0.816082, 0.776577, 0.749591], "marginal_accept_rates": None}
    found = read_profile(
        SMALL | rates | {"method": "dflash", "mean_accept_length": 2.924887, "acceptance_length_histogram": None}, "p.json"
    )
    assert found.survival == pytest.approx((0.816082, 0.633750, 0.475053), abs=1e-5)
    assert acceptance.tau_pooled(found) == pytest.approx(2.924887, abs=1e-5)
    assert found.trained_block_size == 4
    assert found.at_risk == (None, None, None)  # no counts in the file, so no sampling error is claimed


@pytest.mark.parametrize("task", ["math500", "alpaca", "swe-bench"])
def test_shipped_profiles_survive_the_round_trip(task):
    known = acceptance.load_profile(f"{PAIR}/{task}")
    document = json.loads(json.dumps(write_profile(known, "dflash")))
    assert is_speculation_profile(document)
    assert document["num_speculative_tokens"] == document["max_supported_k"] == 15
    assert sum(document["acceptance_length_histogram"].values()) == known.num_steps
    assert document["validation"]["mean_consistency"]["passed"]
    back = read_profile(document, "p.json")
    assert back.survival == pytest.approx(known.survival, abs=1e-6)
    assert back.at_risk == pytest.approx(known.at_risk, abs=1e-3)
    assert (back.num_steps, back.num_prompts, back.tau_per_answer) == (known.num_steps, known.num_prompts, known.tau_per_answer)
    assert (back.block_size, back.trained_block_size, back.task) == (16, 16, task)


def test_raw_counts_are_published_only_where_none_was_cut():
    whole = acceptance.from_committed([[1, 3, 4], [2, 2]], block_size=4, task="t", target="T", draft="D")
    assert write_profile(whole)["acceptance_length_histogram"] == {"1": 1, "2": 2, "3": 1, "4": 1}
    cut = acceptance.from_committed(
        [[1, 3, 4], [2, 2]], block_size=4, task="t", target="T", draft="D", last_step_cut=[True, True]
    )
    document = write_profile(cut)
    assert document["acceptance_length_histogram"] is None
    back = read_profile(document, "p.json")
    assert back.survival == pytest.approx(cut.survival, abs=1e-6)
    assert back.num_steps == 5


def test_the_file_is_taken_wherever_acceptance_is(tmp_path):
    path = tmp_path / "speculation_profile.json"
    path.write_text(json.dumps(SMALL))
    (found,) = acceptance.resolve(str(path))
    assert found.survival == pytest.approx((0.6, 0.3, 0.0))


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        ({"measured": False}, "stub"),
        ({"schema_version": "2.0"}, "schema version 2.0"),
        ({"verification_method": "block"}, "no survival curve"),
        ({"num_speculative_tokens": 0}, "num_speculative_tokens"),
        ({"marginal_accept_rates": [0.6, 0.3]}, "3 entries"),
        ({"marginal_accept_rates": [0.6, 0.3, 7]}, "no share"),
        ({"marginal_accept_rates": [0.3, 0.6, 0.0]}, "rise"),
        ({"marginal_accept_rates": None, "conditional_accept_rates": None}, "neither"),
        ({"acceptance_length_histogram": {"9": 1}}, "lengths 9 to 9"),
        ({"acceptance_length_histogram": [1, 2]}, "no map"),
    ],
)
def test_what_is_no_measured_profile_is_refused(edit, message):
    with pytest.raises(InputError, match=message):
        read_profile(SMALL | edit, "p.json")


def test_contradictions_are_shown():
    cut_short = read_profile(SMALL | {"mean_accept_length": 2.6}, "p.json")
    assert [finding.code for finding in cut_short.findings] == ["profile-contradicts"]
    torn = read_profile(SMALL | {"conditional_accept_rates": [0.6, 0.9, 0.0]}, "p.json")
    assert [finding.code for finding in torn.findings] == ["profile-contradicts"]
    assert torn.survival == pytest.approx((0.6, 0.3, 0.0))


def test_mean_lengths_alone_cannot_be_published():
    with pytest.raises(InputError, match="no rate for every draft"):
        write_profile(acceptance.from_tau_points([(16, 5.4)]))
