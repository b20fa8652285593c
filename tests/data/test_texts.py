"""Texts become tokens of one length, once."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing

from fedfisher_core.data.importing import import_texts
from fedfisher_core.data.sampling import ALL
from fedfisher_core.data.sources import find_source, read_dataset, require_inputs
from fedfisher_core.data.tensors import Dataset
from fedfisher_core.data.texts import LongTexts, texts_layout, tokenised
from fedfisher_core.engine.errors import InputError
from fedfisher_core.federation.decoding import DecodeData
from fedfisher_core.settings import TextSettings
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
    for split in ("train", "test"):
        table = pyarrow.table({"text": ["fine", " "], "label": [0, 1]})
        pyarrow.parquet.write_table(table, folder / f"{split}.parquet")
    with pytest.raises(InputError, match="split 'train' of data set 'sst2', row 1: the text is empty"):
        require_inputs(find_source("sst2"))


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
