"""The page: one self-contained HTML file from any mix of records.

It opens from disk and asks the network for nothing: plotly.js, style and script are inlined, and a content security policy
forbids the browser to fetch anything. Every text from a record passes through Jinja's autoescape or `script_json`.
"""

from functools import cache
from importlib import resources

import jinja2
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from .acceptance import acceptance_section
from .answer import answer_section, paste_settings
from .breakdown import breakdown_section
from .evidence import all_findings, embedded_records, environment_table, findings_elsewhere, run_table, script_json
from .figure import THEMES
from .flat import flat_sentence
from .inputs import PageInputs
from .prose import heading, prose, sentence
from .roofline import roofline_section
from .section import Section
from .speedup import speedup_section
from .steptime import steptime_section
from .validation import validation_section

__all__ = ["PageInputs", "render"]


def render(inputs: PageInputs) -> str:
    """The page as HTML text. A section without its records is left out, with one line saying why."""
    answer, cards = answer_section(inputs, flat_sentence(inputs))
    sections = (
        speedup_section(inputs),
        steptime_section(inputs),
        roofline_section(inputs),
        acceptance_section(inputs),
        breakdown_section(inputs),
        validation_section(inputs),
    )
    return _template().render(
        title=inputs.title,
        generated_at=inputs.generated_at.strftime("%Y-%m-%d %H:%M %Z").strip(),
        perf_version=inputs.run.environment.perf_version if inputs.run else None,
        subtitle=subtitle(inputs),
        synthetic=synthetic_text(inputs),
        lossless=inputs.run.lossless if inputs.run else None,
        lossless_compared=inputs.run.lossless_compared if inputs.run else 0,
        answer=answer,
        settings=paste_settings(inputs),
        cards=cards,
        sections=sections,
        findings=all_findings(inputs),
        findings_elsewhere=findings_elsewhere(inputs),
        evidence_tables=(run_table(inputs.run), environment_table(inputs.run.environment)) if inputs.run else (),
        commands=inputs.commands,
        records=embedded_records(inputs),
        figures=Markup(script_json(specifications(sections))),
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
        return f"{spec.target} + {spec.draft}, {spec.dtype}, on {inputs.run.environment.device_kind}"
    if inputs.step_times is not None:
        pair = " + ".join(name for name in (inputs.step_times.target, inputs.step_times.draft) if name)
        return f"{pair}, {inputs.step_times.dtype}, on {inputs.step_times.device_kind}"
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
