"""Comparing speculative with plain tokens: the first difference is found, wherever it is."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from perfmodel.records import DecodeRun
from sweeps import answers
from sweeps.answers import Job, Ready, answer, compare
from sweeps.decodes import jobs
from sweeps.intervals import median_interval
from sweeps.store import RunStore


def run(tokens: list[list[int]], block_size: int = 8) -> DecodeRun:
    return DecodeRun(
        task="math",
        block_size=block_size,
        batch=len(tokens),
        prompt_tokens=(3,) * len(tokens),
        tokens=tuple(map(tuple, tokens)),
        committed=((1,),) * len(tokens),
        ttft_s=0.1,
        compile_s=0.0,
        decode_s=1.0,
        step_wall_s=(1.0,),
    )


def test_equal_tokens_are_equal_and_counted() -> None:
    found = compare(run([[1, 2, 3], [4]], 1), [run([[1, 2, 3], [4]])])
    assert found.equal
    assert found.num_tokens == 3 + 1


def test_the_first_difference_is_named() -> None:
    found = compare(run([[1, 2, 3], [4, 5]], 1), [run([[1, 9, 9], [4, 5]])])
    assert found.differences == (("math", 8, 0, 1),)


def test_a_missing_end_is_a_difference() -> None:
    assert compare(run([[1, 2, 3]], 1), [run([[1, 2]])]).differences == (("math", 8, 0, 2),)
    assert compare(run([[1, 2]], 1), [run([[1, 2, 3]])]).differences == (("math", 8, 0, 2),)


def test_every_block_size_is_compared() -> None:
    found = compare(run([[1, 2]], 1), [run([[1, 2]], 8), run([[7, 2]], 4)])
    assert found.num_tokens == 2 + 2
    assert found.differences == (("math", 4, 0, 0),)


def test_jobs_cover_plain_and_drafted_answers_of_every_task() -> None:
    prompts = {"math": ((1, 2), (3,)), "chat": ((4,), (5,))}
    must, may = jobs(prompts, 8, 16)
    keys = [job.key for job in must]
    assert len(set(keys)) == len(keys)
    batch = {(job.task, job.block_size) for job in must if len(job.prompts) == 2}
    assert batch == {("math", 8), ("math", 1), ("chat", 8), ("chat", 1)}
    assert {(job.block_size, job.trace is not None) for job in must if len(job.prompts) == 1} == {
        (8, False),
        (8, True),
        (1, False),
        (1, True),
    }
    assert {job.block_size for job in may} == {4, 2}
    assert all(job.trace is None for job in may)


def test_the_interval_of_a_median_is_made_of_order_statistics() -> None:
    # 20 samples: binomial ranks at 2.5 % are 6 and 15 (P(at most 5 below the median) = 0.0207).
    assert median_interval(range(1, 21)) == (6, 15)
    assert median_interval([3.0]) == (3.0, 3.0)
    assert median_interval([1.0, 2.0, 5.0]) == (1.0, 5.0)


class Recorder:
    """Stands in for decoder, loop and profiler; like the profiler, it refuses a folder that already holds a capture."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.num_decoded = 0
        self.stopped = False
        monkeypatch.setattr(answers, "capture", self.capture)
        monkeypatch.setattr(answers, "generate", self.generate)

    def get(self, block_size: int, prompts: object) -> Ready:
        return Ready(decoder=None, lower_s=0.1, compile_s=0.2, warmup_s=0.3)  # type: ignore[arg-type]

    @contextmanager
    def capture(self, folder: Path, name: str, max_steps: int) -> Iterator[SimpleNamespace]:
        path = folder / "plugins" / "profile" / name / "host.xplane.pb"
        assert not path.exists(), "already holds a capture"
        path.parent.mkdir(parents=True)
        try:
            yield SimpleNamespace(span=None, xplane=path)
        finally:
            path.write_bytes(b"trace")

    def generate(self, *_args: object, **_options: object) -> SimpleNamespace:
        if self.stopped:
            raise KeyboardInterrupt
        self.num_decoded += 1
        return SimpleNamespace(tokens=((1,),), committed=((),), ttft_s=0.1, decode_s=0.0, step_wall_s=())


def test_a_capture_that_was_stopped_is_recorded_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorder, store = Recorder(monkeypatch), RunStore(tmp_path)
    job = Job("decode-math-K8", "math", 8, ((1, 2),), 4, trace="math-K8")
    recorder.stopped = True
    with pytest.raises(KeyboardInterrupt):
        answer(job, recorder, store)  # type: ignore[arg-type]
    recorder.stopped = False
    found = answer(job, recorder, store)  # type: ignore[arg-type]
    assert found.trace is not None
    assert answer(job, recorder, store) == found  # type: ignore[arg-type]
    assert recorder.num_decoded == 1


def test_a_run_whose_capture_was_deleted_is_decoded_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorder, store = Recorder(monkeypatch), RunStore(tmp_path)
    job = Job("decode-math-K8", "math", 8, ((1, 2),), 4, trace="math-K8")
    trace = answer(job, recorder, store).trace  # type: ignore[arg-type]
    assert trace is not None
    (tmp_path / trace).unlink()
    answer(job, recorder, store)  # type: ignore[arg-type]
    assert (tmp_path / trace).is_file()
    assert recorder.num_decoded == 2
