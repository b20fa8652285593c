"""The real components, started as a user starts them."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

from tests.servers import free_port, stopped_after, wait_for
from tests.waiting import HANG_SECONDS

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
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
    "partition": {"alpha": [0.5], "clients": [3]},
    "train": {"epochs": 2},
    "methods": {"fedavg": {}, "fedfisher_diag": {}, "ensemble": {}},
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


@pytest.fixture(scope="session")
def prefect_api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Prefect server with a database of its own."""
    home = tmp_path_factory.mktemp("prefect")
    port = free_port()
    address = f"http://127.0.0.1:{port}/api"
    environment = os.environ | {
        "PREFECT_HOME": str(home),
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        # Its pages ask port 4200 otherwise.
        "PREFECT_UI_API_URL": address,
    }
    with stopped_after(
        [str(BIN / "prefect"), "server", "start", "--host", "127.0.0.1", "--port", str(port)], environment
    ):
        wait_for(f"{address}/health")
        yield address


@pytest.fixture(scope="session")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder that holds the embedded digits."""
    folder = tmp_path_factory.mktemp("data")
    subprocess.run([str(BIN / "fedfisher"), "data", "fetch", "mnist5k"], cwd=folder, check=True)
    return folder / "data"


@pytest.fixture
def workplace(tmp_path: Path, digits: Path, prefect_api: str) -> Workplace:
    environment = os.environ | {
        "FEDFISHER_DATA_DIR": str(digits),
        "PREFECT_API_URL": prefect_api,
        "PREFECT_HOME": str(tmp_path / "prefect"),
        "PREFECT_WORKER_QUERY_SECONDS": "1",
        "PATH": f"{BIN}:{os.environ['PATH']}",
        "DVC_NO_ANALYTICS": "true",
        "HOME": str(tmp_path),
    }
    folder = tmp_path / "work"
    folder.mkdir()
    place = Workplace(folder, environment)
    place.write("params.yaml", SMALL)
    return place


@pytest.fixture
def clone(workplace: Workplace) -> Workplace:
    """A fresh clone of the project, far from the original."""
    shutil.rmtree(workplace.folder)
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(workplace.folder)], check=True)
    environment = {key: value for key, value in workplace.environment.items() if key != "FEDFISHER_DATA_DIR"}
    return Workplace(workplace.folder, environment)
