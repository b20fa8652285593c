"""When a run would change nothing: results, report and records are all there."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient
from mlflow.entities import Experiment

from fedfisher_core.reporting.rows import write_folder
from flows.content import content_of
from flows.work import Work, is_unchanged, prepare
from tasks.record import record
from tests.flows.test_work import do
from tests.tiny import tiny_settings

# Relative to the working directory, so that a finished one can be copied.
HERE = Path()


def prepared(**changes: Any) -> Work:
    return prepare(tiny_settings(HERE, **changes))


def publish(work: Work) -> None:
    """Do what a flow does of an experiment whose jobs are done; no test here needs the page drawn."""
    stamp = content_of(work.experiment, work.settings, work.rows)
    write_folder(work.folder, work.rows, {"index.html": b"a page"}, stamp)
    assert record.fn(work.settings.tracking, work.settings.name, work.runs, {}) > 0


@pytest.fixture(scope="module")
def once(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working directory in which a run has nothing left to do."""
    folder = tmp_path_factory.mktemp("finished")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDFISHER_DATA_DIR", str(tiny_folder))
        patch.delenv("PREFECT_API_URL", raising=False)
        patch.chdir(folder)
        publish(do(prepared()))
    return folder


@pytest.fixture
def finished(once: Path, workplace: Path) -> Path:
    shutil.copytree(once, workplace, dirs_exist_ok=True)
    return workplace


def test_nothing_is_there_at_first_and_all_of_it_in_the_end(workplace: Path) -> None:
    # MLflow keeps its connection to a database by the address, which must be of this test alone.
    settings = tiny_settings(workplace)
    assert not is_unchanged(prepare(settings))
    work = do(prepare(settings))
    assert not is_unchanged(work)
    publish(work)
    assert is_unchanged(work)
    assert is_unchanged(prepare(settings))
    assert record.fn(work.settings.tracking, work.settings.name, work.runs, {}) == 0


@pytest.mark.parametrize(
    "changes",
    [
        {"methods": {"fedavg": {}, "fisher_merge": {}}},
        {"report": {"title": "Another title"}},
        {"run": {"retries": 7}},
        {"name": "other"},
        {"seeds": [1]},
    ],
)
def test_other_settings_are_reported_anew(finished: Path, changes: dict[str, Any]) -> None:
    assert not is_unchanged(do(prepared(**changes)))
    assert is_unchanged(prepared())


def _lose_an_artifact(folder: Path) -> None:
    shutil.rmtree(next((folder / "artifacts/aggregates").iterdir()))


def _damage_an_artifact(folder: Path) -> None:
    (next((folder / "artifacts/aggregates").iterdir()) / "result.json").write_text("{}")


def _lose_the_page(folder: Path) -> None:
    (folder / "results/tiny/index.html").unlink()


def _lose_the_rows(folder: Path) -> None:
    (folder / "results/tiny/results.json").unlink()


def _lose_the_database(folder: Path) -> None:
    (folder / "mlflow.db").unlink()


def _in_mlflow(folder: Path, name: str) -> tuple[MlflowClient, Experiment]:
    client = MlflowClient(tracking_uri=f"sqlite:///{folder}/mlflow.db")
    experiment = client.get_experiment_by_name(name)
    assert experiment is not None
    return client, experiment


def _delete_a_run(folder: Path) -> None:
    client, experiment = _in_mlflow(folder, "tiny")
    client.delete_run(client.search_runs([experiment.experiment_id])[0].info.run_id)


def _delete_the_experiment(folder: Path) -> None:
    client, experiment = _in_mlflow(folder, "tiny")
    client.delete_experiment(experiment.experiment_id)


def _rename_the_experiment(folder: Path) -> None:
    client, experiment = _in_mlflow(folder, "tiny-summary")
    client.rename_experiment(experiment.experiment_id, "other")


@pytest.mark.parametrize(
    "harm",
    [
        _lose_an_artifact,
        _damage_an_artifact,
        _lose_the_page,
        _lose_the_rows,
        _lose_the_database,
        _delete_a_run,
        _delete_the_experiment,
        _rename_the_experiment,
    ],
    ids=lambda harm: harm.__name__.strip("_"),
)
def test_whatever_is_lost_is_noticed(finished: Path, harm: Callable[[Path], None]) -> None:
    harm(finished)
    assert not is_unchanged(prepared())


def test_a_server_is_asked_by_the_run_itself(finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flows.work.require_reachable", lambda *_: None)
    assert not is_unchanged(prepared(tracking={"mlflow": "http://127.0.0.1:9"}))


def test_what_draws_a_page_is_part_of_what_it_shows(finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work = prepared()
    before = content_of(work.experiment, work.settings, work.rows)
    assert content_of(work.experiment, work.settings, work.rows) == before
    monkeypatch.setattr("flows.content._drawn_by", lambda experiment: "another template")
    assert content_of(work.experiment, work.settings, work.rows) != before


def test_published_numbers_are_part_of_what_a_page_shows(finished: Path) -> None:
    assert is_unchanged(prepared())
    (finished / "reports").mkdir()
    (finished / "reports/published_results.csv").write_text("source\n")
    assert not is_unchanged(prepared())
