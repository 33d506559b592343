import jax
import jax.numpy as jnp
import msgspec
import pytest

from perfmodel import codec
from perfmodel.records import Hardware
from profiling import calibrate as module
from profiling.calibrate import BUSY, cache_path, calibrate, last_level_cache_bytes, measure, read_cache
from profiling.timer import time_call


@pytest.fixture
def small(monkeypatch, tmp_path):
    """A cache of its own and arrays that are quick to stream."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(module, "_stream_bytes", lambda platform: 32 << 20)
    return tmp_path


def test_measured_peaks_are_sane(small):
    hardware = measure(budget_s=1.0)
    assert hardware.name == "this-machine"
    assert hardware.source == "measured"
    assert hardware.kind == jax.devices()[0].platform
    assert hardware.bandwidth_bytes_per_s.value > 1e9
    assert hardware.flops_per_s["float32"].value > 1e9
    assert 0 < hardware.dispatch_s.value < 1e-2
    assert hardware.memory_bytes.value > 1e9
    assert "product" in hardware.flops_per_s["float32"].source


def test_a_peak_is_not_below_what_a_plain_product_reaches(small):
    hardware = measure(budget_s=2.0)
    matrix = jnp.ones((512, 512))
    product = jax.jit(jnp.matmul)
    timing = time_call(lambda: product(matrix, matrix), num_samples=10)
    # Half, because another process may have had the cores while the peak was taken.
    assert hardware.flops_per_s["float32"].value > 0.5 * 2 * 512**3 / timing.median_s


def quiet(hardware: Hardware) -> Hardware:
    return msgspec.structs.replace(hardware, notes=tuple(note for note in hardware.notes if note != BUSY))


def test_a_quiet_measurement_is_read_from_the_cache(small, monkeypatch):
    assert read_cache() is None
    first = calibrate(budget_s=0.3)
    assert read_cache() == first
    assert cache_path().parent == small / "dflash-perf"
    codec.save(cache_path(), quiet(first))
    monkeypatch.setattr(module, "measure", lambda budget_s, progress: pytest.fail("measured again"))
    assert calibrate(budget_s=0.3) == quiet(first)


def test_a_measurement_on_a_busy_machine_is_not_kept_for_good(small, monkeypatch):
    first = quiet(calibrate(budget_s=0.3))
    codec.save(cache_path(), msgspec.structs.replace(first, notes=(BUSY,)))
    monkeypatch.setattr(module, "measure", lambda budget_s, progress: first)
    assert calibrate(budget_s=0.3) == first


def test_scatter_by_hand():
    # Exclusive quartiles of 1, 1, 1, 2 are 1 and 1.75: spread 0.75; of four equal samples, none.
    benchmark = module.Benchmark("b", "bandwidth", 8.0, lambda: None, [1.0, 1.0, 1.0, 2.0])
    assert benchmark.spread == pytest.approx(0.75)
    assert benchmark.best == 8.0
    assert module._scatters(benchmark)
    assert not module._scatters(module.Benchmark("b", "bandwidth", 8.0, lambda: None, [1.0] * 4))


def test_a_damaged_cache_is_measured_anew(small):
    cache_path().parent.mkdir(parents=True)
    cache_path().write_text('{"schema": "perf.hardware", "version": 1, "name": ')
    assert read_cache() is None
    fresh = calibrate(budget_s=0.3)
    assert codec.load(cache_path(), Hardware) == fresh


def test_refresh_measures_anew(small, monkeypatch):
    first = quiet(calibrate(budget_s=0.3))
    codec.save(cache_path(), first)
    monkeypatch.setattr(module, "measure", lambda budget_s, progress: msgspec.structs.replace(first, notes=("again",)))
    assert calibrate(budget_s=0.3, refresh=True).notes == ("again",)


def test_an_emulated_dtype_gets_no_peak(small, monkeypatch):
    real = module.time_once

    def slow_bfloat16(call):
        seconds = real(call)
        return 1000 * seconds if call().dtype == jnp.bfloat16 else seconds

    monkeypatch.setattr(module, "time_once", slow_bfloat16)
    hardware = measure(budget_s=0.3)
    assert set(hardware.flops_per_s) == {"float32"}
    assert "emulated" in hardware.notes[0]


def test_the_streamed_array_outgrows_the_cache():
    assert module._stream_bytes("cpu") >= min(4 * (last_level_cache_bytes() or 0), 1 << 30)
