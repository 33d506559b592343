"""`perf compare`: two runs, models, chips or drafters → one page of differences."""

from pathlib import Path
from typing import Any

import click

from .options import document_bytes, json_option, out_option, print_json


@click.command("compare", short_help="Hold two runs, models, chips or drafters against each other, with uncertainty.")
@click.argument("a")
@click.argument("b")
@click.option("--force", is_flag=True, help="Compare runs of unlike machines all the same; the page says what differs.")
@click.option("--acceptance", multiple=True, help="Where A and B are chips: the acceptance for both; `perf list acceptance`.")
@click.option("--hardware", default=None, help="Where A and B are drafters: the chip to predict their gain on.")
@click.option("--target", default="qwen3-4b", show_default=True, help="Target, where A and B are chips or drafters.")
@click.option("--batch", type=click.IntRange(1), default=1, show_default=True, help="Batch, where A and B are chips or drafters.")
@click.option(
    "--context", type=click.IntRange(0), default=1024, show_default=True, help="Context, where A and B are chips or drafters."
)
@click.option(
    "--format", "form", type=click.Choice(["html", "md", "json"]), default="html", show_default=True, help="Form of the page."
)
@out_option("The page to write.  [default: compare.html]")
@json_option
def command(
    a: str,
    b: str,
    force: bool,
    acceptance: tuple[str, ...],
    hardware: str | None,
    target: str,
    batch: int,
    context: int,
    form: str,
    out: Path | None,
    as_json: bool,
) -> None:
    """Write one page of the differences of B against A: best K and speedup per task, acceptance, step times, each with its interval.

    A side is a run folder, a record file, a chip's name (with --acceptance), or a shipped acceptance profile. Sides that were
    measured on unlike machines are refused, unless forced; the page then says so.

    \b
    Examples:
        perf compare runs/monday runs/tuesday
        perf compare tpu-v5p h200 --acceptance qwen3-4b-dflash-b16/math
        perf compare qwen3-4b-dflash-b8/t0 qwen3-4b-dspark-b8/t0 --hardware tpu-v5p
    """
    from datetime import UTC, datetime

    from perfmodel.codec import write_atomic
    from reports.comparison import compare, comparison_content, comparison_document
    from reports.page import html
    from reports.plain import markdown

    from .sides import Asked, side

    asked = Asked(acceptance, hardware, target, batch, context)
    found = compare(side(a, asked), side(b, asked), force)
    path = out or Path(f"compare.{form}")
    document = {**comparison_document(found), "forced": force, "report": str(path)}
    if form == "json":
        write_atomic(path, document_bytes("perf.compare", 1, document))
    else:
        page = comparison_content(found, datetime.now(UTC), (_command_line(a, b, force, asked),))
        write_atomic(path, (html if form == "html" else markdown)(page).encode())
    if as_json:
        print_json("perf.compare", 1, document)
        return
    from rich.console import Console

    from reports.comparison_text import comparison_summary

    Console().print(comparison_summary(found, str(path)))


def _command_line(a: str, b: str, force: bool, asked: Any) -> str:
    """The command that made the page."""
    import shlex

    parts = ["perf compare", shlex.quote(a), shlex.quote(b), *(("--force",) if force else ())]
    parts += [f"--acceptance {shlex.quote(name)}" for name in asked.acceptance]
    parts += [f"--hardware {shlex.quote(asked.hardware)}"] if asked.hardware else []
    usual = type(asked)()
    changed = [name for name in ("target", "batch", "context") if getattr(asked, name) != getattr(usual, name)]
    return " ".join([*parts, *(f"--{name} {shlex.quote(str(getattr(asked, name)))}" for name in changed)])
