"""`perf predict`: step times × acceptance → the best K."""

from pathlib import Path
from typing import Any

import click

from .options import integers, json_option, out_option, print_json


@click.command("predict", short_help="Predict the best K from a model or a chip, and acceptance.")
@click.option("--model", type=click.Path(path_type=Path), default=None, help="A fitted model: model.json or a run folder.")
@click.option("--hardware", default=None, help="A chip by its datasheet, in place of --model; `perf list hardware`.")
@click.option(
    "--target", default="qwen3-4b", show_default=True, help="Target for --hardware: a shipped name, hub id or config.json."
)
@click.option("--draft", default="qwen3-4b-dflash-b16", show_default=True, help="Drafter for --hardware.")
@click.option(
    "--step-times", type=click.Path(path_type=Path), default=None, help="Measured cycle times (CSV: block_size, ms, tau)."
)
@click.option("--acceptance", default=None, help="A shipped profile, acceptance.json, or a profile file; `perf list acceptance`.")
@click.option("--survival", default=None, help="P(at least 1 draft accepted), P(at least 2), …: 0.9,0.8,0.7")
@click.option(
    "--tau", "taus", multiple=True, metavar="K:VALUE", help="Mean acceptance length at block size K, bonus included; repeatable."
)
@click.option("--k", "sizes", default=None, help="Block sizes, e.g. 1:16 or 1,4,8,16.  [default: 1 to the drafter's block]")
@click.option("--batch", default="1", show_default=True, help="Batch sizes, e.g. 1,8,32.")
@click.option("--context", default="1024", show_default=True, help="Context lengths, e.g. 1024,8192.")
@click.option("--dtype", default="bfloat16", show_default=True, help="Dtype for --hardware.")
@out_option("Write the predictions there as JSON.")
@json_option
def command(
    model: Path | None,
    hardware: str | None,
    target: str,
    draft: str,
    step_times: Path | None,
    acceptance: str | None,
    survival: str | None,
    taus: tuple[str, ...],
    sizes: str | None,
    batch: str,
    context: str,
    dtype: str,
    out: Path | None,
    as_json: bool,
) -> None:
    """Predict the best block size K, its interval and plateau, and whether speculation pays at all.

    Step times come from a fitted model, from a chip's datasheet, or from a table of measured cycle times; acceptance from a
    profile, a survival list, or mean acceptance lengths.

    \b
    Examples:
        perf predict --hardware tpu-v5p --acceptance qwen3-4b-dflash-b16/math
        perf predict --hardware h100 --survival 0.85,0.7,0.58 --batch 1,8,32
    """
    from sweeps.predicting import predict_from

    predictions = predict_from(
        model=model,
        hardware=hardware,
        target=target,
        draft=draft,
        step_times=step_times,
        acceptance=acceptance,
        survival=None if survival is None else _numbers(survival, "--survival"),
        taus=tuple(_pair(text) for text in taus),
        block_sizes=None if sizes is None else integers(sizes, "--k"),
        batches=integers(batch, "--batch"),
        contexts=integers(context, "--context"),
        dtype=dtype,
    )
    if out is not None:
        from perfmodel.codec import save
        from perfmodel.records import PredictionSet

        save(out, predictions[0] if len(predictions) == 1 else PredictionSet(here=predictions))
    if as_json:
        print_json("perf.prediction", 1, _document(predictions))
        return
    from rich.console import Console

    from perfmodel.settings import engine_settings
    from reports.tables import prediction_table
    from reports.terminal import findings_list

    console = Console()
    for prediction in predictions:
        console.print(prediction_table(prediction))
        console.print(findings_list(prediction.findings))
    if len(predictions) == 1:
        for setting in engine_settings(predictions[0].best.block_size, predictions[0].target, predictions[0].draft):
            console.print(str(setting), markup=False, highlight=False, soft_wrap=True)


def _document(predictions: Any) -> dict[str, Any]:
    """Rows over every batch and context, and the best of the first prediction, under the promised keys."""
    from perfmodel.codec import to_document

    bodies = [to_document(prediction) for prediction in predictions]
    for body, prediction in zip(bodies, predictions, strict=True):
        del body["schema"], body["version"]
        for row, record in [*zip(body["rows"], prediction.rows, strict=True), (body["best"], prediction.best)]:
            row["num_speculative_tokens"] = record.num_speculative_tokens
    rows = [row for body in bodies for row in body["rows"]]
    return {**bodies[0], "rows": rows, "predictions": [{k: v for k, v in body.items() if k != "rows"} for body in bodies]}


def _numbers(text: str, name: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise click.BadParameter(f"{text!r} is not a list of numbers like 0.9,0.8", param_hint=name) from None


def _pair(text: str) -> tuple[int, float]:
    size, colon, value = text.partition(":")
    try:
        if colon:
            return int(size), float(value)
    except ValueError:
        pass
    raise click.BadParameter(f"{text!r} is not K:VALUE, for example 16:5.4", param_hint="--tau")
