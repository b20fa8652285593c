"""What MLflow gets of a benchmark."""

from pathlib import Path

import pytest

from fedfisher_core.experiments.benchmark import grids
from fedfisher_core.experiments.benchmark.results import make_rows
from fedfisher_core.experiments.benchmark.runs import make_runs
from tests.walked import walk_tiny


def test_runs_know_the_objective_and_those_of_plain_training_stay_what_they_were(workplace: Path) -> None:
    walked = walk_tiny(workplace, {"fedavg": {}}, train={"objective": ["plain", "fedprox"]})
    runs = make_runs(walked.plan, walked.outcome, make_rows(walked.plan, walked.outcome))
    assert [run.name for run in runs.single] == ["fedavg plain a=0.5 s=0", "fedavg fedprox a=0.5 s=0"]
    for found in (runs.single, runs.summary):
        assert [run.params.get("objective") for run in found] == [None, "fedprox"]
    assert all(set(run.draw()) == {"partition.svg", "confusion.svg"} for run in runs.single)


def test_methods_share_the_picture_of_their_federation(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    walked = walk_tiny(workplace, {"fedavg": {}, "ensemble": {}}, seeds=[0, 1])
    drawn = []
    draw = grids.partition_grid
    monkeypatch.setattr(grids, "partition_grid", lambda *given, **named: drawn.append(given) or draw(*given, **named))

    runs = make_runs(walked.plan, walked.outcome, make_rows(walked.plan, walked.outcome)).single
    pictures = {(run.params["seed"], run.params["method"]): run.draw()["partition.svg"] for run in runs}

    assert len(drawn) == 2
    assert pictures["0", "fedavg"] == pictures["0", "ensemble"] != pictures["1", "fedavg"]
    assert pictures["1", "fedavg"] == pictures["1", "ensemble"]


@pytest.mark.parametrize(("count", "drawn"), [(1, False), (2, True)])
def test_curves_are_drawn_where_there_are_several_rounds(workplace: Path, count: int, drawn: bool) -> None:
    walked = walk_tiny(workplace, {"fedavg": {}}, rounds={"count": count})
    rows = make_rows(walked.plan, walked.outcome)
    runs = make_runs(walked.plan, walked.outcome, rows)
    assert ["rounds.png" in summary.draw() for summary in runs.summary] == [drawn]
    (single,), (row,) = runs.single, rows
    by_round = {point.round: point.accuracy for point in row.curve}
    assert list(by_round) == ([1, 2] if drawn else [])
    assert single.series.get("accuracy_by_round", {}) == by_round
