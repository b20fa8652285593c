"""A benchmark on Dask: on a cluster of its own, and on one whose workers share only a folder or a bucket with it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end.conftest import Workplace
from tests.servers import dask_cluster
from tests.swift import BUCKET, object_store

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


@pytest.fixture
def bucket(workplace: Workplace, tmp_path: Path) -> Iterator[str]:
    """A place in a bucket, which all that is started from now on reaches."""
    with object_store(tmp_path / "swift") as environment:
        workplace.environment.update(environment)
        yield f"s3://{BUCKET}/artifacts"


def test_a_cluster_of_this_machine_gives_the_same_rows(
    workplace: Workplace, local_rows: list[dict[str, object]]
) -> None:
    done = workplace.run("fedfisher", "run", "params.yaml", "--set", "name=on_dask", *ON_DASK, "--set", "run.workers=2")
    assert _same(workplace.rows("on_dask"), local_rows)
    assert "distributed" not in done.stderr


def test_workers_elsewhere_give_the_same_rows(
    workplace: Workplace, local_rows: list[dict[str, object]], scheduler: str
) -> None:
    on_dask = (*ON_DASK, "--set", f"run.dask.scheduler={scheduler}")
    workplace.run("fedfisher", "run", "params.yaml", *on_dask, "--set", "name=on_dask")
    assert _same(workplace.rows("on_dask"), local_rows)
    before = workplace.artifacts("clients")
    workplace.run("fedfisher", "run", "params.yaml", *on_dask, "--set", "name=again")
    assert workplace.artifacts("clients") == before


def test_workers_that_share_a_bucket_give_the_same_rows(
    workplace: Workplace, local_rows: list[dict[str, object]], bucket: str, tmp_path: Path
) -> None:
    in_bucket = ("--set", f"run.store={bucket}")
    with dask_cluster(workplace.environment, tmp_path) as address:
        on_dask = (*ON_DASK, "--set", f"run.dask.scheduler={address}")
        workplace.run("fedfisher", "run", "params.yaml", *on_dask, *in_bucket, "--set", "name=on_dask")
    assert _same(workplace.rows("on_dask"), local_rows)
    # Each worker keeps what it has read or written itself, in its own folder.
    assert all(list((tmp_path / name / ".artifacts").rglob("*.safetensors")) for name in ("one", "two"))
    # Another machine, which has nothing yet, trains nothing.
    another = (*in_bucket, "--set", "run.cache.folder=another", "--set", "name=again")
    workplace.run("fedfisher", "run", "params.yaml", *another)
    assert _same(workplace.rows("again"), workplace.rows("on_dask"))
    # Of all tensors the page needs the split alone, which it pictures.
    assert {path.parent.parent.name for path in (workplace.folder / "another").rglob("*.safetensors")} == {"partitions"}


def _same(rows: list[dict[str, object]], others: list[dict[str, object]]) -> bool:
    return [{**row, "benchmark": None} for row in rows] == [{**row, "benchmark": None} for row in others]
