"""Jobs of tests that note when they are computed."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from fedfisher_core.engine.store import Store

computed: list[str] = []
"""Names of the jobs that were computed, in their order."""


@pytest.fixture(autouse=True)
def nothing_computed_yet() -> Iterator[None]:
    computed.clear()
    yield
    computed.clear()


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "artifacts")
