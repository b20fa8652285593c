"""Reading a page as a browser would."""

from html.parser import HTMLParser
from pathlib import Path

VOID = {"meta", "br", "img", "link", "input", "hr", "wbr", "path", "use"}
SORTING = "\n" + (Path(__file__).parents[2] / "reports/templates/sorting.js").read_text()
"""The script of a page without data of its own."""


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
        if tag == "script":
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
    def text(self) -> str:
        return " ".join("".join(self.words).split())

    def values(self, name: str) -> list[str]:
        return [str(attributes[name]) for _, attributes in self.tags if name in attributes]
