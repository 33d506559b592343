"""Hub ids: told from names and folders, and answered with what to do when the hub is out of reach."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hub_server import Hub, serve
from safetensors import safe_open
from safetensors.numpy import save

from decoding import hub
from decoding.pair import ASSETS, DRAFTS, TARGETS, find_config, find_folder
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


LOOPBACK = "127.0.0.1,localhost"
TOKEN_IDS = [[5, 9, 20, 3], [7, 1]]


def checkpoint(name: str) -> dict[str, bytes]:
    """The files of a checkpoint that ships, by path."""
    return {path.name: path.read_bytes() for path in (ASSETS / name).iterdir()}


def sharded(name: str) -> dict[str, bytes]:
    """The same with its weights in two files and an index that says which holds what."""
    files, path = checkpoint(name), ASSETS / name / "model.safetensors"
    with safe_open(path, framework="numpy") as opened:
        tensors = {key: opened.get_tensor(key) for key in opened.keys()}  # noqa: SIM118 - it has no iteration of its own
    names = sorted(tensors)
    shards = {f"model-0000{number}-of-00002.safetensors": names[number - 1 :: 2] for number in (1, 2)}
    index = {"metadata": {}, "weight_map": {name: shard for shard, held in shards.items() for name in held}}
    rest = {path: content for path, content in files.items() if path != "model.safetensors"}
    whole = {shard: save({name: tensors[name] for name in held}, {"format": "pt"}) for shard, held in shards.items()}
    return rest | whole | {"model.safetensors.index.json": json.dumps(index).encode()}


DECOYS = {
    "pytorch_model.bin": b"\x80\x04.", "modeling.py": b"raise SystemExit", "tokenizer.pkl": b"\x80\x04.",
    "original/model.safetensors": b"not these", "onnx/config.json": b"{}",
}  # fmt: skip
"""Files that a repository may hold and that nobody here wants."""


def run(hub_url: str, folder: Path, *arguments: object) -> subprocess.CompletedProcess:
    """A Python of its own whose hub is at this address; what it fetches and compiles is kept in the folder."""
    drop = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_HUB_OFFLINE", "HF_HUB_CACHE")
    environment = {key: value for key, value in os.environ.items() if key not in drop}
    environment |= {"HF_ENDPOINT": hub_url, "HF_HOME": str(folder / "home"), "no_proxy": LOOPBACK, "NO_PROXY": LOOPBACK}
    environment |= {"JAX_COMPILATION_CACHE_DIR": str(folder / "jax"), "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=180, check=False)


def decode(hub_url: str, folder: Path, target: str, draft: str, out: str) -> subprocess.CompletedProcess:
    """Two prompts of token ids decoded greedily; the tokens are in `folder/out`."""
    (folder / "prompts.json").write_text(json.dumps(TOKEN_IDS))
    return run(
        hub_url, folder, "-m", "perfcli", "capture", "--target", target, "--draft", draft, "--prompt-ids", folder / "prompts.json",
        "--max-new-tokens", 12, "--no-trace", "--dump-tokens", folder / out, "--json",
    )  # fmt: skip


def test_a_pair_is_fetched_from_the_hub_decoded_from_and_kept(tmp_path: Path) -> None:
    pytest.importorskip("huggingface_hub")
    target = sharded("tiny")
    hub = Hub({"owner/tiny": target | DECOYS, "owner/tiny-draft": checkpoint("tiny-dflash") | DECOYS})
    with serve(hub):
        first = decode(hub.url, tmp_path, "owner/tiny", "owner/tiny-draft", "first.json")
    assert first.returncode == 0, first.stderr
    assert json.loads(first.stdout)["draft"] == "owner/tiny-draft"
    wanted = {"config.json", "model.safetensors"}
    assert {path.removeprefix("owner/tiny-draft/") for path in hub.asked if "tiny-draft" in path} == wanted
    assert {path.removeprefix("owner/tiny/") for path in hub.asked if "tiny-draft" not in path} == {
        path for path in target if path.endswith((".json", ".safetensors"))
    }
    assert len(hub.asked) == len(set(hub.asked))
    # The same weights in one file on this machine give the same tokens.
    local = decode("http://127.0.0.1:9", tmp_path, "tiny", "tiny-dflash", "local.json")
    assert local.returncode == 0, local.stderr
    answers = (tmp_path / "first.json").read_bytes()
    assert answers == (tmp_path / "local.json").read_bytes()
    assert len(json.loads(answers)) == len(TOKEN_IDS)
    # The server is gone; what it gave is in the cache.
    again = decode(hub.url, tmp_path, "owner/tiny", "owner/tiny-draft", "again.json")
    assert again.returncode == 0, again.stderr
    assert (tmp_path / "again.json").read_bytes() == answers


@pytest.mark.parametrize(
    ("target", "exit_code", "message", "hint"),
    [
        ("owner/absent", 2, "knows no model owner/absent", "hf auth login"),
        ("owner/gated", 2, "does not give owner/gated to everyone", "accept its terms"),
        pytest.param("owner/broken", 4, "owner/broken could not be fetched", "try again", marks=pytest.mark.slow),  # retries
        ("owner/no--id", 2, "owner/no--id cannot be a hub id", "owner/model"),
    ],
)
def test_what_the_hub_does_not_give_is_one_line_and_a_hint(
    target: str, exit_code: int, message: str, hint: str, tmp_path: Path
) -> None:
    pytest.importorskip("huggingface_hub")
    files = checkpoint("tiny")
    hub = Hub({"owner/gated": files, "owner/broken": files}, gated={"owner/gated"}, broken={"owner/broken"})
    with serve(hub):
        done = decode(hub.url, tmp_path, target, "tiny-dflash", "none.json")
    assert done.returncode == exit_code, done.stderr
    said = done.stderr.strip().splitlines()[-2:]
    assert message in said[0]
    assert hint in said[1]
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "none.json").exists()


FIND = """
import sys
from decoding.pair import TARGETS, find_config, find_folder
from perfmodel.errors import UnsupportedError
print(find_config("owner/tiny", TARGETS, "target"))
try:
    print(find_folder("owner/tiny", TARGETS, "target") if "whole" in sys.argv else "")
except UnsupportedError as error:
    print(error.message)
"""


def test_a_configuration_alone_is_fetched_without_weights_which_are_missed_when_the_hub_is_gone(tmp_path: Path) -> None:
    pytest.importorskip("huggingface_hub")
    files = checkpoint("tiny")
    hub = Hub({"owner/tiny": files | DECOYS})
    with serve(hub):
        config = Path(run(hub.url, tmp_path, "-c", FIND).stdout.strip())
    assert sorted(hub.asked) == sorted(f"owner/tiny/{name}" for name in files if name.endswith(".json"))
    assert config.read_bytes() == files["config.json"]
    found, missed = run(hub.url, tmp_path, "-c", FIND, "whole").stdout.splitlines()
    assert found == str(config)
    assert "not whole in the hub's cache" in missed
