"""The compiler's estimate as a source of step times: clocks, devices, calibration, the rule for K=1."""

import math
from pathlib import Path

import pytest

from perfmodel.codec import load
from perfmodel.compiled import (
    CLOCKS,
    KNOWN,
    calibrate,
    clock_from_matmul,
    compiled_steps,
    device_of,
    flat_width,
    plain_seconds,
)
from perfmodel.errors import InputError
from perfmodel.hardware import load_hardware
from perfmodel.records import CompiledSet, CompiledStep

FLOPS = {n: 2.0 * n**3 for n in (4096, 16384)}


def step(hardware="tpu-v5p", phase="verify", block_size=16, seconds=6e-3, hbm_bytes=8.2e9, **fields):
    defaults = {
        "topology": hardware, "device_kind": "", "num_devices": 1, "chip_share": 1.0, "target": "qwen3-4b", "draft": None,
        "dtype": "bfloat16", "batch": 1, "context": 1024, "floor_s": 3e-3, "flops": 1e11, "argument_bytes": 8e9,
        "temporary_bytes": 1e7, "fits": True, "memory_floor_s": 3e-3, "compute_floor_s": 0.3e-3,
    }  # fmt: skip
    return CompiledStep(
        hardware=hardware, phase=phase, block_size=block_size, estimated_s=seconds, hbm_bytes=hbm_bytes, **(defaults | fields)
    )


@pytest.mark.parametrize(
    ("chip", "size", "cycles", "share", "width"),
    [
        ("tpu-v4", 16384, 35_811_920, 1.0, 128),
        ("tpu-v5e", 4096, 1_083_068, 1.0, 128),
        ("tpu-v5p", 4096, 544_925, 1.0, 128),
        ("tpu-v6e", 4096, 301_616, 1.0, 256),
        ("tpu-v7x", 16384, 19_773_884, 0.5, 256),
    ],
)
def test_a_compute_bound_products_estimate_gives_the_clock(chip, size, cycles, share, width):
    """The estimates are the compiler's for n × n × n in bfloat16 (libtpu 0.0.42.1); the three published clocks come out right."""
    peak = load_hardware(chip).flops_per_s["bfloat16"].value * share
    bound = cycles * peak / FLOPS[size]
    clock = clock_from_matmul(cycles, FLOPS[size], peak, width)
    assert clock <= bound
    assert clock == pytest.approx(CLOCKS[chip].hz, rel=0.005)


def test_only_derived_clocks_are_called_unverified():
    assert [chip for chip, clock in CLOCKS.items() if not clock.is_verified] == ["tpu-v6e", "tpu-v7x"]


def test_a_device_of_a_v7x_owns_half_a_chip():
    chip = load_hardware("tpu-v7x")
    device = device_of(chip)
    assert device.bandwidth_bytes_per_s.value == chip.bandwidth_bytes_per_s.value / 2
    assert device.flops_per_s["bfloat16"].value == chip.flops_per_s["bfloat16"].value / 2
    assert device.memory_bytes.value == chip.memory_bytes.value / 2
    assert device_of(load_hardware("tpu-v5p"), 4).bandwidth_bytes_per_s.value == pytest.approx(4 * 2.765e12)


def test_plain_decoding_takes_its_seconds_from_the_narrowest_wider_block():
    plain = step(block_size=1, seconds=14e-3, hbm_bytes=8.0e9)
    wider = [step(block_size=16, seconds=6e-3, hbm_bytes=8.2e9), step(block_size=128, seconds=9e-3)]
    assert plain_seconds([plain, *wider], plain) == pytest.approx(6e-3 * 8.0 / 8.2)
    elsewhere = step(block_size=16, context=64)
    assert plain_seconds([plain, elsewhere], plain) is None


def known_steps(factor):
    """Estimates that are measured device time over a factor, for every known measurement."""
    rows = []
    for known in KNOWN:
        seconds = (known.measured_s - known.host_s) / factor(known)
        if known.block_size == 1:
            rows += [step(known.hardware, known.phase, 1, 1.0), step(known.hardware, known.phase, 16, seconds)]
        else:
            rows.append(step(known.hardware, known.phase, known.block_size, seconds))
    return rows


def test_calibration_finds_a_factor_per_chip():
    found = calibrate(known_steps(lambda known: 1.2 if known.hardware == "tpu-v5p" else 1.5))
    assert found.factor_of("tpu-v5p") == pytest.approx(1.2)
    assert found.factor_of("tpu-v4") == pytest.approx(1.5)
    assert found.factor_of("tpu-v6e") == pytest.approx(math.sqrt(1.2 * 1.5))
    assert found.error_before > 0.15
    assert found.error_after == pytest.approx(0.0, abs=1e-12)


def test_calibration_is_judged_on_points_it_has_not_seen():
    found = calibrate(known_steps(lambda known: 1.0 if known.block_size == 1 else 1.5))
    # Within a chip the other point is off by 1.5 either way: 0.5 up for plain decoding, 1/3 down for the device part of a step.
    plain = [point.error_after for point in found.points if point.known.block_size == 1]
    assert plain == pytest.approx([0.5, 0.5])
    assert all(point.error_after < -0.2 for point in found.points if point.known.block_size == 16)


RECORD = Path(__file__).resolve().parent.parent / "docs/records/tpu-compiled/compiled.json"


def test_the_page_for_a_tpu_vm_shows_the_recorded_matrix():
    """Every figure of its two tables is the record's: floor, estimate, share and memory by chip; estimate and share by pair."""
    loops = [row for row in load(RECORD, CompiledSet).rows if row.phase == "loop"]
    lines = (RECORD.parent.parent.parent / "tpu-vm.md").read_text().splitlines()
    tables = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")]
    chips = [cells for cells in tables if cells[0].startswith("TPU v")]
    first = [row for row in loops if (row.target, row.batch, row.num_devices) == ("qwen3-4b", 1, 1)]
    for cells, row in zip(chips, first, strict=True):
        assert cells[0].split(",")[0].split(" ")[1] == row.hardware.removeprefix("tpu-")
        assert cells[1:] == [
            f"{row.floor_s * 1e3:.2f} ms", f"{row.estimated_s * 1e3:.2f} ms", f"{row.floor_share:.0%}".replace("%", " %"),
            f"{row.needed_bytes / 1e9:.1f} GB",
        ]  # fmt: skip
    header = next(cells for cells in tables if cells[0] == "pair, batch")
    pairs = tables[tables.index(header) + 1 :][: len({(row.target, row.batch) for row in loops})]
    shown = 0
    for cells in pairs:
        target, batch = cells[0].split(", ")
        for topology, cell in zip(header[1:], cells[1:], strict=True):
            rows = [r for r in loops if (r.target, r.batch) == (target, int(batch)) and short(r.topology) == topology]
            assert cell == (shown_as(rows[0]) if rows else "–"), (target, batch, topology)
            shown += len(rows)
    assert shown == len(loops)


def short(topology):
    return topology.removesuffix(":1x1x1").removesuffix(":1x1")


def shown_as(row):
    if row.failure is not None:
        return "does not fit" if "RESOURCE_EXHAUSTED" in row.failure else "refused"
    return f"{row.estimated_s * 1e3:.2f}, {row.floor_share:.0%}".replace("%", " %")


def test_the_documented_calibration_is_the_recorded_one():
    found = calibrate(load(RECORD, CompiledSet).rows)
    text = (RECORD.parent.parent.parent / "model.md").read_text()
    table = {line.split("|")[1].strip(): line for line in text.splitlines() if line.startswith(("| v5p,", "| v4,"))}
    for point in found.points:
        name = (
            f"{point.known.hardware.removeprefix('tpu-')}, {'plain decoding' if point.known.block_size == 1 else 'DFlash step'}"
        )
        assert f"| {point.estimated_s * 1e3:.1f} ms" in table[name]
        assert table[name].endswith(f"| {signed(point.error_before)} | {signed(point.error_after)} |")
    assert f"| mean | | | {found.error_before:.0%} | {found.error_after:.0%} |".replace("%", " %") in text
    assert f"{found.factor_of('tpu-v5p'):.2f} on v5p, {found.factor_of('tpu-v4'):.2f} on v4, {found.factor:.2f} where" in text


def signed(share):
    return f"{share:+.0%}".replace("%", " %").replace("-", "−")


def test_one_known_point_calibrates_nothing():
    assert calibrate([step(phase="step", block_size=16)]) is None
    assert calibrate([]) is None


def test_compiled_steps_add_up_and_say_where_they_come_from():
    rows = [step(block_size=k, seconds=s) for k, s in ((1, 14e-3), (8, 6e-3), (16, 6.2e-3))]
    rows += [step(phase=phase, block_size=k, seconds=1e-3) for phase in ("draft", "commit") for k in (8, 16)]
    found = compiled_steps(CompiledSet(rows=tuple(rows)), "tpu-v5p", (1, 8, 12, 16), 1, 1024)
    assert found.source == "compiled"
    assert found.draft_s.tolist() == pytest.approx([0.0, 2e-3, 2e-3, 2e-3])
    assert found.verify_s.tolist() == pytest.approx([6e-3, 6e-3, 6.1e-3, 6.2e-3])  # K=12 lies between
    assert found.bound == ("kernel", "memory", "memory", "memory")
    assert found.verify_draws.shape == (1000, 4)
    assert found.host_s.tolist() == [0.0] * 4


def test_a_block_size_that_was_not_compiled_is_named():
    with pytest.raises(InputError, match="no verify at block size 32; it holds 16"):
        compiled_steps(CompiledSet(rows=(step(),)), "tpu-v5p", (32,), 1, 1024)
    with pytest.raises(InputError, match="no draft at block size 16; it holds none"):
        compiled_steps(CompiledSet(rows=(step(),)), "tpu-v5p", (16,), 1, 1024)


def test_flat_width_counts_from_the_narrowest_block_above_one():
    curve = [step(block_size=k, seconds=s) for k, s in ((1, 14e-3), (16, 6.0e-3), (64, 6.2e-3), (128, 6.8e-3), (256, 6.1e-3))]
    assert flat_width(curve, 0.05) == 64  # a dip beyond does not count
    assert flat_width(curve, 0.25) == 256
    assert flat_width(curve[:2], 0.05) is None
