"""Known answers: evidence made by hand, and the one finding it must lead to; sound evidence leads to none."""

import json

import pytest
from click.testing import CliRunner

from perfcli.app import app
from perfmodel import codec
from perfmodel.acceptance import load_profile
from perfmodel.errors import InputError
from perfmodel.records import (
    AcceptanceProfile,
    AcceptanceSet,
    Diagnosis,
    KPrediction,
    KRow,
    PhaseTimes,
    PredictionSet,
    StepTimes,
    TimingPoint,
    TraceSet,
    TraceTimings,
)
from sweeps.diagnosis.rules import GROUP_RULES, RULES, diagnose, diagnose_files
from sweeps.diagnosis.subject import Subject
from sweeps.importers.merging import import_files

SOUND = (0.86, 0.72, 0.6, 0.5, 0.42, 0.35, 0.3)


def subject(survival=SOUND, num_steps=4000, **given):
    """A run of K = len + 1 whose τ follows from its survival."""
    facts = {"name": "run", "survival": tuple(survival), "num_steps": num_steps, "block_size": len(survival) + 1}
    facts["tau"] = 1 + sum(survival) if survival else None
    return Subject(**{**facts, **given})


def codes(*subjects):
    return [finding.code for finding in diagnose(subjects)]


def test_a_sound_run_has_nothing_wrong():
    assert codes(subject()) == []


# each: the evidence, the finding it must lead to, a word of the likely cause, a figure of the evidence
KNOWN = [
    (subject((0.31, 0.2, 0.13)), "low-first-position", "template", "31.0 %"),
    (subject((0.02, 0.001, 0.0)), "first-position-near-zero", "label layout", "2.0 %"),
    (subject((0.85, 0.3, 0.1, 0.03)), "fast-decay", "RoPE", "α_1 = 0.85"),
    (subject((0.8, 0.3, 0.1, 0.03), trained_block_size=4), "fast-decay", "above the trained block of 4", "0.80"),
    (subject(trained_block_size=4), "k-above-trained-block", "never trained", "K = 8 (7 drafts)"),
    (subject((0.8, 0.6, 0.5, 0.0, 0.0)), "zeros-beyond-position", "K above the trained block", "2,000 of 4,000 steps"),
    (subject((0.0, 0.0, 0.0), tau=1.0), "tau-exactly-one", "features missing", "4,000 steps"),
    (subject((1.0, 1.0, 1.0), tau=4.0), "tau-exactly-k", "the target itself", "K = 4"),
    (subject((0.8, 0.56, 0.3976, 0.31808, 0.268)), "conditional-rates-rise", "not an error", "0.70 at draft 2"),
    (subject(plain_s=0.010, cycle_s=0.040), "high-tau-but-slow", "the step is what costs", "r = 4.00"),
    (subject((0.5, 0.2), plain_s=0.010, cycle_s=0.020), "speculation-loses", "costs more", "τ / r = 0.85"),
    (subject(plain_s=0.010, cycle_s=0.020), "step-ratio", "", "τ / r = 2.38"),
    (subject(cycle_s=0.020, host_s=0.009), "host-bound", "host", "45 %"),
    (subject(facts={"target": "Qwen/Qwen3-30B-A3B"}), "moe-target", "experts", "30B-A3B"),
    (subject(facts={"target": "Qwen/Qwen3-8B-AWQ"}), "four-bit-target", "unquantised", "AWQ"),
    (subject(samples_s=((0.5, 0.01, 0.011, 0.01),)), "warm-up-in-sample", "compilation", "500.0 ms"),
    (subject(num_steps=40), "too-few-prompts", "answers differ", "95 % interval"),
    (subject((), tau=5.0, block_size=16, num_steps=None, num_requests=7), "too-few-prompts", "answers differ", "7 answers"),
]


@pytest.mark.parametrize(("evidence", "code", "cause", "figure"), KNOWN)
def test_known_evidence_leads_to_its_finding(evidence, code, cause, figure):
    found = {finding.code: finding for finding in diagnose([evidence])}
    assert code in found
    assert cause in found[code].cause
    assert figure in found[code].evidence
    assert found[code].evidence in found[code].message
    if found[code].severity != "info":
        assert found[code].next_step
        assert found[code].hint == found[code].next_step
        assert found[code].cause in found[code].message


def test_the_excess_of_a_slow_step_is_given_to_its_part():
    (finding,) = diagnose([subject(plain_s=0.010, cycle_s=0.042, draft_s=0.004, verify_s=0.012, host_s=0.014)])[:1]
    assert finding.code == "high-tau-but-slow"
    assert "draft 0.40, verify 1.20, host 1.40" in finding.evidence
    assert "most of the excess is host" in finding.cause


def test_answers_that_differ_widen_the_interval():
    alike = subject(committed=((4, 5, 5, 5, 5, 5),) * 40, num_steps=240)
    apart = subject(committed=((1,) * 30, (8,) * 30, (2,) * 30), num_steps=90)
    assert "too-few-prompts" not in codes(alike)
    assert "too-few-prompts" in codes(apart)


@pytest.mark.parametrize("last", [0.0, 0.0002])
def test_zeros_are_only_exact_zeros(last):
    assert ("zeros-beyond-position" in codes(subject((0.8, 0.6, 0.5, last)))) == (last == 0.0)


def test_zeros_among_few_steps_are_chance():
    assert "zeros-beyond-position" not in codes(subject((0.6, 0.38, 0.215, 0.108, 0.062, 0.0, 0.0), num_steps=65))


def test_a_rise_among_few_steps_is_chance():
    assert "conditional-rates-rise" not in codes(subject((0.8, 0.56, 0.3976, 0.31808, 0.268), num_steps=40))


def load(batch, rate, plain=False):
    if plain:
        return Subject(name=f"plain {batch}", tokens_per_s=rate, batch=batch)
    return subject(name=f"spec {batch}", tokens_per_s=rate, batch=batch)


def test_speedup_that_falls_with_batch_names_where_it_crosses_1():
    runs = [load(1, 200.0), load(1, 100.0, True), load(16, 800.0), load(16, 1600.0, True)]
    finding = next(finding for finding in diagnose(runs) if finding.code == "falls-with-batch")
    assert "2.00 at batch 1, 0.50 at batch 16" in finding.evidence
    # from 2 to 0.5 over a factor of 16: 1 lies at 2/3 of the way in the logarithm, 16^(2/3) = 6.35
    assert "near batch 6" in finding.evidence
    assert "off above 6 requests" in finding.next_step
    assert finding.severity == "warning"


def bench(folder, name, batch, rate, itl_ms, drafts=None):
    """A result of `vllm bench serve`, with τ = 3 where drafts are given."""
    document = {
        "backend": "openai",
        "endpoint_type": "openai",
        "model_id": "m",
        "completed": 64,
        "max_concurrency": batch,
        "total_input_tokens": 6400,
        "total_output_tokens": 6400,
        "output_throughput": rate,
        "mean_itl_ms": itl_ms,
        "median_itl_ms": itl_ms,
    }
    if drafts:
        document |= {
            "spec_decode_num_drafts": drafts,
            "spec_decode_draft_tokens": 7 * drafts,
            "spec_decode_accepted_tokens": 2 * drafts,
        }
    path = folder / f"{name}.json"
    path.write_text(json.dumps(document))
    return path


def test_benchmarks_at_two_loads_with_and_without_speculation(tmp_path):
    files = [
        bench(tmp_path, "plain-1", 1, 100.0, 10.0),
        bench(tmp_path, "spec-1", 1, 200.0, 15.0, 2000),
        bench(tmp_path, "plain-32", 32, 1600.0, 20.0),
        bench(tmp_path, "spec-32", 32, 1280.0, 75.0, 2000),
    ]
    found = shown(*files)["findings"]
    ratios = {finding["where"]: finding for finding in found if finding["code"] in ("step-ratio", "speculation-loses")}
    assert "r = 1.50 plain ones, speedup τ / r = 2.00" in ratios["spec-1"]["evidence"]
    assert "r = 3.75 plain ones, speedup τ / r = 0.80" in ratios["spec-32"]["evidence"]
    falls = next(finding for finding in found if finding["code"] == "falls-with-batch")
    # from 2 to 0.8 between 1 and 32: 1 lies at 5/6 of the way in the logarithm, 32^(5/6) = 18
    assert "2.00 at batch 1, 0.80 at batch 32; it crosses 1 near batch 18" in falls["evidence"]


def test_speedup_that_holds_is_no_finding():
    runs = [load(1, 200.0), load(1, 100.0, True), load(16, 3100.0), load(16, 1600.0, True)]
    assert "falls-with-batch" not in codes(*runs)


def test_acceptance_that_falls_with_context():
    runs = [subject(name="short", context=500), subject((0.5, 0.2, 0.1, 0.0, 0.0, 0.0, 0.0), name="long", context=64000)]
    finding = next(finding for finding in diagnose(runs) if finding.code == "falls-with-context")
    assert "τ = 4.75 at context 500, 1.80 at 64,000" in finding.evidence


@pytest.mark.parametrize(
    ("fact", "values", "differs"),
    [
        ("temperature", ("0", "1"), True),
        ("versions", ("vllm 0.31", "vllm 0.32"), True),
        ("target", ("a", "a"), False),
        ("task", ("math", "code"), True),
    ],
)
def test_two_files_that_are_not_one_sweep(fact, values, differs):
    runs = [subject(name=value + str(i), file=str(i), facts={fact: value}) for i, value in enumerate(values)]
    assert ("not-one-sweep" in codes(*runs)) == differs


def test_tasks_of_one_file_are_one_sweep():
    assert "not-one-sweep" not in codes(*(subject(name=task, file="run", facts={"task": task}) for task in ("math", "code")))


def test_worst_comes_first_and_rules_are_listed(tmp_path):
    path = tmp_path / "c.json"
    path.write_text(
        json.dumps({"num_drafts": 100, "num_draft_tokens": 300, "num_accepted_tokens": 0, "accepted_per_pos": [0, 0, 0]})
    )
    record = diagnose_files([path])
    assert isinstance(record, Diagnosis)
    assert record.findings[0].code == "tau-exactly-one"
    assert set(record.checked) == set(RULES)
    assert "host share" in record.not_checked
    assert not set(RULES) & set(GROUP_RULES)


# --- on real files ---


def shown(*args):
    result = CliRunner().invoke(app, ["diagnose", *map(str, args), "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("vllm-cpu/metrics-draft_model-k3.txt", {"tau-exactly-k"}),
        ("vllm-cpu/metrics-dflash-k8.txt", {"tau-exactly-one"}),
        ("vllm-cpu/metrics-base.txt", {"no-speculation"}),
        ("bench/vllm_specdecoding_lines.log", {"first-position-near-zero", "zeros-beyond-position", "positions-beyond-draft"}),
        ("published/tpu_v5p_standalone_gsm8k.json", {"too-few-prompts", "step-ratio", "rows-left-out"}),
        ("published/tpu_v4_phase_profile_gsm8k.json", {"async-phases"}),
        ("bench/dflash-mlx_qwen3-5-4b-1024.json", {"step-ratio", "too-few-prompts"}),
    ],
)
def test_real_files_lead_to_their_findings(shared_data, file, expected):
    document = shown(shared_data / file)
    assert document["schema"] == "perf.diagnosis"
    assert expected <= {finding["code"] for finding in document["findings"]}
    for finding in document["findings"]:
        assert {"code", "severity", "message", "hint", "where", "evidence", "cause", "next_step"} <= finding.keys()


def test_a_warm_up_that_nobody_marked_is_seen(shared_data, tmp_path):
    document = json.loads((shared_data / "published/tpu_v5p_standalone_gsm8k.json").read_text())
    document["per_sample"][0]["is_warmup"] = False  # 51.7 ms per token in it, 6.3 in the others
    path = tmp_path / "unmarked.json"
    path.write_text(json.dumps(document))
    assert "warm-up-in-sample" in {finding["code"] for finding in shown(path)["findings"]}
    marked = shown(shared_data / "published/tpu_v5p_standalone_gsm8k.json")
    assert "warm-up-in-sample" not in {finding["code"] for finding in marked["findings"]}


def test_the_speedup_of_a_real_file_is_what_the_file_says(shared_data):
    document = shown(shared_data / "bench/dflash-mlx_qwen3-5-4b-1024.json")
    ratios = [finding["evidence"] for finding in document["findings"] if finding["code"] == "step-ratio"]
    assert [text.rpartition(" = ")[2] for text in ratios] == ["3.28", "3.40", "3.42"]  # its own `speedup` fields


def test_scrapes_of_one_server_are_read_together(shared_data, tmp_path):
    first = shared_data / "vllm-cpu/metrics-draft_model-k3.txt"
    later = tmp_path / "later.txt"
    later.write_text(first.read_text().replace("} 404.0", "} 504.0").replace("} 1212.0", "} 1512.0"))
    (finding,) = shown(first, later)["findings"]
    assert finding["evidence"] == "every draft was accepted in 100 steps: τ = K = 4"


def test_a_run_folder_is_diagnosed_by_task(tmp_path):
    profile = AcceptanceProfile(
        name="x",
        task="chat",
        target="t",
        draft="d",
        block_size=4,
        survival=(0.3, 0.1, 0.03),
        at_risk=(900.0, 270.0, 90.0),
        num_steps=900,
    )
    points = (
        TimingPoint(phase="verify", block_size=1, batch=1, context=0, samples_s=(0.010,)),
        TimingPoint(phase="verify", block_size=4, batch=1, context=0, samples_s=(0.012,)),
        TimingPoint(phase="draft", block_size=4, batch=1, context=0, samples_s=(0.004,)),
    )
    trace = TraceTimings(
        device_kind="x",
        num_devices=1,
        steps=10,
        step_seconds_median=0.030,
        step_source="steps",
        phases={"verify": PhaseTimes(count=1, device_s_median=0.012, wall_s_median=0.012)},
        busy_share=0.5,
        coverage=1.0,
        host_gap_s_median=0.014,
        timing="device",
    )
    codec.save(tmp_path / "acceptance.json", AcceptanceSet(profiles=(profile,)))
    codec.save(tmp_path / "timings.json", StepTimes(device_kind="x", target="t", draft="d", dtype="float32", points=points))
    codec.save(tmp_path / "traces.json", TraceSet(traces={"chat-K4": trace}))
    found = {finding["code"]: finding for finding in shown(tmp_path)["findings"]}
    assert {"low-first-position", "speculation-loses", "host-bound"} <= set(found)
    assert "most of the excess is host" in found["speculation-loses"]["cause"]
    assert "r = 3.00" in found["speculation-loses"]["evidence"]


def test_a_sweep_says_at_which_batch_its_own_prediction_crosses_1(tmp_path):
    """From 1.5 at batch 1 to 0.9 at batch 8: 1 lies at 5/6 of the way in the logarithm, 8^(5/6) = 5.7."""

    def predicted(batch, context, gain):
        plain, wide = (
            KRow(
                block_size=k,
                batch=batch,
                context=context,
                draft_s=0.0,
                verify_s=0.01,
                host_s=0.0,
                tau=1.0,
                tpot_s=0.01,
                speedup=s,
            )
            for k, s in ((1, 1.0), (4, gain))
        )
        best = wide if gain > 1 else plain
        return KPrediction(
            hardware="here", target="t", draft="d", task="chat", source="measured", batch=batch, context=context, rows=(plain, wide),
            best=best, plateau=(best.block_size, best.block_size), worth_it=gain > 1, break_even_tau=1.0, ceiling=None,
        )  # fmt: skip

    profile = AcceptanceProfile(name="x", task="chat", target="t", draft="d", block_size=2, survival=(0.8,), at_risk=(900.0,))
    here = (predicted(8, 256, 0.9), predicted(1, 256, 1.5), predicted(1, 4096, 3.0))
    codec.save(tmp_path / "acceptance.json", AcceptanceSet(profiles=(profile,)))
    codec.save(tmp_path / "prediction.json", PredictionSet(here=here))
    falls = next(finding for finding in shown(tmp_path)["findings"] if finding["code"] == "falls-with-batch")
    assert falls["where"] == "chat"
    assert "predicted speedup 1.50 at batch 1, 0.90 at batch 8; it crosses 1 near batch 6" in falls["evidence"]
    assert falls["severity"] == "warning"
    codec.save(tmp_path / "prediction.json", PredictionSet(here=here[1:]))
    assert "falls-with-batch" not in {finding["code"] for finding in shown(tmp_path)["findings"]}


def test_saved_imports_and_acceptance_files_are_taken(shared_data, tmp_path):
    record, _ = import_files([shared_data / "vllm-cpu/metrics-dflash-k8.txt"])
    codec.save(tmp_path / "imported.json", record)
    codec.save(tmp_path / "acceptance.json", load_profile("qwen3-4b-dflash-b16/gsm8k"))
    assert "tau-exactly-one" in {finding["code"] for finding in shown(tmp_path / "imported.json")["findings"]}
    assert shown(tmp_path / "acceptance.json")["findings"] is not None
    codec.save(tmp_path / "times.json", StepTimes(device_kind="x", target="t", draft="d", dtype="float32", points=()))
    with pytest.raises(InputError, match="holds no acceptance"):
        diagnose_files([tmp_path / "times.json"])


def test_what_cannot_be_diagnosed(tmp_path):
    with pytest.raises(InputError, match=r"no acceptance\.json"):
        diagnose_files([tmp_path])
    with pytest.raises(InputError, match="does not exist"):
        diagnose_files([tmp_path / "absent"])


@pytest.mark.parametrize("args", [[], ["--target", "a"], ["x", "--k", "4"]])
def test_wrong_use_of_the_verb(args):
    assert CliRunner().invoke(app, ["diagnose", *args]).exit_code == 2


def test_the_terminal_shows_cause_and_next_step(shared_data):
    result = CliRunner().invoke(app, ["diagnose", str(shared_data / "vllm-cpu/metrics-dflash-k8.txt")])
    assert "likely cause" in result.stdout
    assert "next" in result.stdout
