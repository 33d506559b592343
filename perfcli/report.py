"""`perf report`: records → one HTML page."""

from pathlib import Path

import click

from .options import json_option, out_option, print_json


@click.command("report", short_help="Write one self-contained HTML page from records.")
@click.argument("sources", nargs=-1, required=True, type=click.Path(path_type=Path))
@out_option("The page to write.  [default: report.html in the run folder, else ./report.html]")
@json_option
def command(sources: tuple[Path, ...], out: Path | None, as_json: bool) -> None:
    """Write one self-contained HTML page: from a run folder, or from any mix of records (model.json, acceptance.json, …).

    The page opens offline; a record that is not given leaves its section out.

    \b
    Examples:
        perf report runs/demo
        perf report model.json acceptance.json -o page.html
    """
    from .page import page_inputs, records_inputs, write_page

    if len(sources) == 1 and sources[0].is_dir():
        from sweeps.folder import read_result

        result = read_result(sources[0])
        inputs, path = page_inputs(result), out or result.report
    else:
        inputs, path = records_inputs(sources), out or Path("report.html")
    write_page(inputs, path)
    if as_json:
        print_json("perf.report", 1, {"report": str(path)})
    else:
        click.echo(str(path))
