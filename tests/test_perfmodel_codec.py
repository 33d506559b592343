"""Records survive the trip to disk, old versions load, newer ones and damage are refused by name."""

import json
import os
from pathlib import Path

import pytest
from record_examples import example

from perfmodel import codec
from perfmodel.errors import InputError
from perfmodel.records import AcceptanceProfile, Hardware, Peak, TimingPoint

CHIP = Hardware(
    name="chip",
    display_name="Chip",
    kind="cpu",
    source="measured",
    bandwidth_bytes_per_s=Peak(value=23e9, source="streaming read"),
    flops_per_s={"float32": Peak(value=130e9, source="matmul")},
)


@pytest.mark.parametrize("record_type", codec.SCHEMAS, ids=lambda t: t.__name__)
def test_every_record_round_trips(record_type: type, tmp_path: Path) -> None:
    record = example(record_type)
    path = tmp_path / "record.json"
    codec.save(path, record)
    assert codec.load(path, record_type) == record
    document = json.loads(path.read_text())
    assert (document["schema"], document["version"]) == codec.SCHEMAS[record_type]


@pytest.mark.parametrize("record_type", codec.SCHEMAS, ids=lambda t: t.__name__)
def test_every_old_version_still_loads(record_type: type, golden: Path) -> None:
    schema, version = codec.SCHEMAS[record_type]
    for old in range(1, version + 1):
        path = golden / "records" / f"{schema}-{old}.json"
        assert isinstance(codec.load_any(path), record_type), f"{path.name} no longer loads"


def test_an_older_version_is_lifted_step_by_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(codec.SCHEMAS, TimingPoint, ("perf.timing_point", 3))
    monkeypatch.setitem(codec.UPGRADES, ("perf.timing_point", 1), lambda body: {**body, "batch": body["batch"] + 1})
    monkeypatch.setitem(codec.UPGRADES, ("perf.timing_point", 2), lambda body: {**body, "batch": body["batch"] * 10})
    document = {"schema": "perf.timing_point", "version": 1, "phase": "verify", "block_size": 8, "batch": 1, "context": 0}
    record = codec.from_document(document)
    assert isinstance(record, TimingPoint)
    assert record.batch == (1 + 1) * 10


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"schema": "perf.other"}, "unknown schema"),
        ({"schema": 3}, "unknown schema"),
        ({"version": 99}, "version 99"),
        ({"version": None}, "no usable version"),
        ({"version": True}, "no usable version"),
        ({"version": 0}, "no usable version"),
        ({"surprise": 1}, "surprise"),
        ({"name": 3}, "name"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(change: dict, word: str) -> None:
    with pytest.raises(InputError) as caught:
        codec.from_document({**codec.to_document(CHIP), **change}, "chip.json")
    assert word in caught.value.message
    assert "chip.json" in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize("document", [[], 3, None, "text", {}, {"version": 1}])
def test_what_is_no_record_is_refused(document: object) -> None:
    with pytest.raises(InputError, match="schema"):
        codec.from_document(document)


@pytest.mark.parametrize("data", [b"", b"{", b'{"schema":', b"\xef\xbf\xbd\x00", b"PK\x03\x04", b"[" * 100_000])
def test_damaged_files_are_one_clear_line(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "damaged.json"
    path.write_bytes(data)
    with pytest.raises(InputError) as caught:
        codec.load_any(path)
    assert "\n" not in caught.value.message


def test_missing_files_and_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        codec.load_any(tmp_path / "absent.json")
    with pytest.raises(InputError, match="cannot be read"):
        codec.load_any(tmp_path)


def test_the_wrong_kind_of_record_is_named(tmp_path: Path) -> None:
    path = tmp_path / "chip.json"
    codec.save(path, CHIP)
    with pytest.raises(InputError, match=r"perf\.hardware, not perf\.timing_point"):
        codec.load(path, TimingPoint)


def test_a_failed_write_leaves_the_old_file_and_no_litter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "chip.json"
    codec.save(path, CHIP)
    before = path.read_bytes()

    def no_space(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", no_space)
    with pytest.raises(OSError, match="No space"):
        codec.write_atomic(path, b"half")
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["chip.json"]


def test_a_pipe_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    codec.write_atomic(path, b"through")
    assert os.read(reader, 100) == b"through"
    os.close(reader)
    assert path.is_fifo()


def test_a_folder_is_no_file_to_write(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a folder"):
        codec.write_atomic(tmp_path, b"x")


@pytest.mark.parametrize("num_committed", [-1, 0])
def test_a_step_that_commits_nothing_is_a_damaged_file(num_committed: int) -> None:
    document = codec.to_document(example(AcceptanceProfile))
    with pytest.raises(InputError, match="committed"):
        codec.from_document(document | {"committed": [[3, num_committed]]}, "here")


def test_absent_knowledge_is_null_never_nan() -> None:
    assert json.loads(codec.encode({"a": float("nan"), "b": float("inf")})) == {"a": None, "b": None}
