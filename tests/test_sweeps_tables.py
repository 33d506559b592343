"""Anyone's table of timings becomes points, or one clear line that names the row."""

import json
from pathlib import Path

import pytest

from perfmodel import codec
from perfmodel.errors import InputError
from perfmodel.predict import CycleTime
from perfmodel.records import StepTimes, TimingPoint
from sweeps.tables import read_cycles, read_timings


def table(tmp_path: Path, text: str, name: str = "table.csv") -> StepTimes:
    path = tmp_path / name
    path.write_text(text)
    return read_timings(path)


def test_four_rows_of_one_shape_are_repeats_and_fewer_are_points(tmp_path: Path) -> None:
    rows = "".join(f"8,2,256,{ms}\n" for ms in (10, 12, 11, 13))
    times = table(tmp_path, f"block_size,batch,context,ms\n{rows}16,2,256,20\n16,2,256,21\n")
    assert times.points == (
        TimingPoint(phase="verify", block_size=8, batch=2, context=256, samples_s=(0.010, 0.012, 0.011, 0.013)),
        TimingPoint(phase="verify", block_size=16, batch=2, context=256, samples_s=(0.020,)),
        TimingPoint(phase="verify", block_size=16, batch=2, context=256, samples_s=(0.021,)),
    )


def test_tokens_are_block_size_times_batch(tmp_path: Path) -> None:
    times = table(tmp_path, "num_tokens,context_len,num_reqs,median_ms\n16,128,8,14.5\n")
    (point,) = times.points
    assert (point.block_size, point.batch, point.context, point.tokens) == (16 // 8, 8, 128, 16)
    assert point.samples_s == (0.0145,)


def test_batch_and_context_have_defaults_and_phase_is_read(tmp_path: Path) -> None:
    (point,) = table(tmp_path, "tokens,seconds,phase\n4,0.5,draft\n").points
    assert (point.phase, point.block_size, point.batch, point.context, point.samples_s) == ("draft", 4, 1, 0, (0.5,))


def test_json_rows_and_own_records_are_read(tmp_path: Path) -> None:
    rows = [{"block_size": 2, "seconds": 0.25}]
    assert table(tmp_path, json.dumps(rows), "table.json").points[0].samples_s == (0.25,)
    times = StepTimes(device_kind="cpu", target="t", draft=None, dtype="float32", points=())
    codec.save(tmp_path / "run" / "timings.json", times)
    assert read_timings(tmp_path / "run") == times
    assert read_timings(tmp_path / "run" / "timings.json") == times


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("", "no rows"),
        ("block_size,ms\n", "no rows"),
        ("a,b\n1,2\n", "no time"),
        ("block_size,batch\n1,2\n", "no time"),
        ("ms\n5\n", "no size"),
        ("block_size,ms\n0,5\n", "block_size is 0"),
        ("block_size,ms\n1.5,5\n", "block_size is 1.5"),
        ("block_size,ms\n8,-5\n", "not a measurement"),
        ("block_size,ms\n8,0\n", "not a measurement"),
        ("block_size,ms\n8,nan\n", "not a finite number"),
        ("block_size,ms\n8,fast\n", "'fast', not a number"),
        ("block_size,ms\n8,5\n16\n", "row 3"),
        ("tokens,batch,ms\n9,8,5\n", "do not divide"),
        ("block_size,ms,phase\n8,5,dance\n", "'dance'"),
        ("block_size,ms,context\n8,5,-1\n", "context is -1"),
        ("block_size,ms\n1e30,5\n", "not a whole number from 1 to"),
        ("block_size,ms\n8,5,7\n", "3 fields for 2 columns"),
        ("block_size,ms,ms\n8,5,7\n", "two columns called ms"),
        ("block_size,ms,seconds\n8,5,7\n", "two times"),
        ("block_size,batch,tokens,ms\n8,2,15,7\n", "15 tokens are not a block of 8"),
        ("n,k,m,latency_ms\n4096,4096,1,0.02\n", "matrix products"),
    ],
)
def test_bad_tables_name_what_is_wrong(tmp_path: Path, text: str, word: str) -> None:
    with pytest.raises(InputError) as caught:
        table(tmp_path, text)
    assert word in caught.value.message
    assert "\n" not in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize("text", ["3", '"text"', "null", "[1]", "[[1]]"])
def test_json_of_another_kind_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(InputError):
        table(tmp_path, text, "table.json")


def test_binary_and_missing_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_bytes(b"\xff\xfe\x00block")
    with pytest.raises(InputError, match="cannot be read as text"):
        read_timings(path)
    with pytest.raises(InputError, match="does not exist"):
        read_timings(tmp_path / "absent.csv")
    with pytest.raises(InputError, match=r"no timings\.json"):
        read_timings(tmp_path)


def test_our_own_column_counts_before_an_alias_and_a_median_before_a_mean(tmp_path: Path) -> None:
    assert table(tmp_path, "k,mean_ms,median_ms\n8,9,7\n").points[0].samples_s == (0.007,)
    assert table(tmp_path, "k,mean_ms,ms\n8,9,6\n").points[0].samples_s == (0.006,)


def test_rows_of_several_devices_are_said(tmp_path: Path) -> None:
    mixed = table(tmp_path, "device,block_size,ms\n" + "A,1,5\nB,1,6\n" * 3)
    assert len(mixed.points) == 6  # six rows of one shape, and no chip has four of them: no repeats
    assert [finding.code for finding in mixed.findings] == ["several-devices"]
    assert table(tmp_path, "device,block_size,ms\nA,1,5\nA,2,6\n").findings == ()


def test_an_endless_or_huge_number_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="a huge integer, not a number"):
        table(tmp_path, f'[{{"block_size": 1{"0" * 400}, "ms": 1}}]', "table.json")
    monkeypatch.setattr(codec, "MAX_BYTES", 1 << 20)
    with pytest.raises(InputError, match="larger than 1 MiB"):
        read_timings(Path("/dev/zero"))


def test_cycle_times_take_the_same_columns_and_one_batch(tmp_path: Path) -> None:
    path = tmp_path / "cycles.csv"
    path.write_text("K,median_ms,tau\n1,10,\n8,13,3.4\n")
    assert read_cycles(path) == (CycleTime(1, 0.01), CycleTime(8, 0.013, 3.4))
    path.write_text("K,batch,ms\n1,1,10\n8,2,13\n")
    with pytest.raises(InputError, match="2 batch values"):
        read_cycles(path)


def test_published_tables_are_read(shared_data: Path) -> None:
    times = read_timings(shared_data / "published" / "qwen3-1.7b_rtx4060_verify_cost_medians.csv")
    assert len(times.points) == 6 * 7
    assert {point.batch for point in times.points} == {8}
