"""DFlash's own tools, NVIDIA's profile, generic JSON and CSV: hand-made inputs; and values that cannot be."""

from functools import partial

import pytest
from importer_files import codes, import_text

from perfmodel.errors import InputError


@pytest.fixture
def read(tmp_path):
    """Write a text (or JSON, or JSON lines) and import it."""
    return partial(import_text, tmp_path)


# --- DFlash's own tools ---

PRINTED = """Loading target: Qwen/Qwen3-4B
Loading draft: z-lab/Qwen3-4B-DFlash-b16
Baseline throughput: 40.00 tok/s
DFlash throughput:  120.00 tok/s
Decoding speedup: 3.00
Average Acceptance length: 2.90
Acceptance length histogram: ['0.0%', '20.0%', '30.0%', '10.0%', '40.0%']
"""


def test_printed_histogram_gives_tau_over_steps(read):
    run = read(PRINTED, "out.txt").records[0]
    assert run.block_size == 4
    assert run.tau == pytest.approx(0.2 * 1 + 0.3 * 2 + 0.1 * 3 + 0.4 * 4)
    assert run.survival == pytest.approx((0.8, 0.5, 0.4))
    assert run.tau_per_answer == 2.9
    assert run.num_steps is None
    assert (run.plain_tokens_per_s, run.tokens_per_s, run.draft) == (40.0, 120.0, "z-lab/Qwen3-4B-DFlash-b16")


def test_server_mode_gives_tokens_over_verify_steps(read):
    text = (
        "==================================================\nBackend:          sglang\nDataset:          gsm8k\nNum prompts:      8\n"
        "Concurrency:      2\nLatency:          10.0s\nOutput tokens:    1,000\nThroughput:       100.00 tok/s\nAccept length:    4.100\n"
        "Spec verify ct:   250\n"
    )
    run = read(text, "out.txt").records[0]
    assert (run.num_steps, run.tau, run.tau_per_answer, run.batch) == (250, 4.0, 4.1, 2.0)


def test_two_benchmarks_in_one_text_are_two_runs(read):
    record = read(PRINTED + PRINTED.replace("40.0%'", "30.0%'").replace("'20.0%'", "'30.0%'"), "out.txt")
    assert len(record.records) == 2


PROFILE = {
    "schema_version": "1.0",
    "measured": True,
    "method": "dflash",
    "num_speculative_tokens": 3,
    "conditional_accept_rates": [0.8, 0.75, 0.5],
    "marginal_accept_rates": [0.8, 0.6, 0.3],
    "mean_accept_length": 2.7,
    "mean_accept_length_per_request": 2.9,
    "accept_length_model": "measured_per_k",
    "acceptance_length_histogram": {"1": 20, "2": 20, "3": 30, "4": 30},
    "measurement_conditions": {"dataset": "mt_bench", "num_samples": 80},
}


def test_nvidia_profile_with_counts(read):
    run = read(PROFILE, "speculation_profile.json").records[0]
    assert (run.num_steps, run.num_accepted, run.block_size, run.task) == (100, 20 + 60 + 90, 4, "mt_bench")
    assert run.survival == pytest.approx((0.8, 0.6, 0.3))
    assert run.tau == pytest.approx(2.7)
    assert run.tau_per_answer == 2.9


def test_nvidia_profile_with_conditional_rates_only(read):
    rest = {key: value for key, value in PROFILE.items() if key not in ("marginal_accept_rates", "acceptance_length_histogram")}
    run = read(rest, "p.json").records[0]
    assert run.survival == pytest.approx((0.8, 0.6, 0.3))
    assert run.num_steps is None


def test_an_unmeasured_profile_is_said_to_be_one(read):
    record = read({**PROFILE, "measured": False}, "p.json")
    assert record.tau is None
    assert codes(record) == ["not-measured"]


def test_profile_vectors_that_contradict_each_other(read):
    record = read({**PROFILE, "marginal_accept_rates": [0.8, 0.7, 0.3]}, "p.json")
    assert "positions-disagree" in codes(record)


def test_verify_sweep_of_the_harness(read):
    document = {
        "context_lengths": [64],
        "k_values": [16, 128],
        "trials": 5,
        "device": "TPU v4",
        "results": {"64": {"16": {"mean_ms": 1.8, "std_ms": 0.1}, "128": {"mean_ms": 1.9}}},
    }
    record = read(document, "v.json")
    assert [(p.tokens, p.batch, p.context, p.seconds) for p in record.cost_points] == [(16, 1, 64, 1.8e-3), (128, 1, 64, 1.9e-3)]


def test_fused_comparison(read):
    half = {"tau": 4.0, "avg_step_ms": 11.0, "median_step_ms": 10.0, "total_steps": 50}
    record = read({"unfused": half, "fused": {**half, "median_step_ms": 8.0}}, "f.json")
    assert [(run.num_steps, run.num_accepted, run.phases_s) for run in record.records] == [
        (50, 150, {"step": 0.01}),
        (50, 150, {"step": 0.008}),
    ]


# --- anything else ---


def test_counters_nested_by_method(read):
    document = {
        "result": {
            "by_method": {
                "dflash": {"num_drafts": 10, "num_draft_tokens": 70, "num_accepted_tokens": 20},
                "ngram": {"num_drafts": 0, "num_draft_tokens": 0, "num_accepted_tokens": 0},
                "suffix": {"num_drafts": 5, "num_draft_tokens": 9, "num_accepted_tokens": 9},
            }
        }
    }
    record = read(document, "c.json")
    assert record.source == "generic-counters"
    assert [run.name for run in record.records] == ["result.by_method.dflash", "result.by_method.suffix"]
    assert [run.block_size for run in record.records] == [8, 3]
    listed = next(finding for finding in record.findings if finding.code == "methods-without-drafts")
    assert "ngram" in listed.message


def test_an_engine_neutral_record_with_a_sparse_histogram(read):
    item = {
        "engine": "vllm",
        "mean_acceptance_length": 2.0,
        "acceptance_histogram": {"0": 6, "2": 6},
        "num_spec_steps": 12,
        "num_draft_tokens": 36,
        "num_accepted_draft_tokens": 12,
    }
    record = read({"records": [item]}, "aiperf.json", format_name="generic-counters")
    assert (record.num_steps, record.tau, record.block_size) == (12, 2.0, 4)
    assert record.survival == pytest.approx((0.5, 0.5, 0.0))


def test_steps_with_requests_are_answers(read):
    rows = [
        {"request_id": "a", "step": 0, "committed": 3, "proposed": 7},
        {"request_id": "a", "step": 1, "committed": 1, "proposed": 7},
        {"request_id": "b", "step": 0, "committed": 8, "proposed": 7},
        {"request_id": "b", "step": 1, "committed": 1, "proposed": 0},
        {"request_id": "c", "step": 0, "committed": 8, "proposed": 7, "is_warmup": True},
    ]
    run = read(rows, "steps.jsonl", format_name="generic-steps").records[0]
    assert (run.num_steps, run.num_accepted, run.num_draft_tokens, run.block_size) == (3, 2 + 0 + 7, 21, 8)
    assert run.committed == ((3, 1), (8,))
    assert (run.num_plain, run.num_warmup) == (1, 1)


def test_a_csv_of_survival_with_and_without_the_anchor(read):
    assert read("position,survival\n1,0.9\n2,0.8\n", "s.csv").survival == (0.9, 0.8)
    record = read("position,survival\n0,1.0\n1,0.9\n2,0.8\n", "s.csv")
    assert record.survival == (0.9, 0.8)
    assert "anchor" in record.definition


def test_a_csv_with_columns_of_other_names(read):
    text = "M,reqs,kv,latency\n16,8,1024,14.4\n32,8,1024,14.8\n"
    record = read(text, "t.csv", columns="tokens=M,batch=reqs,context=kv,ms=latency")
    assert [(p.tokens, p.batch, p.context, p.seconds) for p in record.cost_points] == [
        (16, 8, 1024, pytest.approx(14.4e-3)),
        (32, 8, 1024, pytest.approx(14.8e-3)),
    ]


def test_a_csv_of_counters_by_task(read):
    record = read("task,drafts,draft_tokens,accepted\nmath,10,70,30\nmath,10,70,20\ncode,5,35,5\n", "c.csv")
    assert [(run.task, run.num_steps, run.num_accepted, run.block_size) for run in record.records] == [
        ("math", 20, 50, 8),
        ("code", 5, 5, 8),
    ]


def test_a_csv_of_steps(read):
    run = read("request_id,committed\na,2\na,1\nb,4\n", "c.csv").records[0]
    assert run.committed == ((2, 1), (4,))
    assert run.histogram == (1, 1, 0, 1)


def test_pipeline_and_metric_tables(read):
    record = read("dataset,method,num_prompts,num_ok,num_error,tpot_ms,tps,speedup\ngsm8k,dflash,8,8,0,4.0,250,2.5\n", "p.csv")
    assert record.records[0].tokens_per_s == 250.0
    assert (record.records[0].method, record.records[0].task, record.tau) == ("dflash", "gsm8k", None)
    record = read("metric,value\ntau,4.5\nnum_drafts,100\n", "m.csv")
    assert (record.tau, record.num_steps) == (4.5, 100)
    record = read(
        "metric,value\ntau,2.7\nacceptance_rate_pos_0,1.0\nacceptance_rate_pos_1,0.9\nacceptance_rate_pos_2,0.8\n", "m.csv"
    )
    assert (record.survival, record.block_size, record.tau) == ((0.9, 0.8), 3, 2.7)


# --- values that cannot be ---


@pytest.mark.parametrize(
    ("counters", "code"),
    [
        ({"num_drafts": 10, "num_draft_tokens": 30, "num_accepted_tokens": 35}, "rate-above-one"),
        ({"num_drafts": 0, "num_draft_tokens": 30, "num_accepted_tokens": 3}, "zero-drafts"),
        ({"num_drafts": 10, "num_draft_tokens": 30, "num_accepted_tokens": 17, "accepted_per_pos": [5, 8, 4]}, "survival-rises"),
        ({"num_drafts": 10, "num_draft_tokens": 30, "num_accepted_tokens": 29, "accepted_per_pos": [12, 9, 8]}, "rate-above-one"),
        (
            {"num_drafts": 10, "num_draft_tokens": 30, "num_accepted_tokens": 15, "accepted_per_pos": [9, 6, 0, 0]},
            "positions-beyond-draft",
        ),
        (
            {"num_drafts": 100, "num_draft_tokens": 300, "num_accepted_tokens": 15, "accepted_per_pos": [90, 60, 30]},
            "positions-disagree",
        ),
        (
            {"num_drafts": 100, "num_draft_tokens": 300, "num_accepted_tokens": 230, "accepted_per_pos": [100, 70, 60]},
            "anchor-in-survival",
        ),
        (
            {"num_drafts": 100, "num_draft_tokens": 300, "num_accepted_tokens": 100, "mean_acceptance_length": 1.0},
            "tau-disagrees",
        ),
    ],
)
def test_impossible_values_are_findings_and_stay_as_they_are(read, counters, code):
    record = read(counters, "c.json")
    found = {finding.code: finding for finding in record.findings}
    assert code in found
    assert found[code].hint or found[code].message
    assert record.num_accepted == counters["num_accepted_tokens"], "never clipped"


@pytest.mark.parametrize(("tau", "word"), [(0.7, "bonus"), (9.5, "above K = 8")])
def test_a_mean_outside_1_to_k_is_a_finding(read, tau, word):
    record = read("position,survival,tau\n" + "".join(f"{i},0.1,{tau}\n" for i in range(1, 8)), "c.csv")
    assert any(finding.code == "tau-out-of-range" and word in finding.message for finding in record.findings)
    assert record.tau == tau


def test_columns_that_do_not_exist_are_refused(read):
    with pytest.raises(InputError, match="no column called 'latency'"):
        read("a,b\n1,2\n", "t.csv", columns="ms=latency")
    with pytest.raises(InputError, match="no column called 'speed' here"):
        read("a,b\n1,2\n", "t.csv", columns="speed=a")


@pytest.mark.parametrize("count", [{"accepted": 3}, {"committed": 4}])
@pytest.mark.parametrize("more", [{}, {"step": 0}, {"request_id": "a"}])
def test_one_row_per_step_is_recognised(read, count, more):
    row = {**more, "proposed": 7, **count}
    record = read([row, row, {**row, **dict.fromkeys(count, 1)}], "steps.jsonl")
    assert record.source == "generic-steps"
    assert (record.num_steps, record.block_size) == (3, 8)


def test_rows_of_totals_are_counters(read):
    record = read([{"drafted": 700, "accepted": 300}, {"drafted": 700, "accepted": 310}], "runs.jsonl")
    assert record.source == "generic-counters"
    assert record.records[1].num_accepted == 310


def test_a_size_that_no_drafter_gives_is_left_open(read):
    record = read(
        {"num_drafts": 2, "num_draft_tokens": 900_000_000_000, "num_accepted_tokens": 1, "acceptance_histogram": [1, 1]}, "c.json"
    )
    assert record.block_size is None
    assert "block-size-impossible" in codes(record)
    assert len(record.records[0].histogram) == 2, "no list is made that long"


def test_the_slots_of_a_block_tell_k_not_its_configuration(read):
    document = {
        "config": {"block_size": 16},
        "summary": {"tau": 2.0, "total_drafts": 2, "acceptance_rate_per_pos": [1.0, 0.5, 0.5, 0.0]},
        "per_sample": [{"acceptance_lengths": [1, 3], "num_drafts": 2, "is_warmup": False}],
    }
    record = read(document, "s.json")
    assert (record.block_size, record.num_draft_tokens, record.survival) == (4, 6, (0.5, 0.5, 0.0))
    assert "block-size-differs" in codes(record)
