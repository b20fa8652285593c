"""From errors to rows, comparisons, findings, runs and the page; most numbers are made up and round."""

import csv
import json
import math
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from scipy import stats

from fedfisher_core.engine.plan import Outcome
from fedfisher_core.experiments.fedfish_toy.page import (
    Drawn,
    barrier_charts,
    function_charts,
    make_runs,
    report_files,
)
from fedfisher_core.experiments.fedfish_toy.plan import GlobalModel, Measured, Stage, make_plan
from fedfisher_core.experiments.fedfish_toy.rows import METHODS, FedFishToyRow, rows_of
from fedfisher_core.experiments.fedfish_toy.settings import FedFishToySettings, RegressionGrid
from fedfisher_core.experiments.fedfish_toy.summary import (
    Setting,
    barrier_finding,
    error_tables,
    findings_of,
    growth_finding,
    settings_of,
)
from fedfisher_core.reporting.charts import Chart, to_html
from fedfisher_core.reporting.formats import as_text
from fedfisher_core.reporting.measure import gather
from fedfisher_core.reporting.page import PageData
from fedfisher_core.reporting.rows import read_rows, write_folder
from tests.reporting.pages import SCRIPT, Page

GRID = RegressionGrid(overlaps=(1.0, 0.5, 0.0), epochs=(2, 8), points=3, seeds=(0, 1, 2, 3))
LOCAL = 0.25
FEDAVG = 4.0


def model(error: float) -> GlobalModel:
    return GlobalModel(global_error=2 * error, client_errors=(error / 2, 3 * error / 2), curve=(error, 0.0, -error))


def measured(errors: tuple[float, float]) -> Measured:
    """FedFish's mean error on the clients' data after either number of epochs."""
    return Measured(
        inputs=((-1.0, -0.5), (0.5, 1.0)),
        targets=((1.0, 0.5), (-0.5, -1.0)),
        stages=tuple(
            Stage(
                local_errors=(LOCAL, LOCAL),
                local_curves=((1.0, 0.5, 0.0), (0.0, -0.5, -1.0)),
                fedavg=model(FEDAVG),
                fedfish=model(error),
            )
            for error in errors
        ),
    )


# By overlap: lower than FedAvg's throughout; lower, then higher; sometimes lower, sometimes higher.
ERRORS = {1.0: (3.0, 2.0), 0.5: (3.0, 6.0), 0.0: (4.0, 4.0)}
SPREAD = {1.0: 0.01, 0.5: 0.01, 0.0: 1.0}


def rows(seeds: tuple[int, ...] = GRID.seeds) -> list[FedFishToyRow]:
    return [
        row
        for overlap, errors in ERRORS.items()
        for seed in seeds
        for row in rows_of(
            "sample",
            GRID,
            overlap,
            seed,
            measured((errors[0] + (seed - 1.5) * SPREAD[overlap], errors[1] + (seed - 1.5) * SPREAD[overlap])),
            f"key{overlap}-{seed}",
        )
    ]


def at(overlap: float) -> list[Setting]:
    return [one for one in settings_of(rows()) if one.overlap == overlap]


DRAWN = [
    Drawn(
        overlap=overlap,
        intervals=((-1.0, 0.0), (0.0, 1.0)),
        samples=(((-1.0, 1.0), (-0.5, 0.5)), ((0.5, -0.5), (1.0, -1.0))),
        epochs=8,
        functions={
            "true function": (0.0, 0.0, 0.0),
            "FedAvg": (FEDAVG, 0.0, -FEDAVG),
            "FedFish": (ERRORS[overlap][1], 0.0, -ERRORS[overlap][1]),
            "client 0": (1.0, 0.5, 0.0),
            "client 1": (0.0, -0.5, -1.0),
        },
        points=(-1.0, 0.0, 1.0),
    )
    for overlap in GRID.overlaps
]
PAGE = PageData(
    title="A <sample>",
    benchmark="sample",
    command="fedfisher run sample.yaml",
    created="2030-01-02 03:04 UTC",
    versions={"numpy": "9.9"},
    settings={"name": "sample", "toy": GRID.model_dump(mode="json")},
    settings_yaml="name: sample\n",
    notes="First.\n\n**Second**.",
    shown={"drawn": [asdict(one) for one in DRAWN]},
)


def html_of(of: list[FedFishToyRow]) -> str:
    return report_files(of, PAGE)["index.html"].decode()


def test_a_barrier_is_the_mean_of_what_clients_lose() -> None:
    row = next(row for row in rows() if (row.method, row.overlap, row.seed) == ("fedavg", 1.0, 0))
    assert row.barrier == pytest.approx(FEDAVG - LOCAL)
    assert (row.best_fitted, row.worst_fitted, row.local_error) == (2.0, 6.0, LOCAL)


def test_differences_are_paired_and_their_intervals_hold_at_once() -> None:
    first = at(1.0)[0]
    differences = [-1 + (seed - 1.5) * 0.01 for seed in range(4)]
    mean, deviation = sum(differences) / 4, math.sqrt(sum((one + 1) ** 2 for one in differences) / 3)
    # Three overlaps, two numbers of epochs, two quantities.
    half = stats.t.ppf(1 - 0.05 / 12 / 2, 3) * deviation / 2
    assert first.barrier.paired.mean == pytest.approx(mean)
    assert first.barrier.interval == (pytest.approx(mean - half), pytest.approx(mean + half))
    assert first.global_error.paired.mean == pytest.approx(2 * mean)
    assert (first.barrier.sign, first.barrier.lower) == (-1, 4)
    assert [one.barrier.sign for one in at(0.5)] == [-1, 1]
    assert [(one.barrier.sign, one.barrier.lower) for one in at(0.0)] == [(0, 2), (0, 2)]


def test_settings_are_gathered_in_any_order() -> None:
    found = settings_of(rows()[::-1])
    assert found == settings_of(rows())
    assert [(one.overlap, one.local_epochs) for one in found] == [
        (overlap, epochs) for overlap in GRID.overlaps for epochs in GRID.epochs
    ]
    assert all(one.seeds == GRID.seeds for one in found)


@pytest.mark.parametrize(
    ("overlap", "agrees", "words"),
    [
        (1.0, "yes", "lower than FedAvg’s after 2 and 8 local epochs. After 8 the mean barrier is 1.75 with FedFish"),
        (0.5, "in part", "lower than FedAvg’s after 2 local epochs, higher than FedAvg’s after 8 local epochs."),
        (0.0, "not decided", "not shown to differ from FedAvg’s after 2 and 8 local epochs."),
    ],
)
def test_a_finding_says_where_fedfish_is_lower(overlap: float, agrees: str, words: str) -> None:
    finding = barrier_finding(at(overlap))
    assert finding.agrees == agrees
    assert words in finding.measured


def test_fedfish_that_is_higher_agrees_nowhere() -> None:
    assert barrier_finding(at(0.5)[1:]).agrees == "no"


def test_a_single_seed_tells_nothing() -> None:
    found = settings_of(rows(seeds=(3,)))
    assert {one.barrier.interval for one in found} == {None}
    assert {one.agrees for one in findings_of(found)[:-1]} == {"a single seed"}


@pytest.mark.parametrize(
    ("places", "agrees"),
    [
        ({0.5: 1.0, 0.0: 0.5, 1.0: 0.0}, "yes"),
        ({0.5: 1.0, 0.0: 0.0, 1.0: 0.5}, "in part"),
        ({1.0: 1.0, 0.5: 0.5, 0.0: 0.0}, "no"),
    ],
)
def test_the_lead_must_grow_as_the_overlap_shrinks(places: dict[float, float], agrees: str) -> None:
    # The leads of ERRORS are -0.5, 0 and 1.5 at 0.5, 0 and 1: they are measured at other overlaps.
    finding = growth_finding(settings_of([replace(row, overlap=places[row.overlap]) for row in rows()]))
    assert finding.agrees == agrees
    assert "1.50 at" in finding.measured
    assert "−0.500 at" in finding.measured


def test_a_single_seed_decides_nothing_of_how_the_lead_grows() -> None:
    assert growth_finding(settings_of([row for row in rows() if row.seed == 0])).agrees == "a single seed"


def test_rows_are_read_as_they_were_written(tmp_path: Path) -> None:
    written = rows()
    write_folder(tmp_path, written, report_files(written, PAGE), "digest")
    assert read_rows(tmp_path / "results.json", FedFishToyRow) == written
    with (tmp_path / "results.csv").open() as file:
        table = list(csv.DictReader(file))
    assert [json.loads(line["client_errors"]) for line in table] == [list(row.client_errors) for row in written]


def values(chart: Chart) -> list[dict[str, Any]]:
    (drawn,) = Page(to_html(chart)).drawn
    return drawn


def test_the_charts_show_every_function() -> None:
    charts = function_charts(DRAWN)
    assert len(charts) == 3
    lines = gather(values(charts[0]), lambda one: one["method"])
    drawn = {name: [(one["x"], one["y"]) for one in own] for name, own in lines.items()}
    assert drawn["FedAvg"] == [(-1, FEDAVG), (0, 0), (1, -FEDAVG)]
    assert drawn["FedFish"] == [(-1, 2), (0, 0), (1, -2)]
    assert drawn["true function"] == [(-1, 0), (0, 0), (1, 0)]
    # A client's function is drawn where the client has samples.
    assert set(drawn["client 1"]) == {(0.5, -0.5), (1.0, -1.0), (0, -0.5), (1, -1)}


def test_the_charts_of_barriers_have_a_point_for_each_seed() -> None:
    charts = barrier_charts(settings_of(rows()))
    assert len(charts) == 2
    drawn = [
        (one["fedfish"], one["fedavg"]) for one in values(charts[1]) if one.get("method") == "partial overlap, 0.5"
    ]
    expected = [(6 + (seed - 1.5) * 0.01 - LOCAL, FEDAVG - LOCAL) for seed in GRID.seeds]
    assert drawn == [pytest.approx(one) for one in expected]


def test_the_page_holds_what_was_measured_and_what_had_to_be_chosen() -> None:
    html = html_of(rows())
    page = Page(html)
    for part in (
        "A <sample>",
        "fedfisher run sample.yaml",
        "4 seeds (0, 1, 2, 3)",
        "lower than FedAvg’s after 2 and 8 local epochs",
        "none of the experiment’s numbers",
        "The 12 intervals are Student’s",
        "95 % confidence",
        "4 of 4",
        "−1.00 to 0.00 and 0.00 to 1.00 with no overlap",
        "key0.5-2",
        "Second",
    ):
        assert part in page.text
    assert page.bold[:4] == ["yes", "in part", "not decided", "no"]
    assert len([tag for tag, _ in page.tags if tag == "svg"]) == 5
    assert not [tag for tag, _ in page.tags if tag in ("link", "img")]
    assert page.scripts[-1] == SCRIPT
    assert html_of(rows()) == html


def test_a_page_of_a_single_seed_has_no_intervals() -> None:
    page = Page(html_of(rows(seeds=(0,))))
    assert "A single seed has no interval." in page.text
    assert "Bonferroni" not in page.text


def test_the_terminal_shows_the_means_of_each_overlap() -> None:
    table = as_text(error_tables(rows())).splitlines()
    assert table[0] == "full overlap (4 seeds); as the paper says: yes"
    assert table[3].split()[:5] == ["2", "8.00", "6.00", "3.75", "2.75"]
    assert [line for line in table if line.startswith(("partial", "no overlap"))] == [
        "partial overlap, 0.5 (4 seeds); as the paper says: in part",
        "no overlap (4 seeds); as the paper says: not decided",
    ]


def test_mlflow_gets_a_run_a_method_overlap_and_seed_with_epochs_as_steps() -> None:
    plan = make_plan(FedFishToySettings(name="sample", toy=GRID))
    runs = make_runs(plan, Outcome({}, {}), rows())
    assert {one.name for one in runs.single} == {
        f"{method} overlap={overlap:g} s={seed}" for method in METHODS for overlap in ERRORS for seed in GRID.seeds
    }
    assert len({one.identity for one in [*runs.single, *runs.summary]}) == 24 + 6
    single = next(one for one in runs.single if one.name == "fedfish overlap=1 s=0")
    assert single.series["barrier"] == {2: pytest.approx(2.735), 8: pytest.approx(1.735)}
    assert single.tags == {"artifact": "key1.0-0"}
    assert single.params["widths"] == "64, 64, 64"
    summary = next(one for one in runs.summary if one.name == "fedfish overlap=1")
    assert summary.series["barrier"] == {2: pytest.approx(2.75), 8: pytest.approx(1.75)}
    assert summary.series["barrier_deviation"][2] == pytest.approx(0.01 * math.sqrt(5 / 3))
