"""`perf check`: can these timings be trusted?"""

from pathlib import Path

import click

from .options import json_option, out_option, print_json
from .source import add_table_help, read_source


@click.command("check", short_help="Hold timings against the speed of light, their spread and the host's share.")
@click.argument("source", type=click.Path(path_type=Path))
@click.option(
    "--hardware", default=None, help="Chip that was measured; `tpu-v5p:4` for four of them.  [default: the run's machine]"
)
@click.option("--target", default=None, help="Target model: a shipped name or a config.json.  [default: the run's]")
@click.option("--draft", default=None, help="Drafter: a shipped name or a config.json.  [default: the run's]")
@click.option("--dtype", default=None, help="Dtype of weights and activations.  [default: the run's, else bfloat16]")
@out_option("Write the audit there as JSON.")
@json_option
def command(
    source: Path, hardware: str | None, target: str | None, draft: str | None, dtype: str | None, out: Path | None, as_json: bool
) -> int:
    """Hold every timing against the speed of light of its chip: a run folder, a timings.json, or a table (CSV or JSON).

    A time below max(bytes / bandwidth, FLOP / peak) is invalid: an error of the measurement or of the datasheet. A curve that is
    flat far above the floor is overhead-bound. Exit status 3 when a point is invalid.

    \b
    Examples:
        perf check runs/demo
        perf check published.csv --hardware tpu-v5p --target qwen3-4b
    """
    from msgspec import structs

    from perfmodel.audit import audit
    from perfmodel.codec import save, to_document

    found = read_source(source, hardware, target, draft, dtype)
    result = audit(found.points, found.target, found.draft, found.hardware, found.dtype)
    result = structs.replace(result, findings=(*found.findings, *result.findings))
    if out is not None:
        save(out, result)
    if as_json:
        body = to_document(result)
        for row in body["points"]:
            row["tokens"] = row["block_size"] * row["batch"]
        print_json(body.pop("schema"), body.pop("version"), {**body, "num_invalid": result.num_invalid})
    else:
        from rich.console import Console

        from reports.description import describe

        Console().print(describe(result))
    return 3 if result.num_invalid else 0


add_table_help(command)
