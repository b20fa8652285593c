from pathlib import Path

import pytest


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that FEDFISHER_DATA_DIR names, in an empty working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDFISHER_DATA_DIR", str(tmp_path))
    return tmp_path
