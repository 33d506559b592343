"""`perf extract`: trace → step and phase times."""

from pathlib import Path

import click

from .options import json_option, out_option, print_record, quiet_option


@click.command("extract", short_help="Read step and phase times out of an XProf capture.")
@click.argument("trace", type=click.Path(path_type=Path))
@click.option(
    "--phase",
    "patterns",
    multiple=True,
    metavar="PHASE=REGEX",
    help="Map foreign module, scope, kernel or region names onto a phase; repeatable.",
)
@out_option("Write the timings there as JSON.")
@json_option
@quiet_option
def command(trace: Path, patterns: tuple[str, ...], out: Path | None, as_json: bool, quiet: bool) -> None:
    """Read decode steps, phases, busy share, host gaps and the longest operations out of a trace.

    TRACE is an .xplane.pb file, a Chrome trace.json[.gz] of JAX or PyTorch (vLLM, SGLang), a run folder, or the parent of one run.
    Where the capture holds the compiled programs, each phase's FLOP/s and bytes/s stand beside the chip's peaks.

    \b
    Examples:
        perf extract runs/demo/xprof/plugins/profile/math-K8
        perf extract other.xplane.pb --phase verify='jit_forward.*'
        perf extract vllm.trace.json.gz --phase verify='execute_'
    """
    from perfmodel.codec import save
    from profiling.extract import extract
    from sweeps.peaks import with_peaks

    from .progress import progress_bars, shares

    wanted = _patterns(patterns)
    with progress_bars(quiet, passing=True) as report:
        timings = with_peaks(extract(trace, phase_patterns=wanted, with_statistics=True, progress=shares(report)))
    if out is not None:
        save(out, timings)
    if as_json:
        print_record(timings)
        return
    from rich.console import Console

    from reports.description import describe

    Console().print(describe(timings))


def _patterns(texts: tuple[str, ...]) -> dict[str, str]:
    import re

    from perfmodel.phases import PHASES

    patterns: dict[str, str] = {}
    for text in texts:
        phase, equals, pattern = text.partition("=")
        if not equals or not pattern or phase not in PHASES:
            raise click.BadParameter(f"{text!r} is not PHASE=REGEX with a phase of {', '.join(PHASES)}", param_hint="--phase")
        try:
            re.compile(pattern)
        except re.error as error:
            raise click.BadParameter(f"{pattern!r} is not a regular expression: {error}", param_hint="--phase") from None
        patterns[phase] = f"{patterns[phase]}|(?:{pattern})" if phase in patterns else f"(?:{pattern})"
    return patterns
