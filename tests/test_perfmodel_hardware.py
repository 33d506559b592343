"""The catalogue of chips: every number has a source, names forgive, and broken files say what is wrong."""

import csv
from pathlib import Path

import pytest

from perfmodel import codec, hardware
from perfmodel.errors import InputError

EXPECTED = {
    "a100-80gb", "b200", "b300", "gb200", "h100", "h200", "l4", "l40s", "mi300x", "mi325x", "mi355x", "rtx-2000-ada",
    "rtx-4060", "rtx-4090", "rtx-5090", "tpu-v4", "tpu-v5e", "tpu-v5p", "tpu-v6e", "tpu-v7x",
}  # fmt: skip

MINIMAL = """
name = "toy"
display_name = "Toy"
kind = "cpu"
source = "datasheet"
bandwidth_bytes_per_s = { value = 1.0e9, source = "a sheet" }
[flops_per_s]
float32 = { value = 2.0e9, source = "a sheet" }
"""


def test_the_catalogue_holds_the_chips_we_promise():
    assert set(hardware.names()) == EXPECTED


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_every_chip_loads_under_its_own_name_and_names_a_source_per_number(name):
    chip = hardware.load_hardware(name)
    assert chip.name == name
    assert chip.source == "datasheet"
    peaks = [chip.bandwidth_bytes_per_s, *chip.flops_per_s.values(), chip.memory_bytes, chip.on_chip_bytes, chip.link_bytes_per_s]
    for peak in filter(None, peaks):
        assert peak.value > 0
        assert len(peak.source) > 5


def test_figures_agree_with_the_gathered_table(shared_data):
    """Bandwidth and bfloat16 peaks against the CSV: TFLOP/s and GB/s there, FLOP/s and B/s here."""
    with (shared_data / "hardware.csv").open() as stream:
        rows = {row["id"]: row for row in csv.DictReader(stream)}
    ids = {
        "tpu-v5p": "tpu_v5p",
        "tpu-v5e": "tpu_v5e",
        "tpu-v6e": "tpu_v6e",
        "tpu-v7x": "tpu_v7x",
        "h100": "h100_sxm",
        "h200": "h200",
    }
    ids |= {
        "a100-80gb": "a100_80_sxm",
        "l4": "l4",
        "l40s": "l40s",
        "rtx-4090": "rtx_4090",
        "rtx-5090": "rtx_5090",
        "mi300x": "mi300x",
    }
    for name, row_id in ids.items():
        chip, row = hardware.load_hardware(name), rows[row_id]
        assert chip.bandwidth_bytes_per_s.value == pytest.approx(float(row["mem_bw_gbs"]) * 1e9), name
        assert chip.flops_per_s["bfloat16"].value == pytest.approx(float(row["bf16_dense_tflops"]) * 1e12), name


def test_unverified_peaks_are_absent_rather_than_guessed():
    assert hardware.load_hardware("rtx-2000-ada").flops_per_s == {}
    assert "int8" not in hardware.load_hardware("b300").flops_per_s
    assert "float8_e4m3fn" not in hardware.load_hardware("tpu-v6e").flops_per_s


def test_devices_per_chip_follow_what_jax_shows_at_run_time():
    assert hardware.load_hardware("tpu-v7x").devices_per_chip == 2
    assert hardware.load_hardware("tpu-v5p").devices_per_chip == 1
    assert "megacore" in " ".join(hardware.load_hardware("tpu-v4").notes)


@pytest.mark.parametrize(("written", "meant"), [("TPU_v5p", "tpu-v5p"), (" h100 ", "h100"), ("RTX-4090", "rtx-4090")])
def test_names_forgive_case_underscores_and_spaces(written, meant):
    assert hardware.load_hardware(written).name == meant


def test_an_unknown_name_suggests_the_nearest():
    with pytest.raises(InputError) as caught:
        hardware.load_hardware("tpu-v5")
    assert "tpu-v5p" in caught.value.hint
    with pytest.raises(InputError) as caught:
        hardware.load_hardware("zzzzzz")
    assert "known:" in caught.value.hint


@pytest.mark.parametrize(
    ("kind", "name"),
    [("TPU v5 lite", "tpu-v5e"), ("TPU v6 lite", "tpu-v6e"), ("NVIDIA H200", "h200"), ("tpu7x", "tpu-v7x"), ("cpu", None)],
)
def test_jax_device_kinds_find_their_chip(kind, name):
    found = hardware.from_device_kind(kind)
    assert (found.name if found else None) == name


def test_own_files_load(tmp_path: Path):
    toml = tmp_path / "toy.toml"
    toml.write_text(MINIMAL)
    chip = hardware.load_hardware(str(toml))
    assert chip.flops_per_s["float32"].value == 2e9
    record = tmp_path / "toy.json"
    codec.save(record, chip)
    assert hardware.load_hardware(str(record)) == chip


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        ("name = ", "not TOML"),
        (MINIMAL.replace('kind = "cpu"', 'kind = "abacus"'), "not a chip"),
        (MINIMAL.replace("value = 1.0e9", "value = -1.0"), "positive"),
        (MINIMAL.replace("value = 2.0e9", "value = inf"), "positive"),
        (MINIMAL.replace('source = "a sheet" }\n[', 'source = " " }\n['), "no source"),
        ("devices_per_chip = 0\n" + MINIMAL, "devices_per_chip"),
        ("colour = 1\n" + MINIMAL, "not a chip"),
    ],
)
def test_broken_files_say_what_is_wrong(broken, said):
    with pytest.raises(InputError) as caught:
        hardware.parse_hardware(broken, "toy.toml")
    assert said in caught.value.message
    assert "toy.toml" in caught.value.message
