"""By which names MLflow's server may be called that deploy/servers.sh starts."""

import os
import subprocess
from pathlib import Path

import pytest
import yaml
from mlflow.server import security_utils

from tests.waiting import HANG_SECONDS

DEPLOY = Path(__file__).parents[1] / "deploy"
VARIABLE = "MLFLOW_SERVER_ALLOWED_HOSTS"


def told(folder: Path, **names: str) -> str:
    """Run the script with programs that note what they are told and end; what MLflow's is told."""
    for program, does in (("prefect", "sleep 20"), ("mlflow", f'printf %s "${VARIABLE}" > told')):
        (folder / program).write_text(f"#!/bin/sh\n{does}\n")
        (folder / program).chmod(0o755)
    environment = {
        "PATH": f"{folder}:{os.environ['PATH']}",
        "DATABASE": "postgresql://team:secret@127.0.0.1",
        "TEAM_PASSWORD": "right % horse",
        **names,
    }
    subprocess.run([DEPLOY / "servers.sh"], cwd=folder, env=environment, timeout=HANG_SECONDS, check=True)
    return (folder / "told").read_text()


@pytest.mark.parametrize("names", ["", "mlflow.example.org:*"])
def test_its_names_are_those_of_the_environment(tmp_path: Path, names: str) -> None:
    assert told(tmp_path, **{VARIABLE: names}) == names


@pytest.mark.parametrize("host", ["servers:5000", "localhost:5000", "127.0.0.1:5000"])
def test_other_services_of_the_containers_may_call_it_by_its_name(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    monkeypatch.setenv(VARIABLE, services["servers"]["environment"][VARIABLE])
    allowed = security_utils.get_allowed_hosts_from_env()
    assert allowed is not None
    assert security_utils.is_allowed_host_header(allowed, host)
    assert not security_utils.is_allowed_host_header(allowed, "evil.example.org:5000")
