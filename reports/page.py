"""The page: one self-contained HTML file from any mix of records.

It opens from disk and asks the network for nothing: plotly.js, style and script are inlined, and a content security policy
forbids the browser to fetch anything. Every text from a record passes through Jinja's autoescape or `script_json`.
"""

from dataclasses import dataclass
from datetime import datetime
from functools import cache
from importlib import resources

import jinja2
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from perfmodel.records import Finding

from .acceptance import acceptance_section
from .answer import Answer, Settings, answer_section, paste_settings
from .breakdown import breakdown_section
from .compiler import compiler_section
from .evidence import Embedded, all_findings, embedded_records, environment_table, findings_elsewhere, run_table, script_json
from .figure import THEMES
from .flat import flat_sentence
from .inputs import PageInputs
from .othertools import othertools_section
from .prose import heading, prose, sentence
from .roofline import roofline_section
from .section import Section, Table
from .served import served_section
from .speedup import speedup_section
from .steptime import steptime_section
from .validation import validation_section
from .whatif import WhatIf, whatif_section
from .wording import machine_text

__all__ = ["Content", "PageInputs", "content", "html", "render"]


@dataclass(frozen=True)
class Content:
    """All that a page says, before it is HTML, Markdown or anything else. `notices` stand in red under the title."""

    title: str
    generated_at: str
    subtitle: str
    answer: Section
    sections: tuple[Section, ...]
    perf_version: str | None = None
    synthetic: str = ""
    lossless: bool | None = None
    lossless_compared: int = 0
    notices: tuple[str, ...] = ()
    cards: tuple[Answer, ...] = ()
    settings: tuple[Settings, ...] = ()
    whatif: WhatIf | None = None
    findings: tuple[Finding, ...] = ()
    findings_elsewhere: tuple[Finding, ...] = ()
    evidence_tables: tuple[Table, ...] = ()
    commands: tuple[str, ...] = ()
    records: tuple[Embedded, ...] = ()


def render(inputs: PageInputs) -> str:
    """The page as HTML text. A section without its records is left out, with one line saying why."""
    return html(content(inputs))


def content(inputs: PageInputs) -> Content:
    """What the page of these records says."""
    answer, cards = answer_section(inputs, flat_sentence(inputs))
    simulated, whatif = whatif_section(inputs)
    sections = (
        speedup_section(inputs),
        steptime_section(inputs),
        roofline_section(inputs),
        acceptance_section(inputs),
        breakdown_section(inputs),
        validation_section(inputs),
        simulated,
        *((served_section(inputs.served),) if inputs.served else ()),
        *((compiler_section(inputs),) if inputs.compiled else ()),
        *((othertools_section(inputs),) if inputs.imported else ()),
    )
    run = inputs.run
    return Content(
        title=inputs.title,
        generated_at=when(inputs.generated_at),
        subtitle=subtitle(inputs),
        answer=answer,
        sections=sections,
        perf_version=run.environment.perf_version if run else None,
        synthetic=synthetic_text(inputs),
        lossless=run.lossless if run else None,
        lossless_compared=run.lossless_compared if run else 0,
        cards=cards,
        settings=paste_settings(inputs),
        whatif=whatif,
        findings=all_findings(inputs),
        findings_elsewhere=findings_elsewhere(inputs),
        evidence_tables=(run_table(run), environment_table(run.environment)) if run else (),
        commands=inputs.commands,
        records=embedded_records(inputs),
    )


def when(moment: datetime) -> str:
    """A moment to the minute, with its time zone."""
    return moment.strftime("%Y-%m-%d %H:%M %Z").strip()


def html(page: Content) -> str:
    """The page as one HTML file that needs nothing else."""
    whatif = page.whatif
    return _template().render(
        page=page,
        figures=Markup(script_json(specifications(page.sections))),
        whatif_data=Markup(script_json(whatif.document())) if whatif else "",
        whatif_script=Markup(_asset("whatif.js")) if whatif else "",
        themes=Markup(script_json(THEMES)),
        theme_css=Markup(theme_css()),
        css=Markup(_asset("page.css")),
        script=Markup(_asset("page.js")),
        plotly_js=Markup(get_plotlyjs()),
    )


def specifications(sections: tuple[Section, ...]) -> dict[str, object]:
    """Figure key → what plotly draws."""
    return {figure.key: figure.specification for section in sections for figure in section.figures}


def subtitle(inputs: PageInputs) -> str:
    """The pair and the device in one line; empty when no record names them."""
    if inputs.run is not None:
        spec = inputs.run.spec
        dtype = "" if spec.dtype == "unknown" else f", {spec.dtype}"
        return f"{spec.target} + {spec.draft}{dtype}, on {machine_text(inputs.run.environment)}"
    if inputs.step_times is not None:
        pair = " + ".join(name for name in (inputs.step_times.target, inputs.step_times.draft) if name)
        return f"{pair}, {inputs.step_times.dtype}, on {inputs.step_times.device_kind}"
    shown = next(iter((*inputs.predictions.here, *inputs.predictions.elsewhere)), None) if inputs.predictions else None
    if shown is not None:
        return " + ".join(name for name in (shown.target, shown.draft) if name)
    return ""


def synthetic_text(inputs: PageInputs) -> str:
    """Why the numbers say nothing of a real model; empty when they do."""
    if inputs.run is not None and inputs.run.spec.quick:
        return "a tiny pair made for tests; its numbers say nothing of a real model"
    if inputs.run is not None and inputs.run.spec.weights != "checkpoint":
        return f"weights are {inputs.run.spec.weights}; times are real, acceptance is not"
    if inputs.acceptance is not None and any(profile.synthetic for profile in inputs.acceptance.profiles):
        return "acceptance is assumed, not measured"
    return ""


def theme_css() -> str:
    """The colour table as CSS custom properties: light by default, dark where the reader's system asks for it on a screen."""
    light, dark = (";".join(f"--{token}:{value}" for token, value in THEMES[theme].items()) for theme in ("light", "dark"))
    return f":root{{color-scheme:light dark;{light}}}\n@media screen and (prefers-color-scheme: dark){{:root{{{dark}}}}}"


def _asset(name: str) -> str:
    return (resources.files("reports") / "templates" / name).read_text(encoding="utf-8")


@cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_asset),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(prose=prose, heading=heading, sentence=sentence)
    return environment.get_template("page.html")
