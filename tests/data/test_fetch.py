"""Putting a data set into the project's folder: all of it, or nothing."""

import os
from pathlib import Path

import pytest

from fedfisher_core.data.hub import SPLITS, fetch


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The project's folder, for an embedded data set of a few bytes."""

    def write(folder: Path) -> None:
        for split in SPLITS:
            (folder / f"{split}.parquet").write_bytes(b"data")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("fedfisher_core.data.hub._write_embedded", write)
    return Path("data")


def test_a_new_data_set_is_there_in_one_step(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: object) -> None:
        raise OSError("killed")

    monkeypatch.setattr(os, "replace", killed)
    assert fetch("mnist5k") == data / "mnist5k"
    assert {path.name for path in (data / "mnist5k").iterdir()} == {"train.parquet", "test.parquet"}


def test_what_is_there_is_replaced(data: Path) -> None:
    (data / "mnist5k").mkdir(parents=True)
    (data / "mnist5k" / "train.parquet").write_bytes(b"old")
    fetch("mnist5k")
    assert [(data / "mnist5k" / f"{split}.parquet").read_bytes() for split in SPLITS] == [b"data"] * 2


def test_what_a_killed_fetch_left_is_removed(data: Path) -> None:
    (data / ".writing" / "abc").mkdir(parents=True)
    (data / ".writing" / "abc" / "train.parquet").write_bytes(b"half")
    (data / ".writing" / "abc.lock").touch()
    fetch("mnist5k")
    assert list((data / ".writing").iterdir()) == []


def test_one_that_another_process_puts_there_meanwhile_is_replaced(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(folder: Path) -> None:
        for where in (folder, data / "mnist5k"):
            where.mkdir(parents=True, exist_ok=True)
            for split in SPLITS:
                (where / f"{split}.parquet").write_text(where.name if where == data / "mnist5k" else "ours")

    monkeypatch.setattr("fedfisher_core.data.hub._write_embedded", write)
    fetch("mnist5k")
    assert [(data / "mnist5k" / f"{split}.parquet").read_text() for split in SPLITS] == ["ours"] * 2
