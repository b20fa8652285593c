"""The little markup in which a benchmark's notes are written."""

import re

from markupsafe import Markup, escape


def notes_html(text: str) -> Markup:
    """Turn notes into HTML.

    Blank lines separate paragraphs; lines that begin with "- " make a list; `code`, **strong**, *emphasis* and
    [text](address) work within a line, where the address is one of the web or of a file such as ../other/index.html.
    Everything else, HTML included, is shown as it is written.

    Args:
        text: the notes.

    Returns:
        The HTML, safe to inline.
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
            # A line without a dash goes on with the item above it.
            runs[-1][1][-1] += f" {line}"
        elif runs:
            runs[-1][1].append(line)
        else:
            runs.append((False, [line]))
    return runs


def _inline(text: str) -> Markup:
    # Code is taken out first: stars within it are no markup.
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
