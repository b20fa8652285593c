import itertools
import math

import pytest
import torch

from fedfisher_core.experiments.fedfish_toy.plan import domain_points, interval_of, samples_of, true_values
from fedfisher_core.experiments.fedfish_toy.settings import RegressionGrid


@pytest.mark.parametrize(
    ("overlap", "expected"),
    [(1.0, [(-1, 1), (-1, 1)]), (0.5, [(-1, 1 / 3), (-1 / 3, 1)]), (0.0, [(-1, 0), (0, 1)])],
)
def test_two_clients_see_what_the_overlap_promises(overlap: float, expected: list[tuple[float, float]]) -> None:
    assert [interval_of(client, 2, overlap) for client in range(2)] == [pytest.approx(one) for one in expected]


@pytest.mark.parametrize("clients", [2, 3, 7])
@pytest.mark.parametrize("overlap", [0.0, 0.2, 0.75, 1.0])
def test_intervals_share_their_part_with_the_next_and_cover_the_domain(clients: int, overlap: float) -> None:
    intervals = [interval_of(client, clients, overlap) for client in range(clients)]
    assert (intervals[0][0], intervals[-1][1]) == (-1, pytest.approx(1))
    lengths = [high - low for low, high in intervals]
    assert lengths == pytest.approx([lengths[0]] * clients)
    for (_, end), (begin, _) in itertools.pairwise(intervals):
        assert (end - begin) / lengths[0] == pytest.approx(overlap, abs=1e-12)


@pytest.mark.parametrize("overlap", [0.0, 0.5, 1.0])
def test_samples_lie_in_the_interval_on_the_function(overlap: float) -> None:
    grid = RegressionGrid(samples=400, noise=0, function="chirp")
    for client in range(2):
        low, high = interval_of(client, 2, overlap)
        own = samples_of(client, grid, overlap, seed=3)
        inputs = own.inputs[:, 0].tolist()
        assert low <= min(inputs) < low + 0.05
        assert high - 0.05 < max(inputs) <= high
        assert own.labels.tolist() == pytest.approx([math.sin(math.pi * (x + 1) ** 2) for x in inputs], abs=1e-5)


def test_overlaps_of_a_seed_differ_in_the_intervals_alone() -> None:
    grid = RegressionGrid(samples=50)
    full, none = samples_of(1, grid, 1.0, seed=2), samples_of(1, grid, 0.0, seed=2)
    assert torch.allclose((full.inputs + 1) / 2, none.inputs, atol=1e-6)
    noise = [own.labels - true_values("sine", own.inputs[:, 0]) for own in (full, none)]
    assert torch.allclose(noise[0], noise[1], atol=1e-5)
    assert float(noise[0].std()) == pytest.approx(0.05, rel=0.3)


def test_clients_and_seeds_draw_samples_of_their_own() -> None:
    grid = RegressionGrid(samples=5)
    drawn = [samples_of(client, grid, 1.0, seed).inputs for client in range(2) for seed in range(2)]
    assert not any(torch.equal(one, other) for one, other in itertools.combinations(drawn, 2))


def test_functions_are_those_of_their_formulas() -> None:
    points = domain_points(9)
    assert points[:, 0].tolist() == [-1, -0.75, -0.5, -0.25, 0, 0.25, 0.5, 0.75, 1]
    expected = {
        "sine": [math.sin(math.pi * (x + 1)) for x in points[:, 0].tolist()],
        "chirp": [math.sin(math.pi * (x + 1) ** 2) for x in points[:, 0].tolist()],
    }
    assert true_values("sine", points)[:, 0].tolist() == pytest.approx(expected["sine"], abs=1e-6)
    assert true_values("chirp", points)[:, 0].tolist() == pytest.approx(expected["chirp"], abs=1e-5)
