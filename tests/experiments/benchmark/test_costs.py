import pytest

from fedfisher_core.experiments.benchmark.clients import client_costs
from tests.experiments.benchmark.samples import make_row, render


def test_costs_are_shares_of_the_training_of_the_same_seed() -> None:
    rows = [
        make_row("fedavg", seed=0, client_train_seconds=10.0, client_statistics_seconds={}),
        make_row("fedavg", seed=1, client_train_seconds=20.0, client_statistics_seconds={}),
        make_row("kfac", seed=0, client_train_seconds=10.0, client_statistics_seconds={"kfac": 1.0}),
        make_row("kfac", seed=1, client_train_seconds=20.0, client_statistics_seconds={"kfac": 4.0}),
        make_row("diag", seed=0, client_train_seconds=10.0, client_statistics_seconds={"diagonal": 0.5}),
        make_row("sums", seed=0, client_train_seconds=0.0, client_statistics_seconds={"sums": 1.0}),
        make_row("pooled", seed=0, client_train_seconds=99.0, reference=True),
    ]
    (cost,) = client_costs(rows)
    assert cost.training.mean == 15
    assert [one.name for one in cost.statistics] == ["diagonal", "kfac"]
    assert [one.seconds.mean for one in cost.statistics] == [0.5, 2.5]
    assert [one.share.mean for one in cost.statistics] == pytest.approx([0.05, 0.15])
    assert cost.statistics[1].share.deviation == pytest.approx(0.1 / 2**0.5)


def test_settings_that_compute_no_statistic_have_no_costs() -> None:
    rows = [make_row("fedavg", client_statistics_seconds={})]
    assert client_costs(rows) == ()
    assert "local training" not in render(rows)


def test_statistics_of_methods_that_need_no_training_are_no_share_of_it() -> None:
    assert client_costs([make_row("sums", client_train_seconds=0.0, client_statistics_seconds={"sums": 1.0})]) == ()


def test_the_page_shows_costs_by_setting() -> None:
    rows = [make_row("kfac", client_train_seconds=8.0, client_statistics_seconds={"kfac": 1.0})]
    page = render(rows)
    assert "local training" in page
    assert "12.50" in page
