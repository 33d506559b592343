"""Tokens per second of plain and DFlash decoding, ours beside the PyPI reference: `python -m benchmarks.decode --help`.

Same weights, same prompts, same machine, one process group: for every prompt each contender answers in turn, so a machine that
slows down slows all of them, and only ratios are worth quoting. The reference runs in its own environment (torch on CPU,
transformers 5.15.0, dflash 0.1.0), named by PERF_REFERENCE_PYTHON; without it our half runs alone. Tokens must agree: a
speed without that is a speed of something else.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import click

from decoding.loop import Decoder, generate, required_capacity
from decoding.pair import DRAFTS, TARGETS, load_pair
from decoding.tasks import load_prompts
from perfmodel.units import format_percent, format_ratio, format_seconds
from profiling.calibrate import calibrate

WARMUP_TOKENS = 8


class Reference:
    """The reference package in its own process."""

    def __init__(self, python: str, target: Path, draft: Path, num_threads: int) -> None:
        worker = Path(__file__).with_name("reference_worker.py")
        command = [python, str(worker), str(target), str(draft), str(num_threads)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self.versions = self._read()

    def _read(self) -> Any:
        if self._process.stdout is None:
            raise RuntimeError("the reference has no output pipe")
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the reference ended with status {self._process.wait()}")
        return json.loads(line)

    def answer(self, prompt: list[int], block_size: int, max_new_tokens: int, stop: tuple[int, ...]) -> Any:
        """Tokens, committed counts and decode seconds of one prompt."""
        request = {"prompt": prompt, "block_size": block_size, "max_new_tokens": max_new_tokens, "stop": list(stop)}
        if self._process.stdin is None:
            raise RuntimeError("the reference has no input pipe")
        print(json.dumps(request), file=self._process.stdin, flush=True)
        return self._read()


@click.command()
@click.option("--target", default="smollm2-135m", show_default=True)
@click.option("--draft", default="smollm2-135m-dflash", show_default=True)
@click.option("--num-prompts", default=4, show_default=True, help="Prompts per task.")
@click.option("--max-new-tokens", default=64, show_default=True)
def main(target: str, draft: str, num_prompts: int, max_new_tokens: int) -> None:
    """Decode the shipped prompts plainly and with DFlash, batch 1, float32, and print tokens per second."""
    pair = load_pair(target, draft, "float32")
    width = pair.trained_block_size or 8
    prompts = [list(prompt.token_ids) for task in ("math", "code", "chat") for prompt in load_prompts(task, pair, num_prompts)]
    longest = max(map(len, prompts))
    decoders = {size: Decoder(pair, size, 1, required_capacity(longest, max_new_tokens, width)) for size in (1, width)}
    for decoder in decoders.values():
        decoder.compile(longest)
        generate(decoder, prompts[:1], WARMUP_TOKENS)
    reference = _reference(target, draft)
    seconds: dict[tuple[str, int], float] = {}
    tokens: dict[tuple[str, int], int] = {}
    steps: dict[tuple[str, int], int] = {}
    num_different = 0
    for prompt in prompts:
        for size, decoder in decoders.items():
            ours = generate(decoder, [prompt], max_new_tokens)
            _add(("ours", size), ours.decode_s, ours.committed[0], seconds, tokens, steps)
            if reference is not None:
                theirs = reference.answer(prompt, size, max_new_tokens, pair.stop_token_ids)
                _add(("reference", size), theirs["decode_s"], theirs["committed"], seconds, tokens, steps)
                num_different += list(ours.tokens[0]) != theirs["tokens"] or list(ours.committed[0]) != theirs["committed"]
    _print(seconds, tokens, steps, width, num_different, pair)


def _add(key: tuple[str, int], decode_s: float, committed: Any, seconds: Any, tokens: Any, steps: Any) -> None:
    seconds[key] = seconds.get(key, 0.0) + decode_s
    tokens[key] = tokens.get(key, 0) + sum(committed)
    steps[key] = steps.get(key, 0) + len(committed)


def _reference(target: str, draft: str) -> Reference | None:
    python = os.environ.get("PERF_REFERENCE_PYTHON")
    if not python:
        click.echo("PERF_REFERENCE_PYTHON is not set: our half runs alone", err=True)
        return None
    folders = [known[name]() if name in known else Path(name) for name, known in ((target, TARGETS), (draft, DRAFTS))]
    reference = Reference(python, *folders, num_threads=os.cpu_count() or 1)
    click.echo(f"reference: {reference.versions}", err=True)
    return reference


def _print(seconds: Any, tokens: Any, steps: Any, width: int, num_different: int, pair: Any) -> None:
    rate = {key: tokens[key] / seconds[key] for key in seconds}
    tau = {key: tokens[key] / steps[key] for key in seconds}
    for key, value in rate.items():
        who, size = key
        click.echo(
            f"{who:<10} {'plain' if size == 1 else f'DFlash K={size}':<12} {value:7.1f} tokens/s  "
            f"step {format_seconds(seconds[key] / steps[key])}  τ {tau[key]:.2f}"
        )
    machine = calibrate()
    weights = sum(leaf.nbytes for leaf in _leaves(pair.target_params))
    share = weights / machine.bandwidth_bytes_per_s.value / (seconds["ours", 1] / steps["ours", 1])
    click.echo(f"plain decoding reads its weights at {format_percent(share, 2)} of this machine's measured bandwidth")
    ratios = {"dflash_over_plain": rate["ours", width] / rate["ours", 1]}
    if ("reference", 1) in rate:
        ratios |= {
            "plain_over_reference": rate["ours", 1] / rate["reference", 1],
            "dflash_over_reference": rate["ours", width] / rate["reference", width],
        }
        click.echo(f"answers that differ from the reference: {num_different}")
    click.echo(", ".join(f"{name.replace('_', ' ')} {format_ratio(value)}" for name, value in ratios.items()))
    json.dump({"ratios": ratios, "tokens_per_s": {f"{who}-K{size}": value for (who, size), value in rate.items()}}, sys.stdout)
    click.echo()


def _leaves(params: Any) -> list[Any]:
    import jax

    return list(jax.tree_util.tree_leaves(params))


if __name__ == "__main__":
    main()
