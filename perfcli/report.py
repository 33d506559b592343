"""`perf report`: records → one page."""

from pathlib import Path

import click

from .options import json_option, out_option, print_json


@click.command("report", short_help="Write one self-contained HTML page from records.")
@click.argument("sources", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--format",
    "form",
    type=click.Choice(["html", "md", "csv", "json"]),
    default="html",
    show_default=True,
    help="md: text and tables; csv: every number, one a row, in SI units; json: answers, numbers and records.",
)
@out_option("The page to write.  [default: report.html in the run folder, else ./report.html]")
@json_option
def command(sources: tuple[Path, ...], form: str, out: Path | None, as_json: bool) -> None:
    """Write one self-contained HTML page: from a run folder, or from any mix of folders and records (model.json, acceptance.json, …).

    Predictions, acceptance, traces, compiled tables and imported results may be several, of one drafter or of many; a page shows
    one run. The page opens offline; a record that is not given leaves its section out.

    \b
    Examples:
        perf report runs/demo
        perf report model.json acceptance.json -o page.html
        perf report runs/demo --format csv -o numbers.csv
    """
    from .page import page_inputs, records_inputs, write_page

    options = "" if form == "html" else f" --format {form}"
    if len(sources) == 1 and sources[0].is_dir():
        from sweeps.folder import read_result

        result = read_result(sources[0])
        path = out or result.report.with_suffix(f".{form}")
        inputs = page_inputs(result, path)
    else:
        inputs, path = records_inputs(sources, options), out or Path(f"report.{form}")
    write_page(inputs, path, form)
    if as_json:
        print_json("perf.report", 1, {"report": str(path), "format": form})
    else:
        click.echo(str(path))
