"""The folder of a report, and the stamp that says what it shows."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from fedfisher_core.engine.errors import InputError
from fedfisher_core.reporting.rows import is_current, write_folder


@dataclass(frozen=True)
class Line:
    """A row."""

    artifact: str


FILES = {"index.html": b"<p>a page", "chart.png": b"a picture"}


def _no_text(stamp: Path) -> None:
    stamp.write_bytes(b"digest\n\xff")


def _a_long_name(stamp: Path) -> None:
    stamp.write_text("digest\n" + "n" * 5000)


def _a_terabyte(stamp: Path) -> None:
    os.truncate(stamp, 2**40)


def _a_pipe(stamp: Path) -> None:
    stamp.unlink()
    os.mkfifo(stamp)


def _a_folder(stamp: Path) -> None:
    stamp.unlink()
    stamp.mkdir()


def _emptied(path: Path) -> None:
    path.write_bytes(b"")


def _with_another_letter(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"a", b"b", 1))


def test_a_folder_holds_rows_page_and_pictures(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "new" / "sample", [Line("a")], FILES, "digest")
    assert folder == tmp_path / "new" / "sample"
    shown = {path.name for path in folder.iterdir() if not path.name.startswith(".")}
    assert shown == {"results.json", "results.csv", *FILES}
    assert {name: (folder / name).read_bytes() for name in FILES} == FILES


def test_a_report_is_current_as_long_as_it_shows_the_same(tmp_path: Path) -> None:
    folder = tmp_path / "sample"
    assert not is_current(folder, "digest")
    write_folder(folder, [Line("a")], FILES, "digest")
    assert is_current(folder, "digest")
    assert not is_current(folder, "another digest")
    write_folder(folder, [Line("b")], FILES, "another digest")
    assert is_current(folder, "another digest")


@pytest.mark.parametrize("name", ["results.json", "results.csv", *FILES])
def test_a_report_that_lacks_a_file_is_not_current(tmp_path: Path, name: str) -> None:
    folder = write_folder(tmp_path, [Line("a")], FILES, "digest")
    (folder / name).unlink()
    assert not is_current(folder, "digest")


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", ["results.json", "results.csv", *FILES])
@pytest.mark.parametrize("change", [_emptied, _with_another_letter, _a_pipe])
def test_a_report_with_a_changed_file_is_not_current(tmp_path: Path, name: str, change: Callable[[Path], None]) -> None:
    folder = write_folder(tmp_path, [Line("a")], FILES, "digest")
    change(folder / name)
    assert not is_current(folder, "digest")


def test_a_report_that_was_cut_off_is_not_current(tmp_path: Path) -> None:
    write_folder(tmp_path, [Line("a")], FILES, "old")
    (tmp_path / "chart.png").unlink()
    (tmp_path / "chart.png").mkdir()
    with pytest.raises(InputError, match=r"chart\.png can't be written: Is a directory"):
        write_folder(tmp_path, [Line("b")], FILES, "new")
    assert not is_current(tmp_path, "new")
    assert not list(tmp_path.glob(".chart*"))


def test_a_folder_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"file/results\.json can't be written: File exists"):
        write_folder(tmp_path / "file", [Line("a")], FILES, "digest")


@pytest.mark.timeout(120)
@pytest.mark.parametrize("damage", [_no_text, _a_long_name, _a_terabyte, _a_pipe, _a_folder])
def test_a_report_whose_stamp_was_damaged_is_not_current(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    folder = write_folder(tmp_path, [Line("a")], FILES, "digest")
    damage(folder / ".content")
    assert not is_current(folder, "digest")


def test_what_an_earlier_report_left_goes_and_what_others_put_there_stays(tmp_path: Path) -> None:
    write_folder(tmp_path, [Line("a")], {**FILES, "rounds.csv": b"round\n"}, "old")
    (tmp_path / "notes.txt").write_text("mine")
    write_folder(tmp_path, [Line("b")], FILES, "new")
    assert {path.name for path in tmp_path.iterdir()} == {
        "results.json",
        "results.csv",
        ".content",
        "notes.txt",
        *FILES,
    }
