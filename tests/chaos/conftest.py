"""Workplaces to kill and damage; `CHAOS=1 CHAOS_SEED=<seed> pytest tests/chaos` does it again (see scale.py)."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from tests.chaos.driver import PLAIN, VARIANTS, Finished, finished, new_workplace
from tests.end_to_end.conftest import Workplace, digits, prefect_api

__all__ = ["digits", "prefect_api"]


@pytest.fixture
def new_place(digits: Path, prefect_api: str, tmp_path: Path) -> Callable[..., Workplace]:
    """Makes a workplace of a name and a variant, whose commands use one Prefect server."""
    return lambda name, variant=PLAIN: new_workplace(tmp_path / name, VARIANTS[variant], digits, prefect_api)


@pytest.fixture(scope="session")
def undisturbed(digits: Path, prefect_api: str, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Finished]:
    """Runs a variant to its end undisturbed, once."""

    @cache
    def run(variant: str) -> Finished:
        return finished(new_workplace(tmp_path_factory.mktemp(variant), VARIANTS[variant], digits, prefect_api))

    return run
