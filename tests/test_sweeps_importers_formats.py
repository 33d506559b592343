"""Engines' formats that no sample file holds: hand-made inputs with the arithmetic in the open."""

from functools import partial

import pytest
from importer_files import codes, import_text


@pytest.fixture
def read(tmp_path):
    """Write a text (or JSON, or JSON lines) and import it."""
    return partial(import_text, tmp_path)


# --- vLLM ---

LINE = (
    "(APIServer pid=7) INFO 11-29 20:28:29 [metrics.py:120] SpecDecoding metrics: Mean acceptance length: 3.57, Accepted throughput:"
    " 238.34 tokens/s, Drafted throughput: 244.32 tokens/s, Accepted: 239 tokens, Drafted: 245 tokens, Per-position acceptance rate:"
    " 0.978, 0.796, 0.796, Avg Draft acceptance rate: 97.6%"
)


def test_a_line_gives_the_steps_that_only_its_rounded_figures_hold(read):
    record = read(LINE)
    # 239 accepted at a mean of 3.57 ± 0.005 leaves 93 steps; 91, 74 and 74 of them round to the rates and add up to 239
    assert (record.num_steps, record.num_draft_tokens, record.num_accepted, record.block_size) == (93, 245, 239, 4)
    assert record.survival == pytest.approx((91 / 93, 74 / 93, 74 / 93))


@pytest.mark.parametrize("width", [40, 57, 80, 133])
@pytest.mark.parametrize("prefix", ["", "(APIServer pid=7) "])
def test_wrapped_lines_are_put_together(read, width, prefix):
    pieces = [LINE[start : start + width] for start in range(0, len(LINE), width)]
    wrapped = pieces[0] + "".join(f"\n{prefix}{piece}" for piece in pieces[1:])
    record = read(f"INFO 11-29 20:28:28 start\n{wrapped}\nINFO 11-29 20:28:30 end\n", format_name="vllm-log")
    assert (record.num_steps, record.num_accepted) == (93, 239)


def test_lines_wrapped_at_spaces_are_put_together(read):
    words = LINE.split(" ")
    record = read(" ".join(words[:22]) + "\n  " + " ".join(words[22:]) + "\n")
    assert record.num_accepted == 239


def test_intervals_are_summed_and_rates_never_averaged(read):
    other = (
        "(APIServer pid=7) INFO 11-29 20:28:31 [metrics.py:120] SpecDecoding metrics: Mean acceptance length: 1.00, Accepted throughput:"
        " 0.00 tokens/s, Drafted throughput: 9 tokens/s, Accepted: 0 tokens, Drafted: 30 tokens, Per-position acceptance rate: 0.000,"
        " 0.000, 0.000, Avg Draft acceptance rate: 0.0%"
    )
    record = read(f"{LINE}\n{other}\n")
    assert (record.num_steps, record.num_accepted, record.num_draft_tokens) == (103, 239, 275)
    assert record.tau == pytest.approx(1 + 239 / 103)  # the mean of the two printed means would be 2.29


def test_a_mean_without_the_bonus_is_recognised(read):
    record = read(LINE.replace("length: 3.57", "length: 2.57"))
    assert record.num_steps == 93
    assert record.tau == pytest.approx(1 + 239 / 93)
    assert "leaves the bonus out" in record.definition


def test_a_cut_last_line_is_left_out_and_named(read):
    record = read(f"{LINE}\n{LINE[:180]}")
    assert record.num_accepted == 239
    assert "line-cut" in codes(record)


def test_zero_drafts_print_nan_and_are_no_number(read):
    idle = LINE.replace("3.57", "nan").replace("239", "0").replace("245", "0").replace("0.978, 0.796, 0.796", "nan, nan, nan")
    record = read(idle.replace("97.6", "nan"), format_name="vllm-log")
    assert record.num_accepted == 0
    assert record.tau is None
    assert "zero-drafts" in codes(record)


def test_per_request_records_give_steps_by_answer(read):
    rows = [
        {"id": 0, "is_warmup": True, "metrics": {"speculative_decoding": reply([3, 3])}},
        {"id": 1, "metrics": {"speculative_decoding": reply([0, 2, 3])}},
        {"id": 2, "metrics": {"speculative_decoding": None}},
        {"id": 3, "metrics": {"speculative_decoding": reply([1])}},
    ]
    run = read(rows, "requests.jsonl").records[0]
    assert (run.num_steps, run.num_accepted, run.num_draft_tokens, run.block_size) == (4, 6, 12, 4)
    assert run.committed == ((1, 3, 4), (2,))
    assert run.survival == pytest.approx((3 / 4, 2 / 4, 1 / 4))
    assert (run.num_requests, run.num_warmup, run.num_plain) == (2, 1, 1)
    assert run.tau_per_answer == pytest.approx(((1 + 3 + 4) / 3 + 2) / 2)
    assert run.tau == pytest.approx(10 / 4)


def reply(accepted, drafts=3):
    histogram = [accepted.count(value) for value in range(drafts + 1)]
    return {
        "acceptance_histogram": histogram,
        "num_spec_steps": len(accepted),
        "num_accepted_draft_tokens": sum(accepted),
        "num_draft_tokens": drafts * len(accepted),
        "num_spec_tokens": drafts,
        "per_step_accepted": accepted,
        "per_step_drafted": [drafts] * len(accepted),
    }


def test_a_single_reply_and_a_list_of_replies_are_read_alike(read):
    one = {"id": "x", "choices": [], "metrics": {"speculative_decoding": reply([0, 3])}}
    assert read(one, "one.json").num_accepted == 3
    assert read({"requests": [one, one]}, "many.json").num_accepted == 6


def test_the_usual_proposal_length_gives_k(read):
    item = {**reply([0, 1, 0]), "per_step_drafted": [7, 7, 2], "num_draft_tokens": 16, "num_spec_tokens": 15}
    record = read([{"metrics": {"speculative_decoding": item}}] * 2, "r.jsonl")
    assert record.block_size == 8  # not 1 + round(16 / 3) = 6, and not the flag's 16


def test_turns_of_a_conversation_are_answers_of_their_own_and_counted(read):
    rows = [
        {"id": 0, "turn": 0, "metrics": {"speculative_decoding": reply([3])}},
        {"id": 0, "turn": 1, "metrics": {"speculative_decoding": reply([0, 1])}},
        {"id": 1, "turns": [{"speculative_decoding": reply([2])}, {"speculative_decoding": reply([2])}]},
    ]
    record = read(rows, "turns.jsonl")
    assert record.records[0].committed == ((4,), (1, 2), (3,), (3,))
    finding = next(finding for finding in record.findings if finding.code == "further-turns")
    assert "2 answers are further turns" in finding.message


def test_a_scrape_of_an_engine_without_a_counter_of_drafts(read):
    record = read(
        'vllm:spec_decode_num_draft_tokens_total{model_name="m"} 30\nvllm:spec_decode_num_accepted_tokens_total{} 12\n',
        "old.prom",
    )
    assert {run.num_steps for run in record.records} == {None}
    assert "steps-unknown" in codes(record)


# --- SGLang ---


@pytest.mark.parametrize(
    "names",
    [
        ("spec_accept_token_num", "spec_draft_token_num", "spec_accept_histogram"),
        ("spec_num_correct_drafts", "spec_num_proposed_drafts", "spec_correct_drafts_histogram"),
    ],
)
def test_meta_info_in_old_and_new_names(read, names):
    accepted, drafted, histogram = names
    row = {
        "meta_info": {
            "spec_verify_ct": 4,
            "spec_accept_length": 2.5,
            "completion_tokens": 10,
            accepted: 6,
            drafted: 12,
            histogram: [1, 1, 1, 1],
        }
    }
    record = read([row, row], "replies.jsonl")
    assert record.source == "sglang-requests"
    assert (record.num_steps, record.num_accepted, record.num_draft_tokens, record.block_size) == (8, 12, 24, 4)
    assert record.survival == pytest.approx((3 / 4, 2 / 4, 1 / 4))


def test_a_histogram_by_committed_tokens_is_shifted(read):
    info = {"spec_verify_ct": 7, "spec_accept_length": 1.0, "completion_tokens": 8, "spec_accept_histogram": [0, 7]}
    record = read([{"meta_info": info}, {"meta_info": info}], "replies.jsonl")
    assert (record.num_steps, record.num_accepted, record.tau) == (14, 0, 1.0)
    assert "histogram-shifted" in codes(record)


def test_replies_without_accepted_counts_use_completion_tokens(read):
    info = {"spec_verify_ct": 4, "spec_accept_length": 2.5, "completion_tokens": 10}
    record = read([{"meta_info": info}, {"meta_info": {"completion_tokens": 5}}], "replies.jsonl")
    assert (record.num_steps, record.tau, record.num_accepted) == (4, 2.5, None)
    assert record.records[0].num_plain == 1


def test_decode_lines_weigh_by_running_requests(read):
    line = "[2026-09-30] Decode batch, #running-req: {}, #token: 100, accept len: {}, accept rate: {}, gen throughput (token/s): 9, x"
    record = read(line.format(3, "2.00", "0.20") + "\n" + line.format(1, "4.00", "0.60") + "\n", "server.log")
    assert record.tau == pytest.approx((3 * 2.0 + 1 * 4.0) / 4)
    assert record.block_size == 6  # (2 - 1) / 0.2 = (4 - 1) / 0.6 = 5 drafts
    assert "tau-estimated" in codes(record)
    assert record.num_steps is None


# --- llama.cpp ---


def test_requests_of_one_form_are_summed(read):
    line = "slot print_timing: id 0 | task 1 | draft acceptance = 0.98444 (  886 accepted /   900 generated), mean len =  4.94\n"
    record = read(line * 2, "llama.log")
    assert (record.num_steps, record.num_accepted, record.num_draft_tokens, record.block_size) == (450, 1772, 1800, 5)
    assert record.records[0].num_requests == 2


def test_drafter_totals_stand_in_where_no_request_line_is(read):
    text = (
        "I statistics draft-x: #calls(b,g,a) = 1 9 9, #gen drafts = 9, #acc drafts = 5, #gen tokens = 27, #acc tokens = 12, x\n"
    )
    idle = "I statistics ngram: #calls(b,g,a) = 1 9 0, #gen drafts = 0, #acc drafts = 0, #gen tokens = 0, #acc tokens = 0, x\n"
    record = read(text + idle, "llama.log", format_name="llamacpp-log")
    assert (record.num_steps, record.num_draft_tokens, record.num_accepted, record.block_size) == (9, 27, 12, 4)
    assert {"drafter-totals", "drafter-idle"} <= set(codes(record))
    assert len(record.records) == 1
