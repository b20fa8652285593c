import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
VERSION = PROJECT["project"]["version"]


def test_citation_names_the_version_and_the_licence() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert (citation["cff-version"], citation["version"]) == ("1.2.0", VERSION)
    assert citation["license"] == PROJECT["project"]["license"]
    assert "arXiv:2403.12329" in [one["value"] for paper in citation["references"] for one in paper["identifiers"]]


@pytest.mark.parametrize("package", PROJECT["tool"]["importlinter"]["root_packages"])
def test_type_markers_are_installed(package: str) -> None:
    assert (ROOT / package / "py.typed").is_file()
    assert "py.typed" in PROJECT["tool"]["setuptools"]["package-data"][package]
