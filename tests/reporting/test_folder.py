"""The folder of a report, and the stamp that says what it shows."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from fedfisher_core.reporting.folder import is_current, write_folder


@dataclass(frozen=True)
class Line:
    """A row."""

    artifact: str


FILES = {"index.html": b"<p>a page", "chart.png": b"a picture"}


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


def test_a_report_that_was_cut_off_is_not_current(tmp_path: Path) -> None:
    write_folder(tmp_path, [Line("a")], FILES, "old")
    (tmp_path / "chart.png").unlink()
    (tmp_path / "chart.png").mkdir()
    with pytest.raises(OSError, match="directory"):
        write_folder(tmp_path, [Line("b")], FILES, "new")
    assert not is_current(tmp_path, "new")
