import jax
import jax.numpy as jnp
import pytest

from perfmodel import codec
from perfmodel.records import Hardware
from profiling import calibrate as module
from profiling.calibrate import cache_path, calibrate, last_level_cache_bytes, measure, read_cache
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


def test_the_second_call_reads_the_cache(small, monkeypatch):
    assert read_cache() is None
    first = calibrate(budget_s=0.3)
    assert read_cache() == first
    assert cache_path().parent == small / "dflash-perf"
    assert codec.load(cache_path(), Hardware) == first
    monkeypatch.setattr(module, "measure", lambda budget_s: pytest.fail("measured again"))
    assert calibrate(budget_s=0.3) == first


def test_a_damaged_cache_is_measured_anew(small):
    cache_path().parent.mkdir(parents=True)
    cache_path().write_text('{"schema": "perf.hardware", "version": 1, "name": ')
    assert read_cache() is None
    fresh = calibrate(budget_s=0.3)
    assert codec.load(cache_path(), Hardware) == fresh


def test_refresh_measures_anew(small, monkeypatch):
    first = calibrate(budget_s=0.3)
    monkeypatch.setattr(module, "measure", lambda budget_s: first.__class__(**{**_fields(first), "notes": ("again",)}))
    assert calibrate(budget_s=0.3, refresh=True).notes == ("again",)


def _fields(hardware: Hardware) -> dict:
    return {name: getattr(hardware, name) for name in hardware.__struct_fields__}


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
