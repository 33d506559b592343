"""`perf fit`: timings → model."""

from pathlib import Path

import click

from .options import json_option, out_option, print_json, quiet_option
from .source import add_table_help, read_source


@click.command("fit", short_help="Fit the roofline to timings and write model.json.")
@click.argument("source", type=click.Path(path_type=Path))
@click.option(
    "--hardware",
    default=None,
    help="Chip whose peaks the efficiencies refer to; `tpu-v5p:4` for four of them.  [default: the run's machine]",
)
@click.option("--target", default=None, help="Target model: a shipped name or a config.json.  [default: the run's]")
@click.option("--draft", default=None, help="Drafter: a shipped name or a config.json.  [default: the run's]")
@click.option("--dtype", default=None, help="Dtype of weights and activations.  [default: the run's, else bfloat16]")
@out_option("Where to write the model.  [default: print only]")
@json_option
@quiet_option
def command(
    source: Path,
    hardware: str | None,
    target: str | None,
    draft: str | None,
    dtype: str | None,
    out: Path | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Fit the step-time law to timings: a run folder, a timings.json, or a table (CSV or JSON) of tokens and seconds.

    Timings below the speed of light are refused and counted. The error on points that were held out is printed beside the fit, and
    below it how wide verification stays nearly free, and how that moves with batch, context, dtype and weight bits.

    \b
    Examples:
        perf fit runs/demo -o model.json
        perf fit table.csv --hardware h100 --target qwen3-4b
    """
    from msgspec import structs, to_builtins

    from perfmodel.codec import save, to_document
    from perfmodel.fit import fit
    from perfmodel.flatness import flat_table
    from sweeps.document import fit_document

    from .progress import progress_bars, shares

    found = read_source(source, hardware, target, draft, dtype)
    with progress_bars(quiet, passing=True) as report:
        model = fit(found.points, found.target, found.draft, found.hardware, found.dtype, progress=shares(report))
        rows = flat_table(model, progress=lambda share: report("flat widths", share, ""))
    model = structs.replace(model, findings=(*found.findings, *model.findings))
    if out is not None:
        save(out, model)
    if as_json:
        body = to_document(model)
        flat = [to_builtins(row) for row in rows]
        print_json("perf.model", body["version"], {**body, **fit_document(model), "flat": flat})
        return
    from rich.console import Console

    from reports.description import describe
    from reports.flatness import flat_widths

    console = Console()
    console.print(describe(model))
    console.print(flat_widths(rows))
    if out is not None:
        click.echo(f"written to {out}")


add_table_help(command)
