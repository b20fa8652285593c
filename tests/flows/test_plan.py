import os
import socket
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
import torch
from flows.plan import Plan, make_plan, parse_published
from torch import nn
from torch.nn import functional

from fedfisher_core.client.diagonal_fisher import DiagonalFisher
from fedfisher_core.client.gram import Gram
from fedfisher_core.client.kfac import KFAC
from fedfisher_core.client.weights import Weights
from fedfisher_core.errors import InputError
from fedfisher_core.federation.training import POOLED
from fedfisher_core.models.spec import ModelSpec, model
from tests.tiny import tiny_settings


@model("split_filters")
class SplitFilters(nn.Module):
    """A network that can be trained but has no Fisher."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.first = nn.Conv2d(spec.inputs.channels, 2, kernel_size=3)
        self.second = nn.Conv2d(2, 2, kernel_size=3, groups=2)
        self.head = nn.Linear(2 * (spec.inputs.height - 4) ** 2, spec.classes)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.head(functional.relu(self.second(functional.relu(self.first(inputs)))).flatten(1))


def plan(folder: Path, **changes: Any) -> Plan:
    return make_plan(tiny_settings(folder, **changes))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_a_plan_names_all_work(workplace: Path) -> None:
    made = plan(workplace, seeds=[0, 1], partition={"alpha": [0.1, 0.5], "clients": [3, 4]}, methods=["fedavg"])
    assert len(made.cells) == 8
    assert list(made.methods) == ["fedavg"]
    assert {len(made.clients(cell)) for cell in made.cells} == {3, 4}


def test_planning_computes_nothing(workplace: Path) -> None:
    made = plan(workplace, methods=["fedavg", "fedfisher_kfac"])
    assert made.context.store.folders() == []
    assert list((workplace / "reports").iterdir()) == []


@pytest.mark.parametrize(
    ("methods", "kinds"),
    [
        (["fedavg"], (Weights,)),
        (["fedavg", "fisher_merge", "fedfisher_diag"], (Weights, DiagonalFisher)),
        (["regmean", "ensemble", "fedfisher_kfac"], (Weights, Gram, KFAC)),
        (["fedavg", "centralised"], (Weights,)),
    ],
)
def test_clients_compute_what_their_methods_declare_and_no_more(
    workplace: Path, methods: list[str], kinds: tuple[type, ...]
) -> None:
    made = plan(workplace, methods=methods)
    assert made.kinds(made.cells[0], 0) == kinds


def test_the_pooled_client_computes_what_pooled_methods_declare(workplace: Path) -> None:
    made = plan(workplace, methods=["fedfisher_kfac", "centralised"])
    assert made.kinds(made.cells[0], POOLED) == (Weights,)


def test_a_method_runs_only_where_it_is_asked_to(workplace: Path) -> None:
    methods = {
        "fedavg": {},
        "fedfisher_kfac": {"only": {"seed": 1, "clients": [3]}},
        "centralised": {"only": {"alpha": 0.5}},
    }
    made = plan(workplace, seeds=[0, 1], partition={"alpha": [0.1, 0.5], "clients": [3, 4]}, methods=methods)
    found = {(cell.seed, cell.clients, cell.alpha): list(made.methods_of(cell)) for cell in made.cells}
    assert found[1, 3, 0.1] == ["fedavg", "fedfisher_kfac"]
    assert found[0, 3, 0.1] == found[1, 4, 0.1] == ["fedavg"]
    assert found[0, 4, 0.5] == ["fedavg", "centralised"]
    for cell in made.cells:
        assert made.kinds(cell, 0) == ((Weights, KFAC) if (cell.seed, cell.clients) == (1, 3) else (Weights,))
        assert (POOLED in made.clients(cell)) == (cell.alpha == 0.5)


def test_points_that_no_method_runs_in_are_left_out(workplace: Path) -> None:
    made = plan(workplace, seeds=[0, 1, 2], methods={"fedavg": {"only": {"seed": [0, 2]}}})
    assert [cell.seed for cell in made.cells] == [0, 2]


def test_a_network_that_a_method_can_not_serve_may_be_left_to_others(workplace: Path) -> None:
    methods = {"fedavg": {}, "fedfisher_diag": {"only": {"model": "tiny"}}}
    models = {"name": ["tiny", "split_filters"]}
    with pytest.raises(InputError, match="method 'fedfisher_diag' can't serve model 'split_filters'"):
        plan(workplace, model=models, methods={"fedavg": {}, "fedfisher_diag": {}})
    assert len(plan(workplace, model=models, methods=methods).cells) == 2


@pytest.mark.parametrize(
    ("only", "message"),
    [
        ({"seed": 7}, r"methods\.fedavg\.only\.seed=7 is no point of the benchmark; allowed: 0"),
        ({"seeds": [0]}, r"unknown setting 'methods\.fedavg\.only\.seeds'; did you mean 'seed'"),
        ({"seed": []}, r"methods\.fedavg\.only=\{'seed': \[\]\} leaves no point of the benchmark"),
        ("seed=0", r"methods\.fedavg\.only='seed=0': must be a mapping"),
        ({"clients": "many"}, r"methods\.fedavg\.only\.clients\.0='many'"),
    ],
)
def test_a_restriction_to_nowhere_is_refused(workplace: Path, only: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        plan(workplace, methods={"fedavg": {"only": only}})


@pytest.mark.parametrize(
    ("methods", "clients"),
    [
        (["fedavg"], (0, 1, 2)),
        (["fedavg", "centralised"], (POOLED, 0, 1, 2)),
        (["centralised"], (POOLED,)),
    ],
)
def test_only_the_clients_that_are_needed_are_trained(
    workplace: Path, methods: list[str], clients: tuple[int, ...]
) -> None:
    made = plan(workplace, methods=methods)
    assert made.clients(made.cells[0]) == clients


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"methods": ["fedavg", "regmeen"]}, "unknown method 'regmeen'; did you mean 'regmean'"),
        ({"methods": {"regmean": {"of_diagonal": 1}}}, "unknown setting 'methods.regmean.of_diagonal'; did you mean"),
        ({"methods": {"fedavg": {"steps": 1}}}, "unknown setting 'methods.fedavg.steps'; allowed: method, only, wire"),
        (
            {"methods": {"fedfisher_diag": {"solver": {"name": "paper", "steps": 0}}}},
            "methods.fedfisher_diag.solver.paper.steps=0: ",
        ),
        (
            {"methods": ["fedfisher_kfac"], "wire": {"budget": 1000}},
            "method 'fedfisher_kfac' can't serve model 'tiny': budget_bits is 1000",
        ),
        (
            {"methods": ["fedfisher_kfac"], "fisher": {"memory_mib": 1}},
            "fisher.memory_mib=1, kfac of model 'tiny': memory_limit=1048576 bytes is too small",
        ),
        (
            {"methods": ["fedfisher_full"], "fisher": {"backend": "nngeometry"}},
            "fisher.backend='nngeometry' has no full Fisher, which method 'fedfisher_full' needs",
        ),
        ({"methods": {"fisher_merge": {"fisher_floor": -1}}}, "methods.fisher_merge.fisher_floor=-1: "),
        ({"data": {"dataset": "tinny"}}, "unknown dataset 'tinny'; did you mean 'tiny'"),
        ({"model": {"name": "lennet"}}, "unknown model 'lennet'; did you mean 'lenet'"),
        ({"model": {"name": "lenet"}}, "model 'lenet' needs images of at least 16x16 pixels; they have 6"),
        (
            {"model": {"name": "normalised"}, "methods": ["fedfisher_kfac"]},
            "method 'fedfisher_kfac' can't serve model 'normalised': layer 'norm'",
        ),
        ({"run": {"min_clients": 4}}, "run.min_clients=4 exceeds partition.clients=3"),
        (
            {"run": {"min_clients": 4}, "partition": {"clients": [5, 3]}},
            "run.min_clients=4 exceeds partition.clients=3",
        ),
        ({"report": {"published": "FedFisher 2023"}}, "report.published='FedFisher 2023' must have the form"),
    ],
)
def test_bad_settings_are_refused_by_name(workplace: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        plan(workplace, **changes)
    assert message in str(caught.value)
    assert not (workplace / "artifacts").exists()


def test_a_gpu_that_is_not_there_is_refused(workplace: Path) -> None:
    if torch.cuda.is_available():
        assert plan(workplace, run={"device": "cuda"}).context.device.type == "cuda"
        return
    with pytest.raises(InputError, match=r"run\.device='cuda', but torch finds no GPU; allowed here: auto, cpu"):
        plan(workplace, run={"device": "cuda"})


def test_a_data_folder_that_is_none_is_refused(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDFISHER_DATA_DIR", str(workplace / "absent"))
    with pytest.raises(InputError, match="FEDFISHER_DATA_DIR="):
        plan(workplace)


@pytest.mark.parametrize(
    ("changes", "setting"),
    [
        ({"run": {"store": "file/artifacts"}}, "run.store='file/artifacts'"),
        ({"run": {"reports": "file/reports"}}, "run.reports='file/reports'"),
        ({"tracking": {"mlflow": "sqlite:///file/mlflow.db"}}, "tracking.mlflow='sqlite:///file/mlflow.db'"),
        ({"tracking": {"mlflow": "sqlite:///absent/mlflow.db"}}, "tracking.mlflow='sqlite:///absent/mlflow.db'"),
        ({"tracking": {"mlflow": "sqlite:///."}}, "tracking.mlflow='sqlite:///.'"),
        ({"tracking": {"mlflow": "sqlite:///text"}}, "tracking.mlflow='sqlite:///text'"),
    ],
)
def test_a_place_that_cannot_be_written_is_refused(workplace: Path, changes: dict[str, Any], setting: str) -> None:
    (workplace / "file").write_text("")
    (workplace / "text").write_text("this is no database, " * 100)
    with pytest.raises(InputError) as caught:
        plan(workplace, **changes)
    assert setting in str(caught.value)


@pytest.mark.parametrize("name", ["plain.db", "with space.db", "100%25.db", "a#b.db"])
def test_a_database_of_any_name_is_found_where_it_is(workplace: Path, name: str) -> None:
    plan(workplace, tracking={"mlflow": f"sqlite:///{name}"})
    assert (workplace / name).is_file()


def test_options_of_a_database_are_no_part_of_its_name(workplace: Path) -> None:
    plan(workplace, tracking={"mlflow": "sqlite:///runs.db?timeout=20"})
    assert (workplace / "runs.db").is_file()


def test_a_database_that_others_read_is_accepted(workplace: Path) -> None:
    plan(workplace)
    with closing(sqlite3.connect(workplace / "mlflow.db")) as database:
        database.execute("CREATE TABLE runs (name TEXT)")
        database.execute("BEGIN")
        database.execute("SELECT * FROM runs").fetchall()
        plan(workplace)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everything")
def test_a_database_that_can_only_be_read_is_refused(workplace: Path) -> None:
    plan(workplace)
    (workplace / "mlflow.db").chmod(0o444)
    with pytest.raises(InputError, match=r"tracking\.mlflow=.*readonly"):
        plan(workplace)


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_an_mlflow_server_that_does_not_answer_is_refused(workplace: Path, scheme: str) -> None:
    uri = f"{scheme}://127.0.0.1:{free_port()}"
    with pytest.raises(InputError, match=f"tracking.mlflow='{uri}' can't be reached: .*refused"):
        plan(workplace, tracking={"mlflow": uri})


def test_a_prefect_server_that_does_not_answer_is_refused(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    api = f"http://127.0.0.1:{free_port()}/api"
    with pytest.raises(InputError, match=f"Prefect server '{api}' .* can't be reached: .*refused"):
        plan(workplace, tracking={"prefect_api": api})
    monkeypatch.setenv("PREFECT_API_URL", api)
    with pytest.raises(InputError, match=f"Prefect server '{api}' .*PREFECT_API_URL.* can't be reached"):
        plan(workplace)


@pytest.mark.parametrize("uri", ["http://", "http://127.0.0.1:port", "http://[", "https://no host/"])
def test_an_address_that_is_none_is_refused(workplace: Path, uri: str) -> None:
    with pytest.raises(InputError, match=r"tracking\.mlflow=.* can't be reached"):
        plan(workplace, tracking={"mlflow": uri})


@contextmanager
def served(answer: Callable[[socket.socket], None]) -> Iterator[int]:
    """A server on a port of its own that treats every connection in its own way."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        stopped = threading.Event()

        def serve() -> None:
            while not stopped.is_set():
                connection, _ = listener.accept()
                with connection:
                    connection.settimeout(5)
                    if not stopped.is_set():
                        answer(connection)

        thread = threading.Thread(target=serve)
        thread.start()
        port = listener.getsockname()[1]
        try:
            yield port
        finally:
            stopped.set()
            socket.create_connection(("127.0.0.1", port)).close()
            thread.join()


def _hang_up(connection: socket.socket) -> None:
    connection.recv(1)


def _talk_nonsense(connection: socket.socket) -> None:
    connection.recv(4096)
    connection.sendall(b"220 mail.example.org ESMTP\r\n")


@pytest.mark.parametrize("answer", [_hang_up, _talk_nonsense])
def test_a_server_of_another_kind_is_refused(workplace: Path, answer: Callable[[socket.socket], None]) -> None:
    with served(answer) as port, pytest.raises(InputError, match=r"tracking\.mlflow=.* can't be reached"):
        plan(workplace, tracking={"mlflow": f"http://127.0.0.1:{port}"})


class _Healthy(BaseHTTPRequestHandler):
    """Answers as MLflow and Prefect do when asked for their health."""

    def do_GET(self) -> None:
        self.send_response(200 if self.path in ("/health", "/api/health") else 404)
        self.end_headers()

    def log_message(self, format: str, *arguments: object) -> None:
        """Say nothing."""


def test_servers_that_answer_are_accepted(workplace: Path) -> None:
    with HTTPServer(("127.0.0.1", 0), _Healthy) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            address = f"http://127.0.0.1:{server.server_port}"
            plan(workplace, tracking={"mlflow": f"{address}/", "prefect_api": f"{address}/api"})
            with pytest.raises(InputError, match=r"Prefect server .* can't be reached: Not Found"):
                plan(workplace, tracking={"mlflow": address, "prefect_api": f"{address}/other"})
        finally:
            server.shutdown()
            thread.join()


def test_the_source_and_the_table_of_published_results_are_told_apart() -> None:
    assert parse_published("FedFisher workshop 2023, Table 1") == ("FedFisher workshop 2023", "Table 1")
    with pytest.raises(InputError, match="must have the form 'SOURCE, TABLE'"):
        parse_published("Table 1")
