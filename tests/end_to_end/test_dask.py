"""A benchmark on Dask: on a cluster of its own, and on one whose workers share only the store with it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end.conftest import Workplace, same_rows
from tests.servers import dask_cluster

pytestmark = pytest.mark.end_to_end

ON_DASK = ("--set", "run.runner=dask")


@pytest.fixture
def local_rows(workplace: Workplace) -> list[dict[str, object]]:
    """The rows of a run without Dask, whose store is then removed from sight."""
    workplace.run("fedfisher", "run", "params.yaml", "--set", "name=local", "--set", "run.store=elsewhere")
    return workplace.rows("local")


@pytest.fixture
def scheduler(workplace: Workplace, tmp_path: Path) -> Iterator[str]:
    with dask_cluster(workplace.environment, tmp_path) as address:
        yield address


def test_a_cluster_of_this_machine_gives_the_same_rows(
    workplace: Workplace, local_rows: list[dict[str, object]]
) -> None:
    done = workplace.run("fedfisher", "run", "params.yaml", "--set", "name=on_dask", *ON_DASK, "--set", "run.workers=2")
    assert same_rows(workplace.rows("on_dask"), local_rows)
    assert "distributed" not in done.stderr


def test_workers_elsewhere_give_the_same_rows(
    workplace: Workplace, local_rows: list[dict[str, object]], scheduler: str
) -> None:
    on_dask = (*ON_DASK, "--set", f"run.dask.scheduler={scheduler}")
    workplace.run("fedfisher", "run", "params.yaml", *on_dask, "--set", "name=on_dask")
    assert same_rows(workplace.rows("on_dask"), local_rows)
    before = workplace.artifacts("clients")
    workplace.run("fedfisher", "run", "params.yaml", *on_dask, "--set", "name=again")
    assert workplace.artifacts("clients") == before
