"""A server measured by `perf sweep-k --engine openai`: everything that goes wrong is a finding, and the run can be resumed.

The server is a process of its own that speaks the real protocol over loopback (tests/engine_server.py).
"""

import io
import json
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from perfcli.page import page_inputs
from perfmodel.records import RunSpec, ServedPoint
from reports.description import content
from reports.page import render
from sweeps.document import sweep_document
from sweeps.engines.client import Client, parse_address
from sweeps.engines.launch import is_taken
from sweeps.engines.plan import make_engine_spec
from sweeps.engines.runner import run_engine_sweep
from sweeps.folder import read_result
from sweeps.progress import silent
from sweeps.result import SweepResult
from sweeps.store import RunStore

SERVER = Path(__file__).with_name("engine_server.py")
ACCEPTED = (0, 1, 3, 0, 2)
"""What the server accepts step by step, as far as K − 1 drafts go."""

NUM_TOKENS = 48


@pytest.fixture
def port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def command(*more: str) -> str:
    return f"{shlex.quote(sys.executable)} -S {SERVER} --port {{port}} --drafts {{num_speculative_tokens}} {' '.join(more)}"


def spec_of(port: int, launch: str | None, **changes: object) -> RunSpec:
    usual = {
        "engine": "openai",
        "base_url": f"http://127.0.0.1:{port}/v1",
        "launch": launch,
        "launch_limit_s": 20.0,
        "concurrency": (1,),
        "maximum": None,
        "points": (4,) if launch else None,
        "target": None,
        "draft": None,
        "tasks": ("math",),
        "prompts": None,
        "dtype": "float32",
        "quick": True,
    }
    spec = make_engine_spec(**(usual | changes))  # type: ignore[arg-type]
    return msgspec.structs.replace(spec, num_prompts=3)


def run(spec: RunSpec, folder: Path, resume: bool = False) -> SweepResult:
    store = RunStore(folder)
    with store.lock():
        store.begin(spec, resume)
        return run_engine_sweep(spec, store, silent)


def by_size(result: SweepResult) -> dict[int | None, ServedPoint]:
    assert result.served is not None
    return {point.block_size: point for point in result.served.points}


def codes(result: SweepResult) -> set[str]:
    return {finding.code for finding in result.findings}


@pytest.fixture
def server(port: int) -> Iterator[int]:
    """A server with three drafts that runs already; its port."""
    with running(port, "--drafts", "3"):
        yield port


class running:
    """A server of the test's own."""

    def __init__(self, port: int, *more: str) -> None:
        self.process = subprocess.Popen([sys.executable, "-S", str(SERVER), "--port", str(port), *more])
        until = time.monotonic() + 20
        while not is_taken(parse_address(f"http://127.0.0.1:{port}")) and time.monotonic() < until:
            time.sleep(0.02)

    def __enter__(self) -> "running":
        return self

    def __exit__(self, *error: object) -> None:
        self.process.kill()
        self.process.wait()


def expected_steps(num_drafts: int) -> list[int]:
    """Committed tokens of every step of an answer, the last one cut at the limit."""
    counts, left = [], NUM_TOKENS - 1
    while left > 0:
        counts.append(min(1 + min(ACCEPTED[len(counts) % 5], num_drafts), left))
        left -= counts[-1]
    return counts


def test_a_sweep_over_launched_servers(port: int, tmp_path: Path) -> None:
    result = run(spec_of(port, command(), tasks=("math", "chat"), concurrency=(1, 2)), tmp_path / "run")
    assert not is_taken(parse_address(f"http://127.0.0.1:{port}"))  # the last one was stopped
    assert result.served is not None
    assert result.served.launched == (1, 4)
    assert result.served.model == "tiny"
    assert result.served.versions == {"server": "0.0.1"}
    assert {(p.asked, p.task, p.concurrency) for p in result.served.points} == {
        (size, task, places) for size in (1, 4) for task in ("math", "chat") for places in (1, 2)
    }
    steps = expected_steps(3)
    for point in result.served.points:
        num = len(point.requests)
        assert num == 4 if point.concurrency == 2 else 3
        if point.asked == 1:
            assert (point.num_steps, point.tokens_per_step, point.counters) == (num * 47, 1.0, None)
            continue
        assert point.counters is not None
        assert point.counters.num_steps == point.num_steps == num * len(steps)
        assert point.counters.num_draft_tokens == 3 * num * len(steps)
        assert point.tokens_per_step == pytest.approx(47 / len(steps))
        assert all(request.committed == tuple(steps) for request in point.requests)
        assert point.step_s == pytest.approx(sum(r.decode_s for r in point.requests) / (num * len(steps)))
    profile = result.acceptance.profiles[0]
    assert profile.committed == (tuple(steps),) * 3
    assert profile.last_step_cut == (True,) * 3
    assert result.run.lossless is True
    assert result.run.lossless_compared == 6 * 48  # single requests in flight only: there no batch can flip a tie
    assert "not-fitted" in codes(result)
    assert result.model is None
    assert not result.untrusted


def test_the_answer_is_measured_not_modelled(port: int, tmp_path: Path) -> None:
    result = run(spec_of(port, command()), tmp_path / "run")
    plain, four = by_size(result)[1], by_size(result)[4]
    [prediction] = result.predictions.here
    assert [row.block_size for row in prediction.rows] == [1, 4]
    assert plain.tpot_s is not None
    assert four.tpot_s is not None
    assert prediction.rows[1].speedup == pytest.approx(plain.tpot_s / four.tpot_s)
    assert prediction.rows[1].tau == pytest.approx(47 / len(expected_steps(3)))
    assert prediction.rows[1].speedup_low is not None
    assert prediction.rows[1].speedup_low <= prediction.rows[1].speedup <= (prediction.rows[1].speedup_high or 0)
    check = next(check for check in result.run.checks if check.block_size == 4)
    assert check.measured_speedup == pytest.approx(plain.tpot_s / four.tpot_s)
    assert check.predicted_speedup is None  # nothing was known before it
    document = sweep_document(result)
    promised = {"run_dir", "report", "device_kind", "target", "draft", "lossless", "step_times", "flat", "fit", "tasks"}
    assert promised | {"predictions", "findings"} <= document.keys()
    assert [(row["phase"], row["block_size"]) for row in document["step_times"]] == [("verify", 1), ("step", 4)]
    assert document["flat"]["cause"] is None
    assert document["fit"]["median_error"] is None
    assert document["tasks"][0]["best_block_size"] in (1, 4)
    again = read_result(tmp_path / "run")
    assert again.served == result.served
    assert sweep_document(again) == document
    page = render(page_inputs(again))
    assert "--engine openai" in page
    assert again.served is not None
    shown = Console(width=80, record=True, file=io.StringIO())
    shown.print(content(again.served))
    assert f"{four.tokens_per_step:.2f}" in shown.export_text()


def test_few_servers_are_started_and_the_third_is_held_to_what_was_expected(port: int, tmp_path: Path) -> None:
    result = run(spec_of(port, command("--step-ms", "4"), points=None, maximum=8), tmp_path / "run")
    assert result.served is not None
    assert result.served.launched[:2] == (1, 8)
    assert len(result.served.launched) <= 6
    later = [check for check in result.run.checks if check.block_size not in (1, 8)]
    assert all(check.predicted_speedup is not None for check in later)
    assert "servers-chosen" in codes(result)


def test_a_server_that_runs_already_and_its_other_half_by_resuming(port: int, tmp_path: Path) -> None:
    spec = spec_of(port, None)
    with running(port, "--drafts", "3"):
        first = run(spec, tmp_path / "run")
    assert set(by_size(first)) == {4}  # by the counters: nobody told
    assert by_size(first)[4].asked is None
    assert "no-plain-decoding" in codes(first)
    assert first.predictions.here[0].best.speedup is None
    with running(port):
        second = run(spec, tmp_path / "run", resume=True)
    assert set(by_size(second)) == {1, 4}
    assert by_size(second)[4] == by_size(first)[4]
    assert second.predictions.here[0].rows[1].speedup is not None


@pytest.mark.parametrize(
    ("fault", "code", "said"),
    [
        ("refusing", "server-fails-first-request", "EngineCore encountered an issue"),
        ("dying", "server-fails-first-request", "RuntimeError: the engine is gone"),
        ("stillborn", "server-ended", "ValueError: no such model"),
        ("unhealthy", "server-not-healthy", "not healthy after"),
        ("cutting", "server-fails-first-request", "before the answer was whole"),
        ("breaking", "server-fails-first-request", "out of memory"),
    ],
)
def test_a_server_that_fails_at_one_k(port: int, tmp_path: Path, fault: str, code: str, said: str) -> None:
    bad = command("--fault", fault, "--at-drafts", "3") if fault != "stillborn" else None
    limit_s = 2.0 if fault == "unhealthy" else 20.0
    folder = tmp_path / "run"
    if bad is None:  # no server of either K starts
        result = run(spec_of(port, command("--fault", fault)), folder)
        assert result.served is not None
        assert not result.served.points
        assert result.untrusted
    else:
        result = run(spec_of(port, bad, launch_limit_s=limit_s), folder)
        assert set(by_size(result)) == {1}
    found = next(finding for finding in result.findings if finding.code == code)
    assert said in found.message
    assert found.severity == "error"
    assert found.where is not None
    assert "no-answer" in codes(result)
    assert not is_taken(parse_address(f"http://127.0.0.1:{port}"))
    healed = msgspec.structs.replace(spec_of(port, command()), launch=command())
    RunStore(folder).save("spec.json", healed)
    again = run(healed, folder, resume=True)
    assert set(by_size(again)) == {1, 4}
    assert code not in codes(again)
    if bad is not None:
        assert by_size(again)[1] == by_size(result)[1]  # not measured anew


def test_a_server_that_dies_in_mid_sweep(port: int, tmp_path: Path) -> None:
    # One warm-up finds the dialect, one fills the batch, three answers make the first task; the sixth answer is the second task's.
    launch = command("--fault", "dying", "--at-drafts", "3", "--after", "6")
    result = run(spec_of(port, launch, tasks=("math", "chat")), tmp_path / "run")
    found = next(finding for finding in result.findings if finding.code == "server-died")
    assert "RuntimeError: the engine is gone" in found.message
    assert "status 1" in found.message
    assert result.served is not None
    assert {(p.block_size, p.task) for p in result.served.points} == {(1, "math"), (1, "chat"), (4, "math")}
    RunStore(tmp_path / "run").save("spec.json", spec_of(port, command(), tasks=("math", "chat")))
    again = run(spec_of(port, command(), tasks=("math", "chat")), tmp_path / "run", resume=True)
    assert again.served is not None
    assert len(again.served.points) == 4
    assert [p for p in again.served.points if p in result.served.points] == list(result.served.points)


def test_a_port_that_is_taken(server: int, tmp_path: Path) -> None:
    result = run(spec_of(server, command()), tmp_path / "run")
    [found] = [finding for finding in result.findings if finding.code == "port-taken"]
    assert str(server) in found.message
    assert result.served is not None
    assert not result.served.points
    assert Client(parse_address(f"http://127.0.0.1:{server}")).get("/health").status == 200  # what was there still is


def test_perf_is_terminated_in_mid_sweep_and_its_server_with_it(port: int, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    arguments = [sys.executable, "-m", "perfcli", "sweep-k", "--engine", "openai", "--base-url", f"http://127.0.0.1:{port}"]
    arguments += ["--launch", command("--step-ms", "20"), "--points", "4", "--concurrency", "1", "--task", "math", "--quick"]
    process = subprocess.Popen([*arguments, "--out", str(folder)], stderr=subprocess.PIPE, text=True, start_new_session=True)
    until = time.monotonic() + 60
    while not list(folder.glob("scrapes/served-K1*-before.txt")) and time.monotonic() < until:
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "--resume" in said
    assert not is_taken(parse_address(f"http://127.0.0.1:{port}"))
    assert (folder / "spec.json").is_file()
    assert not (folder / "run.json").exists()


def test_nobody_there(port: int, tmp_path: Path) -> None:
    result = run(spec_of(port, None), tmp_path / "run")
    assert "server-unreachable" in codes(result)
    assert result.untrusted
    json.dumps(sweep_document(result))


def test_a_server_without_counters_gives_times_and_no_acceptance(port: int, tmp_path: Path) -> None:
    result = run(spec_of(port, command("--fault", "uncounted")), tmp_path / "run")
    assert set(by_size(result)) == {1, None}
    assert "acceptance-unknown" in codes(result)
    assert not result.predictions.here
    check = next(check for check in result.run.checks if check.block_size == 4)
    assert check.measured_speedup is not None


@pytest.mark.parametrize("tells_steps", [True, False])
def test_steps_without_a_draft_count(port: int, tmp_path: Path, tells_steps: bool) -> None:
    launch = command("--idle-steps", "2", *(() if tells_steps else ("--fault", "strict")))
    result = run(spec_of(port, launch, points=(2,)), tmp_path / "run")
    plain, two = by_size(result)[1], by_size(result)[2]
    # Accepted at K=2: none in the idle steps, then 1, 0, 1 and 0, 1, 1, 0, 1 again and again; 47 tokens.
    steps, left = 0, 47
    while left > 0:
        left -= 1 + (min(ACCEPTED[steps % 5], 1) if steps >= 2 else 0)
        steps += 1
    assert two.counters is not None
    assert two.counters.num_steps == 3 * (steps - 2)
    assert two.num_steps == 3 * steps  # by the stream, or as 47 tokens less those that drafts brought
    assert two.tokens_per_step == pytest.approx(47 / steps)
    assert plain.tokens_per_step == 1.0
    assert not two.findings
