"""Compiling for chips that are not here: real compilations of programs that can be counted by hand."""

import importlib.util
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import jax
import pytest

from perfmodel.errors import InputError, UnsupportedError
from profiling import compile as compiling
from profiling import compile_cache
from profiling.compile import WORKER_ENVIRONMENT, compile_many, compile_program, parallel_compilations
from profiling.compile_flops import matmul_flops
from profiling.compile_program import ProgramReference
from profiling.compile_topology import CHIPS, find_topology
from profiling.hlo import parse_module
from profiling.hlo_account import account

needs_compiler = pytest.mark.skipif(
    importlib.util.find_spec("libtpu") is None, reason="libtpu, the TPU compiler, is not installed (extra: tpu)"
)


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "dflash-perf" / "compiled"


@pytest.fixture(scope="module")
def hand_counted(tmp_path_factory):
    """A product, the same in a scan, and a kernel, on the chips that schedule them most differently; compiled once."""
    previous = os.environ.get("XDG_CACHE_HOME")
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))
    try:
        wanted = [
            (reference("matmul", rows=16, inner=4096, columns=8192), find_topology("tpu-v5p")),
            (reference("matmul", rows=16, inner=4096, columns=8192), find_topology("tpu-v6e")),
            (reference("scanned", rows=16, width=4096, num_layers=6), find_topology("tpu-v6e")),
            (reference("kernel", rows=4096, columns=1024), find_topology("tpu-v5p")),
        ]
        found = compile_many(wanted)
        again = compile_many(wanted)
    finally:
        os.environ.pop("XDG_CACHE_HOME")
        if previous is not None:
            os.environ["XDG_CACHE_HOME"] = previous
    return found, again


def reference(name, **arguments):
    return ProgramReference(f"compile_programs:{name}", arguments, ("compile_programs",))


def counted(compiled, bytes_per_cycle=1000.0):
    assert compiled.failure is None, compiled.failure
    return account(parse_module(compiled.hlo), bytes_per_cycle)


@needs_compiler
@pytest.mark.parametrize("place", [0, 1])
def test_a_products_weights_cross_the_bus_once(hand_counted, place):
    compiled = hand_counted[0][place]
    weights, rows, result = 4096 * 8192 * 2, 16 * 4096 * 2, 16 * 8192 * 2
    found = counted(compiled)
    # Whether read by the product itself (v5p) or copied to VMEM ahead of it (v6e), every byte crosses once.
    assert found.hbm_bytes == weights + rows + result
    assert compiled.flops == 2 * 16 * 4096 * 8192
    assert compiled.argument_bytes == weights + rows
    assert found.estimated_cycles > 0
    if compiled.topology.chip == "tpu-v6e":
        assert found.wait_cycles == pytest.approx(weights / 1000.0, rel=0.01)  # nothing else runs beside the copy


@needs_compiler
def test_a_scans_body_counts_as_often_as_it_runs(hand_counted):
    compiled = hand_counted[0][2]
    weights = 6 * 4096 * 4096 * 2
    found = counted(compiled)
    assert weights <= found.hbm_bytes <= 1.02 * weights  # beside the activations that are carried along
    assert compiled.flops == 6 * 2 * 16 * 4096 * 4096
    assert found.num_open_loops == 0


@needs_compiler
def test_a_kernel_is_counted_and_named(hand_counted):
    found = counted(hand_counted[0][3])
    assert dict(found.unpriced) == {"double": 1}
    assert found.hbm_bytes == 2 * 4096 * 1024 * 2
    assert found.call_cycles == pytest.approx(2 * 4096 * 1024 * 2 / 1000.0)


@needs_compiler
def test_a_repeat_is_instant_and_the_same(hand_counted):
    for first, second in zip(*hand_counted, strict=True):
        assert (first.was_cached, second.was_cached) == (False, True)
        assert first.hlo == second.hlo


@needs_compiler
def test_beside_a_live_jax_and_after_a_killed_worker(own_cache, tmp_path):
    """A worker killed while libtpu is loaded holds the lock file to its end; the next one must not mind."""
    assert float(jax.numpy.ones(3).sum()) == 3.0  # this process has a backend running
    topology = find_topology("tpu-v5e")
    request = {
        "factory": "compile_programs:matmul", "arguments": {"rows": 4096, "inner": 8192, "columns": 8192},
        "topology": topology.name, "bounds": topology.bounds, "num_chips": 1, "options": topology.options,
        "out": str(tmp_path / "never.json"),
    }  # fmt: skip
    environment = {**os.environ, **WORKER_ENVIRONMENT, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    with subprocess.Popen(
        [sys.executable, "-m", "profiling.compile_worker"], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment
    ) as worker:
        worker.stdin.write(json.dumps(request).encode())
        worker.stdin.close()
        deadline = time.monotonic() + 60
        while "libtpu" not in Path(f"/proc/{worker.pid}/maps").read_text() and time.monotonic() < deadline:
            time.sleep(0.05)
        worker.kill()
    assert not (tmp_path / "never.json").exists()
    compiled = compile_program(reference("matmul", rows=8, inner=256, columns=256), topology)
    assert counted(compiled).hbm_bytes > 256 * 256 * 2
    assert [path.suffix for path in own_cache.iterdir()] == [".gz"]


@needs_compiler
def test_what_a_chip_cannot_hold_comes_back_as_a_failure(own_cache):
    compiled = compile_program(reference("too_large", gigabytes=40), find_topology("tpu-v5e"))
    assert "RESOURCE_EXHAUSTED" in compiled.failure
    assert compiled.device_kind == "TPU v5 lite"


@needs_compiler
def test_a_damaged_cache_file_is_made_anew(own_cache):
    wanted = reference("matmul", rows=8, inner=128, columns=128), find_topology("tpu-v5e")
    path = compile_cache.path_of(*wanted)
    path.parent.mkdir(parents=True)
    path.write_bytes(b"\x1f\x8b half a file")
    assert compile_program(*wanted).was_cached is False
    assert compile_program(*wanted).was_cached is True


def test_the_cache_key_follows_program_topology_and_sources(own_cache, tmp_path, monkeypatch):
    module = tmp_path / "made_up_program.py"
    module.write_text("A = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    program = ProgramReference("made_up_program:make", {"k": 16}, ("made_up_program",))
    here = compile_cache.path_of(program, find_topology("tpu-v5p"))
    assert compile_cache.path_of(program, find_topology("tpu-v5p")) == here
    assert compile_cache.path_of(program, find_topology("tpu-v6e")) != here
    assert compile_cache.path_of(ProgramReference(program.factory, {"k": 8}, program.sources), find_topology("tpu-v5p")) != here
    module.write_text("A = 2\n")
    assert compile_cache.path_of(program, find_topology("tpu-v5p")) != here


def test_topologies_have_names_shapes_and_options():
    assert CHIPS == ("tpu-v4", "tpu-v5e", "tpu-v5p", "tpu-v6e", "tpu-v7x")
    assert [find_topology(chip).name for chip in CHIPS] == ["v4:1x1x1", "v5e:1x1", "v5p:1x1x1", "v6e:1x1", "tpu7x:1x1x1"]
    assert find_topology("tpu-v4").options == {"chip_config_name": "megacore"}
    cube, square = find_topology("v5p:2x2x1"), find_topology("v6e:2x2")
    assert (cube.chip, cube.num_chips, cube.bounds) == ("tpu-v5p", 4, (2, 2, 1))
    assert (square.chip, square.num_chips, square.bounds) == ("tpu-v6e", 4, (2, 2, 1))


@pytest.mark.parametrize("name", ["h100", "v5p:2x2", "v6e:2x2x1", "v5p:0x1x1", "v5p:x", "tpu-v9"])
def test_no_such_topology(name):
    with pytest.raises(InputError):
        find_topology(name)


def test_flops_of_products_scans_and_branches():
    weights = jax.ShapeDtypeStruct((3, 8, 8), "float32")
    rows = jax.ShapeDtypeStruct((2, 8), "float32")

    def program(x, weights):
        x = jax.lax.scan(lambda x, w: (jax.nn.relu(x @ w), None), x, weights)[0]
        return jax.lax.cond(x[0, 0] > 0, lambda x: x @ weights[0], lambda x: x, x)

    assert matmul_flops(jax.jit(program).trace(rows, weights).jaxpr) == 3 * 2 * 2 * 8 * 8 + 2 * 2 * 8 * 8


def test_without_libtpu_one_line_and_a_hint(monkeypatch):
    monkeypatch.setattr(compiling, "find_spec", lambda name: None)
    with pytest.raises(UnsupportedError, match="libtpu, is not installed") as caught:
        compile_program(reference("matmul"), find_topology("tpu-v5p"))
    assert caught.value.exit_code == 4
    assert "dflash-perf[tpu]" in caught.value.hint


@pytest.mark.parametrize(("system", "machine"), [("darwin", "arm64"), ("win32", "AMD64"), ("linux", "aarch64")])
def test_where_no_compiler_exists(monkeypatch, system, machine):
    monkeypatch.setattr(compiling.sys, "platform", system)
    monkeypatch.setattr(compiling.platform, "machine", lambda: machine)
    with pytest.raises(UnsupportedError, match="does not exist"):
        compile_program(reference("matmul"), find_topology("tpu-v5p"))


def test_as_many_at_once_as_memory_holds(monkeypatch):
    monkeypatch.setattr(compiling, "_free_bytes", lambda: 1e9)
    assert parallel_compilations() == 1
    monkeypatch.setattr(compiling, "_free_bytes", lambda: 1e15)
    assert parallel_compilations() == len(os.sched_getaffinity(0))
