"""The rows of a benchmark that some methods failed in."""

from pathlib import Path
from typing import Any

import pytest

from fedfisher_core.engine.plan import Failure, Outcome
from fedfisher_core.experiments.benchmark.plan import failed_settings, make_rows
from fedfisher_core.experiments.benchmark.runs import make_runs
from fedfisher_core.experiments.benchmark.summary import Setting
from fedfisher_core.federation import training
from tests.walked import Walked, walk_tiny


def without(walked: Walked, method: str, *, seeds: list[int]) -> Outcome:
    """The same outcome, had a method failed with some seeds."""
    federations = walked.plan.federations
    places = [place for place in federations.all if place.setting.seed in seeds]
    names = [federations.aggregation(place, method).name for place in places]
    names += [name for place in places for name in federations.names_of_tests(place, method)]
    left = {name: artifact for name, artifact in walked.outcome.artifacts.items() if name not in names}
    return Outcome(left, failed={name: Failure(name, "ValueError: a", "", by_user=False) for name in names})


def test_what_failed_has_no_row_and_the_rest_has(workplace: Path) -> None:
    walked = walk_tiny(workplace, {"fedavg": {}, "ensemble": {}}, seeds=[0, 1])
    whole = make_rows(walked.plan, walked.outcome)
    assert failed_settings(walked.plan, walked.outcome) == {}

    some = without(walked, "ensemble", seeds=[1])
    rows = make_rows(walked.plan, some)
    assert rows == [row for row in whole if (row.method, row.seed) != ("ensemble", 1)]
    assert failed_settings(walked.plan, some) == {}
    assert len(make_runs(walked.plan, some, rows).single) == 3

    every = without(walked, "ensemble", seeds=[0, 1])
    assert {row.method for row in make_rows(walked.plan, every)} == {"fedavg"}
    assert failed_settings(walked.plan, every) == {(Setting.of(whole[0]), "ensemble"): "ValueError: a"}


def test_rows_say_how_clients_were_trained_and_what_prediction_needs(workplace: Path) -> None:
    walked = walk_tiny(workplace, {"fedavg": {}, "ensemble": {}}, track="as_published", train={"epochs": 2})
    rows = walked.rows
    assert {row.track for row in rows.values()} == {"as_published"}
    assert {row.training["epochs"] for row in rows.values() if row.training} == {2}
    assert {name: row.num_networks for name, row in rows.items()} == {"fedavg": 1, "ensemble": 3}


@pytest.mark.parametrize(("given", "many", "shown"), [("auto", 3, 5), ("auto", 4, None), (2, 4, 2), (None, 3, None)])
def test_rows_say_how_many_clients_trained_together(
    workplace: Path, monkeypatch: pytest.MonkeyPatch, given: Any, many: int, shown: int | None
) -> None:
    monkeypatch.setattr(training, "_MANY_CLIENTS", many)
    (row,) = walk_tiny(workplace, {"fedavg": {}}, train={"together": given, "batch_size": 16}).rows.values()
    assert row.training is not None
    assert row.training.get("together") == shown


def test_a_test_that_failed_in_some_round_takes_the_row_with_it_and_no_other(workplace: Path) -> None:
    walked = walk_tiny(workplace, {"fedavg": {}, "fisher_merge": {}}, rounds={"count": 2})
    federations = walked.plan.federations
    name, _ = federations.names_of_tests(walked.federation, "fedavg")
    left = {one: artifact for one, artifact in walked.outcome.artifacts.items() if one != name}
    outcome = Outcome(left, failed={name: Failure(name, "ValueError: a loss that is not finite", "", by_user=False)})
    assert {row.method for row in make_rows(walked.plan, outcome)} == {"fisher_merge"}
    assert list(failed_settings(walked.plan, outcome).values()) == ["ValueError: a loss that is not finite"]
