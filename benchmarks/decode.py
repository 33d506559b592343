"""Speed of plain and DFlash decoding, ours beside the PyPI reference: `python -m benchmarks.decode --help`.

Ours run twice, stepwise and fused; the reference's plain loop has the `generate` of transformers beside it. Same weights, same
prompts, same machine, one process group: for every prompt each contender answers in turn, so a machine that slows down slows all of
them, and only ratios are worth quoting. The reference runs in its own environment (torch on CPU, transformers 5.15.0, dflash 0.1.0),
named by PERF_REFERENCE_PYTHON; without it our half runs alone. Tokens must agree: a speed without that is a speed of something else.

Plain decoding reads all weights once per token, so it is set against memory bandwidth: of a matrix–vector product that reads as many
bytes, run in turn with the contenders, and of the best sample that this machine's calibration ever saw.

With `--weights random` the same runs on a model of any listed shape, without a download and without the reference; for a GPU:

    python -m benchmarks.decode --target qwen3-4b --draft qwen3-4b-dflash-b16 --weights random --dtype bfloat16 \\
        --block-sizes 1,2,4,8,16,32,64,128,256,512,1024
"""

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import jax
import jax.numpy as jnp

from decoding.fused import FusedLoop, compile_fused, generate_fused
from decoding.loop import Decoder, Generation, generate, required_capacity
from decoding.pair import DRAFTS, DTYPES, TARGETS, Pair
from decoding.tasks import load_prompts
from perfcli.options import integers
from perfmodel.units import format_percent, format_ratio, format_seconds
from profiling.calibrate import calibrate
from profiling.timer import compile_call, time_once
from sweeps.pairs import CHECKPOINT, RANDOM, WEIGHTS, open_pair, random_prompts, weights_findings

WARMUP_TOKENS = 8

TASKS = ("math", "code", "chat")

PROBE_COLUMNS = 4096
PROBE_BYTES = 1 << 30
"""The bandwidth probe reads no more than this; a larger one would need as much memory as the weights."""


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
    """What a contender did over all prompts; `step_s` is its mean step per prompt, s."""

    decode_s: float = 0.0
    num_tokens: int = 0
    num_steps: int = 0
    num_different: int = 0
    step_s: list[float] = field(default_factory=list)

    @property
    def tokens_per_s(self) -> float:
        """Committed tokens per second of decoding."""
        return self.num_tokens / self.decode_s

    @property
    def mean_step_s(self) -> float:
        """Mean time of a step, s."""
        return self.decode_s / self.num_steps

    def add(self, committed: tuple[int, ...], decode_s: float, is_different: bool) -> None:
        """Count one answer."""
        self.decode_s += decode_s
        self.num_tokens += sum(committed)
        self.num_steps += len(committed)
        self.num_different += is_different
        if committed:
            self.step_s.append(decode_s / len(committed))


Totals = dict[tuple[str, int], Total]


@click.command()
@click.option("--target", default="smollm2-135m", show_default=True)
@click.option("--draft", default="smollm2-135m-dflash", show_default=True)
@click.option("--weights", type=click.Choice(WEIGHTS), default=CHECKPOINT, show_default=True)
@click.option("--dtype", type=click.Choice(DTYPES), default="float32", show_default=True)
@click.option("--block-sizes", default=None, help="K, comma-separated; 1 is plain decoding.  [default: 1 and the trained one]")
@click.option("--num-prompts", default=4, show_default=True, help="Prompts per task.")
@click.option("--max-new-tokens", default=64, show_default=True)
def main(
    target: str, draft: str, weights: str, dtype: str, block_sizes: str | None, num_prompts: int, max_new_tokens: int
) -> None:
    """Decode prompts plainly and with DFlash, batch 1, and print tokens per second."""
    pair = open_pair(target, draft, dtype, weights)
    for finding in weights_findings(weights):
        click.echo(f"WARNING: {finding.message}", err=True)
    sizes = (pair.trained_block_size or 8,) if block_sizes is None else integers(block_sizes, "--block-sizes")
    sizes = tuple(sorted({1, *sizes}))
    prompts = [list(prompt) for task in TASKS for prompt in _prompts(task, pair, num_prompts)]
    contenders: dict[tuple[str, int], Contender] = {}
    for size in sizes:
        contenders |= _ours(pair, size, max(map(len, prompts)), max_new_tokens)
    if weights == CHECKPOINT and dtype == "float32":
        contenders |= _theirs(_reference(target, draft), sizes, max_new_tokens, pair.stop_token_ids)
    totals: Totals = {key: Total() for key in contenders}
    probe_s: list[float] = []
    num_bytes = _bytes_per_token(pair)
    probe = _probe(num_bytes)
    for prompt in prompts:
        plain: tuple[int, ...] | None = None
        for key, answer in contenders.items():
            tokens, committed, decode_s = answer(prompt)
            plain = tokens if plain is None else plain
            totals[key].add(committed, decode_s, tokens != plain)
            if key[1] == 1:
                probe_s.append(probe())
    _print(totals, sizes, num_bytes, probe_s)


def _prompts(task: str, pair: Pair, num: int) -> list[tuple[int, ...]]:
    if pair.weights == RANDOM:
        return list(random_prompts(task, pair, num))
    return [tuple(prompt.token_ids) for prompt in load_prompts(task, pair, num)]


def _ours(pair: Pair, size: int, longest: int, max_new_tokens: int) -> dict[tuple[str, int], Contender]:
    decoder = Decoder(pair, size, 1, required_capacity(longest, max_new_tokens, size))
    decoder.compile(longest)
    loop = compile_fused(decoder, longest, max_new_tokens)

    def answer(run: Callable[..., Generation], what: Decoder | FusedLoop) -> Contender:
        def decode(prompt: list[int]) -> tuple[tuple[int, ...], tuple[int, ...], float]:
            result = run(what, [prompt], max_new_tokens)
            return result.tokens[0], result.committed[0], result.decode_s

        run(what, [[1]], min(WARMUP_TOKENS, max_new_tokens))
        return decode

    return {("stepwise", size): answer(generate, decoder), ("fused", size): answer(generate_fused, loop)}


def _theirs(
    reference: Reference | None, sizes: tuple[int, ...], max_new_tokens: int, stop: tuple[int, ...]
) -> dict[tuple[str, int], Contender]:
    if reference is None:
        return {}

    def answer(block_size: int) -> Contender:
        def decode(prompt: list[int]) -> tuple[tuple[int, ...], tuple[int, ...], float]:
            result = reference.answer(prompt, block_size, max_new_tokens, stop)
            return tuple(result["tokens"]), tuple(result["committed"]), result["decode_s"]

        return decode

    return {("reference", size): answer(size) for size in sizes} | {("generate", 1): answer(0)}


def _reference(target: str, draft: str) -> Reference | None:
    python = os.environ.get("PERF_REFERENCE_PYTHON")
    if not python:
        click.echo("PERF_REFERENCE_PYTHON is not set: our half runs alone", err=True)
        return None
    folders = [known[name]() if name in known else Path(name) for name, known in ((target, TARGETS), (draft, DRAFTS))]
    reference = Reference(python, *folders, num_threads=os.cpu_count() or 1)
    click.echo(f"reference: {reference.versions}", err=True)
    return reference


def _bytes_per_token(pair: Pair) -> int:
    """Weights that a token reads: all of them, but of an embedding table that is not the head too only a row."""
    num_bytes = sum(leaf.nbytes for leaf in jax.tree_util.tree_leaves(pair.target_params))
    return num_bytes - (pair.target_params["embed"].nbytes if "head" in pair.target_params else 0)


def _probe(num_bytes: int) -> Callable[[], float]:
    """Seconds that reading `num_bytes` takes in a matrix–vector product, now."""
    rows = max(1, min(num_bytes, PROBE_BYTES) // (4 * PROBE_COLUMNS))
    matrix, vector = jnp.ones((rows, PROBE_COLUMNS), jnp.float32), jnp.ones(PROBE_COLUMNS, jnp.float32)
    product = compile_call(jax.jit(jnp.matmul), matrix, vector).executable
    return lambda: time_once(lambda: product(matrix, vector)) * num_bytes / matrix.nbytes


def _print(totals: Totals, sizes: tuple[int, ...], num_bytes: int, probe_s: list[float]) -> None:
    for (who, size), total in totals.items():
        click.echo(
            f"{who:<10} {'plain' if size == 1 else f'DFlash K={size}':<13} {total.tokens_per_s:7.1f} tokens/s  "
            f"step {format_seconds(total.mean_step_s)}  τ {total.num_tokens / total.num_steps:.2f}  "
            f"answers unlike stepwise plain: {total.num_different}"
        )
    shares = {who: _shares(totals[who, 1], num_bytes, probe_s) for who in ("stepwise", "fused")}
    for name, meaning in SHARES.items():
        of_it = ", ".join(f"{who} {format_percent(share[name], 2)}" for who, share in shares.items())
        click.echo(f"plain decoding's weights per step against {meaning}: {of_it}")
    gaps = {size: totals["stepwise", size].mean_step_s - totals["fused", size].mean_step_s for size in sizes}
    click.echo("host gap per step, stepwise beyond fused: " + ", ".join(f"K={k} {format_seconds(s)}" for k, s in gaps.items()))
    ratios = _ratios(totals, sizes)
    click.echo(", ".join(f"{name.replace('_', ' ')} {format_ratio(value)}" for name, value in ratios.items()))
    rates = {f"{who}-K{size}": total.tokens_per_s for (who, size), total in totals.items()}
    steps = {f"{who}-K{size}": total.mean_step_s for (who, size), total in totals.items()}
    document = {"ratios": ratios, "tokens_per_s": rates, "step_s": steps, "bandwidth_share": shares, "host_gap_s": gaps}
    json.dump(document, sys.stdout)
    click.echo()


SHARES = {
    "same_minutes": "a product reading as many bytes in the same minutes (medians)",
    "least": "the same (least against least)",
    "best_ever": "the machine's best calibration sample (mean step)",
}


def _shares(plain: Total, num_bytes: int, probe_s: list[float]) -> dict[str, float]:
    return {
        "same_minutes": statistics.median(probe_s) / statistics.median(plain.step_s),
        "least": min(probe_s) / min(plain.step_s),
        "best_ever": num_bytes / calibrate().bandwidth_bytes_per_s.value / plain.mean_step_s,
    }


def _ratios(totals: Totals, sizes: tuple[int, ...]) -> dict[str, float]:
    def over(ours: tuple[str, int], theirs: tuple[str, int]) -> float:
        return totals[ours].tokens_per_s / totals[theirs].tokens_per_s

    ratios: dict[str, float] = {}
    for size in sizes:
        name = "plain" if size == 1 else f"dflash_k{size}"
        ratios[f"{name}_fused_over_stepwise"] = over(("fused", size), ("stepwise", size))
        if size > 1:
            ratios[f"{name}_over_plain"] = over(("fused", size), ("fused", 1))
        if ("reference", size) in totals:
            ratios[f"{name}_stepwise_over_reference"] = over(("stepwise", size), ("reference", size))
            ratios[f"{name}_fused_over_reference"] = over(("fused", size), ("reference", size))
    if ("generate", 1) in totals:
        ratios["plain_fused_over_generate"] = over(("fused", 1), ("generate", 1))
    return ratios


if __name__ == "__main__":
    main()
