"""A benchmark on Dask: on a cluster of its own, and on one whose workers share only the store with it."""

from pathlib import Path

import pytest

from tests.end_to_end.conftest import Workplace, same_rows
from tests.servers import dask_cluster

pytestmark = [pytest.mark.end_to_end, pytest.mark.long]

ON_DASK = ("--set", "run.runner=dask")


@pytest.mark.drawn(0)
def test_each_cluster_gives_the_rows_of_one_machine(finished: Workplace, workplace: Workplace, tmp_path: Path) -> None:
    local = finished.rows("finished")
    own = ("--set", "name=own", "--set", "run.store=own", *ON_DASK, "--set", "run.workers=2")
    done = workplace.run("fedfisher", "run", "params.yaml", *own)
    assert same_rows(workplace.rows("own"), local)
    assert "distributed" not in done.stderr

    with dask_cluster(workplace.environment, tmp_path) as scheduler:
        on_dask = (*ON_DASK, "--set", f"run.dask.scheduler={scheduler}")
        workplace.run("fedfisher", "run", "params.yaml", *on_dask, "--set", "name=on_dask")
        trained = workplace.artifacts("clients")
        workplace.run("fedfisher", "run", "params.yaml", *on_dask, "--set", "name=again")
        assert workplace.artifacts("clients") == trained
    assert same_rows(workplace.rows("on_dask"), local)
    # The workers have written to the store of the command.
    assert len(workplace.artifacts("clients")) == 3
