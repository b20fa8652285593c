import itertools
import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from fedfisher_core.methods.matching.bayesian import ClientUnits, Matching, UnitModel, match, scores

DEFAULT = UnitModel(sigma=1.0, sigma0=1.0, gamma=7.0, max_units=700)
UNEVEN = UnitModel(sigma=0.3, sigma0=2.5, gamma=1.7, max_units=4)
Vector = list[float]
WHOLE = torch.ones(1, dtype=torch.float64)


def random_clients(
    seed: int, *, clients: int, units: int, own: int, coordinates: int, spread: float = 1.5, parts: bool = False
) -> list[ClientUnits]:
    """Draw units around shared centres, so that some are worth matching, at coordinates that differ by client.

    With `parts`, each coordinate counts as a part of an observation, for one client as none.
    """
    generator = torch.Generator().manual_seed(seed)
    centres = 3 * torch.randn(units + 1, own, generator=generator).double()
    result = []
    for _ in range(clients):
        chosen = torch.randperm(units + 1, generator=generator)[:units]
        noise = spread * torch.randn(units, own, generator=generator).double()
        columns = torch.randperm(coordinates, generator=generator)[:own]
        shares = torch.rand(coordinates, generator=generator).double() if parts else WHOLE
        result.append(ClientUnits(vectors=centres[chosen] + noise, columns=columns, shares=shares))
    if parts:
        result[0].shares[0] = 0
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


Unit = tuple[Vector, Vector]
"""A unit's coordinates, and the part of an observation that each counts as."""


def with_shares(client: ClientUnits, coordinates: int) -> list[Unit]:
    shares = client.shares.expand(coordinates).tolist()
    return [(row, shares) for row in dense(client, coordinates)]


def existing_score(x: Unit, members: Sequence[Unit], mean: Vector, clients: int, model: UnitModel) -> float:
    """The score of matching x to the global unit of given members, one coordinate at a time."""
    total = 0.0
    for d, (value, share) in enumerate(zip(*x, strict=True)):
        g = mean[d] / model.sigma0 + sum(shares[d] * member[d] / model.sigma for member, shares in members)
        precision = 1 / model.sigma0 + sum(shares[d] / model.sigma for _, shares in members)
        total += (share * value / model.sigma + g) ** 2 / (precision + share / model.sigma) - g**2 / precision
    popularity = min(len(members), 10)
    return total + math.log(popularity / (clients - popularity))


def new_score(x: Unit, place: int, mean: Vector, clients: int, model: UnitModel) -> float:
    """The score of making x the place-th new global unit."""
    total = 0.0
    for value, share, mu in zip(*x, mean, strict=True):
        nu = mu / model.sigma0
        total += (share * value / model.sigma + nu) ** 2 / (1 / model.sigma0 + share / model.sigma)
        total -= nu**2 * model.sigma0
    return total - 2 * math.log(place) + 2 * math.log(model.gamma / clients)


def score_table(
    rows: Sequence[Unit], groups: Sequence[Sequence[Unit]], mean: Vector, clients: int, model: UnitModel
) -> list[Vector]:
    room = min(len(rows), max(model.max_units - len(groups), len(rows) - len(groups), 1))
    return [
        [existing_score(x, members, mean, clients, model) for members in groups]
        + [new_score(x, place, mean, clients, model) for place in range(1, room + 1)]
        for x in rows
    ]


def slow_match(
    clients: Sequence[list[Unit]], mean: Vector, visits: Sequence[int], model: UnitModel
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
        members_of = [clients[client][unit] for client, unit in group.items()]
        sums = [mu / model.sigma0 + sum(r[d] * x[d] for x, r in members_of) / model.sigma for d, mu in enumerate(mean)]
        precisions = [1 / model.sigma0 + sum(r[d] for _, r in members_of) / model.sigma for d in range(len(mean))]
        units.append([value / precision for value, precision in zip(sums, precisions, strict=True)])
    assignments = [
        [next(k for k, group in enumerate(groups) if group.get(client) == unit) for unit in range(len(rows))]
        for client, rows in enumerate(clients)
    ]
    return units, assignments


@pytest.mark.parametrize("parts", [False, True], ids=["", "parts"])
@pytest.mark.parametrize("model", [DEFAULT, UNEVEN, replace(UNEVEN, max_units=9)])
@pytest.mark.parametrize("known", [0, 1, 7])
def test_scores_are_those_of_the_equations(model: UnitModel, known: int, parts: bool) -> None:
    coordinates, clients = 6, 14
    (client,) = random_clients(1, clients=1, units=3, own=4, coordinates=coordinates, parts=parts)
    generator = torch.Generator().manual_seed(2)
    mean = torch.randn(coordinates, generator=generator).double()
    # Up to 13 of 14 clients share a unit, beyond the cap on what counts.
    sizes = [13, 10, 11, 1, 2, 5, 9][:known]
    groups = [torch.randn(size, coordinates, generator=generator).double() for size in sizes]
    width = coordinates if parts else 1
    shares = [
        torch.rand(size, width, generator=generator).double() if parts else WHOLE.repeat(size, 1) for size in sizes
    ]
    products = [r * x for r, x in zip(shares, groups, strict=True)]
    found = scores(
        client,
        torch.stack([mean / model.sigma0, *(mean / model.sigma0 + one.sum(0) / model.sigma for one in products)])[1:],
        torch.stack([WHOLE.expand(width), *(one.sum(0) for one in shares)])[1:],
        torch.tensor(sizes, dtype=torch.float64),
        prior_mean=mean,
        clients=clients,
        model=model,
    )
    members = [
        list(zip(x.tolist(), r.expand(-1, coordinates).tolist(), strict=True))
        for x, r in zip(groups, shares, strict=True)
    ]
    expected = score_table(with_shares(client, coordinates), members, mean.tolist(), clients, model)
    assert found.numpy() == pytest.approx(np.array(expected), rel=1e-9, abs=1e-9)


@pytest.mark.drawn(8)
@pytest.mark.parametrize("model", [DEFAULT, UNEVEN, replace(DEFAULT, gamma=1e-3), replace(DEFAULT, sigma0=50.0)])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("parts", [False, True], ids=["", "parts"])
def test_the_matching_is_that_of_a_slow_transcription(model: UnitModel, seed: int, parts: bool) -> None:
    coordinates = 4
    clients = random_clients(seed, clients=3, units=3, own=3, coordinates=coordinates, parts=parts)
    mean = torch.linspace(-0.2, 0.3, coordinates).double()
    visits = [0, 1, 2, 2, 0, 1, 1, 2, 0]
    found = match(clients, prior_mean=mean, visits=visits, model=model)
    rows = [with_shares(client, coordinates) for client in clients]
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
    shuffled = [ClientUnits(clients[0].vectors[order], clients[0].columns, WHOLE) for order in orders]
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
    # The middle unit joins the one that was visited first; the other then stands too far from the two.
    values = [-1.6, 0.0, 1.6]
    clients = [ClientUnits(torch.tensor([[value]]).double(), torch.tensor([0]), WHOLE) for value in values]
    mean = torch.zeros(1, dtype=torch.float64)
    model = UnitModel(sigma=1.0, sigma0=100.0, gamma=1.0, max_units=700)
    groups = {}
    for visits in ([0, 1, 2], [2, 1, 0]):
        found = match(clients, prior_mean=mean, visits=visits, model=model)
        groups[tuple(visits)] = [int(slots) for slots in found.assignments]
    assert groups[0, 1, 2] == [0, 0, 1]
    assert groups[2, 1, 0] == [1, 0, 0]
