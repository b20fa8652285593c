"""Texts become tokens of one length, once."""

import json
import os
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing
from torch import nn

from fedfisher_core.data.counting import count_training
from fedfisher_core.data.importing import import_texts
from fedfisher_core.data.layouts import Tokens, Vectors
from fedfisher_core.data.partitions import split
from fedfisher_core.data.sampling import ALL
from fedfisher_core.data.sources import find_source, read_dataset, require_inputs
from fedfisher_core.data.specs import DatasetSpec
from fedfisher_core.data.tensors import Dataset
from fedfisher_core.data.texts import (
    CHARACTER_NAMES,
    MIN_CHARACTERS,
    STRIDES,
    VOCABULARY,
    LongTexts,
    read_plays,
    spoken,
    texts_layout,
    tokenised,
)
from fedfisher_core.engine.errors import InputError
from fedfisher_core.federation.decoding import DecodeData
from fedfisher_core.models.trunks.trunk import TextTrunk
from fedfisher_core.settings import PartitionSettings, SeededSetting, TextSettings
from tests.walked import walk_tiny

WORDS = ["<pad>", "[CLS]", "[SEP]", "[UNK]", "a", "good", "bad", "film"]
OWN = Path("reviews.parquet")


@pytest.fixture
def tokenizer(workplace: Path) -> str:
    made = Tokenizer(WordLevel({word: code for code, word in enumerate(WORDS)}, unk_token="[UNK]"))
    made.pre_tokenizer = Whitespace()
    made.post_processor = TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)])
    made.save("tokenizer.json")
    return "tokenizer.json"


def write(*rows: tuple[str | None, Any], columns: tuple[str, str] = ("review", "stars")) -> Path:
    table = pyarrow.table({name: [row[place] for row in rows] for place, name in enumerate(columns)})
    pyarrow.parquet.write_table(table, "raw.parquet")
    return Path("raw.parquet")


def write_ten() -> None:
    rows = [("a good film", 5), ("a bad bad bad film", 1)] * 5
    import_texts(write(*rows), OWN, text="review", label="stars", test=0.2)


def read(tokenizer: str, length: int, longer: LongTexts = "cut") -> Dataset:
    source = find_source(str(OWN))
    spec = tokenised(source.spec, tokenizer=tokenizer, length=length)
    return read_dataset(type(source)(spec, source.folder, source.identity), longer=longer)


def test_texts_become_tokens_with_padding_at_their_end(tokenizer: str) -> None:
    write_ten()
    dataset = read(tokenizer, 7)
    assert dataset.class_names == ("1", "5")
    good = dataset.train.inputs[dataset.train.labels == 1]
    assert good.tolist() == [[1, 4, 5, 7, 2, 0, 0]] * 4
    assert dataset.test.inputs[dataset.test.labels == 0].tolist() == [[1, 4, 6, 6, 6, 7, 2]]
    assert dataset.notes == ()


def test_longer_texts_are_cut_and_counted_or_refused(tokenizer: str) -> None:
    write_ten()
    dataset = read(tokenizer, 5)
    assert dataset.train.inputs[dataset.train.labels == 0].unique(dim=0).tolist() == [[1, 4, 6, 6, 2]]
    assert dataset.notes == ("Of 10 texts, 5 have more than 5 tokens, and were cut.",)
    with pytest.raises(
        InputError, match=r"row \d+: the text in column 'text' has more than 5 tokens; allowed: shorter"
    ):
        read(tokenizer, 5, "refused")


def test_a_csv_and_a_parquet_file_make_the_same_data(tokenizer: str) -> None:
    lines = ['"a good film",x', '"a bad, bad film",y'] * 3
    Path("raw.csv").write_text("\n".join(["text,label", *lines]) + "\n")
    import_texts(Path("raw.csv"), OWN, text="text", label="label", test=0.4)
    first = OWN.read_bytes()
    OWN.unlink()
    rows = [("a good film", "x"), ("a bad, bad film", "y")] * 3
    import_texts(write(*rows, columns=("text", "label")), OWN, text="text", label="label", test=0.4)
    assert OWN.read_bytes() == first


@pytest.mark.parametrize("empty", ["", " \n", None])
def test_an_empty_text_is_refused(tokenizer: str, empty: str | None) -> None:
    raw = write(("a film", 1), (empty, 0))
    with pytest.raises(InputError, match=r"raw\.parquet, row 1: the text is empty in column 'review'; allowed: a text"):
        import_texts(raw, OWN, text="review", label="stars", test=0.5)
    assert not OWN.exists()


def test_a_column_that_is_not_there_is_refused(tokenizer: str) -> None:
    raw = write(("a film", 1), ("film", 0))
    with pytest.raises(InputError, match=r"no text column 'words'; it has \['review', 'stars'\]"):
        import_texts(raw, OWN, text="words", label="stars", test=0.5)
    with pytest.raises(InputError, match=r"column 'stars' holds int64; allowed: texts"):
        import_texts(raw, OWN, text="stars", label="stars", test=0.5)


def test_all_rows_are_checked_before_any_work(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = workplace / "all/sst2"
    folder.mkdir(parents=True)
    monkeypatch.setenv("FEDFISHER_DATA_DIR", str(workplace / "all"))
    for part in ("train", "test"):
        table = pyarrow.table({"text": ["fine", " "], "label": [0, 1]})
        pyarrow.parquet.write_table(table, folder / f"{part}.parquet")
    with pytest.raises(InputError, match="split 'train' of data set 'sst2', row 1: the text is empty"):
        require_inputs(find_source("sst2"))


def test_a_tokenizer_that_changes_is_read_anew_and_its_words_are_told_from_others(tokenizer: str) -> None:
    first = texts_layout(tokenizer, 8)
    said = json.loads(Path(tokenizer).read_text())
    said["truncation"] = {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0}
    Path(tokenizer).write_text(json.dumps(said))
    same = texts_layout(tokenizer, 8)
    assert (same.digest != first.digest, same.words) == (True, first.words)
    said["model"]["vocab"] |= {"good": 6, "bad": 5}
    Path(tokenizer).write_text(json.dumps(said))
    other = texts_layout(tokenizer, 8)
    assert other.words != first.words
    trunk = TextTrunk(
        **{"name": "known", "build": nn.Identity, "features": 2, "file": "none", "sha256": "0", "licence": "none"},
        **{"vocabulary": len(WORDS), "positions": 8, "padding": 0, "words": first.words},
    )
    trunk.require(first)
    trunk.require(same)
    with pytest.raises(InputError, match=r"tokenizer=tokenizer\.json has other words for its 8 tokens; allowed: "):
        trunk.require(other)


def test_a_tokenizer_that_is_none_or_has_no_padding_is_refused(tokenizer: str) -> None:
    with pytest.raises(
        InputError, match=r"tokenizer 'none.json' can't be read .*; allowed: minilm, or a tokenizer.json"
    ):
        texts_layout("none.json", 8)
    Path("wrong.json").write_text("{}")
    with pytest.raises(InputError, match=r"tokenizer 'wrong.json' can't be read: .*; allowed: a tokenizer.json"):
        texts_layout("wrong.json", 8)
    said = json.loads(Path(tokenizer).read_text())
    said["model"]["vocab"]["blank"] = said["model"]["vocab"].pop("<pad>")
    Path("unpadded.json").write_text(json.dumps(said))
    with pytest.raises(InputError, match=r"'unpadded.json' has no token of padding; allowed: \[PAD\] or <pad>"):
        texts_layout("unpadded.json", 8)
    with pytest.raises(
        InputError, match=r"2 tokens of tokenizer 'tokenizer.json' leave none for a text; allowed: more"
    ):
        texts_layout(tokenizer, 2)


def test_a_benchmark_trains_a_network_on_texts(tokenizer: str, workplace: Path) -> None:
    write_ten()
    made = walk_tiny(
        workplace,
        {"fedavg": {}},
        data={"dataset": str(OWN), "validation_size": 0, "text": {"tokenizer": tokenizer, "length": 6}},
        model={"name": "gru"},
        partition={"clients": [2], "scheme": "iid", "min_size": 1},
        train={"epochs": 30, "learning_rate": 0.5},
    )
    assert str(made.federation.spec.inputs) == "texts of 6 tokens of 8"
    assert made.rows["fedavg"].accuracy == 1


def test_texts_that_were_cut_are_not_found_where_they_are_refused(tokenizer: str) -> None:
    write_ten()
    cut, refused = (
        DecodeData(str(OWN), None, ALL, text=TextSettings(tokenizer=tokenizer, length=5, longer=longer), name="decode")
        for longer in ("cut", "refused")
    )
    assert cut.recipe != refused.recipe
    Path("elsewhere.json").write_bytes(Path(tokenizer).read_bytes())
    moved = replace(cut, text=TextSettings(tokenizer="elsewhere.json", length=5))
    assert moved.recipe == cut.recipe


WINDOW = Tokens(40, 65)
NOWHERE = Path("nowhere")
REAL = Path(os.environ.get("FEDFISHER_DATA_DIR", "data"))


def speech(characters: int, *, seed: int) -> str:
    """Draw words in lines of about thirty characters."""
    rng = np.random.default_rng(seed)
    drawn = rng.choice(list(VOCABULARY[1:]), characters)
    drawn[30::31] = "\n"
    # A line that begins with a space, or is nothing else, is another matter.
    return "".join(drawn).replace("\n ", "\na").replace(" \n", "a\n").strip()


def play(parts: list[tuple[str, str]]) -> str:
    return "\n\n".join(f"{role}:\n{words}" for role, words in parts) + "\n"


def written(root: Path, text: str) -> Path:
    path = root / "tinyshakespeare" / "input.txt"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def exactly(characters: int, *, seed: int) -> str:
    words = speech(characters, seed=seed)
    return words + "a" * (characters - len(words))


PARTS = [
    ("Second Citizen", speech(1500, seed=1)),
    ("ANNA", speech(900, seed=2)),
    ("Second Citizen", speech(1200, seed=3)),
    ("ANNA", speech(1300, seed=4)),
    ("JUST ENOUGH", exactly(MIN_CHARACTERS, seed=5)),
    ("ONE TOO FEW", exactly(MIN_CHARACTERS - 1, seed=6)),
]


def by_definition(text: str, length: int) -> dict[str, list[tuple[str, str, str]]]:
    """Role, window and next character of every row, one at a time."""
    said: dict[str, list[str]] = {}
    for block in re.split(r"\n{2,}", text.strip("\n")):
        role, *lines = block.split("\n")
        said.setdefault(role[:-1], []).extend(lines)
    rows: dict[str, list[tuple[str, str, str]]] = {"train": [], "test": []}
    for role in sorted(said):
        words = "\n".join(said[role])
        if len(words) < 2000:
            continue
        bound = int(0.8 * len(words))
        for part, begin, end, stride in (("train", 0, bound, 5), ("test", bound, len(words), 20)):
            for start in range(begin, end - length, stride):
                rows[part].append((role, words[start : start + length], words[start + length]))
    return rows


def read_back(dataset: Dataset, part: str) -> list[tuple[str, str]]:
    examples = getattr(dataset, part)
    windows = ["".join(VOCABULARY[token] for token in row) for row in examples.inputs.tolist()]
    return list(zip(windows, [VOCABULARY[label] for label in examples.labels.tolist()], strict=True))


@pytest.mark.parametrize("blank", ["\n\n", "\n\n\n", "\n \n"])
def test_the_windows_are_those_of_the_definition(root: Path, blank: str) -> None:
    text = play(PARTS)
    expected = by_definition(text, 40)
    written(root, text.replace("\n\n", blank))
    dataset = read_dataset(find_source("shakespeare"), group_column="role")
    for part in ("train", "test"):
        assert read_back(dataset, part) == [row[1:] for row in expected[part]]
    roles = sorted({role for role, _, _ in expected["train"]})
    assert roles == ["ANNA", "JUST ENOUGH", "Second Citizen"]
    assert dataset.train.groups is not None
    assert [roles[group] for group in dataset.train.groups.tolist()] == [role for role, _, _ in expected["train"]]
    assert dataset.train.inputs.dtype == torch.int64
    assert dataset.class_names == CHARACTER_NAMES
    assert STRIDES == {"train": 5, "test": 20}


def test_no_character_is_in_both_parts(tmp_path: Path) -> None:
    """Every character of the role is another position: had the parts one in common, its number would be in both."""
    marks = np.arange(2400) % 61 + 3
    tables = read_plays(written(tmp_path, play([("ANNA", "".join(VOCABULARY[code] for code in marks))])), WINDOW)
    last = (np.array(tables["train"]["tokens"].to_pylist())[-1], tables["train"]["label"].to_pylist()[-1])
    first = np.array(tables["test"]["tokens"].to_pylist())[0]
    assert len(tables["train"]) == (1920 - 40 + 4) // 5
    assert (last[0] == marks[1875:1915]).all()
    assert last[1] == marks[1915]
    assert (first == marks[1920:1960]).all()


def test_the_training_windows_are_counted_without_decoding(root: Path) -> None:
    written(root, play(PARTS))
    source = find_source("shakespeare")
    counts = count_training(source, group_column="role")
    dataset = read_dataset(source)
    assert counts is not None
    assert counts.groups == Counter(role for role, _, _ in by_definition(play(PARTS), 40)["train"])
    assert counts.labels.tolist() == torch.bincount(dataset.train.labels, minlength=65).tolist()
    with pytest.raises(InputError, match=r"partition\.column='speaker'.*no such column; allowed: role, tokens, label"):
        count_training(source, group_column="speaker")


def test_the_vocabulary_names_every_character_once() -> None:
    assert len(set(VOCABULARY)) == len(set(CHARACTER_NAMES)) == 65
    assert sorted(VOCABULARY) == list(VOCABULARY)
    assert CHARACTER_NAMES[:3] == ("line break", "space", "!")


def test_a_changed_text_is_another_source(root: Path) -> None:
    written(root, play(PARTS))
    before = find_source("shakespeare").identity
    assert before == find_source("shakespeare").identity
    written(root, play(PARTS[::-1]))
    assert find_source("shakespeare").identity != before


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ANNA:\nso\n\nBOB\nno", "line 4: 'BOB' after a blank line; allowed: a role and a colon"),
        (":\nso", "line 1: ':' after a blank line"),
        ("ANNA:\nso\nd\u00e9j\u00e0", "line 3: character '\u00e9'; allowed: "),
        ("ANNA:\ntab\tbed", "line 2: character '\\t'"),
    ],
)
def test_a_text_that_is_no_play_is_refused_by_its_line(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        spoken(text, NOWHERE)
    assert f"{NOWHERE}, {message}" in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "no role says 2000 characters"),
        (play([("ANNA", exactly(1999, seed=1))]).encode(), "no role says 2000 characters"),
        (b"ANNA:\n\xff", "can't be read: 'utf-8'"),
    ],
)
def test_a_text_without_enough_to_read_is_refused(root: Path, content: bytes, message: str) -> None:
    written(root, "").write_bytes(content)
    with pytest.raises(InputError, match=f"input.txt.*{message}"):
        count_training(find_source("shakespeare"))


def test_a_missing_text_is_named(root: Path) -> None:
    with pytest.raises(InputError, match=r"'shakespeare' names no source .* a folder with tinyshakespeare/input\.txt"):
        find_source("shakespeare")
    (root / "tinyshakespeare").mkdir()
    with pytest.raises(InputError, match=r"data set 'shakespeare': the text is missing, no file .*input\.txt"):
        find_source("shakespeare")


@pytest.mark.parametrize("layout", [Tokens(400, 65), Tokens(40, 64)], ids=str)
def test_windows_that_no_role_may_have_are_refused(tmp_path: Path, layout: Tokens) -> None:
    path = written(tmp_path, play(PARTS))
    with pytest.raises(InputError, match=f"windows of {layout}; allowed: up to 399 tokens of 65"):
        read_plays(path, layout)
    longest = read_plays(path, Tokens(399, 65))["test"]["role"].to_pylist()
    assert longest == [role for role, _, _ in by_definition(play(PARTS), 399)["test"]]
    assert "JUST ENOUGH" in longest


def test_only_tokens_are_made_of_plays() -> None:
    with pytest.raises(InputError, match=r"data set 'x': plays='a\.txt', but it has 3 numbers and hub=None; allowed"):
        DatasetSpec("x", None, 65, Vectors(3), plays="a.txt")
    with pytest.raises(InputError, match="hub='y'; allowed: with tokens and no hub"):
        DatasetSpec("x", "y", 65, WINDOW, plays="a.txt")


@pytest.mark.skipif(not (REAL / "tinyshakespeare/input.txt").is_file(), reason="the data folder has no tinyshakespeare")
def test_the_roles_of_the_real_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDFISHER_DATA_DIR", str(REAL))
    source = find_source("shakespeare")
    text = (source.folder / "input.txt").read_text(encoding="utf-8") if source.folder else ""
    assert set(text) == set(VOCABULARY)
    dataset = read_dataset(source, group_column="role")
    expected = by_definition(text, 40)
    assert read_back(dataset, "test") == [row[1:] for row in expected["test"]]
    assert len(dataset.train) == len(expected["train"])
    assert dataset.train.groups is not None
    assert len(dataset.train.groups.unique()) == 99
    setting = SeededSetting(dataset="shakespeare", model="gru", scheme="largest", alpha=None, clients=3, seed=0)
    settings = PartitionSettings(scheme="largest", column="role")
    clients = split(
        settings,
        setting,
        dataset.train.labels.numpy(),
        classes=65,
        validation_size=0,
        groups=dataset.train.groups.numpy(),
    ).clients
    roles = [{expected["train"][row][0] for row in rows.tolist()} for rows in clients]
    assert roles == [{"GLOUCESTER"}, {"DUKE VINCENTIO"}, {"KING RICHARD II"}]
