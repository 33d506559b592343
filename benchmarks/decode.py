"""Tokens per second of plain and DFlash decoding, ours beside the PyPI reference: `python -m benchmarks.decode --help`.

Ours run twice, stepwise and fused; the reference's plain loop has the `generate` of transformers beside it. Same weights, same
prompts, same machine, one process group: for every prompt each contender answers in turn, so a machine that slows down slows all of
them, and only ratios are worth quoting. The reference runs in its own environment (torch on CPU, transformers 5.15.0, dflash 0.1.0),
named by PERF_REFERENCE_PYTHON; without it our half runs alone. Tokens must agree: a speed without that is a speed of something else.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import jax

from decoding.fused import FusedLoop, compile_fused, generate_fused
from decoding.loop import Decoder, Generation, generate, required_capacity
from decoding.pair import DRAFTS, TARGETS, Pair, load_pair
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


Contender = Callable[[list[int]], tuple[tuple[int, ...], tuple[int, ...], float]]
"""Answers a prompt: tokens, tokens per step, decode seconds."""


@dataclass
class Total:
    """What a contender did over all prompts."""

    decode_s: float = 0.0
    num_tokens: int = 0
    num_steps: int = 0
    num_different: int = 0

    @property
    def tokens_per_s(self) -> float:
        """Committed tokens per second of decoding."""
        return self.num_tokens / self.decode_s

    @property
    def step_s(self) -> float:
        """Mean time of a step, s."""
        return self.decode_s / self.num_steps


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
    contenders: dict[tuple[str, int], Contender] = {}
    for size in (1, width):
        contenders |= _ours(pair, size, max(map(len, prompts)), max_new_tokens)
    contenders |= _theirs(_reference(target, draft), width, max_new_tokens, pair.stop_token_ids)
    totals = {key: Total() for key in contenders}
    for prompt in prompts:
        answers: dict[tuple[str, int], tuple[int, ...]] = {}
        for (who, size), answer in contenders.items():
            tokens, committed, decode_s = answer(prompt)
            total = totals[who, size]
            total.decode_s += decode_s
            total.num_tokens += sum(committed)
            total.num_steps += len(committed)
            answers[who, size] = tokens
            total.num_different += tokens != answers["stepwise", 1]
    _print(totals, width, pair)


def _ours(pair: Pair, size: int, longest: int, max_new_tokens: int) -> dict[tuple[str, int], Contender]:
    decoder = Decoder(pair, size, 1, required_capacity(longest, max_new_tokens, size))
    decoder.compile(longest)
    loop = compile_fused(decoder, longest, max_new_tokens)

    def answer(run: Callable[..., Generation], what: Decoder | FusedLoop) -> Contender:
        def decode(prompt: list[int]) -> tuple[tuple[int, ...], tuple[int, ...], float]:
            result = run(what, [prompt], max_new_tokens)
            return result.tokens[0], result.committed[0], result.decode_s

        run(what, [[1]], WARMUP_TOKENS)
        return decode

    return {("stepwise", size): answer(generate, decoder), ("fused", size): answer(generate_fused, loop)}


def _theirs(
    reference: Reference | None, width: int, max_new_tokens: int, stop: tuple[int, ...]
) -> dict[tuple[str, int], Contender]:
    if reference is None:
        return {}

    def answer(block_size: int) -> Contender:
        def decode(prompt: list[int]) -> tuple[tuple[int, ...], tuple[int, ...], float]:
            result = reference.answer(prompt, block_size, max_new_tokens, stop)
            return tuple(result["tokens"]), tuple(result["committed"]), result["decode_s"]

        return decode

    return {("reference", 1): answer(1), ("reference", width): answer(width), ("generate", 1): answer(0)}


def _reference(target: str, draft: str) -> Reference | None:
    python = os.environ.get("PERF_REFERENCE_PYTHON")
    if not python:
        click.echo("PERF_REFERENCE_PYTHON is not set: our half runs alone", err=True)
        return None
    folders = [known[name]() if name in known else Path(name) for name, known in ((target, TARGETS), (draft, DRAFTS))]
    reference = Reference(python, *folders, num_threads=os.cpu_count() or 1)
    click.echo(f"reference: {reference.versions}", err=True)
    return reference


def _print(totals: dict[tuple[str, int], Total], width: int, pair: Pair) -> None:
    for (who, size), total in totals.items():
        click.echo(
            f"{who:<10} {'plain' if size == 1 else f'DFlash K={size}':<12} {total.tokens_per_s:7.1f} tokens/s  "
            f"step {format_seconds(total.step_s)}  τ {total.num_tokens / total.num_steps:.2f}  "
            f"answers unlike stepwise plain: {total.num_different}"
        )
    bandwidth = calibrate().bandwidth_bytes_per_s.value
    weights = sum(leaf.nbytes for leaf in jax.tree_util.tree_leaves(pair.target_params))
    shares = {who: weights / bandwidth / totals[who, 1].step_s for who in ("stepwise", "fused")}
    gaps = {size: totals["stepwise", size].step_s - totals["fused", size].step_s for size in (1, width)}
    click.echo(
        "plain decoding reads its weights at this share of the machine's measured bandwidth: "
        + ", ".join(f"{who} {format_percent(share, 2)}" for who, share in shares.items())
    )
    click.echo(
        "host gap per step, stepwise beyond fused: " + ", ".join(f"K={size} {format_seconds(gap)}" for size, gap in gaps.items())
    )
    ratios = {"dflash_over_plain": _ratio(totals, ("fused", width), ("fused", 1))}
    for size, name in ((1, "plain"), (width, "dflash")):
        ratios[f"{name}_fused_over_stepwise"] = _ratio(totals, ("fused", size), ("stepwise", size))
        if ("reference", size) in totals:
            ratios[f"{name}_stepwise_over_reference"] = _ratio(totals, ("stepwise", size), ("reference", size))
            ratios[f"{name}_fused_over_reference"] = _ratio(totals, ("fused", size), ("reference", size))
    if ("generate", 1) in totals:
        ratios["plain_fused_over_generate"] = _ratio(totals, ("fused", 1), ("generate", 1))
    click.echo(", ".join(f"{name.replace('_', ' ')} {format_ratio(value)}" for name, value in ratios.items()))
    rates = {f"{who}-K{size}": total.tokens_per_s for (who, size), total in totals.items()}
    json.dump({"ratios": ratios, "tokens_per_s": rates, "bandwidth_share": shares, "host_gap_s": gaps}, sys.stdout)
    click.echo()


def _ratio(totals: dict[tuple[str, int], Total], ours: tuple[str, int], theirs: tuple[str, int]) -> float:
    return totals[ours].tokens_per_s / totals[theirs].tokens_per_s


if __name__ == "__main__":
    main()
