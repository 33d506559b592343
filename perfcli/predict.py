"""`perf predict`: step times × acceptance → the best K."""

from pathlib import Path
from typing import Any

import click

from .options import integers, json_option, out_option, print_json


@click.command("predict", short_help="Predict the best K from a model or a chip, and acceptance.")
@click.option(
    "--model", type=click.Path(path_type=Path), default=None, help="A fitted model (model.json, a run), or a perf compile table."
)
@click.option(
    "--hardware",
    multiple=True,
    help="A chip by its datasheet, or, beside --model, the chip to move the model to; repeatable; `perf list hardware`.",
)
@click.option(
    "--target", default="qwen3-4b", show_default=True, help="Target for --hardware: a shipped name, hub id or config.json."
)
@click.option(
    "--draft", default=None, help="Drafter, for --hardware or a model fitted without.  [default: the target's, where it ships]"
)
@click.option(
    "--draft-ms", type=float, default=None, metavar="MS", help="Time of one drafter pass, in place of the modelled one."
)
@click.option(
    "--drafter",
    "drafting",
    type=click.Choice(["block", "sequential"]),
    default=None,
    help="One pass for all drafts, or one pass per draft.  [default: as the drafter's config says]",
)
@click.option(
    "--step-times", type=click.Path(path_type=Path), default=None, help="Measured cycle times (CSV: block_size, ms, tau)."
)
@click.option(
    "--acceptance",
    multiple=True,
    help="A shipped profile, acceptance.json, a profile file or speculation_profile.json; repeatable; `perf list acceptance`.",
)
@click.option("--pool", "pooled", is_flag=True, help="Pool the acceptance profiles by their steps: one K for mixed traffic.")
@click.option("--survival", default=None, help="P(at least 1 draft accepted), P(at least 2), …: 0.9,0.8,0.7")
@click.option(
    "--tau", "taus", multiple=True, metavar="K:VALUE", help="Mean acceptance length at block size K, bonus included; repeatable."
)
@click.option("--k", "sizes", default=None, help="Block sizes, e.g. 1:16 or 1,4,8,16.  [default: 1 to the drafter's block]")
@click.option("--batch", default="1", show_default=True, help="Batch sizes, e.g. 1,8,32.")
@click.option("--context", default=None, help="Context lengths, e.g. 1024,8192.  [default: 1024]")
@click.option("--dtype", default="bfloat16", show_default=True, help="Dtype for --hardware.")
@click.option("--price", type=float, default=None, metavar="USD", help="Dollars per chip and hour, in place of the list price.")
@click.option("--emit", metavar="ENGINE", default=None, help="Print settings to paste: vllm, sglang, tensorrt-llm, llama.cpp, …")
@click.option(
    "--speculation-profile", "profile_out", type=click.Path(path_type=Path), default=None,
    help="Write the acceptance there as NVIDIA's speculation_profile.json.",
)  # fmt: skip
@out_option("Write the predictions there as JSON.")
@json_option
def command(
    model: Path | None,
    hardware: tuple[str, ...],
    target: str,
    draft: str | None,
    draft_ms: float | None,
    drafting: Any,
    step_times: Path | None,
    acceptance: tuple[str, ...],
    pooled: bool,
    survival: str | None,
    taus: tuple[str, ...],
    sizes: str | None,
    batch: str,
    context: str | None,
    dtype: str,
    price: float | None,
    emit: str | None,
    profile_out: Path | None,
    out: Path | None,
    as_json: bool,
) -> None:
    """Predict the best block size K, its interval and plateau, and whether speculation pays at all.

    Step times come from a fitted model (moved to another chip, if --hardware names one), from a chip's datasheet, or from a table
    of measured cycle times; acceptance from a profile, a survival list, or mean acceptance lengths. Grids of more than a hundred
    combinations of chip, task, batch and context are answered without intervals.

    \b
    Examples:
        perf predict --hardware tpu-v5p --acceptance qwen3-4b-dflash-b16/math
        perf predict --hardware h100 --survival 0.85,0.7,0.58 --batch 1,8,32 --emit vllm
    """
    from sweeps.predicting import Question, answer

    no_context = (0,) if step_times is not None else (1024,)
    question = Question(
        model=model,
        hardware=hardware,
        target=target,
        draft=draft,
        step_times=step_times,
        acceptance=acceptance,
        pooled=pooled,
        survival=() if survival is None else _numbers(survival, "--survival"),
        taus=tuple(_pair(text) for text in taus),
        block_sizes=None if sizes is None else integers(sizes, "--k"),
        batches=integers(batch, "--batch"),
        contexts=no_context if context is None else integers(context, "--context"),
        dtype=dtype,
        drafting=drafting,
        pass_s=None if draft_ms is None else draft_ms / 1e3,
        usd_per_hour=price,
    )
    found = answer(question)
    settings = None if emit is None else _settings(emit, found, target, draft)
    if profile_out is not None:
        _write_profile(profile_out, found)
    if out is not None:
        _write(out, found)
    if as_json:
        from sweeps.prediction_document import prediction_document

        body = prediction_document(found)
        print_json("perf.prediction", 1, body if settings is None else {**body, "settings": settings})
    elif settings is not None:
        click.echo(settings)
    else:
        _show(found)


def _settings(engine: str, found: Any, target: str, draft: str | None) -> str:
    """The settings for an engine, naming the models as it can load them: by hub id, where there is no doubt which."""
    from perfmodel.errors import InputError
    from perfmodel.modelspec import load_model
    from reports.pasting import pasted
    from reports.prediction_text import why_this_k

    predictions = found.predictions
    if found.grid is not None or len({(p.hardware, p.task, p.context) for p in predictions}) > 1:
        raise InputError("settings belong to one chip, one task and one context", "name one of each; batches may be several")
    first = predictions[0]
    if not (first.target and (first.draft or first.best.block_size == 1)):
        raise InputError("settings name the target and the drafter, and these are unknown here", "use --hardware or --model")
    asked = {load_model(name).name: name for name in (target, draft) if name is not None}
    return pasted(
        engine,
        block_size=first.best.block_size,
        target=asked.get(first.target, first.target),
        draft=asked.get(first.draft, first.draft),
        why=why_this_k(first),
        method=_method(found),
        by_batch={prediction.batch: prediction.best.block_size for prediction in predictions},
    )


def _write_profile(path: Path, found: Any) -> None:
    from perfmodel.codec import encode, write_atomic
    from perfmodel.errors import InputError
    from perfmodel.speculation import write_profile

    if len(found.profiles) != 1:
        raise InputError(f"a speculation profile holds one task, not {len(found.profiles)}", "give the acceptance of one task")
    write_atomic(path, encode(write_profile(found.profiles[0], _method(found))))


def _method(found: Any) -> Any:
    """How engines call the drafter's kind."""
    return "eagle3" if found.drafting == "sequential" else "dflash"


def _write(path: Path, found: Any) -> None:
    from perfmodel.codec import save
    from perfmodel.errors import InputError
    from perfmodel.records import PredictionSet

    if found.grid is not None:
        raise InputError("a grid of this size has no intervals and is no record", "take --json, or ask for fewer cells")
    save(path, found.predictions[0] if len(found.predictions) == 1 else PredictionSet(here=found.predictions))


def _show(found: Any) -> None:
    from rich.console import Console

    from reports.pasting import pasted_settings
    from reports.prediction_text import details, landscape_tables
    from reports.tables import prediction_table
    from reports.terminal import findings_list

    console = Console()
    if found.grid is not None:
        console.print(landscape_tables(found.grid))
        return
    for prediction in found.predictions:
        console.print(prediction_table(prediction))
        console.print(details(prediction))
        console.print(findings_list(prediction.findings))
    if len(found.predictions) == 1:
        first = found.predictions[0]
        for setting in pasted_settings(first.best.block_size, first.target, first.draft, _method(found)):
            console.print(str(setting), markup=False, highlight=False, soft_wrap=True)


def _numbers(text: str, name: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(","))
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
