"""The real components, started as a user starts them."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import yaml

from tests.built import build_site, made_once
from tests.servers import free_port, stopped_after, wait_for
from tests.waiting import HANG_SECONDS

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
SAID = "said.txt"
# They measure the machine, and so differ between reruns of the same settings.
TIMING_FIELDS = (
    "client_train_seconds",
    "client_statistics_seconds",
    "client_encode_seconds",
    "server_seconds",
    "client_processor_seconds",
    "server_processor_seconds",
    "peak_memory_bytes",
)

SMALL = {
    "name": "small",
    "seeds": [0],
    "data": {"dataset": "mnist5k", "examples": 1000, "validation_size": 100},
    "partition": {"alpha": [0.5], "clients": [3]},
    "train": {"epochs": 2, "batch_size": 16},
    "methods": {"fedavg": {}, "fedfisher_diag": {}, "ensemble": {}},
    # MLflow takes as long to make a model of one network as all of the above.
    "tracking": {"models": "none"},
}

TINY_ATTACK = {
    "experiment": "privacy_attack",
    "name": "attack",
    "seeds": [0],
    "threat": {"target_labels": [3], "clients": 3, "extra_images": 50, "auxiliary_images": 200},
    "train": {"epochs": 2},
    "methods": {"ensemble": {}, "fedavg": {}, "fedfisher_kfac": {"wire": {"budget": "none"}}},
    "gan": {"width": 2, "batch_size": 32, "generator_steps": 5},
    "inversion": {"restarts": 2, "images": 2, "iterations": 10},
    "evaluator": {"epochs": 1},
}


@dataclass(frozen=True)
class Workplace:
    """A folder that a user works in, with the environment of its commands."""

    folder: Path
    environment: dict[str, str]
    made: str = field(default_factory=lambda: datetime.now(UTC).isoformat())

    def start(self, *command: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [str(BIN / command[0]), *command[1:]],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, *command: str, code: int = 0, timeout: float = HANG_SECONDS) -> "subprocess.CompletedProcess[str]":
        process = self.start(*command)
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise
        assert process.returncode == code, f"{command}: exit {process.returncode}\n{out}\n{err}"
        return subprocess.CompletedProcess(command, process.returncode, out, err)

    def write(self, name: str, settings: dict[str, object]) -> None:
        (self.folder / name).write_text(yaml.safe_dump(settings))

    def change(self, settings: dict[str, object]) -> None:
        """Replace some of the settings of the default file."""
        known = yaml.safe_load((self.folder / "params.yaml").read_text())
        self.write("params.yaml", {**known, **settings})

    def rows(self, benchmark: str) -> list[dict[str, object]]:
        """The rows of a report without what differs between reruns."""
        rows = json.loads((self.folder / "results" / benchmark / "results.json").read_text())
        return [{key: value for key, value in row.items() if key not in TIMING_FIELDS} for row in rows]

    def artifacts(self, kind: str) -> dict[str, int]:
        """Key and time of writing of every artifact of a kind."""
        return {
            path.parent.name: path.stat().st_mtime_ns
            for path in (self.folder / "artifacts" / kind).glob("*/manifest.json")
        }


def same_rows(rows: list[dict[str, object]], others: list[dict[str, object]]) -> bool:
    """Whether two reports say the same, regardless of their names."""
    return [{**row, "benchmark": None} for row in rows] == [{**row, "benchmark": None} for row in others]


PREFECT_API = "prefect_api"
SERVER = pytest.StashKey[tuple[str, ExitStack]]()


@contextmanager
def prefect_server(home: Path) -> Iterator[str]:
    """A Prefect server that has begun to start, with a database in a folder; the address of its API."""
    port = free_port()
    address = f"http://127.0.0.1:{port}/api"
    environment = {
        **os.environ,
        "PREFECT_HOME": str(home),
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        # Its pages ask port 4200 otherwise.
        "PREFECT_UI_API_URL": address,
    }
    command = [str(BIN / "prefect"), "server", "start", "--host", "127.0.0.1", "--port", str(port)]
    with stopped_after(command, environment):
        yield address


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Give all processes of these tests one Prefect server, which takes as long to start as a run."""
    config = node.config
    if SERVER not in config.stash:
        stack = ExitStack()
        home = Path(stack.enter_context(TemporaryDirectory(ignore_cleanup_errors=True)))
        config.stash[SERVER] = stack.enter_context(prefect_server(home)), stack
    node.workerinput[PREFECT_API], _ = config.stash[SERVER]


def pytest_unconfigure(config: pytest.Config) -> None:
    """Stop the server of all processes."""
    if SERVER in config.stash:
        _, stack = config.stash[SERVER]
        stack.close()


@pytest.fixture(scope="session")
def prefect_api(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Prefect server that other tests use as well."""
    common = getattr(request.config, "workerinput", {}).get(PREFECT_API)
    own = prefect_server(tmp_path_factory.mktemp("prefect"))
    with nullcontext(common) if common else own as address:
        wait_for(f"{address}/health")
        yield address


@pytest.fixture(scope="session")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder that holds the embedded digits."""
    command = [str(BIN / "fedfisher"), "data", "fetch", "mnist5k"]
    folder = made_once(tmp_path_factory, "digits", lambda made: subprocess.run(command, cwd=made, check=True))
    return folder / "data"


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site of docs and reports."""
    return made_once(tmp_path_factory, "site", build_site)


def workplace_in(parent: Path, digits: Path, prefect_api: str, database: Path) -> Workplace:
    """Make a workplace with the small benchmark as its default file, and with an empty database of MLflow."""
    environment = os.environ | {
        "FEDFISHER_DATA_DIR": str(digits),
        "PREFECT_API_URL": prefect_api,
        "PREFECT_HOME": str(parent / "prefect"),
        "PREFECT_WORKER_QUERY_SECONDS": "1",
        # Each process of MLflow's server takes seconds to start.
        "MLFLOW_WORKERS": "1",
        "PATH": f"{BIN}:{os.environ['PATH']}",
        "DVC_NO_ANALYTICS": "true",
        "HOME": str(parent),
    }
    folder = parent / "work"
    folder.mkdir()
    # A script of a second, which the first report would make, and which reports leave as it is.
    shutil.copytree(ROOT / "reports/assets", folder / "results/assets")
    shutil.copy(database, folder / "mlflow.db")
    place = Workplace(folder, environment)
    place.write("params.yaml", SMALL)
    return place


@pytest.fixture
def workplace(tmp_path: Path, digits: Path, prefect_api: str, database: Path) -> Workplace:
    return workplace_in(tmp_path, digits, prefect_api, database)


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory, digits: Path, prefect_api: str, database: Path) -> Workplace:
    """A workplace where the small benchmark was run, for tests that only read it; `SAID` holds what the run said."""

    def make(parent: Path) -> None:
        place = workplace_in(parent, digits, prefect_api, database)
        place.change({"name": "finished"})
        (place.folder / SAID).write_text(place.run("fedfisher", "run").stdout)

    return Workplace(made_once(tmp_path_factory, "finished", make) / "work", {})


@pytest.fixture
def clone(workplace: Workplace) -> Workplace:
    """A fresh clone of the project, far from the original."""
    shutil.rmtree(workplace.folder)
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(workplace.folder)], check=True)
    environment = {key: value for key, value in workplace.environment.items() if key != "FEDFISHER_DATA_DIR"}
    return Workplace(workplace.folder, environment)
