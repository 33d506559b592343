"""What answers and counters together say of one point, and what they may not pass for."""

from pathlib import Path

from perfmodel import codec
from perfmodel.records import ImportedRun, Served, ServedPoint, ServedRequest
from sweeps.engines import answering
from sweeps.engines.measuring import Scene, point_of


def test_another_client_is_noticed() -> None:
    requests = (answer(10, (3, 3, 3)),)
    counters = answering_counters(num_steps=3, num_accepted=6, num_output_tokens=14)
    point = point_with(requests, counters)
    assert "foreign-traffic" in {finding.code for finding in point.findings}


def answer(num_tokens: int, committed: tuple[int, ...] | None) -> ServedRequest:
    return ServedRequest(
        prompt="1",
        num_prompt_tokens=5,
        num_output_tokens=num_tokens,
        ttft_s=0.1,
        e2e_s=1.0,
        decode_s=0.9,
        text="x",
        committed=committed,
        finish_reason="length",
    )


def answering_counters(num_steps: int, num_accepted: int, num_output_tokens: int, drafts: int = 3) -> ImportedRun:
    return ImportedRun(
        name="x",
        source="x",
        definition="x",
        num_steps=num_steps,
        num_draft_tokens=num_steps * drafts,
        num_accepted=num_accepted,
        num_output_tokens=num_output_tokens,
        block_size=1 + drafts,
        tau=1 + num_accepted / num_steps,
        survival=(num_accepted / num_steps / drafts,) * drafts,
    )


def point_with(requests: tuple[ServedRequest, ...], counters: ImportedRun, asked: int = 4) -> ServedPoint:
    return point_of(Scene("math", (), 1, 10), asked, requests, 1.0, counters, is_plain=False)


def test_counts_that_do_not_fit_give_no_step_time() -> None:
    point = point_with((answer(10, None),), answering_counters(num_steps=20, num_accepted=3, num_output_tokens=10))
    assert point.step_s is None
    assert "steps-do-not-fit" in {finding.code for finding in point.findings}
    assert not answering.scenes_of([point])


def test_another_k_than_asked_is_said() -> None:
    point = point_with((answer(10, (3, 3, 3)),), answering_counters(3, 6, 10), asked=8)
    assert point.block_size == 4
    assert "other-k" in {finding.code for finding in point.findings}


def test_merged_pieces_of_a_stream_do_not_pass_for_steps() -> None:
    point = point_with((answer(10, (6, 3)),), answering_counters(3, 6, 10))
    profile = answering.profile_of(point, "t", "d", None)
    assert profile is not None
    assert profile.committed == ()  # two pieces, three steps: the counters are taken
    assert profile.num_steps == 3


def test_served_record_round_trip(tmp_path: Path) -> None:
    point = point_with((answer(10, (3, 3, 3)),), answering_counters(3, 6, 10))
    record = Served(engine="openai", base_url="http://h:1", model="m", points=(point,), launched=(4,))
    codec.save(tmp_path / "served.json", record)
    assert codec.load(tmp_path / "served.json", Served) == record
