"""A Dask cluster whose workers and scheduler are killed, as well as the command: what was done is kept.

Kills with a folder that all share and Prefect's server alone, and with the servers of a team and a bucket. `make chaos`
makes 10 with each; `CHAOS_SEED` draws the same again.
"""

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest
from mlflow import MlflowClient

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
from tests.end_to_end.conftest import BIN, Workplace, same_rows
from tests.servers import dask_worker, free_port, scheduler_at, wait_for_port, wait_for_workers
from tests.swift import BUCKET, object_store
from tests.team import CREDENTIALS, TeamServers, team_servers
from tests.waiting import HANG_SECONDS

WORKERS = 2
# A worker's death does not end a run, so that a run can meet several.
VICTIMS = ("worker", "worker", "worker", "scheduler", "command")
KILLS = scaled(test=0, chaos=10)

pytestmark = [
    pytest.mark.end_to_end,
    pytest.mark.long,
    pytest.mark.skipif(not KILLS, reason="takes minutes: make chaos"),
]

Undisturbed = Callable[[str], Finished]


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


def started(environment: Mapping[str, str], root: Path) -> Iterator[Cluster]:
    """A cluster that runs until the test ends."""
    without_data = {name: value for name, value in environment.items() if name != "FEDFISHER_DATA_DIR"}
    made = Cluster(without_data | {"PREFECT_HOME": str(root / "prefect"), "HOME": str(root)}, root / "workers")
    made.start()
    yield made
    made.stop()


@pytest.fixture
def cluster(prefect_api: str, tmp_path: Path) -> Iterator[Cluster]:
    yield from started(os.environ | {"PREFECT_API_URL": prefect_api}, tmp_path)


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[TeamServers]:
    with team_servers(os.environ | {"PATH": f"{BIN}:{os.environ['PATH']}"}, tmp_path) as running:
        yield running


@pytest.fixture
def credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mapping[str, str]]:
    """Of a team's servers and of a bucket, for this process too, which asks MLflow what is recorded."""
    with object_store(tmp_path / "swift") as environment:
        for name, value in CREDENTIALS.items():
            monkeypatch.setenv(name, value)
        yield CREDENTIALS | environment


@pytest.fixture
def cluster_of_a_team(servers: TeamServers, credentials: Mapping[str, str], tmp_path: Path) -> Iterator[Cluster]:
    yield from started(os.environ | credentials | {"PREFECT_API_URL": servers.prefect}, tmp_path)


def run_and_kill(place: Workplace, cluster: Cluster, victims: list[str], *, within: float, rng: random.Random) -> None:
    """Run the benchmark and kill something of it at random moments, until it ends.

    Args:
        place: where.
        cluster: its jobs run there.
        victims: what is to be killed, in turn; each is removed once it was.
        within: the most seconds from one kill to the next.
        rng: draws the moments.

    Raises:
        AssertionError: a worker's death has cost more than time, or a scheduler's is not told in one line.
    """
    process, victim = place.start("fedfisher", "run"), "worker"
    while victim == "worker" and victims:
        after = rng.uniform(1, within)
        time.sleep(after)
        if process.poll() is not None:
            break
        victim = victims.pop(0)
        print(f"run {place.folder.parent.name}  {victim:9}  {after:5.1f} s")
        if victim == "worker":
            cluster.kill_worker(rng)
        elif victim == "scheduler":
            cluster.kill_scheduler()
        else:
            process.kill()
    _, err = process.communicate(timeout=HANG_SECONDS)
    if victim == "worker":
        assert process.returncode == 0, err
    elif victim == "scheduler" and process.returncode:
        assert said_in_one_line(err), err
        assert "run.dask.scheduler" in err
    if victim == "scheduler":
        cluster.stop()
        cluster.start()


def recorded_at(mlflow: str, name: str) -> Counter[tuple[str, str]]:
    """Count what MLflow's server has of a benchmark, by what its experiments and runs are called undisturbed."""
    client = MlflowClient(mlflow)
    own = [one for one in client.search_experiments() if one.name.removesuffix("-summary") == name]
    return Counter(
        (one.name.replace(name, NAME, 1), run.info.run_name)
        for one in own
        for run in client.search_runs([one.experiment_id])
        if run.data.tags.get("content")
    )


def damage(place: Workplace, cluster: Cluster, victims: Sequence[str], *, within: float, rng: random.Random) -> None:
    """Kill one victim after the other, then run the benchmark to its end."""
    left = list(victims)
    while left:
        run_and_kill(place, cluster, left, within=within, rng=rng)
    last = rerun(place)
    assert last.returncode == 0, last.stderr
    require_no_orphans(place)


def victims_of(kills: int, rng: random.Random) -> Iterator[list[str]]:
    """Draw who is killed in each place."""
    for left in range(kills, 0, -len(VICTIMS)):
        yield rng.sample(VICTIMS, k=min(len(VICTIMS), left))


def test_kills_cost_what_was_under_way(
    cluster: Cluster, undisturbed: Undisturbed, new_place: Callable[..., Workplace]
) -> None:
    rng, wanted = random.Random(f"{SEED} dask"), undisturbed(PLAIN)
    for number, victims in enumerate(victims_of(KILLS, rng)):
        place = new_place(str(number), "dask")
        place.change({"run": {"runner": "dask", "dask": {"scheduler": cluster.address}}})
        damage(place, cluster, victims, within=wanted.seconds / 2, rng=rng)
        assert place.rows(NAME) == wanted.rows
        assert recorded(place) == wanted.recorded


def test_kills_cost_what_was_under_way_with_the_servers_of_a_team(
    cluster_of_a_team: Cluster,
    servers: TeamServers,
    credentials: Mapping[str, str],
    undisturbed: Undisturbed,
    new_place: Callable[..., Workplace],
) -> None:
    rng, wanted = random.Random(f"{SEED} team"), undisturbed(PLAIN)
    for number, victims in enumerate(victims_of(KILLS, rng)):
        place, name = new_place(str(number), "dask"), f"{NAME}-{number}"
        place.environment.update(credentials)
        place.change(
            {
                "name": name,
                "run": {
                    "runner": "dask",
                    "dask": {"scheduler": cluster_of_a_team.address},
                    "store": f"s3://{BUCKET}/{name}",
                },
                "tracking": {"prefect_api": servers.prefect, "mlflow": servers.mlflow},
            }
        )
        damage(place, cluster_of_a_team, victims, within=wanted.seconds / 2, rng=rng)
        assert same_rows(place.rows(name), wanted.rows)
        assert recorded_at(servers.mlflow, name) == wanted.recorded
