"""What MLflow gets of a benchmark."""

from pathlib import Path
from typing import Any

import pytest

from fedfisher_core.experiments.benchmark import figures
from fedfisher_core.experiments.benchmark.plan import make_rows
from fedfisher_core.experiments.benchmark.runs import _gains, make_runs
from fedfisher_core.reporting.runs import Runs
from tests.experiments.benchmark.samples import make_row
from tests.walked import walk_tiny


def test_runs_know_the_objective_and_those_of_plain_training_stay_what_they_were(workplace: Path) -> None:
    walked = walk_tiny(workplace, {"fedavg": {}}, train={"objective": ["plain", "fedprox"]})
    runs = make_runs(walked.plan, walked.outcome, make_rows(walked.plan, walked.outcome))
    assert [run.name for run in runs.single] == ["fedavg plain a=0.5 s=0", "fedavg fedprox a=0.5 s=0"]
    for found in (runs.single, runs.summary):
        assert [run.params.get("objective") for run in found] == [None, "fedprox"]
    assert all(set(run.draw()) == {"partition.png", "confusion.png"} for run in runs.single)


def test_methods_share_the_picture_of_their_federation(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    walked = walk_tiny(workplace, {"fedavg": {}, "ensemble": {}}, seeds=[0, 1])
    drawn = []
    draw = figures.partition_grid
    monkeypatch.setattr(figures, "partition_grid", lambda *given, **named: drawn.append(given) or draw(*given, **named))

    runs = make_runs(walked.plan, walked.outcome, make_rows(walked.plan, walked.outcome)).single
    pictures = {(run.params["seed"], run.params["method"]): run.draw()["partition.png"] for run in runs}

    assert len(drawn) == 2
    assert pictures["0", "fedavg"] == pictures["0", "ensemble"] != pictures["1", "fedavg"]
    assert pictures["1", "fedavg"] == pictures["1", "ensemble"]


@pytest.mark.parametrize(("count", "drawn"), [(1, False), (2, True)])
def test_curves_are_drawn_where_there_are_several_rounds(workplace: Path, count: int, drawn: bool) -> None:
    walked = walk_tiny(workplace, {"fedavg": {}}, rounds={"count": count})
    rows = make_rows(walked.plan, walked.outcome)
    runs = make_runs(walked.plan, walked.outcome, rows)
    assert ["rounds-1.png" in summary.draw() for summary in runs.summary] == [drawn]
    (single,), (row,) = runs.single, rows
    by_round = {point.round: point.accuracy for point in row.curve}
    assert list(by_round) == ([1, 2] if drawn else [])
    assert single.series.get("accuracy_by_round", {}) == by_round


def runs_of(folder: Path, methods: dict[str, Any], **changes: Any) -> Runs:
    walked = walk_tiny(folder, methods, **changes)
    return make_runs(walked.plan, walked.outcome, make_rows(walked.plan, walked.outcome))


def test_every_setting_is_a_parameter_of_its_own(workplace: Path) -> None:
    solver = {"solver": {"name": "gradient_descent", "steps": 3}}
    methods = {"diag": {"method": "fedfisher_diag", **solver}, "tsv_m": {}, "fedavg": {"wire": {"budget": "none"}}}
    runs = runs_of(workplace, methods, train={"epochs": 2, "learning_rate": 0.05, "batch_size": 8})
    for found in (runs.single, runs.summary):
        by_label = {run.params["method"]: run for run in found}
        diag, fedavg = by_label["diag"], by_label["fedavg"]
        assert diag.settings.items() >= {
            ("epochs", "2"),
            ("learning_rate", "0.05"),
            ("batch_size", "8"),
            ("method.name", "fedfisher_diag"),
            ("solver", "gradient_descent"),
            ("solver.steps", "3"),
            ("solver.select", "false"),
            ("wire.budget", "fedavg"),
        }
        assert fedavg.settings["wire.budget"] == "none"
        assert "solver" not in fedavg.settings
        # What a run is known by is what it was: it stays the run that it is when a setting is changed.
        assert not diag.settings.keys() & diag.params.keys()


def test_training_keeps_its_names_where_a_method_has_the_same(workplace: Path) -> None:
    methods = {"gaussian_distillation": {"steps": 4, "samples": 8, "learning_rate": 0.5}}
    (run,) = runs_of(workplace, methods, train={"epochs": 1, "learning_rate": 0.05}).single
    assert (run.settings["learning_rate"], run.settings["method.learning_rate"]) == ("0.05", "0.5")
    assert (run.settings["steps"], run.settings["method.steps"]) == ("none", "4")


def test_the_gain_over_fedavg_is_by_seed_and_by_megabit(workplace: Path) -> None:
    walked = walk_tiny(workplace, {"fedavg": {}, "ensemble": {}, "fedfisher_diag": {}}, seeds=[0, 1])
    rows = make_rows(walked.plan, walked.outcome)
    runs = make_runs(walked.plan, walked.outcome, rows)
    of = {(row.method, row.seed): row for row in rows}
    gains: dict[str, list[float]] = {}
    for row, run in zip(rows, runs.single, strict=True):
        gain = row.accuracy - of["fedavg", row.seed].accuracy
        if row.method == "fedavg":
            assert not any(name.startswith("accuracy_above") for name in run.metrics)
            continue
        assert run.metrics["accuracy_above_fedavg"] == pytest.approx(gain)
        assert run.metrics["accuracy_above_fedavg_per_megabit"] == pytest.approx(1e6 * gain / row.upload_bits)
        gains.setdefault(row.method, []).append(1e6 * gain / row.upload_bits)
    for summary in runs.summary:
        mean = summary.metrics.get("accuracy_above_fedavg_per_megabit")
        expected = gains.get(summary.params["method"])
        assert mean == (None if expected is None else pytest.approx(sum(expected) / 2))
    alone = runs_of(workplace / "alone", {"ensemble": {}}).single[0]
    assert "accuracy_above_fedavg_per_megabit" not in alone.metrics


def test_nothing_is_gained_by_megabit_where_nothing_is_uploaded() -> None:
    rows = [make_row(), make_row("free", accuracy=0.75, upload_bits=0)]
    assert list(_gains(rows).values()) == [{"accuracy_above_fedavg": 0.25}]


def test_runs_of_one_seed_and_means_say_their_alpha(workplace: Path) -> None:
    runs = runs_of(workplace, {"fedavg": {}}, partition={"alpha": [0.1, 0.5]})
    assert [run.name for run in runs.single] == ["fedavg a=0.1 s=0", "fedavg a=0.5 s=0"]
    assert [run.name for run in runs.summary] == ["fedavg a=0.1", "fedavg a=0.5"]


def test_both_bounds_on_epsilon_are_metrics_and_the_budget_a_parameter(workplace: Path) -> None:
    runs = runs_of(
        workplace,
        {"fedavg": {}},
        privacy={"epsilon": 8, "delta": 0.001},
        audit={"canaries": 10, "guesses": 4},
        train={"epochs": 1},
    )
    for run in (*runs.single, *runs.summary):
        assert 0 < run.metrics["epsilon"] <= 8
        assert run.metrics["audited_epsilon"] >= 0
        assert (run.settings["privacy.epsilon"], run.settings["audit.canaries"]) == ("8.0", "10")
