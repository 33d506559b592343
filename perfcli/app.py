"""The command group: knows every verb by name and line, and imports a verb's file only when it is used."""

import difflib
import importlib

import click

PROGRAM_VERSION = "0.1.0"

VERBS: dict[str, tuple[str, str]] = {
    "doctor": ("doctor", "What this machine can run and measure, and which perf this is."),
    "sweep-k": ("sweep_k", "The main job: run, capture, fit, predict, check and report, in one run folder."),
    "capture": ("capture", "Decode prompts once under XProf capture."),
    "extract": ("extract", "Read step and phase times out of an XProf capture."),
    "import": ("import_results", "Read other tools' results: logs, scrapes, benchmark files, tables."),
    "check": ("check", "Hold timings against the speed of light, their spread and the host's share."),
    "fit": ("fit", "Fit the roofline to timings and write model.json."),
    "validate": ("validate", "Compare a fitted model with points it was not fitted to."),
    "predict": ("predict", "Predict the best K from a model or a chip, and acceptance."),
    "compile": ("compile", "Compile the decode loop's steps for TPUs that are not here."),
    "diagnose": ("diagnose", "Say why acceptance is low or tokens are slow, and check a pair's configuration."),
    "report": ("report", "Write one self-contained HTML page from records."),
    "compare": ("compare", "Hold two runs, models, chips or drafters against each other, with uncertainty."),
    "view": ("view", "Open a run's trace in TensorBoard's profile viewer."),
    "list": ("list_names", "List the chips, models and acceptance profiles that ship."),
    "show": ("show", "Show any record in readable form."),
}
"""Verb → (module of this package, its line in the help), in the order of work."""


class VerbGroup(click.Group):
    """A group that imports a verb when it is called and suggests the nearest verb for an unknown one."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The verbs in the order of work."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The verb's command, imported now; None when there is no such verb."""
        if cmd_name not in VERBS:
            return None
        module = importlib.import_module(f"{__package__}.{VERBS[cmd_name][0]}")
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the verbs with their lines, without importing any of them."""
        with formatter.section("Verbs, in the order of work"):
            formatter.write_dl([(name, line) for name, (_, line) in VERBS.items()])

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """The named verb, or a usage error that suggests the nearest one."""
        name = args[0]
        if name not in VERBS:
            near = difflib.get_close_matches(name, VERBS, n=1, cutoff=0.5)
            hint = f" Did you mean '{near[0]}'?" if near else " 'perf --help' lists the verbs."
            raise click.UsageError(f"No such verb '{name}'.{hint}", ctx=ctx)
        return super().resolve_command(ctx, args)


@click.group(cls=VerbGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(PROGRAM_VERSION, prog_name="perf (dflash-perf)")
def app() -> None:
    """How many tokens should a speculative decoder verify per step, on this chip, for this task, and why?

    perf runs a real DFlash draft/verify loop under XProf capture, fits a roofline to what it measured,
    predicts the best K with an interval, checks the prediction, and writes a page. Start with:

    \b
        perf sweep-k --max 1024
    """
