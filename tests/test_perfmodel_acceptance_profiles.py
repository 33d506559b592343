"""Shipped acceptance profiles against the published figures, pooling, and files."""

import csv
import json

import msgspec
import numpy as np
import pytest

from perfmodel import acceptance, catalogue, codec
from perfmodel.errors import InputError
from perfmodel.records import AcceptanceSet, Hardware, Peak

PAIR = "qwen3-4b-dflash-b16"


def profile(committed, block_size, **options):
    return acceptance.from_committed(committed, block_size=block_size, task="t", target="T", draft="D", **options)


# shipped profiles -------------------------------------------------------------------------------------------------------------

# docs: acceptance by position, derived columns: τ(2), τ(4), τ(8), τ(12), τ(16), drafts accepted in per cent
PUBLISHED = {
    "math500": (1.96, 3.56, 6.01, 7.68, 8.80, 52.0, 195),
    "aime24": (1.89, 3.25, 4.94, 5.94, 6.48, 36.6, 283),
    "aime25": (1.87, 3.20, 4.81, 5.69, 6.14, 34.3, 297),
    "gsm8k": (1.86, 3.13, 4.48, 5.10, 5.40, 29.3, 325),
    "humaneval": (1.88, 3.09, 4.51, 5.31, 5.76, 31.7, 317),
    "mbpp": (1.86, 3.24, 4.95, 5.81, 6.16, 34.4, 253),
    "mt-bench": (1.76, 2.64, 3.39, 3.70, 3.87, 19.1, 407),
    "alpaca": (1.62, 2.21, 2.61, 2.76, 2.86, 12.4, 470),
    "swe-bench": (1.72, 2.55, 3.09, 3.28, 3.35, 15.7, 540),
}


@pytest.mark.parametrize("task", PUBLISHED)
def test_shipped_curves_give_the_published_means(task):
    found = acceptance.load_profile(f"{PAIR}/{task}")
    *means, drafts, num_steps = PUBLISHED[task]
    curve = acceptance.tau_curve(found, 16)
    assert [round(float(curve[k - 1]), 2) for k in (2, 4, 8, 12, 16)] == means
    assert round(100 * sum(found.survival) / 15, 1) == pytest.approx(drafts, abs=0.051)
    assert (found.num_steps, found.num_prompts, found.block_size, found.trained_block_size) == (num_steps, 7, 16, 16)
    # every count is whole: share × steps, and the steps at risk are those that accepted all before
    accepted = np.array(found.survival) * num_steps
    assert accepted == pytest.approx(np.round(accepted), abs=1e-3)
    assert found.at_risk == pytest.approx((num_steps, *np.round(accepted[:-1])))
    assert "published" in found.source
    assert found.tau_low < found.tau_high


@pytest.mark.parametrize(
    ("name", "tau", "num_steps", "block_size"),
    [
        ("qwen3-4b-dflash-b16/vllm-tpu-v4", 4.48, 1968, 16),
        ("qwen3-4b-dflash-b16/vllm-tpu-v5p", 4.84, 1799, 16),
        ("qwen3.5-27b-dflash-b16/gsm8k", 7.67, None, 16),
        ("minimax-m2.7-dflash/mt-bench", 2.925, 112844, 4),
        ("gpt-oss-eagle3/vllm-existing", 2.359, 6590, 6),
        ("gpt-oss-eagle3/vllm-post-norm", 2.346, 7431, 6),
        ("p-eagle/vllm-43010", 2.3317, 66849, 5),
    ],
)
def test_shipped_curves_from_elsewhere_give_the_published_means(name, tau, num_steps, block_size):
    found = acceptance.load_profile(name)
    assert acceptance.tau_pooled(found) == pytest.approx(tau, abs=0.006)
    assert (found.num_steps, found.block_size) == (num_steps, block_size)


def test_shipped_curves_of_seven_drafts(shared_data):
    # τ was averaged over whole rounds, survival over those that showed the position: they differ by up to 0.4 %
    with (shared_data / "published" / "block7_survival_qwen3_4b_a10.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    for drafter in ("dflash", "dspark"):
        for temperature in ("0", "1"):
            found = acceptance.load_profile(f"qwen3-4b-{drafter}-b8/t{temperature}")
            mine = [row for row in rows if row["drafter"] == drafter and row["temperature"] == f"{temperature}.0"]
            assert found.survival == pytest.approx([float(row["survival"]) for row in mine])
            assert found.num_steps == int(mine[0]["rounds"])
            assert acceptance.tau_pooled(found) == pytest.approx(float(mine[0]["tau_incl_bonus"]), rel=0.005)


def test_shipped_math500_by_position():
    # published with the anchor as entry 0: 1 .959 .841 .759 …
    found = acceptance.load_profile(f"{PAIR}/math500")
    assert [round(share, 3) for share in found.survival[:3]] == [0.959, 0.841, 0.759]


@pytest.mark.parametrize(
    ("task", "members"),
    [("math", ("math500", "aime24", "aime25", "gsm8k")), ("code", ("humaneval", "mbpp")), ("chat", ("mt-bench", "alpaca"))],
)
def test_tasks_pool_their_data_sets_by_steps(task, members):
    pooled = acceptance.load_profile(f"{PAIR}/{task}")
    parts = [acceptance.load_profile(f"{PAIR}/{member}") for member in members]
    steps = np.array([part.num_steps for part in parts])
    taus = np.array([acceptance.tau_pooled(part) for part in parts])
    assert acceptance.tau_pooled(pooled) == pytest.approx(float(np.sum(steps * taus) / steps.sum()), rel=1e-5)
    assert pooled.num_steps == steps.sum()
    assert pooled.num_prompts == 7 * len(members)
    assert pooled.task == task
    # variance of a weighted mean of independent τ
    halves = np.array([(part.tau_high - part.tau_low) / 2 for part in parts])
    half = np.sqrt(np.sum((steps * halves / steps.sum()) ** 2))
    assert (pooled.tau_high - pooled.tau_low) / 2 == pytest.approx(half, rel=1e-6)


def test_math_beats_code_beats_chat():
    taus = [acceptance.tau_pooled(acceptance.load_profile(f"{PAIR}/{task}")) for task in ("math", "code", "chat")]
    assert taus[0] > taus[1] > taus[2]


def test_names_and_unknown_names():
    assert len(acceptance.names()) == 25  # 22 curves as published, 3 pooled for the tasks of a sweep
    assert f"{PAIR}/chat" in acceptance.names()
    with pytest.raises(InputError) as caught:
        acceptance.load_profile(f"{PAIR}/math50")
    assert "did you mean" in caught.value.hint
    assert f"{PAIR}/math500" in caught.value.hint
    with pytest.raises(InputError) as caught:
        acceptance.load_profile("zzz")
    assert "perf list acceptance" in caught.value.hint


def test_shipped_files_say_what_they_are():
    assert all(found.definition and found.source and not found.synthetic for found in catalogue.shipped().values())


# pooling and files ------------------------------------------------------------------------------------------------------------


def test_pooling_raw_profiles_joins_their_answers():
    first = profile([[4, 2]], 4, last_step_cut=[True], synthetic=True, source="a")
    second = profile([[1], [3, 3]], 4, source="b")
    pooled = acceptance.pool([first, second], "both", "all")
    assert pooled.committed == ((4, 2), (1,), (3, 3))
    assert pooled.last_step_cut == (True, False, False)
    assert pooled.synthetic
    assert pooled.source == "a; b"
    direct = profile([[4, 2], [1], [3, 3]], 4, last_step_cut=[True, False, False])
    assert pooled.survival == direct.survival


def test_pooling_without_published_intervals_keeps_the_step_counts():
    a, b = acceptance.from_survival([0.5], num_steps=100), acceptance.from_survival([0.9], num_steps=300)
    pooled = acceptance.pool([a, b], "p", "t")
    assert pooled.survival == pytest.approx(((50 + 270) / 400,))
    assert pooled.at_risk == (400.0,)
    assert pooled.tau_low is None
    assert pooled.num_prompts is None


def test_unlike_or_uncounted_profiles_are_not_pooled():
    with pytest.raises(InputError, match="one block size"):
        acceptance.pool([acceptance.from_survival([0.5]), acceptance.from_survival([0.5, 0.4])], "p", "t")
    with pytest.raises(InputError, match="one block size"):
        acceptance.pool([], "p", "t")
    with pytest.raises(InputError, match="number of steps is unknown"):
        acceptance.pool([acceptance.from_survival([0.5])], "p", "t")


def test_profiles_round_trip_through_files(tmp_path):
    found = profile([[4, 2], [3]], 4, last_step_cut=[True, False], trained_block_size=8)
    codec.save(tmp_path / "one.json", found)
    codec.save(tmp_path / "all.json", AcceptanceSet(profiles=(found, acceptance.from_tau_points([(4, 2.5)]))))
    assert acceptance.load_acceptance(tmp_path / "one.json") == (found,)
    assert acceptance.resolve(str(tmp_path / "all.json"))[0] == found
    assert acceptance.resolve(f"{PAIR}/gsm8k")[0].task == "gsm8k"


def test_files_without_acceptance_or_with_edits_are_refused(tmp_path):
    peak = Peak(value=1.0, source="s")
    codec.save(tmp_path / "h.json", Hardware(name="h", display_name="H", kind="cpu", source="datasheet",
                                             bandwidth_bytes_per_s=peak, flops_per_s={}))  # fmt: skip
    with pytest.raises(InputError, match="holds no acceptance"):
        acceptance.load_acceptance(tmp_path / "h.json")
    good = acceptance.from_survival([0.9, 0.8])
    for edit, message in (
        ({"survival": (0.8, 0.9)}, "rises at position 2"),
        ({"at_risk": (None,)}, "2 positions at block size 3"),
        ({"block_size": 2}, "2 positions at block size 2"),
        ({"tau_points": ((4, 2.0), (2, 1.5))}, "out of order"),
    ):
        codec.save(tmp_path / "bad.json", msgspec.structs.replace(good, **edit))
        with pytest.raises(InputError, match=message):
            acceptance.load_acceptance(tmp_path / "bad.json")


# against the published raw traces ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("task", "per_answer", "low", "high"), [("math500", 9.25, 7.8, 10.3), ("gsm8k", 5.73, 4.4, 6.5), ("alpaca", 4.03, 2.2, 4.2)]
)
def test_raw_published_traces_give_the_shipped_profile(shared_data, task, per_answer, low, high):
    document = json.loads((shared_data / "published" / f"tpu_v5p_standalone_{task}.json").read_text())
    committed = [s["acceptance_lengths"] for s in document["per_sample"] if not s["is_warmup"]]
    found = profile(committed, 16)
    shipped = acceptance.load_profile(f"{PAIR}/{task}")
    assert found.survival == pytest.approx(shipped.survival, abs=1e-6)
    assert found.at_risk == pytest.approx(shipped.at_risk)
    assert acceptance.tau_per_answer(found) == pytest.approx(per_answer, abs=0.005)
    # prompt resampling, with one answer fewer per draw: √(7/6) = 1.08 times as wide as the published interval
    measured = acceptance.tau_interval(found, 16, num_draws=4000)
    assert measured == pytest.approx((low, high), abs=0.2 * (high - low))
    assert measured[1] - measured[0] == pytest.approx(1.08 * (high - low), rel=0.12)
