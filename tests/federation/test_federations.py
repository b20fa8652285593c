"""Which jobs a benchmark's federations have: clients, statistics, and the points that methods run in."""

from pathlib import Path
from typing import Any

import pytest

from fedfisher_core.client.statistics.diagonal_fisher import DiagonalFisher
from fedfisher_core.client.statistics.gram import Gram
from fedfisher_core.client.statistics.kfac import KFAC
from fedfisher_core.client.statistics.statistic import Statistic
from fedfisher_core.client.statistics.weights import Weights
from fedfisher_core.engine.plan import graph_of
from fedfisher_core.federation.checks import check_federations
from fedfisher_core.federation.federation import POOLED, Federation
from fedfisher_core.federation.jobs import Federations
from fedfisher_core.federation.training import TrainClient
from tests.tiny import tiny_settings


def federations(folder: Path, **changes: Any) -> Federations:
    return check_federations(tiny_settings(folder, **changes))


def statistics(made: Federations, federation: Federation, client: int) -> tuple[type[Statistic], ...]:
    return tuple(one.statistic for one in made.statistics(federation, client))


def test_federations_are_all_combinations(workplace: Path) -> None:
    made = federations(workplace, seeds=[0, 1], partition={"alpha": [0.1, 0.5], "clients": [3, 4]}, methods=["fedavg"])
    assert len(made.all) == len({federation.setting for federation in made.all}) == 8
    assert list(made.methods) == ["fedavg"]
    assert {len(made.clients(federation)) for federation in made.all} == {3, 4}


def test_naming_all_jobs_computes_nothing(workplace: Path) -> None:
    graph_of(federations(workplace, methods=["fedavg", "fedfisher_kfac"]).jobs())
    assert list(workplace.iterdir()) == []


@pytest.mark.parametrize(
    ("methods", "wanted"),
    [
        (["fedavg"], (Weights,)),
        (["fedavg", "fisher_merge", "fedfisher_diag"], (Weights, DiagonalFisher)),
        (["regmean", "ensemble", "fedfisher_kfac"], (Weights, Gram, KFAC)),
        (["fedavg", "centralised"], (Weights,)),
    ],
)
def test_clients_compute_what_their_methods_declare_and_no_more(
    workplace: Path, methods: list[str], wanted: tuple[type[Statistic], ...]
) -> None:
    made = federations(workplace, methods=methods)
    assert statistics(made, made.all[0], 0) == wanted
    # The weights come from the training.
    assert tuple(made.statistics_jobs(made.all[0], 0)) == wanted[1:]


def test_the_pooled_client_computes_what_pooled_methods_declare(workplace: Path) -> None:
    made = federations(workplace, methods=["fedfisher_kfac", "centralised"])
    assert statistics(made, made.all[0], POOLED) == (Weights,)


def test_a_method_runs_only_where_it_is_asked_to(workplace: Path) -> None:
    methods = {
        "fedavg": {},
        "fedfisher_kfac": {"only": {"seed": 1, "clients": [3]}},
        "centralised": {"only": {"alpha": 0.5}},
    }
    made = federations(workplace, seeds=[0, 1], partition={"alpha": [0.1, 0.5], "clients": [3, 4]}, methods=methods)
    found = {
        (federation.setting.seed, federation.setting.clients, federation.setting.alpha): list(
            made.methods_of(federation)
        )
        for federation in made.all
    }
    assert found[1, 3, 0.1] == ["fedavg", "fedfisher_kfac"]
    assert found[0, 3, 0.1] == found[1, 4, 0.1] == ["fedavg"]
    assert found[0, 4, 0.5] == ["fedavg", "centralised"]
    for federation in made.all:
        wanted = (Weights, KFAC) if (federation.setting.seed, federation.setting.clients) == (1, 3) else (Weights,)
        assert statistics(made, federation, 0) == wanted
        assert (POOLED in made.clients(federation)) == (federation.setting.alpha == 0.5)


def test_points_that_no_method_runs_in_are_left_out(workplace: Path) -> None:
    made = federations(workplace, seeds=[0, 1, 2], methods={"fedavg": {"only": {"seed": [0, 2]}}})
    assert [federation.setting.seed for federation in made.all] == [0, 2]


@pytest.mark.parametrize(
    ("methods", "clients"),
    [
        (["fedavg"], (0, 1, 2)),
        (["fedavg", "centralised"], (POOLED, 0, 1, 2)),
        (["centralised"], (POOLED,)),
    ],
)
def test_only_the_clients_that_are_needed_are_trained(
    workplace: Path, methods: list[str], clients: tuple[int, ...]
) -> None:
    made = federations(workplace, methods=methods)
    assert made.clients(made.all[0]) == clients
    assert {job.client for job in graph_of(made.jobs()).values() if isinstance(job, TrainClient)} == {*clients}


def test_a_title_tells_federations_of_one_point_apart(workplace: Path) -> None:
    settings = tiny_settings(workplace)
    plain, titled = (list(check_federations(settings, title=title).jobs()) for title in ("", "label 1"))
    shared = {job.name for job in plain} & {job.name for job in titled}
    assert shared == {"decode tiny"}
    assert len(graph_of([*plain, *titled])) == len(graph_of(plain)) + len(graph_of(titled)) - 1
