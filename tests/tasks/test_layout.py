import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from mlflow import MlflowClient

from fedfisher_core.settings import TrackingSettings
from tasks import tracking
from tasks.layout import copy_kept, keep
from tasks.tracking import prepare_tracking

VERSION = "90e64c465722"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    return folder


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "made.db"
    with closing(sqlite3.connect(path)) as made:
        made.execute("CREATE TABLE alembic_version (version_num TEXT)")
        made.execute("INSERT INTO alembic_version VALUES (?)", (VERSION,))
        made.commit()
    return path


def test_an_empty_database_is_laid_out_once_for_all_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = (TrackingSettings(mlflow=f"sqlite:///{tmp_path / name}.db") for name in ("first", "second"))
    prepare_tracking(first)
    monkeypatch.delattr(tracking, "upgrade")
    prepare_tracking(second)
    assert [one.name for one in MlflowClient(tracking_uri=second.mlflow).search_experiments()] == ["Default"]


def test_what_is_kept_is_copied(tmp_path: Path, database: Path) -> None:
    assert not copy_kept(tmp_path / "copy.db", VERSION)
    keep(database, VERSION)
    assert copy_kept(tmp_path / "copy.db", VERSION)
    assert (tmp_path / "copy.db").read_bytes() == database.read_bytes()


def test_what_is_kept_is_not_taken_where_it_is_damaged_or_another_s(
    tmp_path: Path, database: Path, cache: Path
) -> None:
    keep(database, VERSION)
    (kept,) = (path for path in cache.rglob("*") if path.is_file())
    whole = kept.read_bytes()
    kept.rename(kept.with_name(kept.name.replace(VERSION, "another")))
    assert not copy_kept(tmp_path / "copy.db", "another")
    for damaged in (b"", b"no database", whole[: len(whole) // 2]):
        kept.write_bytes(damaged)
        assert not copy_kept(tmp_path / "copy.db", VERSION)
    assert not (tmp_path / "copy.db").exists()


def test_a_cache_that_can_t_be_written_keeps_nothing(tmp_path: Path, database: Path, cache: Path) -> None:
    cache.write_text("no folder")
    keep(database, VERSION)
    assert not copy_kept(tmp_path / "copy.db", VERSION)
    assert cache.read_text() == "no folder"
