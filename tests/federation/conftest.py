from pathlib import Path

import pytest

from tests import arranged


@pytest.fixture
def arranged_workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory that finds data sets of tables, texts and banners, and no server."""
    monkeypatch.setenv("FEDFISHER_DATA_DIR", str(arranged.write(tmp_path / "data")))
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path
