"""Tables for the terminal and for Prefect's pages."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Table:
    """Some lines of text with a title.

    Args:
        title: what it shows.
        header: names of the columns.
        lines: one text a column.
        words: how many columns hold words, which stand to the left; the others hold numbers.
    """

    title: str
    header: Sequence[str]
    lines: Sequence[Sequence[str]]
    words: int = 1


def as_text(tables: Sequence[Table]) -> str:
    """Write tables for the terminal.

    Args:
        tables: at least one.

    Returns:
        A block for each, with aligned columns. No newline ends it.
    """
    return "\n\n".join(map(_block, tables))


def as_records(tables: Sequence[Table]) -> list[dict[str, str]]:
    """Write tables as one for Prefect's pages.

    Args:
        tables: at least one.

    Returns:
        A record a line, with the title of its table.
    """
    return [
        {"": table.title, **dict(zip((name.strip() for name in table.header), map(str.strip, line), strict=True))}
        for table in tables
        for line in table.lines
    ]


def _block(table: Table) -> str:
    lines = [table.header, *table.lines]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    aligned = [
        "  ".join(
            [
                *map(str.ljust, line[: table.words], widths[: table.words]),
                *map(str.rjust, line[table.words :], widths[table.words :]),
            ]
        ).rstrip()
        for line in lines
    ]
    return "\n".join([table.title, aligned[0], "-" * max(map(len, aligned)), *aligned[1:]])
