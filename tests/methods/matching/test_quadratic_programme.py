import numpy as np
import pytest
from scipy.optimize import minimize

from fedfisher_core.methods.matching.common_optima import minimise_on_simplex


def gram_of(clients: int, dimensions: int, seed: int) -> np.ndarray:
    rows = np.random.default_rng(seed).standard_normal((clients, dimensions)) + 0.3
    return rows @ rows.T


def objective(gram: np.ndarray, weights: np.ndarray) -> float:
    return float(weights @ gram @ weights / 2)


@pytest.mark.drawn(8)
@pytest.mark.parametrize("cap", [0.4, 0.5, 0.8, 1.0])
@pytest.mark.parametrize("seed", range(5))
def test_no_point_of_a_grid_is_better(seed: int, cap: float) -> None:
    gram = gram_of(3, 4, seed)
    found = minimise_on_simplex(gram, cap)
    steps = np.arange(0, cap + 1e-9, 0.005)
    first, second = (axis.ravel() for axis in np.meshgrid(steps, steps))
    third = 1 - first - second
    points = np.stack([first, second, third], 1)[(third >= 0) & (third <= cap)]
    values = np.einsum("ki,ij,kj->k", points, gram, points) / 2
    assert found.sum() == pytest.approx(1, abs=1e-12)
    assert found.min() >= 0
    assert found.max() <= cap
    assert objective(gram, found) <= values.min() + 1e-12
    assert np.abs(points[values.argmin()] - found).max() < 0.02


@pytest.mark.parametrize(("clients", "dimensions"), [(2, 1), (5, 3), (5, 100), (50, 10), (50, 49), (50, 2000)])
@pytest.mark.parametrize("cap", [0.1, 0.5, 1.0])
def test_the_conditions_of_a_minimum_hold(clients: int, dimensions: int, cap: float) -> None:
    gram = gram_of(clients, dimensions, seed=clients + dimensions)
    cap = max(cap, 1 / clients)
    found = minimise_on_simplex(gram, cap)
    gradient = gram @ found
    assert found.sum() == pytest.approx(1, abs=1e-9)
    assert found.min() >= 0
    assert found.max() <= cap
    slack = 1e-8 * gram.diagonal().max()
    assert gradient[found < cap].min(initial=np.inf) >= gradient[found > 0].max() - slack


def test_it_agrees_with_a_general_solver() -> None:
    gram = gram_of(6, 20, seed=1)
    general = minimize(
        lambda a: a @ gram @ a / 2,
        np.full(6, 1 / 6),
        jac=lambda a: gram @ a,
        bounds=[(0, 0.4)] * 6,
        constraints={"type": "eq", "fun": lambda a: a.sum() - 1},
        method="SLSQP",
        options={"ftol": 1e-14},
    )
    found = minimise_on_simplex(gram, 0.4)
    assert found == pytest.approx(general.x, abs=1e-5)
    assert np.ptp(found) > 0.1


def test_the_order_of_clients_does_not_matter_nor_does_the_scale() -> None:
    gram, order = gram_of(7, 30, seed=2), np.random.default_rng(0).permutation(7)
    found = minimise_on_simplex(gram, 0.3)
    assert minimise_on_simplex(gram[np.ix_(order, order)], 0.3) == pytest.approx(found[order], abs=1e-7)
    assert minimise_on_simplex(1e-12 * gram, 0.3) == pytest.approx(found, abs=1e-7)


@pytest.mark.parametrize("gram", [np.zeros((4, 4)), np.ones((4, 4)), np.eye(4)])
def test_weights_are_equal_where_nothing_tells_clients_apart(gram: np.ndarray) -> None:
    assert minimise_on_simplex(gram, 0.5).tolist() == [0.25] * 4


def test_the_smallest_cap_leaves_equal_weights() -> None:
    assert minimise_on_simplex(gram_of(5, 8, seed=0), 1 / 5).tolist() == [1 / 5] * 5
    assert minimise_on_simplex(np.array([[3.0]]), 1.0).tolist() == [1.0]


def test_a_client_whose_objective_is_met_takes_all_that_it_may() -> None:
    gram = np.diag([0.0, 1.0, 1.0])
    assert minimise_on_simplex(gram, 1.0) == pytest.approx([1, 0, 0])
    assert minimise_on_simplex(gram, 0.6) == pytest.approx([0.6, 0.2, 0.2])


@pytest.mark.parametrize("clients", [5, 10, 30])
def test_few_directions_in_single_precision_settle(clients: int) -> None:
    rows = np.random.default_rng(0).standard_normal((clients, 3)).astype(np.float32)
    gram = (rows @ rows.T).astype(np.float64)
    weights = minimise_on_simplex(gram, 0.5)
    assert weights.sum() == pytest.approx(1)
    assert weights @ gram @ weights < 1e-6 * gram.diagonal().max()
