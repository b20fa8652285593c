"""Plays as lines with who says each, by play."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fedfisher_core.data.texts import PARTS, said_lines
from fedfisher_core.engine.errors import InputError

OPENINGS = {
    "Before we proceed any further, hear me speak.": "Coriolanus",
    "Now is the winter of our discontent": "Richard III",
    "Old John of Gaunt, time-honour'd Lancaster,": "Richard II",
    "Gregory, o' my word, we'll not carry coals.": "Romeo and Juliet",
    "I wonder how the king escaped our hands.": "Henry VI, part 3",
    "If you shall chance, Camillo, to visit Bohemia, on": "The Winter's Tale",
    "Escalus.": "Measure for Measure",
    "I'll pheeze you, in faith.": "The Taming of the Shrew",
    "Boatswain!": "The Tempest",
}
"""The first line of each play in Karpathy's excerpt, which has no titles; a play begins where its line comes first."""

UNKNOWN = "unknown play"
"""The play of lines before any that is known."""


def read_speakers(path: Path, roles: int) -> tuple[dict[str, Any], list[str]]:
    """Read the lines of the roles that say most lines.

    Of a role's lines in a play, the last fifth, rounded down, are for testing.

    Args:
        path: of the text, in UTF-8; see `said_lines`.
        roles: how many; of roles with equally many lines, the first by name count.

    Returns:
        By split, a pyarrow table with a row for each line, in the order of the text: its `play`, its `text`, and its
        role's number as `label`. And the names of the roles, those with most lines first.

    Raises:
        InputError: the file can't be read or is no such text, or has fewer roles.
    """
    # Listings of data sets should not wait for this import.
    import pyarrow

    try:
        said = list(_with_plays(path.read_text(encoding="utf-8"), path))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} can't be read: {error}") from error
    counts = Counter(role for _, role, _ in said)
    if len(counts) < roles:
        raise InputError(f"{path} has {len(counts)} roles that say something; allowed: {roles} or more")
    names = [role for role, _ in sorted(counts.items(), key=lambda one: (-one[1], one[0]))[:roles]]
    labels = {role: number for number, role in enumerate(names)}
    kept = [(play, role, text) for play, role, text in said if role in labels]
    left = {pair: count - count // PARTS for pair, count in Counter((play, role) for play, role, _ in kept).items()}
    splits: dict[str, list[tuple[str, str, int]]] = {"train": [], "test": []}
    for play, role, text in kept:
        left[play, role] -= 1
        splits["train" if left[play, role] >= 0 else "test"].append((play, text, labels[role]))
    return {
        split: pyarrow.table(
            {
                "play": pyarrow.array([play for play, _, _ in rows], pyarrow.string()),
                "text": pyarrow.array([text for _, text, _ in rows], pyarrow.string()),
                "label": pyarrow.array([label for _, _, label in rows], pyarrow.int64()),
            }
        )
        for split, rows in splits.items()
    }, names


def _with_plays(text: str, path: Path) -> Iterator[tuple[str, str, str]]:
    """Yield play, role and text of each line."""
    play, awaited = UNKNOWN, dict(OPENINGS)
    for _, role, line in said_lines(text, path):
        # Later, a line may be said again.
        play = awaited.pop(line, play)
        yield play, role, line
