"""Preparing work: everything is checked first, and what is there is looked up."""

from pathlib import Path
from typing import Any

import pytest

from fedfisher_core.engine.errors import InputError
from fedfisher_core.engine.performing import perform
from fedfisher_core.engine.plan import groups_of
from flows.work import Work, prepare
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
