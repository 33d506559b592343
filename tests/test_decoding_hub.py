"""Hub ids: told from names and folders, and answered with what to do when the hub is out of reach."""

import sys
from pathlib import Path

import pytest

from decoding import hub
from decoding.pair import DRAFTS, TARGETS, find_config, find_folder
from perfmodel.errors import UnsupportedError


def test_what_a_hub_id_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert hub.is_hub_id("Qwen/Qwen3-4B")
    assert hub.is_hub_id("z-lab/Qwen3-4B-DFlash-b16")
    for name in ("smollm2-135m", "/models/qwen", "./models/qwen", "a/b/c", "~/qwen", "a/", "../x"):
        assert not hub.is_hub_id(name)
    (tmp_path / "models").mkdir()
    assert not hub.is_hub_id("models/qwen3")  # a folder's child that does not exist is a mistyped path


def test_without_the_extra_the_hint_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(UnsupportedError, match="huggingface_hub is not installed") as caught:
        find_folder("Qwen/Qwen3-4B", TARGETS, "target")
    assert caught.value.exit_code == 4
    assert "dflash-perf[hub]" in caught.value.hint


def test_offline_with_an_empty_cache_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(UnsupportedError, match="cannot be reached") as caught:
        find_config("z-lab/Qwen3-4B-DFlash-b16", DRAFTS, "draft")
    assert caught.value.exit_code == 4


def test_only_harmless_files_are_asked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    huggingface_hub = pytest.importorskip("huggingface_hub")
    asked = []
    monkeypatch.setattr(
        huggingface_hub, "snapshot_download", lambda hub_id, allow_patterns: asked.append(allow_patterns) or tmp_path
    )
    assert hub.hub_folder("a/b") == tmp_path
    hub.hub_folder("a/b", with_weights=False)
    assert [("*.safetensors" in patterns) for patterns in asked] == [True, False]
    assert not {"*", "*.bin", "*.pt", "*.py"} & {pattern for patterns in asked for pattern in patterns}
