import statistics
import subprocess
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

from perfmodel.errors import InputError, UntrustedError
from perfmodel.phases import COMMIT, DRAFT, STEP_ANNOTATION, VERIFY
from profiling.capture import Capture, Span, capture
from profiling.extract import extract

SIZE = 192


def program(name: str, num_products: int):
    def run(values, weights):
        for _ in range(num_products):
            values = jnp.tanh(values @ weights)
        return values

    run.__name__ = name
    return jax.jit(run)


PROGRAMS = {DRAFT: program("draft", 2), VERIFY: program("verify", 8), COMMIT: program("commit", 1)}


def run_loop(span, num_steps: int) -> list[float]:
    """A loop as a decoder has it: three programs a step, each waited for inside its region; returns the step walls, s."""
    values, weights = jnp.ones((64, SIZE)), jnp.full((SIZE, SIZE), 1 / SIZE)
    walls = []
    for step in range(num_steps):
        begin = time.perf_counter()
        with span(STEP_ANNOTATION, step_num=step):
            for phase, call in PROGRAMS.items():
                with span(phase):
                    values = call(values, weights)
                    if span.blocking:
                        values.block_until_ready()
        walls.append(time.perf_counter() - begin)
    return walls


@pytest.fixture(scope="module")
def recorded(tmp_path_factory) -> tuple[Capture, list[float]]:
    folder = tmp_path_factory.mktemp("traces")
    nothing = Span(True, 0, lambda: None)
    run_loop(nothing, 3)
    with capture(folder, "toy-k4", max_steps=30) as recording:
        walls = run_loop(recording.span, 20)
    return recording, walls


def test_one_file_lies_where_tensorboard_looks(recorded):
    recording, _ = recorded
    assert recording.xplane.parent == recording.run_folder
    assert recording.run_folder.parts[-3:] == ("plugins", "profile", "toy-k4")
    assert recording.num_steps == 20
    assert recording.start_s > 0
    assert recording.stop_s > 0


def test_the_trace_holds_the_steps_and_phases_that_ran(recorded):
    recording, walls = recorded
    timings = extract(recording.xplane, expected_steps=20)
    assert (timings.steps, timings.step_source, timings.timing) == (20, "annotations", "host")
    assert {phase: times.count for phase, times in timings.phases.items()} == {DRAFT: 20, VERIFY: 20, COMMIT: 20}
    for times in timings.phases.values():
        assert all(0 < device <= wall for device, wall in zip(times.device_s, times.wall_s, strict=True))
    # The trace and the loop's own clock agree on each step; the loop's also holds the region's opening and closing.
    around = [timed - traced for traced, timed in zip(timings.step_seconds, walls, strict=True)]
    assert min(around) >= 0
    assert statistics.median(around) < 1e-3
    assert all(gap >= 0 for gap in timings.host_gap_s)
    assert timings.coverage > 0.99
    assert 0 < timings.busy_share <= 1
    assert not [finding for finding in timings.findings if finding.severity == "error"]


def test_phases_and_gap_add_up_to_the_step(recorded):
    timings = extract(recorded[0].xplane)
    phases = [timings.phases[phase].wall_s for phase in (DRAFT, VERIFY, COMMIT)]
    for step, gap, *parts in zip(timings.step_seconds, timings.host_gap_s, *phases, strict=True):
        assert sum(parts) + gap == pytest.approx(step, abs=1e-9)


def test_a_loop_that_does_not_wait_is_caught(tmp_path):
    with capture(tmp_path, "rash") as recording:
        span = recording.span
        span.blocking = False
        big = jnp.full((800, 800), 1e-3)
        slow = program("verify", 6)
        slow(big, big).block_until_ready()
        results = []
        for step in range(3):
            with span(STEP_ANNOTATION, step_num=step), span(VERIFY):
                results.append(slow(big, big))
        jax.block_until_ready(results)
    assert "device-exceeds-wall" in {finding.code for finding in extract(recording.xplane).findings}


def test_recording_ends_after_its_steps(tmp_path):
    with capture(tmp_path, "short", max_steps=3) as recording:
        run_loop(recording.span, 8)
    assert recording.num_steps == 3
    assert extract(recording.xplane).steps == 3


def test_a_second_capture_of_the_name_is_refused(recorded):
    recording, _ = recorded
    with pytest.raises(InputError, match="already holds"), capture(recording.run_folder.parents[2], "toy-k4"):
        pass


@pytest.mark.parametrize("name", ["", "../up", "a/b", ".hidden"])
def test_names_that_cannot_be_folders_are_refused(tmp_path, name):
    with pytest.raises(InputError, match="cannot name"), capture(tmp_path, name):
        pass


def test_a_capture_without_exactly_one_file_is_not_trusted(tmp_path):
    recording = Capture(Path(tmp_path), "none", 1)
    with pytest.raises(UntrustedError, match="left 0"):
        _ = recording.xplane
    recording.run_folder.mkdir(parents=True)
    for host in ("a", "b"):
        (recording.run_folder / f"{host}.xplane.pb").write_bytes(b"x")
    with pytest.raises(UntrustedError, match="left 2"):
        _ = recording.xplane


FULL = """
import resource, signal, sys
from pathlib import Path
import jax
from perfmodel.errors import PerfError
from profiling.capture import capture

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1, 1))
try:
    with capture(Path(sys.argv[1]), "full"):
        jax.numpy.ones(3).sum().block_until_ready()
except PerfError as error:
    print(error.message)
"""


def test_a_disk_that_is_full_leaves_no_part_of_a_capture(tmp_path):
    done = subprocess.run([sys.executable, "-c", FULL, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.stdout.startswith("the capture could not be written"), done.stderr
    assert not list(tmp_path.rglob("*.xplane.pb"))


def test_an_error_in_the_loop_ends_the_recording(tmp_path):
    with pytest.raises(RuntimeError, match="mine"), capture(tmp_path, "broken"):
        raise RuntimeError("mine")
    with capture(tmp_path, "next") as recording:
        run_loop(recording.span, 3)
    assert extract(recording.xplane).steps == 3
