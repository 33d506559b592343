import os
import platform

import jax

from profiling.environment import commit, cpu_model, environment, num_cores, one_line

HASH = "0123456789abcdef0123456789abcdef01234567"


def test_the_facts_of_this_process():
    facts = environment()
    assert facts.platform == jax.devices()[0].platform
    assert facts.num_devices == jax.device_count()
    assert facts.versions["jax"] == jax.__version__
    assert facts.versions["python"] == platform.python_version()
    assert facts.num_cores == num_cores() >= 1
    assert facts.host_cpu == cpu_model() != ""


def test_a_backend_s_version_keeps_the_lines_that_tell_it():
    assert one_line("PJRT C API\ncuda 12090\n") == "PJRT C API; cuda 12090"
    assert "libtpu" in one_line("PJRT C API\nTFRT TPU v5p\nlibtpu version 0.0.30")


def test_flags_that_change_numbers_are_kept(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_dump_to=/nowhere")
    monkeypatch.setenv("JAX_DEFAULT_MATMUL_PRECISION", "highest")
    monkeypatch.setenv("JAX_LOGGING_LEVEL", "DEBUG")
    flags = environment().flags
    assert flags["XLA_FLAGS"] == "--xla_dump_to=/nowhere"
    assert flags["JAX_DEFAULT_MATMUL_PRECISION"] == "highest"
    assert "JAX_LOGGING_LEVEL" not in flags


def test_the_commit_is_read_from_every_layout_of_git(tmp_path):
    git = tmp_path / ".git"
    (git / "refs" / "heads").mkdir(parents=True)
    package = tmp_path / "package"
    package.mkdir()
    (git / "HEAD").write_text("ref: refs/heads/main\n")
    assert commit(package) is None  # before the first commit
    (git / "packed-refs").write_text(f"# pack-refs\n{HASH} refs/heads/main\n")
    assert commit(package) == HASH
    (git / "refs" / "heads" / "main").write_text(HASH[::-1] + "\n")
    assert commit(package) == HASH[::-1]
    (git / "HEAD").write_text(HASH + "\n")
    assert commit(package) == HASH


def test_a_linked_worktree_finds_its_commit(tmp_path):
    linked = tmp_path / "main" / ".git" / "worktrees" / "side"
    (tmp_path / "main" / ".git" / "refs" / "heads").mkdir(parents=True)
    (tmp_path / "main" / ".git" / "refs" / "heads" / "side").write_text(HASH)
    linked.mkdir(parents=True)
    (linked / "HEAD").write_text("ref: refs/heads/side")
    (linked / "commondir").write_text("../..")
    (tmp_path / "side").mkdir()
    (tmp_path / "side" / ".git").write_text(f"gitdir: {linked}\n")
    assert commit(tmp_path / "side") == HASH


def test_cores_are_those_this_process_may_use():
    assert num_cores() <= (os.cpu_count() or 1)
