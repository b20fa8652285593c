"""Where a file of the repository is on the site, and pages whose links lead there."""

import posixpath
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
FRONT = "index.md"

_LINK = re.compile(r"(?<=\]\()(?!https?:|#)([^)\s#]+)")
_FENCED = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)


def place_of(path: str) -> str:
    """Say where a file or folder of the repository is on the site; source files have pages that show them."""
    if path in ("README.md", "docs/README.md"):
        return FRONT
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if path.startswith("reports/") or path.endswith(".md"):
        return path
    # MkDocs leaves out what begins with a dot.
    return f"source/{path.lstrip('.').replace('/.', '/')}.md"


def with_links(path: str, text: str) -> str:
    """Rewrite the links of a page, which lead to files of the repository, to their places on the site.

    Args:
        path: of the page in the repository.
    """
    here = posixpath.dirname(place_of(path))

    def moved(match: re.Match[str]) -> str:
        return posixpath.relpath(place_of(_target(path, match[1])), here or ".")

    return "".join(one if one.startswith("```") else _LINK.sub(moved, one) for one in _FENCED.split(text))


def sources_of(pages: Mapping[str, str]) -> dict[str, str]:
    """Make a page of each source file, and of each folder of them, that some pages link, by its path.

    Args:
        pages: text by path.
    """
    linked = {_target(path, link) for path, text in pages.items() for link in _links(text)}
    return {path: _shown(path) for path in sorted(linked) if place_of(path).startswith("source/")}


def _links(text: str) -> Iterator[str]:
    for piece in _FENCED.split(text):
        if not piece.startswith("```"):
            yield from _LINK.findall(piece)


def _target(path: str, link: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(path), link))


def _shown(path: str) -> str:
    found = ROOT / path
    files = sorted(one for one in found.iterdir() if one.is_file()) if found.is_dir() else [found]
    blocks = [f"```{one.suffix.removeprefix('.')}\n{one.read_text(encoding='utf-8')}\n```" for one in files]
    named = [f"## {one.name}\n\n{block}" for one, block in zip(files, blocks, strict=True)]
    return "\n\n".join([f"# {path}", *(named if found.is_dir() else blocks)])
