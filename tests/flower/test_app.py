"""The example app on a real SuperLink with two SuperNodes, as `flwr run` starts it."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import fedfisher
from tests.servers import free_port, stopped_after, wait_for, wait_for_port
from tests.waiting import HANG_SECONDS

pytest.importorskip("flwr", reason="Flower is not here; `make test` runs these tests in .venv/flower")
pytestmark = pytest.mark.end_to_end

APP = Path(__file__).parents[2] / "examples/flower_app"
BIN = Path(sys.executable).parent
CLIENTS = 2


@dataclass(frozen=True)
class Runtime:
    """A SuperLink with its SuperNodes."""

    folder: Path
    environment: dict[str, str]

    def run(self, **changes: object) -> str:
        """Run the app until it ends; what `flwr run` prints."""
        settings = {"clients": CLIENTS, "epochs": 1} | changes
        chosen = " ".join(f'{key}="{one}"' if isinstance(one, str) else f"{key}={one}" for key, one in settings.items())
        ended = subprocess.run(
            [BIN / "flwr", "run", APP, "here", "--stream", "--run-config", chosen],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=HANG_SECONDS,
        )
        assert ended.returncode == 0, ended.stderr
        return ended.stdout


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runtime]:
    folder = tmp_path_factory.mktemp("flower")
    environment = {
        **os.environ,
        "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
        "FLWR_HOME": str(folder / "home"),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "OMP_NUM_THREADS": "1",
    }
    port = free_port()
    link = f"127.0.0.1:{port}"
    (folder / "home").mkdir()
    (folder / "home/config.toml").write_text(f'[superlink.here]\naddress = "{link}"\ninsecure = true\n')
    server = ["flower-superlink", "--insecure", "--port", str(port), "--disable-runtime-dependency-installation"]
    with ExitStack() as stack:
        stack.enter_context(stopped_after([str(BIN / server[0]), *server[1:]], environment, log=folder / "link"))
        wait_for(f"http://{link}/health")
        for number in range(CLIENTS):
            node = ["--insecure", "--superlink", link, "--port", str(port := free_port())]
            config = ["--node-config", f"partition-id={number} num-partitions={CLIENTS}"]
            command = [str(BIN / "flower-supernode"), *node, *config]
            stack.enter_context(stopped_after(command, environment, log=folder / f"node{number}"))
            wait_for_port(port)
        yield Runtime(folder, environment)


def test_the_network_is_that_of_merge(runtime: Runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = runtime.run(method="fedfisher_kfac", out=str(tmp_path / "merged"))
    assert "aggregate_evaluate: Received 2 results and 0 failures" in said, said
    monkeypatch.syspath_prepend(APP)
    from flower_app import task

    clients = []
    for number in range(CLIENTS):
        network, loader = task.build(), task.client_digits(number, CLIENTS)
        task.fit(network, loader, epochs=1, learning_rate=0.05)
        clients.append(fedfisher.Client(network, loader))
    sent = [one.upload("fedfisher_kfac", budget="fedavg") for one in clients]
    # As the server orders them: many steps of its solver make much of the last digits, which the order changes.
    sent.sort(key=lambda one: one.data)
    expected = fedfisher.merge(sent, method="fedfisher_kfac", budget="fedavg")
    torch.testing.assert_close(load_file(tmp_path / "merged"), dict(expected.state_dict()))
    assert f"'upload-bits': {[8 * len(one.data) for one in sent]}" in said


def test_a_method_that_keeps_several_networks_is_refused_and_writes_nothing(runtime: Runtime, tmp_path: Path) -> None:
    said = runtime.run(method="ensemble", out=str(tmp_path / "merged"))
    assert "InputError: method 'ensemble' leaves no single network of the clients' own shape" in said
    assert "configure_train" not in said
    assert not list(tmp_path.iterdir())
