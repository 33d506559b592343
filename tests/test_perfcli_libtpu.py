"""libtpu installed where there is no TPU: the other verbs are as quiet and as quick as without it."""

import importlib.util
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from perfcli import libtpu

ROOT = Path(__file__).resolve().parent.parent
needs_libtpu = pytest.mark.skipif(importlib.util.find_spec("libtpu") is None, reason="libtpu is not installed (extra: tpu)")


def perf(*arguments, **environment):
    return subprocess.run(
        [sys.executable, "-m", "perfcli", *arguments], capture_output=True, text=True, cwd=ROOT, check=False,
        env={**os.environ, **environment},
    )  # fmt: skip


@needs_libtpu
def test_doctor_finds_the_cpu_at_once_and_says_nothing_of_tpus(tmp_path):
    if libtpu.has_tpu():
        pytest.skip("there is a TPU here")
    begin = time.perf_counter()
    result = perf("doctor", "--json", XDG_CACHE_HOME=str(tmp_path))
    with_it = time.perf_counter() - begin
    begin = time.perf_counter()
    alone = perf("doctor", "--json", XDG_CACHE_HOME=str(tmp_path), JAX_PLATFORMS="cpu")  # never loads libtpu
    without = time.perf_counter() - begin
    assert (result.returncode, alone.returncode) == (0, 0)
    assert json.loads(result.stdout)["platform"] == "cpu"
    assert "TPU" not in result.stderr
    assert with_it < 2 * without + 2.0


@needs_libtpu
@pytest.mark.slow
def test_the_sweep_on_a_cpu_behaves(tmp_path):
    result = perf("sweep-k", "--quick", "--max", "16", "--out", str(tmp_path / "run"), "--json", XDG_CACHE_HOME=str(tmp_path))
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["lossless"] is True
    assert "TPU_" not in result.stderr


def test_device_files_tell_of_a_tpu(tmp_path):
    assert not libtpu.has_tpu(tmp_path)
    (tmp_path / "vfio").mkdir()
    (tmp_path / "vfio" / "vfio").touch()  # there on any machine that can pass devices through
    assert not libtpu.has_tpu(tmp_path)
    (tmp_path / "vfio" / "0").touch()
    assert libtpu.has_tpu(tmp_path)


def test_what_is_set_already_stays(monkeypatch):
    environment = {"TPU_WORKER_HOSTNAMES": "mine"}
    monkeypatch.setattr(libtpu.os, "environ", environment)
    monkeypatch.setattr(libtpu, "find_spec", lambda name: object())
    monkeypatch.setattr(libtpu, "has_tpu", lambda: True)
    libtpu.settle_libtpu()
    assert environment == {"TPU_WORKER_HOSTNAMES": "mine"}
    monkeypatch.setattr(libtpu, "has_tpu", lambda: False)
    libtpu.settle_libtpu()
    assert environment["TPU_WORKER_HOSTNAMES"] == "mine"
    assert environment["TPU_SKIP_MDS_QUERY"] == "1"
