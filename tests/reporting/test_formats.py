import pytest

from fedfisher_core.reporting.formats import (
    Table,
    as_markdown,
    as_records,
    as_text,
    in_words,
    points,
    seconds,
    setting_value,
    settings_groups,
)


def test_nested_settings_become_groups_with_dotted_names() -> None:
    data = {"alpha": [0.1, 0.2], "noise": {"level": None}}
    settings = {"name": "x", "data": data, "methods": {"fedavg": {}}}
    assert settings_groups(settings) == [
        ("general", [("name", "x")]),
        ("data", [("alpha", "0.1, 0.2")]),
        ("data.noise", [("level", "none")]),
        ("methods", [("fedavg", "none")]),
    ]
    assert setting_value([{"a": 1, "b": True}]) == "a = 1, b = true"


def test_numbers_are_written_plainly() -> None:
    assert points(-0.0123) == "\u22121.23"
    assert points(-0.000001) == "0.00"
    assert points(0.5) == "+50.00"
    assert seconds(0.001) == "<\u20090.01"
    assert seconds(0.0) == "0.00"


@pytest.mark.parametrize(
    ("label", "words"),
    [
        ("fedfisher_kfac", "FedFisher (K-FAC)"),
        ("fedfisher_kfac, compressed", "FedFisher (K-FAC), compressed"),
        ("ma_echo_official_uncompressed", "MA-Echo, official form, uncompressed"),
        ("ensemble (ensemble_by_holders)", "Ensemble (ensemble_by_holders)"),
        ("my_own_method", "my own method"),
        ("100 steps", "100 steps"),
        ("", ""),
    ],
)
def test_labels_are_written_in_words(label: str, words: str) -> None:
    assert in_words(label) == words


LONG = Table("Long", ["method", "accuracy ", "s"], [["a method", "51.00*", "1.25"], ["b", "7.00 ", "100.00"]])
WORDS = Table("Words", ["method", "case", "n"], [["a", "sums", "3"]], words=2)


def test_words_stand_to_the_left_and_numbers_to_the_right() -> None:
    assert as_text([LONG]).splitlines() == [
        "Long",
        "method    accuracy        s",
        "---------------------------",
        "a method     51.00*    1.25",
        "b             7.00   100.00",
    ]


def test_tables_are_blocks_of_their_own() -> None:
    text = as_text([LONG, WORDS])
    assert text == f"{as_text([LONG])}\n\n{as_text([WORDS])}"
    assert text.endswith("method  case  n\n---------------\na       sums  3")


def test_prefect_gets_a_record_a_line() -> None:
    assert as_records([LONG, WORDS]) == [
        {"": "Long", "method": "a method", "accuracy": "51.00*", "s": "1.25"},
        {"": "Long", "method": "b", "accuracy": "7.00", "s": "100.00"},
        {"": "Words", "method": "a", "case": "sums", "n": "3"},
    ]


def test_markdown_aligns_numbers_and_keeps_bars_inside_their_cell() -> None:
    bars = Table("Bars", ["method", "s"], [["a|b", " 1.25"]])
    assert as_markdown([bars, WORDS]).splitlines() == [
        "## Bars",
        "",
        "| method | s |",
        "| --- | ---: |",
        "| a\\|b | 1.25 |",
        "",
        "## Words",
        "",
        "| method | case | n |",
        "| --- | --- | ---: |",
        "| a | sums | 3 |",
    ]
