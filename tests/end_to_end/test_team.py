"""What a team shares: servers on PostgreSQL that ask for a password, workers elsewhere, and a bucket."""

import base64
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest
from mlflow import MlflowClient
from psycopg import sql

from tests.end_to_end.conftest import Workplace, same_rows
from tests.postgres import PASSWORD as OF_DATABASE
from tests.servers import dask_cluster
from tests.swift import BUCKET, SECRET, object_store
from tests.team import CREDENTIALS, FIGURES, LOG, PASSWORD, SCRIPT, TeamServers, team_servers
from tests.waiting import HANG_SECONDS

pytestmark = [pytest.mark.end_to_end, pytest.mark.long]


@pytest.fixture
def servers(workplace: Workplace, tmp_path: Path) -> Iterator[TeamServers]:
    with team_servers(workplace.environment, tmp_path) as running:
        yield running


@pytest.fixture
def bucket(workplace: Workplace, tmp_path: Path) -> Iterator[str]:
    """A place in a bucket, which all that is started from now on reaches."""
    with object_store(tmp_path / "swift") as environment:
        workplace.environment.update(environment)
        yield f"s3://{BUCKET}/artifacts"


def secrets_in(text: bytes) -> set[str]:
    """The secrets that a text holds, as they are, in an address or in the header of a request."""
    return {
        secret
        for secret in (PASSWORD, SECRET, OF_DATABASE)
        for written in (secret, quote(secret), base64.b64encode(f"admin:{secret}".encode()).decode())
        if written.encode() in text
    }


def rows_of(database: str) -> Iterator[bytes]:
    """Every row of every table, as text."""
    with psycopg.connect(database) as connection:
        tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
        for (name,) in tables:
            query = sql.SQL("SELECT row_of::text FROM {} AS row_of").format(sql.Identifier(name))
            for (row,) in connection.execute(query):
                yield row.encode()


@pytest.mark.drawn(0)
def test_machines_that_share_only_servers_give_the_rows_of_one(
    finished: Workplace,
    workplace: Workplace,
    servers: TeamServers,
    bucket: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    local = finished.rows("finished")
    shared = (
        *("--set", f"tracking.prefect_api={servers.prefect}"),
        *("--set", f"tracking.mlflow={servers.mlflow}"),
        *("--set", f"run.store={bucket}"),
    )
    refused = workplace.run("fedfisher", "run", "params.yaml", *shared, code=2)
    assert "asks for credentials: 401" in refused.stderr.splitlines()[-1]
    workplace.environment.update(CREDENTIALS)
    with dask_cluster(workplace.environment, tmp_path) as address:
        on_dask = ("--set", "run.runner=dask", "--set", f"run.dask.scheduler={address}")
        together = ("fedfisher", "run", "params.yaml", *shared, *on_dask, "--set", "name=together")
        done = workplace.run(*together)
    assert same_rows(workplace.rows("together"), local)
    # Each worker keeps what it has read or written itself, in its own folder.
    assert all(list((tmp_path / name / ".artifacts").rglob("*.safetensors")) for name in ("one", "two"))

    # Another machine, which has nothing yet, trains nothing.
    another = ("--set", "run.cache.folder=another", "--set", "name=again", "--set", "tracking.models=best")
    workplace.run("fedfisher", "run", "params.yaml", *shared, *another)
    assert same_rows(workplace.rows("again"), local)
    # Of all tensors it reads the one network that it registers in MLflow.
    (network,) = (workplace.folder / "another").rglob("*.safetensors")
    assert network.parent.parent.name == "aggregates"

    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    client = MlflowClient(servers.mlflow)
    names = {experiment.name for experiment in client.search_experiments()}
    assert {"together", "again"} <= names

    # No secret is told by the command, nor by any file of it, of the workers and the servers, or of the bucket.
    assert not secrets_in((done.stdout + done.stderr).encode())
    places = (
        workplace.folder,
        tmp_path / "one",
        tmp_path / "two",
        tmp_path / FIGURES,
        tmp_path / "swift" / "devices",
    )
    told = [[path for path in place.rglob("*") if path.is_file()] for place in places]
    assert all(told)
    for path in (*(path for files in told for path in files), tmp_path / LOG):
        assert not secrets_in(path.read_bytes()), path
    for name in ("prefect", "mlflow", "mlflow_users"):
        rows = list(rows_of(f"{servers.database}/{name}"))
        assert rows
        assert not [row for row in rows if secrets_in(row)]


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"TEAM_PASSWORD": PASSWORD}, "DATABASE is not set; allowed: postgresql://"),
        ({"TEAM_PASSWORD": PASSWORD, "DATABASE": "mysql://hidden@host"}, "DATABASE must begin with postgresql://"),
        ({"DATABASE": "postgresql://hidden@host"}, "TEAM_PASSWORD is not set; allowed: at least 12 characters"),
        ({"TEAM_PASSWORD": "hidden", "DATABASE": "postgresql://x@host"}, "TEAM_PASSWORD has 6 characters"),
    ],
)
def test_servers_without_a_password_are_not_started(environment: dict[str, str], said: str) -> None:
    environment = {"PATH": os.environ["PATH"], **environment}
    done = subprocess.run([SCRIPT], env=environment, capture_output=True, text=True, timeout=HANG_SECONDS)
    assert done.returncode == 2
    assert said in done.stderr
    assert "hidden" not in done.stderr
