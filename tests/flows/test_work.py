"""Preparing work: everything is checked first, and what is there is looked up."""

from pathlib import Path
from typing import Any

import pytest

from fedfisher_core.batches import compute
from fedfisher_core.errors import InputError
from flows.work import Work, prepare
from tests.tiny import tiny_settings

METHODS = {"fedavg": {}, "fedfisher_kfac": {}}


def prepared(folder: Path, stage: str | None = None, **changes: Any) -> Work:
    return prepare(tiny_settings(folder, **{"methods": METHODS, **changes}), stage)


def do(work: Work) -> Work:
    while (batch := work.walk.take()) is not None:
        work.walk.keep(batch, compute(batch, work.store))
    return work


def test_preparing_computes_nothing(workplace: Path) -> None:
    work = prepared(workplace)
    assert not work.walk.finished
    assert work.walk.done == 0
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
    kinds = {path.parent.name for path in work.store.folders() if path.name in work.ends}
    assert {"audits", "measures"} <= kinds
    assert "clients" not in kinds
    assert work.store.reachable(work.ends) == set(work.store.folders())


def test_what_is_done_is_found(workplace: Path) -> None:
    do(prepared(workplace, methods={"fedavg": {}}))
    assert prepared(workplace, methods={"fedavg": {}}).walk.finished
    more = prepared(workplace)
    assert 0 < more.walk.done < len(more.walk.graph)


def test_the_track_changes_no_result(workplace: Path) -> None:
    do(prepared(workplace))
    assert prepared(workplace, track="best_effort").walk.finished
    with pytest.raises(InputError, match=r"track='best'.* 'as_published' or 'best_effort'"):
        prepared(workplace, track="best")


def test_a_stage_needs_no_more_than_it_is_for(workplace: Path) -> None:
    work = do(prepared(workplace, "clients"))
    assert {artifact.kind for artifact in work.artifacts("clients")} >= {"partitions", "clients", "statistics"}
    whole = prepared(workplace)
    missing = set(whole.walk.graph) - set(whole.walk.outcome.artifacts)
    assert missing == set(whole.plan.stages["aggregates"])


def test_a_stage_holds_what_it_made_and_no_other_stage_does(workplace: Path) -> None:
    work = do(prepared(workplace))
    clients, aggregates = work.artifacts("clients"), work.artifacts("aggregates")
    assert not set(clients) & set(aggregates)
    assert {artifact.kind for artifact in aggregates} == {"aggregates", "measures"}
    every = set(work.walk.outcome.artifacts.values())
    assert {artifact.kind for artifact in every - set(clients) - set(aggregates)} == {"data"}
    assert len(set(clients)) == len(clients)


def test_other_settings_under_the_name_of_the_default_get_a_folder_of_their_own(workplace: Path) -> None:
    default = tiny_settings(workplace)
    (workplace / "params.yaml").write_text(default.to_yaml())
    assert prepare(default).folder == workplace / "results/tiny"
    changed = default.model_copy(update={"seeds": (5,)})
    assert prepare(changed).folder == workplace / f"results/tiny-{changed.digest()}"
