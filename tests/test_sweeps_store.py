"""A run folder survives interruption, refuses two owners, and never mixes two sweeps."""

import errno
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from perfmodel.errors import InputError, PerfError
from perfmodel.records import RunSpec, TimingPoint
from sweeps.store import LOCK_FILE, RunStore

SPEC = RunSpec(
    target="tiny",
    draft="tiny-dflash",
    tasks=("math",),
    block_sizes=(1, 2),
    batches=(1,),
    contexts=(64,),
    dtype="float32",
    max_new_tokens=8,
    num_prompts=2,
    repeats=3,
    hardware=(),
)
POINT = TimingPoint(phase="verify", block_size=8, batch=1, context=64, samples_s=(0.25, 0.5, 0.75))


def begun(folder: Path) -> RunStore:
    store = RunStore(folder)
    with store.lock():
        store.begin(SPEC, resume=False)
    return store


def test_parts_come_back_as_they_went_in(tmp_path: Path) -> None:
    store = begun(tmp_path / "run")
    assert store.get("time-verify-K8", TimingPoint) is None
    store.put("time-verify-K8", POINT)
    assert store.has("time-verify-K8")
    assert RunStore(tmp_path / "run").get("time-verify-K8", TimingPoint) == POINT


def test_keys_cannot_leave_the_folder(tmp_path: Path) -> None:
    store = begun(tmp_path / "run")
    store.put("../../evil/../name", POINT)
    assert {path.name for path in tmp_path.iterdir()} == {"run"}
    assert store.get("../../evil/../name", TimingPoint) == POINT


def test_a_second_sweep_in_one_folder_is_refused_while_the_first_lives(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    code = (
        "from pathlib import Path; from sweeps.store import RunStore; import time\n"
        f"with RunStore(Path({str(folder)!r})).lock(): print('in', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "in\n"
        with pytest.raises(InputError, match=str(owner.pid)), RunStore(folder).lock():
            pass
        owner.kill()
    with RunStore(folder).lock():  # the kernel let go of it when its owner died
        assert (folder / LOCK_FILE).read_text().strip() == str(os.getpid())


def test_a_folder_with_a_run_asks_for_resume(tmp_path: Path) -> None:
    store = begun(tmp_path / "run")
    with pytest.raises(InputError) as caught:
        store.begin(SPEC, resume=False)
    assert "--resume" in caught.value.hint
    store.begin(SPEC, resume=True)
    assert store.read_spec() == SPEC


def test_a_foreign_folder_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    store = RunStore(tmp_path)
    with pytest.raises(InputError, match=r"thesis\.txt"), store.lock():
        store.begin(SPEC, resume=False)
    assert not (tmp_path / "spec.json").exists()


def test_resume_of_what_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not a run folder"):
        RunStore(tmp_path).read_spec()


def test_a_file_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("")
    with pytest.raises(InputError, match="cannot be used"), RunStore(path).lock():
        pass


def test_a_full_disk_is_said_and_keeps_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = begun(tmp_path / "run")
    store.put("first", POINT)

    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(PerfError, match="disk is full") as caught:
        store.put("second", POINT)
    assert "--resume" in caught.value.hint
    assert store.get("first", TimingPoint) == POINT
    assert not store.has("second")
    assert [path.name for path in (tmp_path / "run" / "parts").iterdir()] == ["first.json"]


def test_killed_while_writing_leaves_whole_parts_only(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    begun(folder)
    code = (
        "from pathlib import Path; from sweeps.store import RunStore; from perfmodel.records import TimingPoint\n"
        f"store = RunStore(Path({str(folder)!r}))\n"
        "print('go', flush=True)\n"
        "for i in range(10**6): store.put(f'p{i}', TimingPoint(phase='verify', block_size=1, batch=1, context=0, samples_s=(0.1,) * 500))"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        time.sleep(0.3)
        writer.kill()
    parts = [path for path in (folder / "parts").glob("*.json") if not path.name.startswith(".")]
    assert parts
    for path in parts:
        point = RunStore(folder).get(path.stem, TimingPoint)
        assert point is not None
        assert len(point.samples_s) == 500
