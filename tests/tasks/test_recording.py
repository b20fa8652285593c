"""Runs in a database of the real MLflow, written by a command that is cut off."""

import pytest
from mlflow import MlflowClient
from mlflow.entities import Run
from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

from fedfisher_core.reporting.runs import Record, Runs
from fedfisher_core.settings import TrackingSettings
from tasks.recording import record

POINTS = 1500
"""More than MLflow sends at once."""


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> TrackingSettings:
    """A database for all, since MLflow takes seconds to lay one out."""
    folder = tmp_path_factory.mktemp("mlflow")
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
