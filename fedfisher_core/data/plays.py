"""Plays as plain text, cut into windows of characters by who speaks.

The text is blocks between blank lines. The first line of a block is the speaking role and a colon, the others are what
it says. All that a role says, in the order of the text, is cut once: the first part is for training and the rest for
tests, as in McMahan et al. (2017), so that no window of the one holds a character of the other.
"""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedfisher_core.errors import InputError
from fedfisher_core.layouts import Tokens

VOCABULARY = "\n !$&',-.3:;?ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
"""The characters, each with its place as its token and its label."""

CHARACTER_NAMES = tuple({"\n": "line break", " ": "space"}.get(one, one) for one in VOCABULARY)

MIN_CHARACTERS = 2_000
"""Of what a role says; the windows of a role that says less are left out."""

TRAIN_PARTS, PARTS = 4, 5
"""Of these many parts of what a role says, so many are for training."""

STRIDES = {"train": 5, "test": 20}
"""Characters between the starts of neighbouring windows; many models are scored on those of the tests."""

_CODES = {character: code for code, character in enumerate(VOCABULARY)}


def read_plays(path: Path, layout: Tokens) -> dict[str, Any]:
    """Cut a text into windows.

    Args:
        path: of the text, in UTF-8.
        layout: how many characters a window has.

    Returns:
        By split, a table of pyarrow with a row a window: `role`, who speaks; `tokens`, the window; and `label`, the
        character that follows. Roles are in the order of their names, the windows of one in that of the text.

    Raises:
        InputError: the file can't be read, is no such text, or holds a character that is not in the vocabulary; or no
            role says enough, or the windows are too long.
    """
    longest = MIN_CHARACTERS * (PARTS - TRAIN_PARTS) // PARTS - 1
    if layout.length > longest or layout.vocabulary != len(VOCABULARY):
        raise InputError(f"{path}: windows of {layout}; allowed: up to {longest} tokens of {len(VOCABULARY)}")
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} can't be read: {error}") from error
    said = {role: words for role, words in sorted(spoken(text, path).items()) if len(words) >= MIN_CHARACTERS}
    if not said:
        raise InputError(f"{path}: no role says {MIN_CHARACTERS} characters; allowed: at least one")
    cut: dict[str, dict[str, NDArray[np.uint8]]] = {"train": {}, "test": {}}
    for role, words in said.items():
        codes = np.array([_CODES[one] for one in words], dtype=np.uint8)
        bound = len(codes) * TRAIN_PARTS // PARTS
        for split, part in (("train", codes[:bound]), ("test", codes[bound:])):
            windows = np.lib.stride_tricks.sliding_window_view(part, layout.length + 1)
            cut[split][role] = windows[:: STRIDES[split]]
    return {split: _table(windows, layout.length) for split, windows in cut.items()}


def spoken(text: str, path: Path) -> dict[str, str]:
    """Collect what each role says.

    Args:
        text: of the plays.
        path: where it is from, for messages.

    Returns:
        By role, the lines of all its speeches, with a line break between two.

    Raises:
        InputError: names the line that is not as it must be.
    """
    lines: dict[str, list[str]] = {}
    role: str | None = None
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            role = None
        elif role is None:
            role = line.removesuffix(":")
            if role in ("", line):
                raise InputError(f"{path}, line {number}: {line!r} after a blank line; allowed: a role and a colon")
            lines.setdefault(role, [])
        else:
            unknown = next((one for one in line if one not in _CODES), None)
            if unknown is not None:
                raise InputError(f"{path}, line {number}: character {unknown!r}; allowed: {VOCABULARY!r}")
            lines[role].append(line)
    return {role: "\n".join(found) for role, found in lines.items()}


def _table(windows: dict[str, NDArray[np.uint8]], length: int) -> Any:
    """Put the windows of all roles below one another."""
    # Importing it takes a while, which listings of data sets should not spend.
    import pyarrow

    together = np.concatenate(list(windows.values()))
    tokens = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(together[:, :-1].ravel()), length)
    names = np.repeat(list(windows), [len(one) for one in windows.values()])
    return pyarrow.table({"role": names, "tokens": tokens, "label": pyarrow.array(together[:, -1].astype(np.int64))})
