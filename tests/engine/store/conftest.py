"""A folder store, and a real object store with an empty place in it for each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from fedfisher_core.engine.store import Store
from fedfisher_core.engine.store import bucket as buckets
from tests.swift import BUCKET, object_store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(tmp_path / "artifacts")
    store.prepare()
    return store


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    with object_store(tmp_path_factory.mktemp("swift")) as environment:
        yield environment


@pytest.fixture
def url(service: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[str]:
    """An empty place in the bucket."""
    for name, value in service.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    yield f"s3://{BUCKET}/{tmp_path.name}"
    buckets._connected.cache_clear()
