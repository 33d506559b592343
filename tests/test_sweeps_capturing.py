import tempfile

import pytest
from decoding_pairs import small_pair

from decoding.loop import Decoder, generate, no_span, required_capacity
from profiling.capture import MAX_STEPS
from profiling.extract import extract
from profiling.overhead import Overhead
from sweeps import capturing
from sweeps.answers import Decoders
from sweeps.capturing import decode_prompts
from sweeps.traces import overhead_findings

PROMPTS = [[1, 2, 3], [4, 5, 6, 7]]


@pytest.fixture(scope="module")
def pair():
    return small_pair(3, lean=3.0)


def test_lowering_compiling_warming_up_and_running_are_four_numbers(pair, tmp_path):
    recording = decode_prompts(pair, PROMPTS, 4, 2, 12, (tmp_path, "toy"))
    assert min(recording.lower_s, recording.compile_s, recording.warmup_s, recording.decode_s) > 0
    # Decoding small answers is quick; compiling is not, and must not be inside.
    assert recording.decode_s < recording.compile_s
    assert recording.profiler_s > 0
    num_steps = max(len(counts) for answer in recording.answers for counts in answer.committed)
    assert extract(recording.xplane, expected_steps=num_steps).steps == num_steps
    assert {finding.code for finding in recording.findings} <= {"profiler-overhead"}


def test_a_trace_without_the_steps_that_were_run_is_said(pair, tmp_path, monkeypatch):
    monkeypatch.setattr(capturing, "MAX_STEPS", 10**6)  # so 59 steps are expected of a capture that stops after fifty
    recording = decode_prompts(pair, PROMPTS[:1], 1, 1, 60, (tmp_path, "short"))
    assert recording.findings[0].code == "steps-mismatch"


def test_a_capture_holds_at_most_fifty_steps_unless_told_otherwise(pair, tmp_path):
    recording = decode_prompts(pair, PROMPTS[:1], 1, 1, 60, (tmp_path, "plain"))
    assert len(recording.answers[0].committed[0]) == 59
    assert MAX_STEPS == 50
    assert extract(recording.xplane, expected_steps=50).steps == 50


def test_without_a_trace_there_is_no_file_and_no_profiler_time(pair):
    recording = decode_prompts(pair, PROMPTS[:1], 1, 1, 4, None)
    assert (recording.xplane, recording.profiler_s, recording.overhead) == (None, None, None)


def test_the_profiler_s_cost_is_measured_on_the_same_steps_with_and_without_it(pair, tmp_path, monkeypatch):
    turns = []

    def watched(decoder, prompts, max_new_tokens, span, max_steps=None):
        turns.append((span is not no_span, prompts, max_new_tokens, max_steps))
        return generate(decoder, prompts, max_new_tokens, span=span, max_steps=max_steps)

    decoder = Decoder(pair, block_size=1, batch=1, capacity=required_capacity(4, 30, 1))
    monkeypatch.setattr(capturing, "generate", watched)
    found = capturing.measure_overhead(decoder, PROMPTS[:1], 30)
    assert found.low <= found.share <= found.high
    assert [recorded for recorded, *_ in turns] == [False, True, True, False, False, True, True, False]
    assert {repr(rest) for _, *rest in turns} == {repr([PROMPTS[:1], 30, capturing.OVERHEAD_STEPS])}
    monkeypatch.setattr(capturing, "OVERHEAD_BUDGET_S", 0.0)  # a slow loop is not run eight times
    turns.clear()
    capturing.measure_overhead(decoder, PROMPTS[:1], 30)
    assert [recorded for recorded, *_ in turns] == [False, True]


def test_a_capture_is_kept_where_its_own_cost_cannot_be_measured(pair, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "absent"))
    recording = decode_prompts(pair, PROMPTS[:1], 1, 1, 8, (tmp_path, "kept"))
    assert extract(recording.xplane, expected_steps=7).steps == 7
    assert recording.overhead is None
    assert [finding.code for finding in recording.findings] == ["profiler-overhead-unknown"]


def test_answers_without_steps_say_nothing_of_the_profiler(pair, tmp_path):
    assert decode_prompts(pair, PROMPTS[:1], 1, 1, 1, (tmp_path, "none")).overhead is None


def test_only_an_overhead_above_the_limit_beyond_doubt_is_a_finding():
    (finding,) = overhead_findings(Overhead(0.2, 0.1, 0.3))
    assert (finding.code, finding.severity) == ("profiler-overhead", "warning")
    assert "20 %" in finding.message
    assert "3 %" in finding.message
    assert overhead_findings(Overhead(0.2, 0.01, 0.3)) == overhead_findings(None) == ()


def test_a_sweep_s_decoder_is_compiled_and_warmed_up_once(pair):
    decoders = Decoders(pair, prompt_capacity=8, capacity=32)
    first = decoders.get(4, PROMPTS)
    assert min(first.lower_s, first.compile_s, first.warmup_s) > 0
    assert decoders.get(4, PROMPTS) is first
    assert decoders.get(4, PROMPTS[:1]) is not first
