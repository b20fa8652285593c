from fedfisher_core.reporting.formats import Table, as_markdown, as_records, as_text

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
