"""Preparing work, what a run would change, and results of which only the last rounds stay."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient
from mlflow.entities import Experiment

from fedfisher_core.engine.errors import InputError
from fedfisher_core.engine.performing import perform
from fedfisher_core.engine.plan import groups_of
from fedfisher_core.engine.store import Artifact, open_store
from fedfisher_core.reporting.rows import write_folder
from flows.experiment import compute_missing
from flows.pruning import find_unused
from flows.sharing import link_stage
from flows.work import Work, is_unchanged, prepare
from tasks.record import record
from tests.tiny import tiny_settings

METHODS = {"fedavg": {}, "fedfisher_kfac": {}}


def prepared(folder: Path, **changes: Any) -> Work:
    return prepare(tiny_settings(folder, **{"methods": METHODS, **changes}))


def do(work: Work) -> Work:
    """Do what is missing, without Prefect."""
    work.transients.delete()
    for group in groups_of(work.agenda.missing):
        assert perform(group, work.store) == {}
        work.transients.done(group)
        work.transients.delete()
    work.outcome = work.agenda.outcome(work.store, {})
    return work


def test_preparing_computes_nothing(workplace: Path) -> None:
    work = prepared(workplace)
    assert {job.name for job in work.agenda.missing} == set(work.agenda.graph)
    assert work.outcome.artifacts == {}
    assert work.store.folders() == []
    assert list((workplace / "results").iterdir()) == []


@pytest.mark.parametrize(
    "changes",
    [
        {"methods": {"fedavgg": {}}},
        {"model": {"name": "lennet"}},
        {"report": {"published": "FedFisher 2023"}},
        {"run": {"min_clients": 4}},
    ],
)
def test_what_is_refused_leaves_nothing(workplace: Path, changes: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        prepared(workplace, **changes)
    assert list(workplace.iterdir()) == []


def test_places_that_are_not_there_are_refused(workplace: Path) -> None:
    with pytest.raises(InputError, match=r"tracking\.mlflow=.* can't be reached"):
        prepared(workplace, tracking={"mlflow": "http://127.0.0.1:9"})


def test_all_that_was_made_led_to_the_ends(workplace: Path) -> None:
    # An audit is part of a row, and nothing is made from it.
    private = {"privacy": {"epsilon": 4.0, "delta": 1e-3}, "audit": {"canaries": 5, "guesses": 2}}
    work = do(prepared(workplace, methods={"fedavg": {}, "local_mean": {}}, **private))
    kinds = {path.parent.name for path in work.store.folders() if path.name in work.result_keys}
    assert {"audits", "measures"} <= kinds
    assert "clients" not in kinds
    assert work.store.reachable(work.result_keys) == set(work.store.folders())


def test_what_is_done_is_found(workplace: Path) -> None:
    do(prepared(workplace, methods={"fedavg": {}}))
    assert prepared(workplace, methods={"fedavg": {}}).agenda.missing == []
    more = prepared(workplace)
    assert {job.kind for job in more.agenda.missing} == {"statistics", "payloads", "aggregates", "measures"}


def test_the_track_changes_no_result(workplace: Path) -> None:
    do(prepared(workplace))
    assert prepared(workplace, track="best_effort").agenda.missing == []
    with pytest.raises(InputError, match=r"track='best'.* 'as_published' or 'best_effort'"):
        prepared(workplace, track="best")


def test_results_rest_on_all_that_was_made_but_decoded_data(workplace: Path) -> None:
    work = do(prepared(workplace))
    found = work.artifacts()
    assert len({artifact.path for artifact in found}) == len(found)
    others = set(work.store.folders()) - {artifact.path for artifact in found}
    assert {path.parent.name for path in others} == {"data"}


def test_results_rest_on_nothing_of_other_settings(workplace: Path) -> None:
    work = do(prepared(workplace))
    do(prepared(workplace, seeds=[1]))
    assert prepared(workplace).artifacts() == work.artifacts()


def test_other_settings_under_the_name_of_the_default_get_a_folder_of_their_own(workplace: Path) -> None:
    default = tiny_settings(workplace)
    (workplace / "params.yaml").write_text(default.to_yaml())
    assert prepare(default).folder == workplace / "results/tiny"
    changed = default.model_copy(update={"seeds": (5,)})
    assert prepare(changed).folder == workplace / f"results/tiny-{changed.digest()}"


# Relative to the working directory, so that a finished one can be copied.
HERE = Path()


def prepared_here(**changes: Any) -> Work:
    return prepare(tiny_settings(HERE, **changes))


def publish(work: Work) -> None:
    """Do what a flow does of an experiment whose jobs are done; no test here needs the page drawn."""
    write_folder(work.folder, work.rows, {"index.html": b"a page"}, work.content)
    assert record.fn(work.settings.tracking, work.settings.name, work.runs, {}) > 0


@pytest.fixture(scope="module")
def once(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working directory in which a run has nothing left to do."""
    folder = tmp_path_factory.mktemp("finished")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDFISHER_DATA_DIR", str(tiny_folder))
        patch.delenv("PREFECT_API_URL", raising=False)
        patch.chdir(folder)
        publish(do(prepared_here()))
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
    assert not is_unchanged(do(prepared_here(**changes)))
    assert is_unchanged(prepared_here())


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
    "damage",
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
    ids=lambda damage: damage.__name__.strip("_"),
)
def test_whatever_is_lost_is_noticed(finished: Path, damage: Callable[[Path], None]) -> None:
    damage(finished)
    assert not is_unchanged(prepared_here())


def test_a_server_is_asked_by_the_run_itself(finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flows.work.require_reachable", lambda *_: None)
    assert not is_unchanged(prepared_here(tracking={"mlflow": "http://127.0.0.1:9"}))


def test_what_draws_a_page_is_part_of_what_it_shows(finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work = prepared_here()
    before = work.content
    assert work.content == before
    monkeypatch.setattr("flows.work._drawn_by", lambda experiment: "another template")
    assert work.content != before


def test_published_numbers_are_part_of_what_a_page_shows(finished: Path) -> None:
    assert is_unchanged(prepared_here())
    (finished / "reports").mkdir()
    (finished / "reports/published_results.csv").write_text("source\n")
    assert not is_unchanged(prepared_here())


LARGE = {"tensors.safetensors", "payload.bin"}


def rounds_kept(**more: Any) -> dict[str, Any]:
    return {"rounds": {"count": 3, "keep": 1}, **more}


def large(folder: Path) -> set[str]:
    """Where below a folder of artifacts trainings and payloads have more than documents."""
    return {path.parent.name for path in folder.rglob("*") if path.name in LARGE}


@pytest.fixture
def done(workplace: Path) -> Work:
    return do(prepare(tiny_settings(workplace, **rounds_kept())))


def kept(work: Work) -> set[str]:
    """Keys of the client's results of the last round."""
    wanted = {"clients", "payloads"}
    found = work.store.folders()
    return {path.name for path in found if path.parent.name in wanted}


def aggregate(work: Work, words: str) -> Artifact:
    """What the first method has made in the round whose name has these words."""
    name = next(name for name in work.outcome.artifacts if re.match(rf"aggregate \w+{words} of ", name))
    return work.outcome.artifacts[name]


def test_a_stage_holds_what_is_left_and_a_run_without_its_own_store_computes_nothing(done: Work) -> None:
    assert len(kept(done)) == 2 * 3
    assert large(link_stage("tiny", done.artifacts())) == kept(done)
    elsewhere = prepare(tiny_settings(Path.cwd(), **rounds_kept(run={"store": str(Path.cwd() / "elsewhere")})))
    do(elsewhere)
    # Decoded data is not shared.
    assert {path.parent.name for path in elsewhere.store.folders()} == {"data"}
    assert elsewhere.rows == done.rows
    assert not elsewhere.transients.there


def test_what_waits_for_another_run_to_end_is_not_exported(workplace: Path) -> None:
    settings = tiny_settings(workplace, **rounds_kept())
    with open_store(settings.run.store).used_by_run("another run"):
        work = do(prepare(settings))
        assert len(kept(work)) == 3 * 2 * 3
        folder = link_stage("tiny", work.artifacts())
    assert len(large(folder)) == 2 * 3
    assert prepare(settings).transients.there


def test_what_is_left_goes_with_the_next_run_which_says_so(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = tiny_settings(workplace, **rounds_kept())
    with open_store(settings.run.store).used_by_run("another run"):
        do(prepare(settings))
        compute_missing(prepare(settings))
        assert capsys.readouterr().err == "tiny: left 12: another run uses the store\n"
    compute_missing(prepare(settings))
    said = capsys.readouterr().err
    assert said.startswith("tiny: deleted 12 results of rounds 1 to 2, ")
    assert said.count("\n") == 1
    compute_missing(prepare(settings))
    assert capsys.readouterr().err == ""


def test_what_led_over_deleted_results_stays(done: Work) -> None:
    report = done.folder
    report.mkdir(parents=True)
    (report / "results.json").write_text(json.dumps([{"artifact": aggregate(done, ", round 3").key}]))
    assert find_unused(done.settings).sizes == {}
    (report / "results.json").write_text(json.dumps([{"artifact": aggregate(done, "").key}]))
    unused = find_unused(done.settings)
    assert {path.parent.name for path in unused.sizes} == {"clients", "payloads", "aggregates", "measures"}
    assert len(unused.kept) == len(done.store.folders()) - (2 * 3 + 2 * 2)
