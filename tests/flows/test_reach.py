"""SQLite files that are damaged, locked or large."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from fedfisher_core.engine.errors import InputError
from flows import reach
from flows.reach import require_database


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A database of some fifty pages, whose first one holds no rows."""
    with closing(sqlite3.connect(tmp_path / "a.db")) as database:
        database.execute("CREATE TABLE runs (number INTEGER PRIMARY KEY, name TEXT)")
        database.executemany("INSERT INTO runs (name) VALUES (?)", [("x" * 100,)] * 2000)
        database.commit()
    return tmp_path / "a.db"


def test_an_intact_one_is_accepted_and_left_as_it_is(path: Path) -> None:
    before = path.read_bytes()
    require_database(path, "the database")
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("page", [2, 10, 30])
def test_damage_behind_the_first_page_is_found(path: Path, page: int) -> None:
    content = bytearray(path.read_bytes())
    content[page * 4096 : page * 4096 + 200] = b"\xa5" * 200
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"the database (is damaged; move it away|can't be opened).*"):
        require_database(path, "the database")


def test_a_lost_end_is_found(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: 20 * 4096])
    with pytest.raises(InputError, match="the database"):
        require_database(path, "the database")


def test_one_that_another_holds_is_refused_soon(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reach, "_BUSY_SECONDS", 0.1)
    with closing(sqlite3.connect(path)) as database:
        database.execute("BEGIN EXCLUSIVE")
        with pytest.raises(InputError, match="the database can't be opened: database is locked"):
            require_database(path, "the database")


def test_a_large_one_is_not_read_to_its_end(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reach, "_CHECK_SECONDS", 0)
    monkeypatch.setattr(reach, "_INSTRUCTIONS_BETWEEN_LOOKS", 10)
    content = bytearray(path.read_bytes())
    content[30 * 4096 : 31 * 4096] = b"\xa5" * 4096
    path.write_bytes(content)
    require_database(path, "the database")
