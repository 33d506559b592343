"""`perf compile`: the TPU compiler's own view of a step, with no TPU present."""

from pathlib import Path

import click

from .options import integers, json_option, out_option, print_record, quiet_option

CHIPS = "tpu-v4,tpu-v5e,tpu-v5p,tpu-v6e,tpu-v7x"


@click.command("compile", short_help="Compile the decode loop's steps for TPUs that are not here.")
@click.option(
    "--hardware", default=CHIPS, show_default=True, help="Chips, comma-separated; or slices for tensor parallelism: v5p:2x2x1."
)
@click.option("--target", default="qwen3-4b", show_default=True, help="Target: a shipped name, hub id or config.json.")
@click.option("--draft", default="qwen3-4b-dflash-b16", show_default=True, help="DFlash drafter; 'none' for plain decoding.")
@click.option("--k", "sizes", default="1,16,128", show_default=True, help="Block sizes K; K − 1 speculative tokens each.")
@click.option("--batch", default="1", show_default=True, help="Batch sizes.")
@click.option("--context", default="1024", show_default=True, help="Cached tokens per request.")
@click.option(
    "--phase",
    "phases",
    default="verify,step",
    show_default=True,
    help="Of draft, verify, commit; step: all three as one program; loop: the loop of steps.",
)
@click.option("--dtype", default="bfloat16", show_default=True, help="Dtype of weights, cache and activations.")
@click.option("--jobs", type=click.IntRange(1, 64), default=None, help="Compilations at once.  [default: what memory allows]")
@out_option("Write the table there as JSON.")
@json_option
@quiet_option
def command(
    hardware: str,
    target: str,
    draft: str,
    sizes: str,
    batch: str,
    context: str,
    phases: str,
    dtype: str,
    jobs: int | None,
    out: Path | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Compile steps of the real loop for TPUs and print the compiler's account beside the analytical floor.

    No TPU and no weights are needed, only libtpu (x86-64 Linux). Results are kept, so a repeat is instant. Estimates are a third
    opinion beside the data sheet and measurements, never a measurement.

    \b
    Examples:
        perf compile --hardware tpu-v5p,tpu-v6e --k 1,16,128
        perf compile --hardware v5p:2x2x1 --target qwen3-8b --draft qwen3-8b-dflash-b16 --k 16 --phase step
    """
    from perfmodel.modelspec import load_model
    from sweeps.compiling import compile_table, points

    from .progress import progress_bars

    wanted = points(
        _words(hardware),
        load_model(target),
        None if draft == "none" else load_model(draft),
        _words(phases),
        integers(sizes, "--k"),
        integers(batch, "--batch"),
        integers(context, "--context"),
        dtype,
    )
    with progress_bars(quiet) as report:
        found = compile_table(wanted, jobs, lambda share, message: report("compiling", share, message))
    if out is not None:
        from perfmodel.codec import save

        save(out, found)
    if as_json:
        print_record(found)
        return
    from rich.console import Console

    from reports.compiled import compiled_table
    from reports.terminal import findings_list

    console = Console()
    console.print(compiled_table(found))
    console.print(findings_list(found.findings))


def _words(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]
