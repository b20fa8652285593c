"""A Dask cluster whose workers and scheduler are killed, and the command beside them: what was done is kept.

`make chaos` kills 20 times; `CHAOS_SEED` draws the same again.
"""

import os
import random
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest
import yaml

from tests.chaos.driver import (
    NAME,
    PLAIN,
    Finished,
    recorded,
    require_no_orphans,
    rerun,
    said_in_one_line,
)
from tests.chaos.scale import SEED, scaled
from tests.end_to_end.conftest import Workplace
from tests.servers import dask_worker, free_port, scheduler_at, wait_for_port, wait_for_workers

pytestmark = pytest.mark.end_to_end

WORKERS = 2
KILLS = scaled(test=3, chaos=20)
_PATIENCE_SECONDS = 600

Unharmed = Callable[[str], Finished]


class Cluster:
    """A scheduler with workers that come back when they are killed.

    Args:
        environment: of all of them.
        root: has a folder for each worker.
    """

    def __init__(self, environment: Mapping[str, str], root: Path) -> None:
        self._environment = environment
        self._root = root
        self._port = free_port()
        self._stack = ExitStack()

    @property
    def address(self) -> str:
        return f"tcp://127.0.0.1:{self._port}"

    def start(self) -> None:
        with ExitStack() as stack:
            self._scheduler = stack.enter_context(scheduler_at(self._port, self._environment))
            wait_for_port(self._port)
            self._nannies = []
            for number in range(WORKERS):
                folder = self._root / str(number)
                folder.mkdir(parents=True, exist_ok=True)
                self._nannies.append(stack.enter_context(dask_worker(self.address, self._environment, folder)))
            wait_for_workers(self.address, WORKERS)
            self._stack = stack.pop_all()

    def stop(self) -> None:
        self._stack.close()

    def kill_worker(self, rng: random.Random) -> None:
        """Kill what does a worker's tasks; what watches over it starts another."""
        nanny = psutil.Process(rng.choice(self._nannies).process)
        for child in nanny.children(recursive=True):
            child.kill()

    def kill_scheduler(self) -> None:
        os.killpg(self._scheduler.process, signal.SIGKILL)


@pytest.fixture
def cluster(prefect_api: str, tmp_path: Path) -> Iterator[Cluster]:
    environment = {name: value for name, value in os.environ.items() if name != "FEDFISHER_DATA_DIR"}
    environment |= {"PREFECT_API_URL": prefect_api, "PREFECT_HOME": str(tmp_path / "prefect"), "HOME": str(tmp_path)}
    made = Cluster(environment, tmp_path / "workers")
    made.start()
    yield made
    made.stop()


def struck(place: Workplace, cluster: Cluster, victim: str, *, after: float, rng: random.Random) -> None:
    """Run the benchmark and kill something of it, unless it is done before.

    Raises:
        AssertionError: a worker's death has cost more than time, or a scheduler's is not told in one line.
    """
    process = place.start("fedfisher", "run")
    time.sleep(after)
    early = process.poll() is not None
    if victim == "worker":
        cluster.kill_worker(rng)
    elif victim == "scheduler":
        cluster.kill_scheduler()
    else:
        process.kill()
    _, err = process.communicate(timeout=_PATIENCE_SECONDS)
    if victim == "worker" or early:
        assert process.returncode == 0, err
    elif victim == "scheduler" and process.returncode:
        assert said_in_one_line(err), err
        assert "run.dask.scheduler" in err
    if victim == "scheduler":
        cluster.stop()
        cluster.start()


def test_kills_cost_what_was_under_way(
    cluster: Cluster, unharmed: Unharmed, new_place: Callable[..., Workplace]
) -> None:
    rng = random.Random(f"{SEED} dask")
    wanted = unharmed(PLAIN)
    left, places = KILLS, 0
    while left:
        place, places = new_place(str(places), "dask"), places + 1
        changed = {"runner": "dask", "dask": {"scheduler": cluster.address}}
        text = (place.folder / "params.yaml").read_text()
        place.write("params.yaml", {**yaml.safe_load(text), "run": changed})
        for victim in rng.sample(["worker", "scheduler", "command"], k=min(3, left)):
            after = rng.uniform(1, wanted.seconds)
            print(place.folder, victim, after)
            struck(place, cluster, victim, after=after, rng=rng)
            left -= 1
        last = rerun(place)
        assert last.returncode == 0, last.stderr
        assert place.rows(NAME) == wanted.rows
        assert recorded(place) == wanted.recorded
        require_no_orphans(place)
