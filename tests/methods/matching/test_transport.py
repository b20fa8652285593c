import numpy as np
import pytest
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from fedfisher_core.methods.matching.transport import EXACT, Normalisation, Transport, squared_distances

NORMALISATIONS: list[Normalisation] = ["none", "log", "max", "mean", "median"]


def costs(units: int, *, seed: int = 0) -> Tensor:
    return 10 * torch.rand(units, units, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("units", [1, 2, 7, 49, 130])
def test_the_exact_plan_is_the_best_assignment(units: int) -> None:
    cost = costs(units)
    expected = torch.zeros_like(cost)
    expected[linear_sum_assignment(cost.numpy())] = 1
    assert torch.equal(EXACT.plan(cost), expected)


def test_distances_between_rows() -> None:
    generator = torch.Generator().manual_seed(0)
    ours, theirs = (torch.randn(n, 3, generator=generator, dtype=torch.float64) for n in (4, 5))
    expected = [[float(((one - other) ** 2).sum()) for other in theirs] for one in ours]
    assert squared_distances(ours, theirs).numpy() == pytest.approx(np.array(expected))
    assert squared_distances(1e6 * ours, 1e6 * ours).min() >= 0


def test_squares_can_be_left_out() -> None:
    ours, theirs = (torch.tensor(rows).double() for rows in ([[0, 0], [1, 0]], [[1, 0], [2, 0.5]]))
    distances = squared_distances(ours, theirs)
    # Squared, one long way costs more than two short ones; by length alone it is the other way round.
    assert torch.equal(EXACT.plan(distances), torch.eye(2).double())
    assert torch.equal(Transport(squared=False).plan(distances), torch.eye(2).double().flip(0))


def test_sinkhorn_weighs_the_entropy() -> None:
    cost, reg = costs(5), 3.0
    kernel = np.exp(-cost.numpy() / reg)
    rows, columns = np.ones(5), np.ones(5)
    for _ in range(2000):
        rows = 1 / (kernel @ columns)
        columns = 1 / (kernel.T @ rows)
    expected = rows[:, None] * kernel * columns
    assert Transport(reg).plan(cost).numpy() == pytest.approx(expected, abs=1e-6)


def test_sinkhorn_tends_to_the_exact_plan() -> None:
    # The second-best assignment costs 1.5 more, so that a small entropy can't tell for it.
    cost = costs(6)
    gaps = [float((Transport(reg, 2000).plan(cost) - EXACT.plan(cost)).abs().max()) for reg in (10, 1, 0.1)]
    assert gaps[0] > gaps[1] > gaps[2]
    assert gaps[2] < 5e-3


@pytest.mark.parametrize("reg", [1e-6, 1e-2, 1e3])
@pytest.mark.parametrize("iterations", [1, 50])
def test_unfinished_sinkhorn_still_serves_every_unit(reg: float, iterations: int) -> None:
    plan = Transport(reg, iterations).plan(1e4 * costs(9))
    assert plan.min() >= 0
    assert torch.allclose(plan.sum(0), torch.ones(9).double())


def test_normalisation_divides_by_what_its_name_says() -> None:
    cost = costs(6)
    for name, scale in (("max", cost.max()), ("mean", cost.mean()), ("median", cost.median())):
        (normalisation,) = (one for one in NORMALISATIONS if one == name)
        found = Transport(0.05, normalisation=normalisation).plan(cost)
        assert torch.allclose(found, Transport(0.05).plan(cost / scale))
    assert torch.allclose(Transport(0.05, normalisation="log").plan(cost), Transport(0.05).plan((1 + cost).log()))


@pytest.mark.parametrize("normalisation", NORMALISATIONS)
@pytest.mark.parametrize("reg", [None, 0.01])
def test_units_that_are_all_alike_are_no_trouble(normalisation: Normalisation, reg: float | None) -> None:
    plan = Transport(reg, normalisation=normalisation).plan(torch.zeros(4, 4))
    assert torch.allclose(plan.sum(0), torch.ones(4).double())
    assert torch.allclose(plan.sum(1), torch.ones(4).double())
