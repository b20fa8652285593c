import itertools
import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from fedfisher_core.matching.bayesian import ClientUnits, Matching, UnitModel, match, scores

DEFAULT = UnitModel(sigma=1.0, sigma0=1.0, gamma=7.0, max_units=700)
UNEVEN = UnitModel(sigma=0.3, sigma0=2.5, gamma=1.7, max_units=4)
Vector = list[float]


def random_clients(
    seed: int, *, clients: int, units: int, own: int, coordinates: int, spread: float = 1.5
) -> list[ClientUnits]:
    """Draw units around shared centres, so that some are worth matching, at coordinates that differ by client."""
    generator = torch.Generator().manual_seed(seed)
    centres = 3 * torch.randn(units + 1, own, generator=generator).double()
    result = []
    for _ in range(clients):
        chosen = torch.randperm(units + 1, generator=generator)[:units]
        noise = spread * torch.randn(units, own, generator=generator).double()
        columns = torch.randperm(coordinates, generator=generator)[:own]
        result.append(ClientUnits(vectors=centres[chosen] + noise, columns=columns))
    return result


def dense(client: ClientUnits, coordinates: int) -> list[Vector]:
    """A client's units with all coordinates."""
    rows = []
    for vector in client.vectors.tolist():
        row = [0.0] * coordinates
        for column, value in zip(client.columns.tolist(), vector, strict=True):
            row[column] = value
        rows.append(row)
    return rows


def existing_score(x: Vector, members: Sequence[Vector], mean: Vector, clients: int, model: UnitModel) -> float:
    """The score of matching x to the global unit of given members, one coordinate at a time."""
    total = 0.0
    precision = 1 / model.sigma0 + len(members) / model.sigma
    for d, value in enumerate(x):
        g = mean[d] / model.sigma0 + sum(member[d] / model.sigma for member in members)
        total += (value / model.sigma + g) ** 2 / (precision + 1 / model.sigma) - g**2 / precision
    popularity = min(len(members), 10)
    return total + math.log(popularity / (clients - popularity))


def new_score(x: Vector, place: int, mean: Vector, clients: int, model: UnitModel) -> float:
    """The score of making x the place-th new global unit."""
    total = 0.0
    for value, mu in zip(x, mean, strict=True):
        nu = mu / model.sigma0
        total += (value / model.sigma + nu) ** 2 / (1 / model.sigma0 + 1 / model.sigma) - nu**2 * model.sigma0
    return total - 2 * math.log(place) + 2 * math.log(model.gamma / clients)


def score_table(
    rows: Sequence[Vector], groups: Sequence[Sequence[Vector]], mean: Vector, clients: int, model: UnitModel
) -> list[Vector]:
    room = min(len(rows), max(model.max_units - len(groups), len(rows) - len(groups), 1))
    return [
        [existing_score(x, members, mean, clients, model) for members in groups]
        + [new_score(x, place, mean, clients, model) for place in range(1, room + 1)]
        for x in rows
    ]


def slow_match(
    clients: Sequence[list[Vector]], mean: Vector, visits: Sequence[int], model: UnitModel
) -> tuple[list[Vector], list[list[int]]]:
    """The matching with every assignment found by trying all, and every sum taken anew."""
    groups: list[dict[int, int]] = []  # of each global unit, which unit of which client
    for visited in visits:
        for group in groups:
            group.pop(visited, None)
        groups = [group for group in groups if group]
        members = [[clients[client][unit] for client, unit in group.items()] for group in groups]
        table = score_table(clients[visited], members, mean, len(clients), model)
        choices = itertools.permutations(range(len(table[0])), len(table))
        best = max(choices, key=lambda choice: sum(row[column] for row, column in zip(table, choice, strict=True)))
        known = len(groups)
        for unit, column in enumerate(best):
            if column < known:
                groups[column][visited] = unit
            else:
                groups.append({visited: unit})
    units = []
    for group in groups:
        precision = 1 / model.sigma0 + len(group) / model.sigma
        members_of = [clients[client][unit] for client, unit in group.items()]
        sums = [mu / model.sigma0 + sum(x[d] for x in members_of) / model.sigma for d, mu in enumerate(mean)]
        units.append([value / precision for value in sums])
    assignments = [
        [next(k for k, group in enumerate(groups) if group.get(client) == unit) for unit in range(len(rows))]
        for client, rows in enumerate(clients)
    ]
    return units, assignments


@pytest.mark.parametrize("model", [DEFAULT, UNEVEN, replace(UNEVEN, max_units=9)])
@pytest.mark.parametrize("known", [0, 1, 7])
def test_scores_are_those_of_the_equations(model: UnitModel, known: int) -> None:
    coordinates, clients = 6, 14
    (client,) = random_clients(1, clients=1, units=3, own=4, coordinates=coordinates)
    generator = torch.Generator().manual_seed(2)
    mean = torch.randn(coordinates, generator=generator).double()
    # Up to 13 of 14 clients share a unit, beyond the cap on what counts.
    sizes = [13, 10, 11, 1, 2, 5, 9][:known]
    groups = [torch.randn(size, coordinates, generator=generator).double() for size in sizes]
    sums = torch.stack([mean / model.sigma0 + group.sum(0) / model.sigma for group in groups]) if groups else None
    found = scores(
        client,
        mean.new_empty(0, coordinates) if sums is None else sums,
        torch.tensor(sizes, dtype=torch.float64),
        prior_mean=mean,
        clients=clients,
        model=model,
    )
    members = [group.tolist() for group in groups]
    expected = score_table(dense(client, coordinates), members, mean.tolist(), clients, model)
    assert found.numpy() == pytest.approx(np.array(expected), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("model", [DEFAULT, UNEVEN, replace(DEFAULT, gamma=1e-3), replace(DEFAULT, sigma0=50.0)])
@pytest.mark.parametrize("seed", range(3))
def test_the_matching_is_that_of_a_slow_transcription(model: UnitModel, seed: int) -> None:
    coordinates = 4
    clients = random_clients(seed, clients=3, units=3, own=3, coordinates=coordinates)
    mean = torch.linspace(-0.2, 0.3, coordinates).double()
    visits = [0, 1, 2, 2, 0, 1, 1, 2, 0]
    found = match(clients, prior_mean=mean, visits=visits, model=model)
    rows = [dense(client, coordinates) for client in clients]
    units, assignments = slow_match(rows, mean.tolist(), visits, model)
    assert [slots.tolist() for slots in found.assignments] == assignments
    assert found.units.numpy() == pytest.approx(np.array(units), rel=1e-9, abs=1e-9)


def posterior_means(clients: Sequence[ClientUnits], found: Matching, mean: Tensor, model: UnitModel) -> Tensor:
    sums = (mean / model.sigma0).repeat(len(found.units), 1)
    precisions = torch.full((len(found.units), 1), 1 / model.sigma0, dtype=torch.float64)
    for client, slots in zip(clients, found.assignments, strict=True):
        for vector, slot in zip(client.vectors, slots, strict=True):
            sums[slot, client.columns] += vector / model.sigma
            precisions[slot] += 1 / model.sigma
    return sums / precisions


@pytest.mark.parametrize("model", [DEFAULT, UNEVEN, replace(DEFAULT, max_units=20)])
@pytest.mark.parametrize("spread", [0.1, 2.0, 10.0])
def test_every_global_unit_is_the_posterior_mean_of_its_own(model: UnitModel, spread: float) -> None:
    clients = random_clients(3, clients=12, units=8, own=10, coordinates=10, spread=spread)
    mean = torch.linspace(0, 1, 10).double()
    generator = torch.Generator().manual_seed(0)
    visits = [*range(12), *torch.randperm(12, generator=generator).tolist(), *range(11, -1, -1)]
    found = match(clients, prior_mean=mean, visits=visits, model=model)
    used = torch.cat(found.assignments).unique()
    assert used.tolist() == list(range(len(found.units)))
    assert all(len(slots.unique()) == 8 for slots in found.assignments)
    assert torch.allclose(found.units, posterior_means(clients, found, mean, model), rtol=1e-10, atol=1e-10)


def test_a_full_layer_takes_one_unit_a_client() -> None:
    clients = random_clients(4, clients=5, units=6, own=60, coordinates=60, spread=100.0)
    sizes = {}
    for limit in (6, 10, 700):
        model = replace(DEFAULT, max_units=limit)
        mean = torch.zeros(60, dtype=torch.float64)
        sizes[limit] = len(match(clients, prior_mean=mean, visits=range(5), model=model).units)
    # 6, and one a client; 6 + 4 reaches the limit with the second, and one for each of the others; all.
    assert sizes == {6: 10, 10: 13, 700: 30}


def test_more_units_than_the_limit_find_a_place() -> None:
    (client,) = random_clients(5, clients=1, units=7, own=8, coordinates=8)
    model = replace(DEFAULT, max_units=3)
    mean = torch.zeros(8, dtype=torch.float64)
    found = match([client, client], prior_mean=mean, visits=[0, 1, 0, 1], model=model)
    assert [slots.tolist() for slots in found.assignments] == [list(range(7))] * 2


def test_units_of_one_origin_find_each_other() -> None:
    clients = random_clients(6, clients=1, units=9, own=20, coordinates=20)
    orders = [torch.randperm(9, generator=torch.Generator().manual_seed(seed)) for seed in range(3)]
    shuffled = [ClientUnits(clients[0].vectors[order], clients[0].columns) for order in orders]
    mean = torch.zeros(20, dtype=torch.float64)
    found = match(shuffled, prior_mean=mean, visits=[0, 1, 2, 2, 1, 0], model=DEFAULT)
    assert len(found.units) == 9
    for order, slots in zip(orders, found.assignments, strict=True):
        assert torch.equal(orders[0][slots], order)


def test_clients_are_told_apart_by_their_visits_alone() -> None:
    clients = random_clients(7, clients=4, units=6, own=5, coordinates=5)
    mean = torch.zeros(5, dtype=torch.float64)
    visits = [0, 1, 2, 3, 2, 0, 3, 1]
    numbers = [2, 0, 3, 1]
    found = match(clients, prior_mean=mean, visits=visits, model=DEFAULT)
    renamed = match(
        [clients[numbers.index(i)] for i in range(4)],
        prior_mean=mean,
        visits=[numbers[one] for one in visits],
        model=DEFAULT,
    )
    assert torch.equal(found.units, renamed.units)
    assert all(torch.equal(found.assignments[i], renamed.assignments[numbers[i]]) for i in range(4))


def test_another_order_of_visits_may_find_another_maximum() -> None:
    # The middle one joins whoever was there first; the other then stands too far from the two.
    values = [-1.6, 0.0, 1.6]
    clients = [ClientUnits(torch.tensor([[value]]).double(), torch.tensor([0])) for value in values]
    mean = torch.zeros(1, dtype=torch.float64)
    model = UnitModel(sigma=1.0, sigma0=100.0, gamma=1.0, max_units=700)
    groups = {}
    for visits in ([0, 1, 2], [2, 1, 0]):
        found = match(clients, prior_mean=mean, visits=visits, model=model)
        groups[tuple(visits)] = [int(slots) for slots in found.assignments]
    assert groups[0, 1, 2] == [0, 0, 1]
    assert groups[2, 1, 0] == [1, 0, 0]
