"""A real vLLM server on two cores, swept by `perf sweep-k --engine openai --launch`. Identities are asserted, never speed.

Runs where PERF_VLLM_PYTHON names an interpreter that has vLLM (`make test-vllm` builds one).
"""

import json
import os
import shlex
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file, save_file
from vllm_checkpoints import make_pair

from decoding import embedded
from decoding.loop import Decoder, generate, required_capacity
from decoding.pair import load_pair
from decoding.tasks import load_prompts
from perfmodel import codec
from perfmodel.records import Served, ServedPoint

pytestmark = [pytest.mark.vllm_cpu, pytest.mark.timeout(1800)]

ROOT = Path(__file__).parent.parent
START_LIMIT_S = 400
PROMPT_CAPACITY = 160
KEY_NORM = "layers.{}.self_attn.k_norm.weight"


@pytest.fixture(scope="module")
def python() -> str:
    """The interpreter that has vLLM."""
    found = os.environ.get("PERF_VLLM_PYTHON")
    if not found:
        pytest.skip("PERF_VLLM_PYTHON names no interpreter with vLLM (make test-vllm builds one)")
    return found


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return make_pair(tmp_path_factory.mktemp("checkpoints"))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def serve_command(python: str, target: Path, speculation: dict[str, Any], *more: str) -> str:
    """The command of a server, with places for K and the port."""
    variables = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "VLLM_CPU_KVCACHE_SPACE": "1"}
    document = json.dumps(speculation | {"num_speculative_tokens": 0}).replace(": 0}", ": {num_speculative_tokens}}")
    words = [f"{name}={value}" for name, value in variables.items()]
    words += [
        f"PATH={Path(python).parent}:{os.environ['PATH']}",
        python,
        str(ROOT / "tests" / "vllm_cli.py"),
        "serve",
        str(target),
    ]
    words += ["--served-model-name", "tiny", "--host", "127.0.0.1", "--port", "{port}", "--dtype", "float32", "--enforce-eager"]
    words += ["--max-model-len", "512", "--max-num-seqs", "4", *more]
    return f"{shlex.join(words)} --speculative-config {document}"


def sweep(folder: Path, launch: str, *more: str) -> tuple[dict[str, Any], list[ServedPoint]]:
    """The document of a sweep and its points."""
    command = [sys.executable, "-m", "perfcli", "sweep-k", "--engine", "openai", "--base-url", f"http://127.0.0.1:{free_port()}"]
    command += ["--launch", launch, "--launch-limit", str(START_LIMIT_S), "--dtype", "float32", "--quick", "--json"]
    done = subprocess.run([*command, "--out", str(folder), *more], capture_output=True, text=True, cwd=ROOT, check=False)
    logs = "".join(f"\n== {path}\n{path.read_text(errors='replace')[-3000:]}" for path in (folder / "servers").glob("*.log"))
    assert done.stdout, done.stderr + logs
    document = json.loads(done.stdout)
    assert not [f for f in document["findings"] if f["severity"] == "error"], (document["findings"], logs)
    assert done.returncode == 0, done.stderr
    return document, list(codec.load(folder / "served.json", Served).points)


def check_identities(points: list[ServedPoint], is_fixed: bool) -> None:
    """What must hold at every point, whatever the speed. `is_fixed`: every step drafts K − 1 tokens."""
    for point in points:
        counters = point.counters
        assert point.block_size == point.asked, point.findings
        if point.block_size == 1:
            assert counters is None  # no series at all, not zeros
            assert point.tokens_per_step == 1.0
            continue
        assert counters is not None
        assert counters.num_steps
        assert counters.num_draft_tokens
        assert counters.num_accepted is not None
        assert counters.survival is not None
        drafts, drafted, accepted = counters.num_steps, counters.num_draft_tokens, counters.num_accepted
        assert sum(round(share * drafts) for share in counters.survival) == accepted
        assert len(counters.survival) == point.block_size - 1
        widest = drafts * (point.block_size - 1)
        assert drafted == widest if is_fixed else drafted <= widest
        assert counters.num_output_tokens == sum(request.num_output_tokens for request in point.requests)
        # Every step adds one token and what it accepted; of each answer's last step up to K − 1 may be cut off.
        if is_fixed:
            cut = drafts + accepted - point.num_decoded
            assert 0 <= cut <= len(point.requests) * (point.block_size - 1)


def test_ngram(python: str, pair: tuple[Path, Path], tmp_path: Path) -> None:
    speculation = {"method": "ngram", "prompt_lookup_max": 4, "prompt_lookup_min": 2}
    launch = serve_command(python, pair[0], speculation)
    document, points = sweep(tmp_path / "run", launch, "--points", "2,4,8", "--concurrency", "1,4", "--task", "code")
    assert {(point.asked, point.concurrency) for point in points} == {(k, c) for k in (1, 2, 4, 8) for c in (1, 4)}
    check_identities(points, is_fixed=False)
    assert document["lossless"] is True
    assert document["lossless_compared"] > 0
    widest = max(points, key=lambda point: (point.asked, -point.concurrency))
    assert widest.counters is not None
    assert widest.counters.num_accepted is not None
    assert widest.counters.num_accepted > 0
    [task] = document["tasks"]
    assert task["block_size"] == 8
    assert task["measured_speedup"] is not None


def test_the_target_as_its_own_draft_model(python: str, pair: tuple[Path, Path], tmp_path: Path) -> None:
    launch = serve_command(python, pair[0], {"method": "draft_model", "model": str(pair[0])})
    document, points = sweep(tmp_path / "run", launch, "--points", "4", "--concurrency", "1", "--task", "chat")
    check_identities(points, is_fixed=True)
    [point] = [point for point in points if point.asked == 4]
    assert point.counters is not None
    assert point.counters.num_accepted == point.counters.num_draft_tokens  # all of them, exactly
    assert document["tasks"][0]["tau_pooled"] == pytest.approx(4.0)
    assert document["lossless"] is True


def test_a_random_dflash_drafter(python: str, pair: tuple[Path, Path], tmp_path: Path) -> None:
    launch = serve_command(python, pair[0], {"method": "dflash", "model": str(pair[1])})
    more = ("--points", "8", "--concurrency", "1", "--task", "chat", "--draft", str(pair[1]))
    document, points = sweep(tmp_path / "run", launch, *more)
    check_identities(points, is_fixed=True)
    [point] = [point for point in points if point.asked == 8]
    assert point.counters is not None
    assert point.counters.num_accepted is not None
    assert point.counters.num_draft_tokens is not None
    assert point.counters.num_accepted < 0.02 * point.counters.num_draft_tokens
    assert document["lossless"] is True
    assert document["tasks"][0]["worth_it"] is False


@pytest.mark.parametrize("is_as_trained", [True, False])
def test_the_same_pair_in_two_engines(python: str, tmp_path: Path, is_as_trained: bool) -> None:
    """Tokens equal ours, and so does τ within 2 %, each answer's last step left out: vLLM counts drafts accepted past the cut.

    vLLM 0.32 on CPUs norms the context's keys of every drafter layer with the first layer's weights (its kernel takes one row of
    weights), which flips a draft in a few steps of a hundred. A drafter whose layers share those weights is the same in both: then
    every step commits the same.
    """
    target, draft, _ = embedded.export(tmp_path / "pair")
    if not is_as_trained:
        tensors = load_file(draft / "model.safetensors")
        tensors[KEY_NORM.format(1)] = tensors[KEY_NORM.format(0)].copy()
        save_file(tensors, draft / "model.safetensors", metadata={"format": "pt"})
    speculation = {"method": "dflash", "model": str(draft)}
    more = ("--no-enable-prefix-caching", "--per-request-spec-decode-metrics", "detailed")
    launch = serve_command(python, target, speculation, *more)
    arguments = ("--points", "8", "--concurrency", "1", "--draft", str(draft), "--target", str(target))
    document, points = sweep(tmp_path / "run", launch, *arguments)
    check_identities(points, is_fixed=True)
    assert document["lossless"] is True
    ours = load_pair(str(target), str(draft), "float32")
    steps: dict[str, list[tuple[int, ...]]] = {"ours": [], "vllm": []}
    for point in [point for point in points if point.asked == 8]:
        prompts = [prompt.token_ids for prompt in load_prompts(point.task, ours, len(point.requests))]
        assert [request.num_prompt_tokens for request in point.requests] == [len(prompt) for prompt in prompts]
        num_new = max(request.num_output_tokens for request in point.requests)
        decoder = Decoder(ours, block_size=8, batch=len(prompts), capacity=required_capacity(PROMPT_CAPACITY, num_new, 8))
        decoder.compile(PROMPT_CAPACITY)
        found = generate(decoder, prompts, num_new)
        assert [request.tokens for request in point.requests] == list(found.tokens)
        steps["ours"] += [answer[:-1] for answer in found.committed]
        steps["vllm"] += [(request.committed or ())[:-1] for request in point.requests]
    tau = {name: sum(map(sum, answers)) / sum(map(len, answers)) for name, answers in steps.items()}
    num_same = sum(a == b for a, b in zip(steps["ours"], steps["vllm"], strict=True))
    sys.stdout.write(f"{num_same} of {len(steps['ours'])} answers step for step; τ {tau}\n")
    assert tau["vllm"] == pytest.approx(tau["ours"], rel=0.02)
    assert is_as_trained or num_same == len(steps["ours"])
