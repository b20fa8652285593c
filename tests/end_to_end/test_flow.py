"""The flow on a real Prefect server, in this process: limits of tasks, lost clients, what the UI shows."""

import re
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Self

import pytest
import torch
from prefect import flow
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId, FlowRunFilterName
from prefect.client.schemas.objects import FlowRun
from prefect.settings import PREFECT_API_URL, PREFECT_HOME, temporary_settings
from prefect.task_runners import ThreadPoolTaskRunner
from torch import Size

from fedfisher_core.client.local import Local
from fedfisher_core.client.statistics.label_counts import LabelCounts
from fedfisher_core.client.statistics.statistic import ServerView, TensorStatistic
from fedfisher_core.client.statistics.weights import Weights
from fedfisher_core.communication.wire.structure import EXACT, Structure
from fedfisher_core.data.specs import DATA_DIR_VARIABLE
from fedfisher_core.engine.errors import IncompleteError, InputError
from fedfisher_core.engine.job import Numerics
from fedfisher_core.experiments.benchmark.rows import Row
from fedfisher_core.experiments.benchmark.settings import BenchmarkSettings
from fedfisher_core.methods.method import method, methods
from fedfisher_core.methods.server import Aggregate
from fedfisher_core.methods.shared.averaging import mean_parameters
from fedfisher_core.models.spec import ModelSpec
from fedfisher_core.reporting.rows import read_rows
from fedfisher_core.settings import RunSettings
from fedfisher_core.settings.reading import validate
from flows.experiment import flow_of
from tasks.common import limited, step, tensor_resources
from tests.end_to_end.conftest import SMALL

pytestmark = pytest.mark.end_to_end


@dataclass(frozen=True)
class Fragile(TensorStatistic):
    """Not finite for clients that hold fewer examples of class 0 than of class 1."""

    name: ClassVar[str] = "fragile"
    server_view: ClassVar[ServerView] = ServerView.EACH
    structure: ClassVar[Structure] = EXACT

    @classmethod
    def compute(cls, local: Local) -> Self:
        counts = LabelCounts.compute(local).tensors["counts"]
        return cls({"value": torch.tensor([1.0 if counts[0] >= counts[1] else float("nan")])})

    @classmethod
    def shapes(cls, spec: ModelSpec) -> dict[str, Size]:
        return {"value": Size([1])}


@pytest.fixture
def place(tmp_path: Path, digits: Path, prefect_api: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(DATA_DIR_VARIABLE, str(digits))
    monkeypatch.setenv("PREFECT_API_URL", prefect_api)
    with temporary_settings({PREFECT_API_URL: prefect_api, PREFECT_HOME: tmp_path / "prefect"}):
        yield tmp_path


@pytest.fixture(scope="session", autouse=True)
def fragile_method() -> None:
    @method("fragile_mean", uploads=(Weights, Fragile), reference="https://example.org")
    def fragile_mean(server: object, uploads: list) -> Aggregate:
        """Average the weights of clients whose statistic is finite."""
        return Aggregate.of(mean_parameters(uploads))

    assert "fragile_mean" in list(methods)


def settings(**changes: object) -> BenchmarkSettings:
    # MLflow keeps its connection to a database by the address, which must not be the same in the next folder.
    tracking = {"tracking": {"mlflow": f"sqlite:///{Path.cwd()}/mlflow.db", "models": "none"}}
    return validate(BenchmarkSettings, SMALL | {"train": {"epochs": 1}} | tracking | changes)


def benchmark(wanted: BenchmarkSettings) -> str:
    return flow_of("benchmark")(wanted)


def runs_of(name: str) -> list[FlowRun]:
    with get_client(sync_client=True) as client:
        wanted = FlowRunFilter(name=FlowRunFilterName(any_=[name]))
        return client.read_flow_runs(flow_run_filter=wanted, limit=200)


@pytest.mark.drawn(0)
def test_a_lost_client_ends_the_run_unless_the_settings_go_on_without_it(place: Path) -> None:
    wanted = settings(methods={"fedavg": {}, "fragile_mean": {}}, partition={"alpha": [0.3], "clients": [6]})
    with pytest.raises(IncompleteError, match="failed") as caught:
        benchmark(wanted)
    assert caught.value.by_user
    # FedAvg needs nothing that was lost.
    assert [row.method for row in read_rows(place / "results/small/results.json", Row)] == ["fedavg"]
    traces = (place / "results/small/failed.log").read_text()
    assert re.search(r"client \d of .* alpha=0\.3.*'fragile'.*run\.min_clients", traces)
    kept = list((place / "artifacts/clients").iterdir())

    folder = benchmark(wanted.model_copy(update={"run": wanted.run.model_copy(update={"min_clients": 1})}))
    rows = {row.method: row for row in read_rows(Path(folder) / "results.json", Row)}
    failed = rows["fragile_mean"].failed_clients
    assert 0 < len(failed) < 6
    # What is not finite is no upload of FedAvg's, but methods of one setting are compared on the same clients.
    assert rows["fedavg"].failed_clients == failed
    assert rows["fedavg"].upload_bits_formula == 32 * 44190 * (6 - len(failed))
    assert set(kept) <= set((place / "artifacts/clients").iterdir())


def test_the_ui_shows_a_run_and_others_neither_repeat_it_nor_write_over_it(place: Path) -> None:
    shown = settings(name="shown", methods={"fedavg": {}})
    (place / "params.yaml").write_text(shown.to_yaml())
    folder = benchmark(shown)
    (cell,) = shown.seeded_settings()
    with get_client(sync_client=True) as client:
        this = FlowRunFilter(name=FlowRunFilterName(any_=["shown"]))
        names = {run.name for run in client.read_task_runs(flow_run_filter=this, limit=200)}
        artifacts = client.read_artifacts(flow_run_filter=this, limit=200)
    assert {f"train client 0 of {cell.label}", f"aggregate fedavg of {cell.label}", "report"} <= names
    assert {artifact.type for artifact in artifacts} >= {"table", "progress", "markdown"}
    (report,) = [str(artifact.data) for artifact in artifacts if artifact.key == "shown-report"]
    assert f"The report is `{place / 'results/shown/index.html'}`." in report
    assert "| fedavg |" in report

    written = {path.name: path.stat().st_mtime_ns for path in Path(folder).iterdir()}
    assert benchmark(shown) == folder
    assert {path.name: path.stat().st_mtime_ns for path in Path(folder).iterdir()} == written
    with get_client(sync_client=True) as client:
        tasks = [len(client.read_task_runs(flow_run_filter=_only(run), limit=200)) for run in runs_of("shown")]
    assert sorted(map(bool, tasks)) == [False, True]

    # Other settings under the name of params.yaml, as a deployment may have, have a folder of their own.
    assert benchmark(shown.model_copy(update={"seeds": (5,)})).startswith("results/shown-")
    assert {path.name: path.stat().st_mtime_ns for path in Path(folder).iterdir()} == written


def _only(run: FlowRun) -> FlowRunFilter:
    return FlowRunFilter(id=FlowRunFilterId(any_=[run.id]))


def test_what_may_pass_is_tried_again_and_what_can_not_is_not(place: Path) -> None:
    calls: list[str] = []

    @step(run_name="flaky")
    def flaky(error: Exception) -> int:
        calls.append(type(error).__name__)
        if len([one for one in calls if one == type(error).__name__]) == 1:
            raise error
        return 1

    run = RunSettings(retries=1)

    @flow
    def trying() -> None:
        assert limited(flaky, run)(OSError("the disk was busy")) == 1
        with pytest.raises(InputError):
            limited(flaky, run)(InputError("never"))

    trying()
    assert calls == ["OSError", "OSError", "InputError"]


def test_a_task_that_takes_too_long_is_stopped(place: Path) -> None:
    @step(run_name="endless")
    def endless() -> None:
        while True:
            torch.ones(100, 100) @ torch.ones(100, 100)

    run = RunSettings(retries=0, timeout_seconds=1)

    @flow(task_runner=ThreadPoolTaskRunner(max_workers=1))
    def waiting() -> None:
        limited(endless, run).submit().result()

    with pytest.raises(TimeoutError):
        waiting()


def test_only_one_task_at_a_time_computes_on_a_gpu(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # There is no GPU where tests run: the slot is what is tested, which only has a name.
    monkeypatch.setattr("tasks.common._current_gpu", lambda: "one")
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    numerics = Numerics(device="cuda")
    inside, most, lock = 0, 0, threading.Lock()

    @step(run_name="on a gpu {number}")
    def on_a_gpu(number: int) -> None:
        nonlocal inside, most
        with tensor_resources(numerics, share_gpu=False, seconds=60):
            with lock:
                inside += 1
                most = max(most, inside)
            time.sleep(0.3)
            with lock:
                inside -= 1

    @flow(task_runner=ThreadPoolTaskRunner(max_workers=3))
    def crowding() -> None:
        for future in [on_a_gpu.submit(number) for number in range(3)]:
            future.result()

    crowding()
    assert most == 1
