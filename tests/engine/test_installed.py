"""Packages that some work alone needs."""

import re
import tomllib
from pathlib import Path

import pytest

from fedfisher_core.engine.errors import InputError
from fedfisher_core.engine.installed import packages_of, require_packages

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"


@pytest.mark.parametrize("extra", ["benchmark", "dask", "s3", "team"])
def test_packages_of_an_extra_are_those_that_the_project_names(extra: str) -> None:
    named = tomllib.loads(PYPROJECT.read_text())["project"]["optional-dependencies"][extra]
    names = [re.split(r"[\[=<>]", one)[0] for one in named]
    assert packages_of(extra) == [name for name in names if name != "fedfisher"]


def test_what_is_not_installed_is_named_with_its_extra() -> None:
    with pytest.raises(
        InputError,
        match=r"^the work needs no-such-one and no-other, not installed; allowed: pip install 'fedfisher\[docs\]'$",
    ):
        require_packages("torch", "no-such-one", "no-other", extra="docs", who="the work")
