"""Runs in a database of the real MLflow, written by a command that is cut off."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy
import pytest
import torch
from mlflow import MlflowClient, MlflowException, pyfunc
from mlflow.entities import Run
from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore
from torch import nn

from fedfisher_core.reporting.runs import Dataset, Network, Record, Runs, with_page
from fedfisher_core.settings import TrackingSettings
from tasks import tracking
from tasks.figures import FigureRepository
from tasks.record import record
from tasks.tracking import client_of, lost_figures

POINTS = 1500
"""More than MLflow sends at once."""


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory, database: Path) -> TrackingSettings:
    """A database for all."""
    folder = tmp_path_factory.mktemp("mlflow")
    shutil.copy(database, folder)
    return TrackingSettings(mlflow=f"sqlite:///{folder}/mlflow.db", mlflow_artifacts=folder / "figures")


def write(settings: TrackingSettings, one: Record) -> int:
    return record.fn(settings, one.name, lambda: Runs([one], []), {"tag": "any"})


def written(settings: TrackingSettings, name: str) -> Run:
    """The only run of an experiment that is named as its run is."""
    client = MlflowClient(tracking_uri=settings.mlflow)
    experiment = client.get_experiment_by_name(name)
    assert experiment is not None
    (run,) = client.search_runs([experiment.experiment_id])
    return run


def cut_off(patch: pytest.MonkeyPatch, after: int) -> None:
    """Kill the command instead of a later part of a batch."""
    log_batch, sent = SqlAlchemyStore.log_batch, []

    def send(store: SqlAlchemyStore, run_id: str, metrics: list[object], params: object, tags: object) -> None:
        if len(sent) == after:
            raise KeyboardInterrupt
        sent.append(len(metrics))
        log_batch(store, run_id, metrics, params, tags)

    patch.setattr(SqlAlchemyStore, "log_batch", send)


def test_a_run_that_is_cut_off_in_the_middle_of_its_points_is_written_again(
    settings: TrackingSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = Record("drawn", {"i": "1"}, {"accuracy": 0.5}, {}, series={"loss": {at: 1.0 for at in range(POINTS)}})
    with monkeypatch.context() as patch:
        cut_off(patch, after=1)
        with pytest.raises(KeyboardInterrupt):
            write(settings, one)
    assert "content" not in written(settings, "drawn").data.tags
    assert write(settings, one) == 1
    run = written(settings, "drawn")
    assert run.data.tags["content"] == one.content
    client = MlflowClient(tracking_uri=settings.mlflow)
    assert len(client.get_metric_history(run.info.run_id, "loss")) == POINTS
    assert write(settings, one) == 0


def test_what_was_cut_off_while_it_was_changed_is_not_what_it_was(
    settings: TrackingSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, after = (Record("changed", {"i": "1"}, {f"m{i}": value for i in range(POINTS)}, {}) for value in (1.0, 2.0))
    write(settings, before)
    with monkeypatch.context() as patch:
        cut_off(patch, after=1)
        with pytest.raises(KeyboardInterrupt):
            write(settings, after)
    assert set(written(settings, "changed").data.metrics.values()) == {1.0, 2.0}
    assert write(settings, before) == 1
    assert set(written(settings, "changed").data.metrics.values()) == {1.0}


def drawn(number: int) -> Record:
    figure = f"<svg>{number}</svg>".encode()
    return Record(f"run {number}", {"i": str(number)}, {"accuracy": 0.5}, {}, draw=lambda: {"x.svg": figure})


def of(folder: Path) -> TrackingSettings:
    """What a command goes by that is started in a folder, regardless of this process's folder."""
    return TrackingSettings(mlflow=f"sqlite:///{folder}/mlflow.db", mlflow_artifacts=folder / "mlartifacts")


def recorded(folder: Path, *numbers: int) -> int:
    return record.fn(of(folder), "drawn", lambda: Runs([drawn(number) for number in numbers], []), {})


def shown(folder: Path, experiment: str = "drawn") -> dict[str, bytes]:
    """What MLflow shows as the figure of each run."""
    client = MlflowClient(tracking_uri=of(folder).mlflow)
    found = client.get_experiment_by_name(experiment)
    assert found is not None
    runs = client.search_runs([found.experiment_id])
    return {
        run.info.run_name: Path(client.download_artifacts(run.info.run_id, "figures/x.svg")).read_bytes()
        for run in runs
    }


def files(folder: Path) -> set[Path]:
    return {path.relative_to(folder) for path in (folder / "mlartifacts").rglob("*.svg")}


@pytest.fixture
def project(tmp_path: Path, database: Path) -> Path:
    (tmp_path / "project").mkdir()
    shutil.copy(database, tmp_path / "project")
    assert recorded(tmp_path / "project", 1) == 1
    return tmp_path / "project"


def test_a_project_that_was_moved_has_its_figures_and_gets_more(project: Path, tmp_path: Path) -> None:
    moved = project.rename(tmp_path / "it's #2 = 100%")
    assert shown(moved) == {"run 1": b"<svg>1</svg>"}
    assert recorded(moved, 1) == 0
    assert recorded(moved, 1, 2) == 1
    assert shown(moved) == {"run 1": b"<svg>1</svg>", "run 2": b"<svg>2</svg>"}
    assert not project.exists()


def test_a_copy_writes_nothing_into_the_original(project: Path, tmp_path: Path) -> None:
    before = files(project)
    copy = shutil.copytree(project, tmp_path / "copy")
    assert recorded(copy, 1, 2) == 1
    assert shown(copy) == {"run 1": b"<svg>1</svg>", "run 2": b"<svg>2</svg>"}
    assert files(project) == before
    assert shown(project) == {"run 1": b"<svg>1</svg>"}


@pytest.fixture
def old(tmp_path: Path, database: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project that was recorded when figures had absolute places."""
    (tmp_path / "old").mkdir()
    shutil.copy(database, tmp_path / "old")
    with monkeypatch.context() as patch:
        patch.setattr(tracking, "entry_points", lambda **_: ())
        assert recorded(tmp_path / "old", 1) == 1
    return tmp_path / "old"


def test_absolute_places_are_kept_as_long_as_they_are_right(old: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert recorded(old, 1) == 0
    assert recorded(old, 1, 2) == 1
    assert shown(old) == {"run 1": b"<svg>1</svg>", "run 2": b"<svg>2</svg>"}
    assert caplog.messages == []
    assert lost_figures(client_of(of(old))) == {}


@pytest.mark.parametrize("is_copied", [False, True])
def test_absolute_places_that_are_others_are_left(
    old: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, is_copied: bool
) -> None:
    before = files(old)
    place = (old / "mlartifacts/drawn").as_uri()
    new = shutil.copytree(old, tmp_path / "new") if is_copied else old.rename(tmp_path / "new")
    assert lost_figures(client_of(of(new))) == ({} if is_copied else {"drawn": place})
    assert recorded(new, 1, 2) == 2
    assert shown(new) == {"run 1": b"<svg>1</svg>", "run 2": b"<svg>2</svg>"}
    (said,) = caplog.messages
    assert place in said
    assert "'drawn (experiment 1)'" in said
    # What was recorded stays.
    client = MlflowClient(tracking_uri=of(new).mlflow)
    assert len(client.search_runs(["1"])) == 1
    assert recorded(new, 1, 2) == 0
    assert (files(old) == before) if is_copied else not old.exists()


@pytest.mark.parametrize(
    ("place", "tracked"),
    [
        ("fedfisher:../elsewhere", "sqlite:///mlflow.db"),
        ("fedfisher:a/%2e%2e/b", "sqlite:///mlflow.db"),
        ("fedfisher:/etc", "sqlite:///mlflow.db"),
        ("fedfisher:a", "http://127.0.0.1:9"),
        ("fedfisher:a", "postgresql://team@127.0.0.1/mlflow"),
    ],
)
def test_places_that_are_not_beside_a_database_are_refused(place: str, tracked: str) -> None:
    with pytest.raises(MlflowException, match="can only be found next to a SQLite file"):
        FigureRepository(place, tracking_uri=tracked)


def test_a_setting_that_was_changed_is_changed(settings: TrackingSettings) -> None:
    one = Record("set", {"i": "1"}, {}, {}, settings={"epochs": "5", "gone": "1"})
    assert write(settings, one) == 1
    assert written(settings, "set").data.params == {"i": "1", "epochs": "5", "gone": "1"}
    more = replace(one, settings={"epochs": "5", "gone": "1", "new": "0"})
    before = written(settings, "set").info.run_id
    assert write(settings, more) == 1
    assert written(settings, "set").info.run_id == before
    for changed in ({"epochs": "7", "gone": "1", "new": "0"}, {"epochs": "7"}):
        assert write(settings, replace(one, settings=changed)) == 1
        assert written(settings, "set").data.params == {"i": "1", **changed}


def test_an_experiment_says_where_its_report_is_and_keeps_it(settings: TrackingSettings, tmp_path: Path) -> None:
    page = tmp_path / "index.html"
    page.write_text("<p>first</p>")
    client = MlflowClient(tracking_uri=settings.mlflow)

    def recorded(content: str) -> int:
        runs = Runs([Record("one", {"i": "1"}, {}, {})], [Record("mean", {"i": "1"}, {}, {})])
        return record.fn(settings, "paged", lambda: with_page(runs, page, content), {})

    def kept() -> str:
        path = client.download_artifacts(written(settings, "paged-summary").info.run_id, "report/index.html", tmp_path)
        return Path(path).read_text()

    assert recorded("a") == 2
    assert kept() == "<p>first</p>"
    found = {name: client.get_experiment_by_name(name) for name in ("paged", "paged-summary")}
    holder = written(settings, "paged-summary").info
    address = f"[Report](#/experiments/{holder.experiment_id}/runs/{holder.run_id}/artifacts/report/index.html)"
    for name, experiment in found.items():
        said = experiment.tags["mlflow.note.content"]
        assert address in said
        assert str(page) in said
        ((other, there),) = ((other, there) for other, there in found.items() if other != name)
        assert f"[{other}](#/experiments/{there.experiment_id})" in said
    # Nothing but the page has changed.
    page.write_text("<p>second</p>")
    assert recorded("b") == 1
    assert kept() == "<p>second</p>"
    assert recorded("b") == 0


def test_an_experiment_without_means_keeps_its_report_with_its_runs(settings: TrackingSettings, tmp_path: Path) -> None:
    page = tmp_path / "index.html"
    page.write_text("<p>all</p>")
    alone = with_page(Runs([Record("alone", {"i": "1"}, {}, {})], []), page, "a")
    assert record.fn(settings, "alone", lambda: alone, {}) == 1
    client, run = MlflowClient(tracking_uri=settings.mlflow), written(settings, "alone")
    assert [one.path for one in client.list_artifacts(run.info.run_id, "report")] == ["report/index.html"]
    said = client.get_experiment(run.info.experiment_id).tags["mlflow.note.content"]
    assert said.startswith("Each run is one result. [Report](#/experiments/")


def run_of(artifact: str, layer: nn.Module, *, is_best: bool = True) -> Record:
    """A run that holds its network."""
    network = Network("fedfisher-best", artifact, lambda: (layer, torch.ones(2, 3)), {"method": artifact}, is_best)
    return Record(artifact, {"i": artifact}, {}, {}, network=network)


def test_the_best_network_is_registered_once_and_gives_way_to_a_better_one(settings: TrackingSettings) -> None:
    client, layers = MlflowClient(tracking_uri=settings.mlflow), [nn.Linear(3, 2), nn.Linear(3, 2)]

    def recorded(*runs: Record) -> str:
        record.fn(settings, "networks", lambda: Runs(runs, []), {})
        return str(client.get_model_version_by_alias("fedfisher-best", "best").version)

    first, second = run_of("a", layers[0]), run_of("b", layers[1])
    assert [recorded(first), recorded(first), recorded(second)] == ["1", "1", "2"]
    # The first is the best again.
    assert recorded(replace(first, tags={"any": "other"})) == "1"
    assert {str(one.version) for one in client.search_model_versions("name = 'fedfisher-best'")} == {"1", "2"}


def test_every_run_holds_its_network_once_with_its_signature_and_the_best_is_registered(
    settings: TrackingSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A model is found by where runs are.
    monkeypatch.setenv("MLFLOW_TRACKING_URI", settings.mlflow)
    client, layers = MlflowClient(tracking_uri=settings.mlflow), {"a": nn.Linear(3, 2), "b": nn.Linear(3, 2)}

    def recorded(best: str) -> dict[str, list[str]]:
        runs = [run_of(name, layer, is_best=name == best) for name, layer in layers.items()]
        record.fn(settings, "held", lambda: Runs(runs, []), {})
        experiment = client.get_experiment_by_name("held")
        assert experiment is not None
        return {
            run.info.run_name: [one.model_id for one in run.outputs.model_outputs]
            for run in client.search_runs([experiment.experiment_id])
        }

    held = recorded("a")
    assert {name: len(models) for name, models in held.items()} == {"a": 1, "b": 1}
    examples = numpy.random.default_rng(0).normal(size=(5, 3)).astype("float32")
    for name, (model,) in held.items():
        loaded = pyfunc.load_model(f"models:/{model}")
        assert loaded.metadata.signature.inputs.inputs[0].shape == (-1, 3)
        assert loaded.metadata.signature.outputs.inputs[0].shape == (-1, 2)
        expected = layers[name](torch.from_numpy(examples)).detach().numpy()
        numpy.testing.assert_allclose(loaded.predict(examples), expected, rtol=1e-5)
    assert client.get_model_version_by_alias("fedfisher-best", "best").tags["artifact"] == "a"
    # What was kept before is registered without being written anew.
    assert recorded("b") == held
    best = client.get_model_version_by_alias("fedfisher-best", "best")
    assert (best.tags["artifact"], best.source) == ("b", client.get_logged_model(held["b"][0]).artifact_location)


def test_a_network_that_can_not_be_traced_costs_its_run_nothing_else(
    settings: TrackingSettings, caplog: pytest.LogCaptureFixture
) -> None:
    class Odd(nn.Module):
        def forward(self, examples: torch.Tensor) -> torch.Tensor:
            return examples if float(examples.sum()) > 0 else -examples

    def load() -> tuple[nn.Module, torch.Tensor]:
        return Odd(), torch.ones(2, 3)

    def odd(name: str) -> Record:
        network = Network("fedfisher-odd", name, load, {"method": name}, is_best=name == "odd")
        return Record(name, {"method": name}, {}, {}, network=network)

    record.fn(settings, "odd", lambda: Runs([odd("odd"), odd("other")], []), {})
    # One line says it of both.
    (said,) = [one for one in caplog.messages if "keeps no network" in one]
    assert said.startswith("MLflow keeps no network of fedfisher-odd, method=odd: ")
    client = MlflowClient(settings.mlflow)
    experiment = client.get_experiment_by_name("odd")
    assert experiment is not None
    runs = client.search_runs([experiment.experiment_id])
    assert len(runs) == 2
    assert all(run.data.tags["content"] for run in runs)


def test_a_run_names_its_data_set(settings: TrackingSettings) -> None:
    one = Record("data", {}, {}, {}, dataset=Dataset("digits", "ab" * 18, "https://example.org/digits"))
    write(settings, one)
    (held,) = written(settings, "data").inputs.dataset_inputs
    assert (held.dataset.name, held.dataset.digest) == ("digits", "ab" * 18)
    assert "https://example.org/digits" in held.dataset.source
