"""What the pages of all experiments share: the frame of a report, and its templates."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from fedfisher_core.reporting import formats

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
    """

    title: str
    benchmark: str
    command: str
    created: str
    versions: Mapping[str, str]
    settings: Mapping[str, Any]
    settings_yaml: str
    notes: str


def template_text(name: str) -> str:
    """Read one of the files of reports/templates."""
    return files("reports.templates").joinpath(name).read_text(encoding="utf-8")


def template_environment() -> "Environment":
    """Make what renders the templates, with the filters that all of them use."""
    from jinja2 import Environment, FunctionLoader, StrictUndefined

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
        "megabits": formats.megabits,
        "grouped": formats.grouped,
        "value": formats.setting_value,
        "plural": formats.plural,
        "breakable": formats.breakable,
    }
    return environment
