"""Imports go down only, and the model and the reports never load JAX. Each check is shown to be able to fail."""

import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def loaded_after(code: str, *modules: str) -> set[str]:
    """Which of the modules are loaded in a fresh interpreter after running the code."""
    script = f"import sys\n{code}\nprint(*[m for m in {modules!r} if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT, check=True)
    return set(result.stdout.split())


def all_modules(package: str) -> str:
    """Code that imports every module of a package."""
    names = [f"{package}.{path.stem}" for path in sorted((ROOT / package).glob("*.py")) if path.stem != "__init__"]
    return "\n".join(f"import {name}" for name in names)


def test_the_model_and_the_reports_never_load_jax() -> None:
    code = f"{all_modules('perfmodel')}\n{all_modules('reports')}"
    assert loaded_after(code, "jax", "jaxlib", "decoding", "profiling") == set()


def test_that_check_can_fail() -> None:
    assert loaded_after("import perfmodel, jax", "jax", "jaxlib") == {"jax", "jaxlib"}


def test_the_floors_are_kept_and_a_broken_one_would_be_seen(tmp_path: Path) -> None:
    config = (ROOT / "pyproject.toml").read_text()
    lint = Path(sys.executable).parent / "lint-imports"
    kept = subprocess.run([lint, "--no-cache"], capture_output=True, text=True, cwd=ROOT, check=False)
    assert kept.returncode == 0, kept.stdout
    upside_down = tmp_path / "pyproject.toml"
    upside_down.write_text(config.replace('  "perfcli",\n  "sweeps | reports",', '  "sweeps | reports",\n  "perfcli",'))
    broken = subprocess.run([lint, "--no-cache", "--config", upside_down], capture_output=True, text=True, cwd=ROOT, check=False)
    assert broken.returncode == 1, "perfcli above sweeps should have broken the floors"


def test_decoding_and_profiling_are_kept_off_every_upper_module() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = next(c for c in contracts if c["type"] == "layers" and "perfmodel" in c.get("containers", []))
    upper = {f"perfmodel.{name.strip()}" for name in layers["layers"][0].split(":")}
    forbidden = next(c for c in contracts if c["type"] == "forbidden" and "decoding" in c["source_modules"])
    assert set(forbidden["forbidden_modules"]) == upper


def test_folders_hold_no_shapeless_modules() -> None:
    shapeless = {"utils", "util", "helpers", "common", "misc", "manager"}
    packages = ("decoding", "perfcli", "perfmodel", "profiling", "reports", "sweeps")
    found = [path for package in packages for path in (ROOT / package).rglob("*.py")]
    assert not [path for path in found if path.stem in shapeless]
    assert not [f"{path}: {count}" for path in found if (count := len(path.read_text().splitlines())) > 400]
