"""The servers of a team, for tests: Prefect and MLflow on PostgreSQL, as deploy/README.md starts them."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg

from tests.postgres import postgres
from tests.servers import free_port, stopped_after, wait_for

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "deploy" / "servers.sh"
PASSWORD = "right % horse"
LOG = "servers.log"
FIGURES = "figures"
CREDENTIALS = {
    "MLFLOW_TRACKING_USERNAME": "admin",
    "MLFLOW_TRACKING_PASSWORD": PASSWORD,
    "PREFECT_API_AUTH_STRING": f"admin:{PASSWORD}",
}
"""Environment variables that users of the servers need."""


@dataclass(frozen=True)
class TeamServers:
    """Servers that run.

    Args:
        database: address of PostgreSQL.
        prefect: address of Prefect's API.
        mlflow: address of MLflow.
    """

    database: str
    prefect: str
    mlflow: str


@contextmanager
def team_servers(environment: Mapping[str, str], folder: Path) -> Iterator[TeamServers]:
    """Run the servers of a team.

    Args:
        environment: of both.
        folder: gets their log and MLflow's figures.

    Yields:
        Where they are.
    """
    with postgres() as database:
        with psycopg.connect(f"{database}/postgres", autocommit=True) as connection:
            for command in (ROOT / "deploy/databases.sql").read_text().splitlines():
                connection.execute(command.encode())
        prefect, mlflow = free_port(), free_port()
        settings = {
            **environment,
            "DATABASE": database,
            "TEAM_PASSWORD": PASSWORD,
            "PREFECT_PORT": str(prefect),
            "MLFLOW_PORT": str(mlflow),
            "MLFLOW_FIGURES": str(folder / FIGURES),
            # Each of its processes takes seconds of a core to start.
            "MLFLOW_WORKERS": "1",
        }
        with stopped_after([str(SCRIPT)], settings, folder, log=folder / LOG):
            wait_for(f"http://127.0.0.1:{prefect}/api/health")
            wait_for(f"http://127.0.0.1:{mlflow}/health")
            yield TeamServers(database, f"http://127.0.0.1:{prefect}/api", f"http://127.0.0.1:{mlflow}")
