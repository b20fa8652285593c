from typing import Any

from fedfisher_core.experiments.benchmark.answer import standings
from fedfisher_core.experiments.benchmark.figures import means_chart, settings_charts, trade_off_charts
from fedfisher_core.experiments.benchmark.rows import compared_seconds
from fedfisher_core.experiments.benchmark.summary import summarise
from fedfisher_core.reporting.charts import Chart, to_html
from tests.experiments.benchmark.samples import make_row, make_rows
from tests.reporting.pages import Page


def values(chart: Chart) -> list[dict[str, Any]]:
    (drawn,) = Page(to_html(chart)).drawn
    return drawn


def test_means_are_over_settings_in_per_cent_with_the_interval_over_seeds() -> None:
    rows = [*make_rows({"fedavg": 0.5}, alphas=(0.1, 0.3)), make_row("dense", accuracy=0.2)]
    fedavg, dense = values(means_chart(standings(summarise(rows))))
    assert fedavg["mean"] == 51.0
    # Seeds differ by one point: 51 ± 4.303 / sqrt(3).
    assert [round(fedavg[end], 2) for end in ("low", "high")] == [48.52, 53.48]
    assert dense["name"] == "DENSE (1 of 2 settings)"
    assert dense["low"] is None


def test_groups_of_settings_have_a_chart_each_and_those_that_are_alone_share_one() -> None:
    rows = [
        *make_rows({"fedavg": 0.5, "kfac": 0.6}, alphas=(0.1, 0.3)),
        *(make_row(dataset=dataset) for dataset in ("svhn", "cifar10")),
    ]
    summaries = summarise(rows)
    charts = settings_charts(summaries, standings(summaries))
    places = [{one["x"] for one in values(chart) if "x" in one} for chart in charts]
    assert places == [{"α = 0.1", "α = 0.3"}, {"svhn", "cifar10"}]
    assert settings_charts(summaries[:1], standings(summaries[:1])) == []


def test_costs_are_drawn_of_methods_that_cost_something() -> None:
    rows = [*make_rows({"fedavg": 0.5, "kfac": 0.6, "regmean": 0.55}), make_row("dense", upload_bits=0, accuracy=0.9)]
    bits, seconds = trade_off_charts(standings(summarise(rows)), compared_seconds(rows))
    assert {one["method"] for one in values(bits) if "gain" in one} == {"fedavg", "kfac", "regmean"}
    assert {one["method"] for one in values(seconds) if "gain" in one} == {"fedavg", "kfac", "regmean", "dense"}
    assert trade_off_charts(standings(summarise(rows[:3])), compared_seconds(rows)) == []
