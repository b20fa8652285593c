import pytest

from fedfisher_core.engine.errors import InputError, printable, printable_lines, shortened
from fedfisher_core.engine.failures import Failure
from flows import cli


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("é 日本 🙂 C:\\new", "é 日本 🙂 C:\\new"),
        ("\x1b[2J\x07", "\\x1b[2J\\x07"),
        ("a\nb\r\tc", "a\\nb\\r\\tc"),
        ("\u202eabc\u2066\u200f", "\\u202eabc\\u2066\\u200f"),
        ("\u2028\x85\x00\ud800", "\\u2028\\x85\\x00\\ud800"),
    ],
)
def test_what_has_no_shape_is_escaped(text: str, expected: str) -> None:
    assert printable(text) == expected
    assert printable(text).isprintable()


def test_line_breaks_of_a_message_stay() -> None:
    assert printable_lines("one\x1b\ntwo") == "one\\x1b\ntwo"


def test_errors_of_jobs_and_cut_texts_are_printable() -> None:
    assert Failure.of("job", InputError("a\x1b[1m b\u202e")).reason == "a\\x1b[1m b\\u202e"
    assert shortened("a\x1b") == "a\\x1b"


def test_the_command_prints_no_control_characters(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: object) -> None:
        raise InputError("label \x1b]0;title\x07 is \u202ewrong")

    monkeypatch.setattr(cli.installed, "_list", fail)
    with pytest.raises(SystemExit) as stop:
        cli.main(["datasets"])
    assert stop.value.code == 2
    assert capsys.readouterr().err == "fedfisher: label \\x1b]0;title\\x07 is \\u202ewrong\n"
