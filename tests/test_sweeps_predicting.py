"""From a user's question to predictions: sources of step times, overrides, prices, grids, the document."""

import json

import msgspec
import pytest
from click.testing import CliRunner
from fitted_points import DRAFT, PARTS, TARGET, TRUE, V5P, made

from perfcli.predict import command
from perfmodel import acceptance, codec
from perfmodel.errors import InputError
from perfmodel.fit import fit
from sweeps.predicting import MAX_PREDICTIONS, Question, answer
from sweeps.prediction_document import prediction_document

PAIR = "qwen3-4b-dflash-b16"
PROMISED = {
    "block_size", "num_speculative_tokens", "batch", "context", "draft_s", "verify_s", "host_s", "tau", "tpot_s", "speedup",
    "speedup_low", "speedup_high", "bound", "extrapolated",
}  # fmt: skip


def asked(**changes):
    given = {"hardware": ("h100",), "target": "qwen3-4b", "draft": PAIR, "acceptance": (f"{PAIR}/math",)}
    return Question(**(given | changes))


@pytest.fixture(scope="module")
def model_file(tmp_path_factory):
    points = made(TRUE | PARTS, phases=("verify", "draft", "commit"), blocks=(1, 2, 4, 8, 16, 64, 256), noise=0.02, repeats=6)
    path = tmp_path_factory.mktemp("model") / "model.json"
    codec.save(path, fit(points, TARGET, DRAFT, V5P, "bfloat16", num_draws=30))
    return path


def run(*args):
    result = CliRunner().invoke(command, list(args), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


# sources ----------------------------------------------------------------------------------------------------------------------


def test_a_sequential_drafter_pays_for_every_draft():
    block, sequential = (answer(asked(drafting=kind)).predictions[0] for kind in ("block", "sequential"))
    one = sequential.rows[1].draft_s
    assert [row.draft_s for row in sequential.rows] == pytest.approx([one * drafts for drafts in range(16)])
    assert max(row.draft_s for row in block.rows[1:]) < 1.05 * min(row.draft_s for row in block.rows[1:])
    assert sequential.best.block_size < block.best.block_size
    assert answer(asked()).predictions[0].rows == block.rows  # a DFlash drafter is a block drafter unless told otherwise


def test_a_sequential_drafter_needs_no_k_of_two_in_the_list():
    found = answer(asked(drafting="sequential", block_sizes=(1, 4, 8))).predictions[0]
    assert [row.block_size for row in found.rows] == [1, 4, 8]
    assert found.rows[2].draft_s == pytest.approx(found.rows[1].draft_s * 7 / 3)


def test_an_eagle3_drafter_is_sequential_by_its_config():
    found = answer(asked(target="llama-3.1-8b", draft="llama-3.1-8b-eagle3", acceptance=("eagle3-vllm-32628/humaneval",)))
    rows = found.predictions[0].rows
    assert found.drafting == "sequential"
    assert rows[8].draft_s > 5 * rows[1].draft_s


def test_a_model_on_its_own_chip_and_moved(model_file):
    home = answer(asked(model=model_file, hardware=())).predictions[0]
    named = answer(asked(model=model_file, hardware=("tpu-v5p",))).predictions[0]
    away = answer(asked(model=model_file, hardware=("tpu-v6e",))).predictions[0]
    assert (home.source, home.hardware, home.label) == ("measured", "tpu-v5p", "")
    assert named.rows == home.rows
    assert (away.source, away.hardware) == ("datasheet", "tpu-v6e")
    assert "moved from tpu-v5p" in away.label
    assert "transferred" in [finding.code for finding in away.findings]
    assert away.cost_high / away.cost_low > home.cost_high / home.cost_low


def verify_only(tmp_path, **options):
    path = tmp_path / "verify.json"
    points = made(TRUE, blocks=(1, 2, 4, 8, 16, 64, 256), noise=0.02, repeats=6)
    codec.save(path, fit(points, options.get("target", TARGET), None, options.get("chip", V5P), "bfloat16", num_draws=30))
    return path


def test_a_model_without_a_drafter_prices_the_one_that_ships(tmp_path):
    path = verify_only(tmp_path)
    found = answer(asked(model=path, hardware=(), draft=None, contexts=(256,))).predictions[0]
    assert found.draft == PAIR
    assert "drafter-not-measured" in [finding.code for finding in found.findings]
    assert [row.extrapolated for row in found.rows[:3]] == [False, True, True]
    truth = answer(asked(hardware=("tpu-v5p",), contexts=(256,))).predictions[0]
    assert found.best.draft_s == pytest.approx(truth.best.draft_s, rel=0.35)
    timed = answer(asked(model=path, hardware=(), pass_s=found.best.draft_s, contexts=(256,))).predictions[0]
    assert found.cost_high - found.cost_low > timed.cost_high - timed.cost_low  # what was not measured is less certain


def test_a_given_drafter_pass_replaces_the_modelled_one(tmp_path):
    path = verify_only(tmp_path)
    block = answer(asked(model=path, hardware=(), draft=None, pass_s=2e-3, contexts=(256,))).predictions[0]
    assert {row.draft_s for row in block.rows[1:]} == {2e-3}
    assert not any(row.extrapolated for row in block.rows)
    sequential = answer(asked(model=path, hardware=(), draft=None, pass_s=2e-3, drafting="sequential")).predictions[0]
    assert [row.draft_s for row in sequential.rows] == pytest.approx([2e-3 * drafts for drafts in range(16)])
    sheet = answer(asked(pass_s=2e-3)).predictions[0]
    assert sheet.best.draft_s == 2e-3
    with pytest.raises(InputError, match="impossible"):
        answer(asked(pass_s=-1.0))


def test_a_bare_curve_needs_the_drafter_s_time(tmp_path):
    path = tmp_path / "dense.json"
    points = made(TRUE, blocks=(1, 2, 4, 8, 16, 64, 256), noise=0.02, repeats=3)
    codec.save(path, fit(points, None, None, None, "bfloat16", num_draws=10))
    with pytest.raises(InputError) as caught:
        answer(asked(model=path, hardware=(), draft=None))
    assert "--draft-ms" in caught.value.hint
    found = answer(asked(model=path, hardware=(), draft=None, pass_s=1e-3, contexts=(256,))).predictions[0]
    assert found.best.draft_s == 1e-3


def test_a_drafter_belongs_to_its_target(model_file):
    assert answer(asked(target="qwen3-8b", draft=None)).predictions[0].draft == "qwen3-8b-dflash-b16"
    with pytest.raises(InputError, match="reads features of width 2560"):
        answer(asked(target="qwen3-8b", draft=PAIR))
    with pytest.raises(InputError, match="no drafter ships"):
        answer(asked(target="qwen3-32b", draft=None))
    with pytest.raises(InputError, match="was fitted with"):
        answer(asked(model=model_file, hardware=(), draft="qwen3-4b-eagle3"))


def test_several_chips_and_profiles_are_all_answered():
    found = answer(asked(hardware=("h100", "tpu-v5p"), acceptance=(f"{PAIR}/math", f"{PAIR}/chat"), batches=(1, 8)))
    assert [(p.hardware, p.task, p.batch) for p in found.predictions] == [
        (chip, task, batch) for chip in ("h100", "tpu-v5p") for task in ("math", "chat") for batch in (1, 8)
    ]
    with pytest.raises(InputError, match="named twice"):
        answer(asked(hardware=("h100", "h100")))


def test_mixed_traffic_gets_one_k():
    tasks = tuple(f"{PAIR}/{task}" for task in ("gsm8k", "alpaca"))
    (found,) = answer(asked(acceptance=tasks, pooled=True)).predictions
    steps = [acceptance.load_profile(name).num_steps for name in tasks]
    taus = [acceptance.tau_pooled(acceptance.load_profile(name)) for name in tasks]
    assert found.task == "gsm8k+alpaca"
    assert found.rows[15].tau == pytest.approx((steps[0] * taus[0] + steps[1] * taus[1]) / sum(steps), rel=1e-5)


def test_sensitivity_names_constants_of_the_cost_model():
    found = answer(asked(acceptance=(f"{PAIR}/chat",), batches=(32,))).predictions[0]
    assert any(name.startswith(("memory_efficiency", "compute_efficiency", "drafting_host_s")) for name in found.sensitivity)


def test_share_of_the_ceiling_stands_beside_the_best():
    found = answer(asked(acceptance=(f"{PAIR}/math500",))).predictions[0]
    share = acceptance.ceiling_share(acceptance.load_profile(f"{PAIR}/math500"), found.best.block_size)
    assert (found.tau_share, found.tau_share_low, found.tau_share_high) == share


# prices -----------------------------------------------------------------------------------------------------------------------


def test_list_prices_and_own_ones():
    listed = answer(asked(hardware=("tpu-v5p",))).predictions[0]
    own = answer(asked(hardware=("tpu-v5p",), usd_per_hour=8.4)).predictions[0]
    assert listed.usd_per_hour == 4.2
    assert answer(asked(hardware=("tpu-v5p:4",))).predictions[0].usd_per_hour == pytest.approx(4 * 4.2)
    assert own.best.usd_per_million_tokens == pytest.approx(2 * listed.best.usd_per_million_tokens)
    row = listed.best
    assert row.usd_per_million_tokens == pytest.approx(4.2 / 3600 * row.tpot_s * 1e6)
    assert answer(asked(hardware=("l40s",))).predictions[0].best.usd_per_million_tokens is None
    with pytest.raises(InputError, match="no price"):
        answer(asked(usd_per_hour=0.0))


# tables of cycle times --------------------------------------------------------------------------------------------------------


def test_cycle_times_with_mean_lengths_beside_them(tmp_path):
    path = tmp_path / "cycles.csv"
    path.write_text("block_size,ms\n1,7.3\n8,11\n16,12.5\n")
    found = answer(Question(step_times=path, taus=((16, 5.4),), drafting="block", usd_per_hour=3.6, contexts=(0,))).predictions[0]
    assert [row.block_size for row in found.rows] == [1, 8, 16]
    assert found.rows[1].tau_low < found.rows[1].tau < found.rows[1].tau_high
    assert found.best.usd_per_million_tokens == pytest.approx(found.best.tpot_s * 1e3)
    with pytest.raises(InputError, match="one batch"):
        answer(Question(step_times=path, taus=((16, 5.4),), batches=(1, 2)))


def test_cycle_times_without_plain_decoding(tmp_path):
    path = tmp_path / "cycles.csv"
    path.write_text("block_size,ms,tau\n4,9,2.6\n8,11,3.1\n")
    document = json.loads(run("--step-times", str(path), "--json"))
    assert (document["worth_it"], document["break_even_tau"], document["rows"][0]["speedup"]) == (None, None, None)
    assert document["best"]["block_size"] == 4  # 3.46 against 3.55 ms a token


# grids ------------------------------------------------------------------------------------------------------------------------


def test_a_large_grid_answers_every_cell_without_intervals():
    batches, contexts = tuple(range(1, 13)), tuple(range(256, 2560, 256))
    assert len(batches) * len(contexts) > MAX_PREDICTIONS
    found = answer(asked(batches=batches, contexts=contexts))
    document = json.loads(codec.encode(prediction_document(found)))
    assert len(document["rows"]) == 16 * len(batches) * len(contexts) == found.grid.num_cells
    assert set(document["rows"][0]) >= PROMISED
    assert document["rows"][7]["block_size"] == 8
    assert [row["block_size"] for row in document["rows"][:16]] == list(range(1, 17))
    assert "grid-without-intervals" in [finding["code"] for finding in document["findings"]]
    one = answer(asked(batches=(5,), contexts=(1024,))).predictions[0]
    mine = [row for row in document["rows"] if (row["batch"], row["context"]) == (5, 1024)]
    assert [row["speedup"] for row in mine] == pytest.approx([row.speedup for row in one.rows])
    assert [row["draft_s"] for row in mine] == pytest.approx([row.draft_s for row in one.rows])
    assert [row["bound"] for row in mine] == [row.bound for row in one.rows]
    cell = next(cell for cell in document["cells"] if (cell["batch"], cell["context"]) == (5, 1024))
    assert (cell["best_block_size"], cell["speedup"]) == (one.best.block_size, pytest.approx(one.best.speedup))


@pytest.mark.parametrize("changes", [{"drafting": "sequential"}, {"pass_s": 2e-3}, {"pass_s": 2e-3, "drafting": "sequential"}])
def test_a_large_grid_knows_the_drafter_it_is_told_of(changes):
    batches = tuple(range(1, MAX_PREDICTIONS + 2))
    found = answer(asked(batches=batches, block_sizes=(1, 4, 16), **changes)).grid
    one = answer(asked(batches=(7,), block_sizes=(1, 4, 16), **changes)).predictions[0]
    assert found.block_sizes.tolist() == [1, 4, 16]
    assert found.grids[0].draft_s[:, 6, 0] == pytest.approx([row.draft_s for row in one.rows])
    assert found.speedup[0, 0, :, 6, 0] == pytest.approx([row.speedup for row in one.rows])


# the verb ---------------------------------------------------------------------------------------------------------------------


def test_the_document_keeps_its_promises():
    document = json.loads(run("--hardware", "tpu-v5p", "--survival", "0.9,0.8,0.7", "--batch", "1,8", "--k", "1:4", "--json"))
    assert {"rows", "best", "plateau", "worth_it", "break_even_tau", "source", "findings"} <= set(document)
    assert len(document["rows"]) == 8
    assert all(set(row) >= PROMISED for row in document["rows"])
    assert {row["batch"] for row in document["rows"]} == {1, 8}


def test_settings_by_batch_are_ready_to_paste():
    text = run("--hardware", "h100", "--survival", "0.85,0.7,0.58", "--batch", "1,32,128", "--emit", "vllm")
    assert "num_speculative_tokens_per_batch_size" in text
    assert text.startswith("# K=16 for given on h100")
    with pytest.raises(InputError, match="one chip"):
        run("--hardware", "h100", "--hardware", "l4", "--survival", "0.8", "--emit", "vllm")


def test_acceptance_goes_out_as_a_speculation_profile_and_comes_back(tmp_path):
    path = tmp_path / "speculation_profile.json"
    run("--hardware", "h100", "--acceptance", f"{PAIR}/gsm8k", "--speculation-profile", str(path), "--json")
    document = json.loads(path.read_text())
    assert (document["num_speculative_tokens"], document["method"]) == (15, "dflash")
    back = json.loads(run("--hardware", "h100", "--acceptance", str(path), "--json"))
    straight = json.loads(run("--hardware", "h100", "--acceptance", f"{PAIR}/gsm8k", "--json"))
    assert [row["speedup"] for row in back["rows"]] == pytest.approx([row["speedup"] for row in straight["rows"]], rel=1e-5)


def test_a_person_reads_what_would_flip_the_answer():
    text = " ".join(run("--hardware", "tpu-v5p", "--acceptance", f"{PAIR}/chat", "--batch", "16").split())
    for words in (
        "would flip it",
        "with every draft accepted",
        "a million tokens",
        "of an endless block's τ",
        "from acceptance",
        "best K in the draws",
    ):
        assert words in text


def test_records_of_predictions_survive_a_file(tmp_path):
    path = tmp_path / "prediction.json"
    run("--hardware", "tpu-v5p", "--acceptance", f"{PAIR}/chat", "--out", str(path), "--json")
    record = codec.load_any(path)
    assert record.usd_per_hour == 4.2
    assert msgspec.structs.replace(record) == record


# names, contradictions, exits ---------------------------------------------------------------------------------------------------


def test_settings_name_models_as_engines_load_them():
    text = run("--hardware", "h100", "--survival", "0.85,0.7,0.58", "--emit", "vllm")
    assert "vllm serve Qwen/Qwen3-4B --speculative-config" in text
    assert '"model": "z-lab/Qwen3-4B-DFlash-b16"' in text
    pair = ("--target", "meta-llama/Llama-3.1-8B-Instruct", "--draft", "llama-3.1-8b-dflash")
    assert "meta-llama/Llama-3.1-8B-Instruct" in run("--hardware", "h100", *pair, "--survival", "0.8", "--emit", "sglang")


def test_a_raw_result_of_another_tool_is_sent_to_import(shared_data):
    with pytest.raises(InputError) as caught:
        answer(asked(acceptance=(str(shared_data / "published/tpu_v5p_standalone_math500.json"),)))
    assert "perf import" in caught.value.hint
    with pytest.raises(InputError) as caught:
        answer(asked(acceptance=(str(shared_data / "bench/vllm_metrics_qwen36_27b_mtp2.prom"),)))
    assert "perf import" in caught.value.hint
    with pytest.raises(InputError) as caught:
        answer(asked(acceptance=("math",)))
    assert f"{PAIR}/math" in caught.value.hint


@pytest.mark.parametrize(
    ("taus", "said"),
    [(((8, 6.0), (16, 5.0)), "falls"), (((4, 2.0), (16, 16.0)), "gains"), (((4, 2.5), (8, 3.4), (16, 4.0)), None)],
)
def test_mean_lengths_that_no_curve_has_are_said(taus, said):
    found = {finding.code: finding for finding in answer(asked(acceptance=(), taus=taus)).predictions[0].findings}
    assert ("mean-lengths-disagree" in found) == (said is not None)
    if said is not None:
        assert f"τ {said}" in found["mean-lengths-disagree"].message


def test_measured_cycles_with_their_own_tau_need_no_estimate(tmp_path):
    path = tmp_path / "cycles.csv"
    path.write_text("block_size,ms,tau\n1,10,1\n8,13,3.4\n")
    found = answer(Question(step_times=path)).predictions[0]
    codes = {finding.code for finding in found.findings}
    assert "curve-estimated" not in codes
    assert "acceptance-without-error" in codes
    assert found.best.speedup == pytest.approx(3.4 / 1.3)
    assert (found.best.tau_low, found.best.tau_high) == (None, None)  # a mean length without its error


def test_a_chip_without_a_peak_says_what_to_give_in_its_place():
    with pytest.raises(InputError) as caught:
        answer(asked(hardware=("rtx-4060",)))
    assert "--step-times" in caught.value.hint


def test_block_sizes_limit_a_table_to_its_own_rows(tmp_path):
    path = tmp_path / "cycles.csv"
    path.write_text("block_size,ms\n1,10\n4,12\n8,13\n16,16\n")
    given = {"step_times": path, "survival": (0.8, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1)}
    rows = answer(Question(**given, block_sizes=tuple(range(2, 9)))).predictions[0].rows
    assert [row.block_size for row in rows] == [1, 4, 8]  # plain decoding stays: it is what a gain is measured against
    path.write_text("block_size,ms\n4,12\n")
    with pytest.raises(InputError, match="none of the block sizes"):
        answer(Question(**given, block_sizes=(2, 3)))
    with pytest.raises(InputError, match="drafter pass"):
        answer(Question(**given, pass_s=1e-3))


@pytest.mark.parametrize(
    ("name", "value"), [("exponent", None), ("memory_efficiency", 0.0), ("overhead_s", -1.0), ("memory_efficiency", 1e40)]
)
def test_an_edited_model_is_refused(tmp_path, model_file, name, value):
    document = json.loads(model_file.read_text())
    if value is None:
        del document["parameters"][name]
    else:
        document["parameters"][name]["value"] = value
    path = tmp_path / "edited.json"
    path.write_text(json.dumps(document))
    with pytest.raises(InputError, match=name):
        answer(asked(model=path, hardware=()))


@pytest.mark.parametrize("change", [{"block_size": 10**18}, {"committed": [[-3, 2]]}, {"num_steps": -1}])
def test_an_edited_acceptance_is_refused(tmp_path, change):
    document = codec.to_document(acceptance.load_profile(f"{PAIR}/gsm8k")) | change
    path = tmp_path / "edited.json"
    path.write_text(json.dumps(document))
    with pytest.raises(InputError):
        answer(asked(acceptance=(str(path),)))
