"""`perf import`: other tools' results → one record."""

from pathlib import Path

import click

from .options import json_option, out_option, print_record, quiet_option


@click.command("import", short_help="Read other tools' results: logs, scrapes, benchmark files, tables.")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--format", "format_name", default=None, help="What the files are, where it cannot be told; docs/formats.md lists them."
)
@click.option("--columns", default=None, metavar="OURS=THEIRS,…", help="Columns of a CSV that go by other names.")
@out_option("Write the record there as JSON, for perf predict, fit, check and diagnose.")
@json_option
@quiet_option
def command(
    files: tuple[Path, ...], format_name: str | None, columns: str | None, out: Path | None, as_json: bool, quiet: bool
) -> None:
    """Read what another tool measured: acceptance with its counts and definition, and step times.

    K is read from what was drafted, not from a flag. Several files of one experiment become one record; two Prometheus scrapes of
    one server are taken as before and after. Values that cannot be are reported, never clipped.

    \b
    Examples:
        perf import before.prom after.prom -o acceptance.json
        perf predict --hardware h100 --acceptance acceptance.json
        perf import timings.csv --columns tokens=M,ms=latency -o times.json
    """
    from sweeps.importers.merging import import_files

    from .progress import progress_bars

    with progress_bars(quiet, passing=True) as report:
        record, lines = import_files(files, format_name, columns, report)
    for line in lines:
        click.echo(line, err=True)
    if out is not None:
        from perfmodel.codec import save

        save(out, record)
    if as_json:
        print_record(record)
        return
    from rich.console import Console

    from reports.description import describe

    Console().print(describe(record))
