import pytest
from decoding_pairs import small_pair

from profiling.capture import MAX_STEPS
from profiling.extract import extract
from sweeps import capturing
from sweeps.answers import Decoders
from sweeps.capturing import decode_prompts

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
    assert recording.findings == ()


def test_a_trace_without_the_steps_that_were_run_is_said(pair, tmp_path, monkeypatch):
    monkeypatch.setattr(capturing, "MAX_STEPS", 10**6)  # so 59 steps are expected of a capture that stops after fifty
    recording = decode_prompts(pair, PROMPTS[:1], 1, 1, 60, (tmp_path, "short"))
    assert [finding.code for finding in recording.findings] == ["steps-mismatch"]


def test_a_capture_holds_at_most_fifty_steps_unless_told_otherwise(pair, tmp_path):
    recording = decode_prompts(pair, PROMPTS[:1], 1, 1, 60, (tmp_path, "plain"))
    assert len(recording.answers[0].committed[0]) == 59
    assert MAX_STEPS == 50
    assert extract(recording.xplane, expected_steps=50).steps == 50


def test_without_a_trace_there_is_no_file_and_no_profiler_time(pair):
    recording = decode_prompts(pair, PROMPTS[:1], 1, 1, 4, None)
    assert (recording.xplane, recording.profiler_s) == (None, None)


def test_a_sweep_s_decoder_is_compiled_and_warmed_up_once(pair):
    decoders = Decoders(pair, prompt_capacity=8, capacity=32)
    first = decoders.get(4, PROMPTS)
    assert min(first.lower_s, first.compile_s, first.warmup_s) > 0
    assert decoders.get(4, PROMPTS) is first
    assert decoders.get(4, PROMPTS[:1]) is not first
