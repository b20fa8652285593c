"""Reading a page as a browser would."""

import json
from html.parser import HTMLParser
from typing import Any

from fedfisher_core.reporting.page import TEMPLATES

VOID = {"meta", "br", "img", "link", "input", "hr", "wbr", "path", "use"}
SCRIPT = "\n" + (TEMPLATES / "page.js").read_text()
"""The script of all pages."""


class Page(HTMLParser):
    """What a browser would see: text, tags and attributes; fails on tags that don't match."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.scripts: list[str] = []
        self.bold: list[str] = []
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "script" and "src" not in dict(attrs):
            self.scripts.append("")
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] == "script":
            self.scripts[-1] += data
        elif "style" not in self._open:
            self.words.append(data)
        if self._open and self._open[-1] == "strong":
            self.bold.append(data)

    @property
    def charts(self) -> list[dict[str, Any]]:
        """The specifications of the page's charts."""
        found = [json.loads(script) for script in self.scripts if script.startswith("{")]
        return [one for one in found if "$schema" in one]

    @property
    def drawn(self) -> list[list[dict[str, Any]]]:
        """What each chart draws."""
        return [
            [value for view in (chart, *chart["layer"]) for value in view.get("data", {}).get("values", ())]
            for chart in self.charts
        ]

    @property
    def text(self) -> str:
        return " ".join("".join(self.words).split())

    def values(self, name: str) -> list[str]:
        return [str(attributes[name]) for _, attributes in self.tags if name in attributes]
