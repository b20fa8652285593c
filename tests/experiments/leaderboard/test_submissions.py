"""Submitted results: made by real work, repeated by real work."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedfisher_core.engine.errors import InputError
from fedfisher_core.engine.performing import execute
from fedfisher_core.engine.store import Store
from fedfisher_core.experiments.benchmark.plan import make_plan, make_rows
from fedfisher_core.experiments.benchmark.settings import BenchmarkSettings
from fedfisher_core.experiments.contract import load
from fedfisher_core.experiments.leaderboard.entries import read_benchmark
from fedfisher_core.experiments.leaderboard.submissions import submit
from fedfisher_core.reporting.rows import write_rows
from tests.tiny import tiny_settings

METHODS: dict[str, Any] = {"fedavg": {}, "fedfisher_diag": {}}


def settings_of(folder: Path, **changes: Any) -> BenchmarkSettings:
    return tiny_settings(folder, **{"methods": METHODS, "name": "mine", **changes})


@pytest.fixture
def results(workplace: Path) -> Path:
    plan = make_plan(settings_of(workplace))
    store = Store(workplace / "artifacts")
    store.prepare()
    write_rows(make_rows(plan, execute(plan.jobs, store)), workplace / "results/mine")
    return workplace / "results/mine"


def change(results: Path, edit: Callable[[list[dict[str, Any]]], object]) -> None:
    rows = json.loads((results / "results.json").read_text())
    edit(rows)
    (results / "results.json").write_text(json.dumps(rows))


def test_results_that_repeat_become_an_entry(results: Path, workplace: Path) -> None:
    entry = submit(results, settings_of(workplace))
    assert entry == Path("leaderboard/entries/mine")
    assert read_benchmark(entry).settings == read_benchmark(results).settings
    assert load(entry / "settings.yaml") == settings_of(workplace)
    said = json.loads((entry / "entry.json").read_text())
    was, again = said["computed_again"]["accuracy"]
    assert was == again
    with pytest.raises(InputError, match="leaderboard/entries/mine is there; allowed: settings of another name"):
        submit(results, settings_of(workplace))


def better(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        row["accuracy"] = 0.125


def cheaper(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        row["upload_bits"] //= 2


def doubled(rows: list[dict[str, Any]]) -> None:
    rows.append(rows[0])


def of_other_work(rows: list[dict[str, Any]]) -> None:
    rows[0]["artifact"] = rows[1]["artifact"]


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (better, "does not repeat: accuracy=0.125, computed again 0"),
        (cheaper, "does not repeat: upload_bits="),
        (doubled, "has two rows for seed 0"),
        (of_other_work, "rests on other settings, data, versions or code than those of here"),
        (lambda rows: rows.pop(), r"lacks 1 row, such as one of 'fedfisher_diag'; allowed: all rows"),
        (lambda rows: rows[0].update(method="mine"), "the row of 'mine', seed 0.* is none of the settings 'mine'"),
        (lambda rows: rows[0].pop("loss"), "row 1 lacks the field 'loss'"),
    ],
)
def test_other_results_leave_nothing(results: Path, workplace: Path, edit: Any, words: str) -> None:
    change(results, edit)
    with pytest.raises(InputError, match=words):
        submit(results, settings_of(workplace))
    assert not Path("leaderboard").exists()


def test_results_of_other_data_are_refused(results: Path, workplace: Path) -> None:
    with pytest.raises(InputError, match="rests on other settings, data"):
        submit(results, settings_of(workplace, data={"examples": 60, "validation_size": 6}))
