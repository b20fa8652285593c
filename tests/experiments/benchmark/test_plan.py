"""What a benchmark's plan refuses."""

import os
from pathlib import Path
from typing import Any

import pytest

from fedfisher_core.engine.errors import InputError
from fedfisher_core.engine.failures import Failure
from fedfisher_core.engine.plan import Outcome
from fedfisher_core.experiments.benchmark.plan import explain, failed_settings, make_plan, make_rows
from fedfisher_core.experiments.benchmark.rows import Row
from fedfisher_core.experiments.benchmark.runs import make_runs
from fedfisher_core.experiments.benchmark.settings import BenchmarkSettings
from fedfisher_core.experiments.benchmark.summary import Setting, recorded_seconds
from fedfisher_core.experiments.contract import load
from fedfisher_core.federation import training
from fedfisher_core.reporting.rows import write_rows
from tests.configs import ROOT
from tests.experiments.benchmark.samples import make_row
from tests.flows.test_work import do, prepared
from tests.models.trunks.installed import weights_of
from tests.tiny import tiny_settings
from tests.walked import Walked, walk_tiny

LABELS: dict[str, Any] = {"plain": {}, "same": {"name": "label_smoothing"}}


def settings(folder: Path, rounds: int, optimiser: str) -> Any:
    optimisers = {"average": {}, optimiser: {"name": "fedavgm"}}
    return tiny_settings(
        folder,
        methods={"fedavg": {}},
        train={"objective": LABELS},
        rounds={"count": rounds, "server_optimiser": optimisers},
    )


def test_two_algorithms_of_one_name_are_refused_before_any_work(workplace: Path) -> None:
    message = (
        "^method 'fedavg' with objective '(plain|same)' and server optimiser '(average|same)' and method 'fedavg' with "
        "objective '(plain|same)' and server optimiser '(average|same)' are both called 'fedavg, same'; allowed: labels"
    )
    with pytest.raises(InputError, match=message):
        make_plan(settings(workplace, 2, "same"))


@pytest.mark.parametrize(("rounds", "optimiser"), [(2, "other"), (1, "same")])
def test_names_that_differ_or_are_no_algorithms_are_planned(workplace: Path, rounds: int, optimiser: str) -> None:
    assert make_plan(settings(workplace, rounds, optimiser)).jobs


def expected(folder: Path, *, earlier: Path | None = None, **changes: object) -> dict[str, str]:
    work = prepared(folder, **changes)
    _, table = explain(work.settings, work.agenda, work.store, earlier=earlier)
    return dict(table.lines)  # type: ignore[arg-type]


def test_uploads_are_known_before_they_are_sent(workplace: Path) -> None:
    before = expected(workplace)
    work = do(prepared(workplace))
    sent = sum(row.upload_bits for row in work.rows)
    clients = sum(row.num_clients for row in work.rows)
    assert before["clients' uploads"] == str(clients)
    most, largest = (float(before[f"megabits of {which}, at most"]) for which in ("all uploads", "the largest upload"))
    # Megabits are rounded to thousandths.
    assert 0.9 * most < sent / 1e6 <= most + 0.0005
    assert max(row.upload_bits / row.num_clients for row in work.rows) / 1e6 <= largest + 0.0005
    assert before["minutes that a run takes, about"].startswith("unknown: no seconds are known of ")


def test_minutes_are_known_once_some_jobs_are_finished(workplace: Path) -> None:
    do(prepared(workplace))
    assert expected(workplace)["minutes that a run takes, about"] == "0.0"
    more = expected(workplace, seeds=[0, 1])["minutes that a run takes, about"]
    assert float(more) >= 0


def test_without_a_finished_job_an_earlier_report_says_the_minutes(workplace: Path) -> None:
    write_rows([make_row(client_train_seconds=120.0, server_seconds=0.0)], workplace / "report")
    found = expected(workplace, earlier=Path("report"), run={"workers": 2})
    assert found["minutes that a run takes, about"] == "1.0 for all of it, by the report report"


def row(method: str, **changes: object) -> Row:
    return make_row(method, client_statistics_seconds={"kfac": 4.0}, **changes)


def test_what_methods_share_is_counted_once() -> None:
    assert recorded_seconds([row("one"), row("two")]) == 10.0 + 4.0 + 2 * 0.5
    # Of two rounds, only the first is shared.
    assert recorded_seconds([row("one", num_rounds=2), row("two", num_rounds=2)]) == 7.0 + 2 * 7.0 + 2 * 0.5
    assert recorded_seconds([row("one"), row("one", seed=1)]) == 2 * 14.5


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


def test_one_round_is_compared_with_five_on_the_same_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    weights_of("minilm")
    data = Path(os.environ.get("FEDFISHER_DATA_DIR", "data")).resolve()
    if not (data / "sst2/train.parquet").is_file():
        pytest.skip("the data folder has no sst2")
    monkeypatch.setenv("FEDFISHER_DATA_DIR", str(data))
    settings = load(ROOT / "configs/one_round_enough.yaml")
    assert isinstance(settings, BenchmarkSettings)
    plan = make_plan(settings)
    places = {
        (job.federation.setting.seed, job.federation.setting.alpha) for job in plan.jobs if job.kind == "measures"
    }
    assert places == {(seed, alpha) for seed in (0, 1, 2) for alpha in (0.1, 0.5)}
    assert sum(job.kind == "measures" for job in plan.jobs) == 6 * 5
    assert sum(job.kind == "aggregates" for job in plan.jobs) == 6 * 5
