"""Plays as plain text, cut into windows of characters by speaking role.

The text consists of blocks between blank lines. The first line of a block is the speaking role and a colon; the others
are its words. All words of a role, in the order of the text, are cut once: the first part is for training and the rest
for tests, as in McMahan et al. (2017). So no training window shares a character with a test window.
"""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedfisher_core.data.layouts import Tokens
from fedfisher_core.engine.errors import InputError

VOCABULARY = "\n !$&',-.3:;?ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
"""The characters; the index of each is its token and its label."""

CHARACTER_NAMES = tuple({"\n": "line break", " ": "space"}.get(one, one) for one in VOCABULARY)

MIN_CHARACTERS = 2_000
"""A role that says fewer characters is left out."""

TRAIN_PARTS, PARTS = 4, 5
"""A role's words are cut into `PARTS` equal parts, of which the first `TRAIN_PARTS` are for training."""

STRIDES = {"train": 5, "test": 20}
"""Characters between the starts of neighbouring windows; test windows are fewer, as many models are scored on them."""

_CODES = {character: code for code, character in enumerate(VOCABULARY)}


def read_plays(path: Path, layout: Tokens) -> dict[str, Any]:
    """Cut a text into windows.

    Args:
        path: of the text, in UTF-8.
        layout: its length is that of a window.

    Returns:
        By split, a pyarrow table with a row for each window: the `role`, its `tokens`, and as `label` the next
        character. Roles are in the order of their names, and the windows of a role in that of the text.

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
    """Collect the lines of each role's speeches, joined by line breaks; InputError names a line that is wrong."""
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
    # Listings of data sets should not wait for this import.
    import pyarrow

    together = np.concatenate(list(windows.values()))
    tokens = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(together[:, :-1].ravel()), length)
    names = np.repeat(list(windows), [len(one) for one in windows.values()])
    return pyarrow.table({"role": names, "tokens": tokens, "label": pyarrow.array(together[:, -1].astype(np.int64))})
