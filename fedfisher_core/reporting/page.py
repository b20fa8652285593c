"""What the pages of all experiments share: the frame of a report, its templates and its notes."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, ClassVar

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup, escape
from pydantic import ConfigDict, TypeAdapter, ValidationError

from fedfisher_core.engine.errors import InputError
from fedfisher_core.engine.failures import FailedJob
from fedfisher_core.engine.files import read_regular
from fedfisher_core.reporting import formats

TEMPLATES = files("fedfisher_core.reporting") / "templates"
"""Folder of the pages' templates, styles and scripts."""
DATA = "page.json"
"""Name of the file with what a report shows in addition to its results, of which its page can be made again."""
_MOST_BYTES = 2**26


def notes_html(text: str) -> Markup:
    """Turn notes into HTML that is safe to inline.

    Blank lines separate paragraphs; lines that begin with "- " make a list; `code`, **strong**, *emphasis* and
    [text](address) work within a line, where the address is on the web or of a file such as ../other/index.html.
    All else, HTML included, is shown as it is written.
    """
    blocks = [block.strip() for block in re.split(r"\n\s*\n", text) if block.strip()]
    return Markup("\n").join(_block(block) for block in blocks)


def _block(block: str) -> Markup:
    parts: list[Markup] = []
    for is_list, lines in _runs(block.splitlines()):
        if is_list:
            items = Markup("").join(Markup("<li>{}</li>").format(_inline(line)) for line in lines)
            parts.append(Markup("<ul>{}</ul>").format(items))
        else:
            parts.append(Markup("<p>{}</p>").format(_inline(" ".join(lines))))
    return Markup("\n").join(parts)


def _runs(lines: list[str]) -> list[tuple[bool, list[str]]]:
    runs: list[tuple[bool, list[str]]] = []
    for line in map(str.strip, lines):
        if line.startswith("- "):
            item = line[2:].strip()
            if runs and runs[-1][0]:
                runs[-1][1].append(item)
            else:
                runs.append((True, [item]))
        elif runs and runs[-1][0]:
            # A line without a dash continues the item above it.
            runs[-1][1][-1] += f" {line}"
        elif runs:
            runs[-1][1].append(line)
        else:
            runs.append((False, [line]))
    return runs


def _inline(text: str) -> Markup:
    # Code is separated first, since stars within it are no markup.
    pieces = re.split(r"`([^`]+)`", text)
    html = [
        f"<code>{escape(piece)}</code>" if index % 2 else _stars(_links(str(escape(piece))))
        for index, piece in enumerate(pieces)
    ]
    return Markup("".join(html))


def _links(html: str) -> str:
    return re.sub(r"\[([^\[\]]+)\]\(((?:https?://|\.\.?/)[^\s()*]+)\)", r'<a href="\2">\1</a>', html)


def _stars(html: str) -> str:
    html = re.sub(r"\*\*(\S(?:.*?\S)?)\*\*", r"<strong>\1</strong>", html)
    return re.sub(r"(?<!\w)\*(\S(?:.*?\S)?)\*(?!\w)", r"<em>\1</em>", html)


@dataclass(frozen=True)
class PageData:
    """What the report of any experiment shows in addition to its results.

    Args:
        settings: nested mappings become groups.
        notes: paragraphs in the markup of `notes_html`.
        weights: digest and licence of pre-trained networks, by the name that the settings use.
        shown: what the page shows in addition to the results, as plain data; see `Experiment.shown`.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

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
    shown: Mapping[str, Any] = field(default_factory=dict)


def write_page_data(page: PageData) -> bytes:
    """Write what a report shows in addition to its results as JSON."""
    return json.dumps(asdict(page), ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode() + b"\n"


def read_page_data(path: Path) -> PageData:
    """Read what a report shows in addition to its results.

    Raises:
        InputError: the file is missing or is no such file.
    """
    try:
        return TypeAdapter(PageData).validate_json(read_regular(path, limit=_MOST_BYTES))
    except OSError as error:
        raise InputError(f"{path} can't be read: {error.strerror or error}; allowed: what a run writes") from error
    except ValidationError as error:
        problem = error.errors()[0]
        place = ".".join(map(str, problem["loc"]))
        raise InputError(f"{path}, {place or 'content'}: {problem['msg']}; allowed: what a run writes") from error


def render(template: str, page: PageData, **shown: Any) -> str:
    """Render a report as an HTML page; equal reports give equal text.

    All that it asks for is the script that draws its charts anew, next to the report's folder. Without this script the
    charts are those that the page contains.

    Args:
        page: what every report shows; the template's name for it is `report`.
        shown: what else the template shows, by name.
    """
    return (
        template_environment()
        .get_template(template)
        .render(
            report=page,
            style=template_text("style.css"),
            script=template_text("page.js"),
            notes=notes_html(page.notes),
            settings=formats.settings_groups(page.settings),
            **shown,
        )
    )


def script_data(value: Any) -> Markup:
    """Write the text of a script element: JSON in which no text can end the element early.

    Args:
        value: of plain types; all numbers are finite.
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c"))


def template_text(name: str) -> Markup:
    """Read a style, a script or a template, without escaping it."""
    return Markup((TEMPLATES / name).read_text(encoding="utf-8"))


@cache
def template_environment() -> Environment:
    """Make the environment that renders templates, with the filters that all of them use, once a process."""
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
        "megabits": formats.megabits,
        "grouped": formats.grouped,
        "significant": formats.significant,
        "value": formats.setting_value,
        "plural": formats.plural,
        "breakable": formats.breakable,
        "measure": Measure.of,
        "words": formats.in_words,
    }
    return environment
