"""Which jobs a benchmark's federations have: clients, statistics, and the points that methods run in."""

from pathlib import Path
from typing import Any

import pytest

from fedfisher_core.client.diagonal_fisher import DiagonalFisher
from fedfisher_core.client.gram import Gram
from fedfisher_core.client.kfac import KFAC
from fedfisher_core.client.statistic import Statistic
from fedfisher_core.client.weights import Weights
from fedfisher_core.federation.aggregating import Aggregation
from fedfisher_core.federation.checks import check_federations
from fedfisher_core.federation.federation import Federations, stages_of
from fedfisher_core.federation.place import POOLED, Place
from fedfisher_core.federation.training import TrainClient
from fedfisher_core.jobs import graph_of, names_in
from tests.tiny import tiny_settings


def federations(folder: Path, **changes: Any) -> Federations:
    return check_federations(tiny_settings(folder, **changes))


def statistics(made: Federations, place: Place, client: int) -> tuple[type[Statistic], ...]:
    return tuple(one.statistic for one in made.statistics(place, client))


def test_federations_are_all_combinations(workplace: Path) -> None:
    made = federations(workplace, seeds=[0, 1], partition={"alpha": [0.1, 0.5], "clients": [3, 4]}, methods=["fedavg"])
    assert len(made.places) == len({place.cell for place in made.places}) == 8
    assert list(made.methods) == ["fedavg"]
    assert {len(made.clients(place)) for place in made.places} == {3, 4}


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
    assert statistics(made, made.places[0], 0) == wanted
    # The weights come from the training.
    assert tuple(made.statistics_jobs(made.places[0], 0)) == wanted[1:]


def test_the_pooled_client_computes_what_pooled_methods_declare(workplace: Path) -> None:
    made = federations(workplace, methods=["fedfisher_kfac", "centralised"])
    assert statistics(made, made.places[0], POOLED) == (Weights,)


def test_a_method_runs_only_where_it_is_asked_to(workplace: Path) -> None:
    methods = {
        "fedavg": {},
        "fedfisher_kfac": {"only": {"seed": 1, "clients": [3]}},
        "centralised": {"only": {"alpha": 0.5}},
    }
    made = federations(workplace, seeds=[0, 1], partition={"alpha": [0.1, 0.5], "clients": [3, 4]}, methods=methods)
    found = {
        (place.cell.seed, place.cell.clients, place.cell.alpha): list(made.methods_of(place)) for place in made.places
    }
    assert found[1, 3, 0.1] == ["fedavg", "fedfisher_kfac"]
    assert found[0, 3, 0.1] == found[1, 4, 0.1] == ["fedavg"]
    assert found[0, 4, 0.5] == ["fedavg", "centralised"]
    for place in made.places:
        wanted = (Weights, KFAC) if (place.cell.seed, place.cell.clients) == (1, 3) else (Weights,)
        assert statistics(made, place, 0) == wanted
        assert (POOLED in made.clients(place)) == (place.cell.alpha == 0.5)


def test_points_that_no_method_runs_in_are_left_out(workplace: Path) -> None:
    made = federations(workplace, seeds=[0, 1, 2], methods={"fedavg": {"only": {"seed": [0, 2]}}})
    assert [place.cell.seed for place in made.places] == [0, 2]


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
    assert made.clients(made.places[0]) == clients
    assert tuple(job.client for job in made.jobs() if isinstance(job, TrainClient)) == clients


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"model": {"initialisation": "different"}},
        {"privacy": {"epsilon": 4.0, "delta": 1e-3}},
        {"seeds": [0, 1], "partition": {"alpha": [0.1, 0.5], "clients": [3, 4]}},
    ],
)
def test_every_job_is_there_for_a_stage(workplace: Path, changes: dict[str, Any]) -> None:
    methods: dict[str, Any] = {
        "fedavg": {},
        "fedfisher_diag": {"only": {"seed": [0]}},
        "securely": {"method": "fedavg", "wire": {"budget": "none", "server_view": "secure_sum"}},
    }
    if "privacy" not in changes:
        methods["centralised"] = {}
    made = federations(workplace, methods=methods, **changes)
    graph, stages = graph_of(made.jobs()), stages_of(made.jobs())
    assert list(stages) == ["clients", "aggregates"]
    assert not set(stages["clients"]) & set(stages["aggregates"])
    assert len(stages["aggregates"]) == 2 * sum(len(made.methods_of(place)) for place in made.places)
    named = {name for names in stages.values() for name in names}
    assert named <= set(graph)
    needed = {name for job in graph.values() for name in names_in(job.needs)}
    assert named | needed == set(graph)
    # What clients do needs nothing that servers make.
    assert not {name for one in stages["clients"] for name in names_in(graph[one].needs)} & set(stages["aggregates"])


def test_aggregations_have_the_pace_of_their_method(workplace: Path) -> None:
    made = federations(workplace, methods={"fedavg": {}, "again": {"method": "fedavg"}, "regmean": {}}, seeds=[0, 1])
    aggregations = [job for job in made.jobs() if isinstance(job, Aggregation)]
    assert len(aggregations) == 6
    assert len({job.pace for job in aggregations}) == 2
    assert len({job.pace for job in made.jobs() if isinstance(job, TrainClient)}) == 1


def test_a_title_tells_federations_of_one_point_apart(workplace: Path) -> None:
    settings = tiny_settings(workplace)
    plain, titled = (list(check_federations(settings, title=title).jobs()) for title in ("", "label 1"))
    shared = {job.name for job in plain} & {job.name for job in titled}
    assert shared == {"decode tiny"}
    assert len(graph_of([*plain, *titled])) == len(graph_of(plain)) + len(graph_of(titled)) - 1
