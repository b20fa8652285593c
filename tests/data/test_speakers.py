"""Who says a line of a play."""

import os
from collections import Counter
from pathlib import Path

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from fedfisher_core.data.counting import count_training
from fedfisher_core.data.sources import find_source
from fedfisher_core.data.speakers import OPENINGS, UNKNOWN, read_speakers
from fedfisher_core.engine.errors import InputError
from fedfisher_core.federation.data import load_data
from tests.federation.test_natural import held_by
from tests.walked import walk_tiny

REAL = Path(os.environ.get("FEDFISHER_DATA_DIR", "data"))
HAMLET = "A text that no list of plays has."


def play(parts: list[tuple[str, list[str]]]) -> str:
    return "\n\n".join("\n".join([f"{role}:", *lines]) for role, lines in parts) + "\n"


def numbered(what: str, count: int, begin: int = 0) -> list[str]:
    return [f"{what} {number}" for number in range(begin, begin + count)]


PARTS = [
    ("ANNA", [HAMLET, *numbered("a", 4)]),
    ("BOB", ["Now is the winter of our discontent", *numbered("b", 3)]),
    ("ANNA", numbered("a", 6, 4)),
    ("ALL", ["Boatswain!", "Escalus."]),
    ("CLARA", numbered("c", 9)),
    ("ANNA", ["Now is the winter of our discontent"]),
]
EXPECTED = {
    "train": [
        *((UNKNOWN, one, "ANNA") for one in (HAMLET, *numbered("a", 3))),
        *(("Richard III", one, "BOB") for one in ("Now is the winter of our discontent", *numbered("b", 3))),
        *(("Richard III", one, "ANNA") for one in numbered("a", 5, 4)),
        *(("Measure for Measure", one, "CLARA") for one in numbered("c", 8)),
        ("Measure for Measure", "Now is the winter of our discontent", "ANNA"),
    ],
    "test": [
        (UNKNOWN, "a 3", "ANNA"),
        ("Richard III", "a 9", "ANNA"),
        ("Measure for Measure", "c 8", "CLARA"),
    ],
}
"""Lines of the three roles that say most: of each role's lines in a play, the last fifth is for testing."""


def test_rows_are_lines_of_the_roles_that_say_most(tmp_path: Path) -> None:
    path = tmp_path / "input.txt"
    path.write_text(play(PARTS))
    rows, names = read_speakers(path, 3)
    assert names == ["ANNA", "CLARA", "BOB"]
    for split, expected in EXPECTED.items():
        found = rows[split].to_pydict()
        labels = [names[label] for label in found["label"]]
        assert list(zip(found["play"], found["text"], labels, strict=True)) == expected


def test_roles_with_equally_many_lines_are_taken_by_name(tmp_path: Path) -> None:
    path = tmp_path / "input.txt"
    path.write_text(play([("BOB", ["b"]), ("ANNA", ["a"]), ("CLARA", ["c"])]))
    assert read_speakers(path, 2)[1] == ["ANNA", "BOB"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "has 0 roles that say something; allowed: 2 or more"),
        (b"ANNA:\na\n\nBOB:\n", "has 1 roles that say something; allowed: 2 or more"),
        (b"ANNA:\na\n\nBOB\nb", "line 4: 'BOB' after a blank line; allowed: a role and a colon"),
        (b"ANNA:\n\xff", "can't be read: 'utf-8'"),
    ],
)
def test_other_texts_are_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "input.txt"
    path.write_bytes(content)
    with pytest.raises(InputError, match=message):
        read_speakers(path, 2)


def test_a_benchmark_has_plays_as_clients(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    openings = list(OPENINGS)[:2]
    acts = [
        (opening, [f"R{number}" for number in range(start, start + 10)])
        for opening, start in zip(openings, (0, 10), strict=True)
    ]
    parts = [(role, [opening, *numbered(role, 4)]) for opening, roles in acts for role in roles]
    text = workplace / "data" / "tinyshakespeare" / "input.txt"
    text.parent.mkdir(parents=True)
    text.write_text(play(parts))
    monkeypatch.setenv("FEDFISHER_DATA_DIR", str(workplace / "data"))
    words = ["[PAD]", "[UNK]", *(role for role, _ in parts)]
    made = Tokenizer(WordLevel({word: code for code, word in enumerate(words)}, unk_token="[UNK]"))
    made.pre_tokenizer = Whitespace()
    made.save("roles.json")
    done = walk_tiny(
        workplace,
        {"fedavg": {}},
        data={
            "dataset": "shakespeare_speakers",
            "validation_size": 0,
            "text": {"tokenizer": "roles.json", "length": 2},
        },
        model={"name": "gru"},
        partition={"scheme": "column", "column": "play", "clients": [2], "min_size": 1},
        train={"epochs": 2},
    )
    assert [len(held_by(done.partition, client)) for client in range(2)] == [40, 40]
    labels = load_data(done.data).train.labels
    for client, number in enumerate((0, 1)):
        # The class of a role is its place among names, as all roles say equally much.
        names = sorted(role for _, roles in acts for role in roles)
        held = {names[label] for label in labels[held_by(done.partition, client)].tolist()}
        assert held == set(acts[number][1])
    assert done.rows["fedavg"].num_clients == 2


@pytest.mark.skipif(not (REAL / "tinyshakespeare/input.txt").is_file(), reason="the data folder has no tinyshakespeare")
def test_clients_of_the_real_text_are_its_plays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDFISHER_DATA_DIR", str(REAL))
    source = find_source("shakespeare_speakers")
    counts = count_training(source, group_column="play")
    assert counts is not None
    assert counts.groups is not None
    assert counts.groups.keys() == set(OPENINGS.values())
    rows, names = read_speakers(REAL / "tinyshakespeare/input.txt", 20)
    assert names[:3] == ["GLOUCESTER", "DUKE VINCENTIO", "KING RICHARD II"]
    said = Counter(rows["train"]["label"].to_pylist() + rows["test"]["label"].to_pylist())
    assert (said[0], said[19]) == (902, 335)
    assert counts.groups == Counter(rows["train"]["play"].to_pylist())
