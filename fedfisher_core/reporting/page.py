"""What the pages of all experiments share: the frame of a report, and its templates."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from fedfisher_core.failures import FailedJob
from fedfisher_core.reporting import formats
from fedfisher_core.reporting.notes import notes_html

if TYPE_CHECKING:
    from jinja2 import Environment


@dataclass(frozen=True)
class PageData:
    """What the report of any experiment shows beside its results.

    Args:
        title: its title.
        benchmark: name of the benchmark.
        command: the command that makes it again.
        created: when it was made.
        versions: version by package.
        settings: the settings; nested mappings become groups.
        settings_yaml: the same as YAML.
        notes: paragraphs in the little markup of `notes_html`.
        failed: jobs that failed, whose results are missing.
        weights: digest and licence of pre-trained networks that the settings have by name.
    """

    title: str
    benchmark: str
    command: str
    created: str
    versions: Mapping[str, str]
    settings: Mapping[str, Any]
    settings_yaml: str
    notes: str
    failed: Sequence[FailedJob] = ()
    weights: Mapping[str, str] = field(default_factory=dict)


def render(template: str, page: PageData, **shown: Any) -> str:
    """Render a report as one self-contained HTML page.

    Args:
        template: its file in reports/templates.
        page: what every report shows; the template has it as `report`.
        shown: what the template shows beside it, by name.

    Returns:
        The page; equal reports give equal text. It makes no request.
    """
    return (
        template_environment()
        .get_template(template)
        .render(
            report=page,
            style=template_text("style.css"),
            sorting=template_text("sorting.js"),
            notes=notes_html(page.notes),
            settings=formats.settings_groups(page.settings),
            **shown,
        )
    )


def script_data(value: Any) -> Markup:
    """Write what a page's script reads, as JSON that nothing within can end early.

    Args:
        value: of plain types; all numbers are finite.

    Returns:
        The text of a script element.
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c"))


def template_text(name: str) -> Markup:
    """Read a style, a script or a template of reports/templates, to be taken as it is."""
    return Markup(files("reports.templates").joinpath(name).read_text(encoding="utf-8"))


@cache
def template_environment() -> "Environment":
    """Make what renders the templates, with the filters that all of them use, once a process."""
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    from fedfisher_core.reporting.measure import Measure

    environment = Environment(
        loader=FunctionLoader(template_text),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "percent": formats.percent,
        "points": formats.points,
        "signed": formats.signed,
        "seconds": formats.seconds,
        "probability": formats.probability,
        "megabits": formats.megabits,
        "grouped": formats.grouped,
        "significant": formats.significant,
        "value": formats.setting_value,
        "plural": formats.plural,
        "breakable": formats.breakable,
        "measure": Measure.of,
    }
    return environment
