import numpy as np
import pytest
import torch
from torch import Tensor

from fedfisher_core.common_optima.quadratic_programme import minimise_on_simplex
from fedfisher_core.common_optima.updates import (
    Iteration,
    Weigh,
    common_descent,
    distance,
    equal_weights,
    run_official,
    unit_rows,
)

CLIENTS, OUTPUTS, INPUTS = 4, 3, 7


def drawn(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


MODELS = drawn(CLIENTS, OUTPUTS, INPUTS, seed=0)
ROWS = drawn(CLIENTS, 3, INPUTS, seed=1)
PROJECTIONS = ROWS.mT @ torch.linalg.solve(ROWS @ ROWS.mT + 0.5 * torch.eye(3, dtype=torch.float64), ROWS)
START = MODELS.mean(0)


def iteration(*, steps: int = 1, weigh: Weigh = equal_weights, penalty: float = 1.0, **changes: bool) -> Iteration:
    flags = {"anchored": True, "normalise": False} | changes
    return Iteration(steps=steps, step_size=0.3, penalty=penalty, weigh=weigh, **flags)


def by_hand(steps: int, penalty: float, cap: float | None, *, anchored: bool, normalise: bool) -> np.ndarray:
    """The paper's iteration, one client and one matrix product at a time."""
    w = START.numpy().copy()
    trained = [one.numpy().copy() for one in MODELS]
    local = [one.copy() for one in trained]
    p = [one.numpy() for one in PROJECTIONS]
    for _ in range(steps):
        g = [(w - local[i]) @ p[i] for i in range(CLIENTS)]
        alpha = np.full(CLIENTS, 1 / CLIENTS)
        if cap is not None:
            gram = np.array([[np.trace(g[i] @ g[j].T) for j in range(CLIENTS)] for i in range(CLIENTS)])
            alpha = minimise_on_simplex(gram, cap)
        d = -sum(2 * alpha[i] * g[i] for i in range(CLIENTS))
        w = w + 0.3 * d
        for i in range(CLIENTS):
            base = trained[i] if anchored else local[i]
            move = (w - base) @ (np.eye(INPUTS) - penalty / (1 + penalty) * p[i])
            if normalise:
                move = 0.3 * move / np.linalg.norm(move, axis=1, keepdims=True)
            local[i] = base + move
    return w


@pytest.mark.parametrize("normalise", [False, True])
@pytest.mark.parametrize("anchored", [False, True])
@pytest.mark.parametrize("cap", [None, 0.4])
@pytest.mark.parametrize(("steps", "penalty"), [(1, 1.0), (2, 1.0), (7, 1.0), (7, 200.0)])
def test_the_iteration_is_the_papers(
    steps: int, penalty: float, cap: float | None, anchored: bool, normalise: bool
) -> None:
    weigh = equal_weights if cap is None else common_descent(cap)
    chosen = iteration(steps=steps, weigh=weigh, penalty=penalty, anchored=anchored, normalise=normalise)
    expected = by_hand(steps, penalty, cap, anchored=anchored, normalise=normalise)
    # The quadratic programme's weights are exact to 1e-8.
    assert chosen.run(MODELS, PROJECTIONS, START).numpy() == pytest.approx(expected, abs=1e-9 if cap is None else 1e-7)
    assert np.abs(expected - START.numpy()).max() > 0.05


def test_from_where_clients_were_trained_it_ends_at_the_least_distance() -> None:
    merged = Iteration(3000, 0.8, 1.0, equal_weights, True, False).run(MODELS, PROJECTIONS, START)
    stacked = np.concatenate(PROJECTIONS.numpy(), axis=1)
    targets = np.concatenate([(w @ p).numpy() for w, p in zip(MODELS, PROJECTIONS, strict=True)], axis=1)
    least = np.linalg.lstsq(stacked.T, targets.T, rcond=None)[0].T
    assert merged.numpy() == pytest.approx(least, abs=1e-4)
    assert distance(merged, MODELS, PROJECTIONS) < 0.7 * distance(START, MODELS, PROJECTIONS)


def test_the_distance_is_the_mean_of_the_papers_objectives() -> None:
    expected = np.mean(
        [np.linalg.norm(((START - w) @ p).numpy()) ** 2 for w, p in zip(MODELS, PROJECTIONS, strict=True)]
    )
    assert distance(START, MODELS, PROJECTIONS) == pytest.approx(expected)


def test_a_common_direction_lowers_the_objective_of_every_client() -> None:
    # Orthogonal projections, as in the paper's proposition 1, and a start whose mean gradient is no common descent.
    exact = torch.linalg.pinv(ROWS) @ ROWS
    models = MODELS * torch.tensor([5.0, 1.0, 1.0, 1.0], dtype=torch.float64)[:, None, None]

    def after(weigh: Weigh) -> Tensor:
        merged = Iteration(1, 0.01, 1.0, weigh, True, False).run(models, exact, START)
        return ((merged - models) @ exact).square().sum((1, 2)) - ((START - models) @ exact).square().sum((1, 2))

    assert (after(common_descent(1.0)) < 0).all()
    assert (after(equal_weights) > 0).any()


def test_a_cap_below_equal_weights_means_equal_weights() -> None:
    gradients = drawn(CLIENTS, OUTPUTS, INPUTS, seed=3)
    assert torch.allclose(common_descent(0.1)(gradients), equal_weights(gradients))
    assert not torch.allclose(common_descent(1.0)(gradients), equal_weights(gradients), atol=0.01)


def test_rows_that_are_zero_or_rounding_stay() -> None:
    change = torch.tensor([[3.0, 4.0], [0.0, 0.0], [1e-7, 0.0], [1e-7, 0.0], [1e-5, 0.0]])
    weights = torch.tensor([[1.0, 0.0], [0.0, 0.0], [0.0, 1.0], [0.0, 1e-3], [0.0, 1.0]])
    expected = torch.tensor([[0.6, 0.8], [0.0, 0.0], [0.0, 0.0], [1.0, 0.0], [1.0, 0.0]])
    assert torch.allclose(unit_rows(change, weights), expected)


def official_by_hand(steps: int, *, normalise: bool) -> list[np.ndarray]:
    """The authors' loop, one client at a time; q is what their code calls P."""
    w = START.numpy().copy()
    v = [one.numpy().copy() for one in MODELS]
    q = [np.eye(INPUTS) - one.numpy() for one in PROJECTIONS]
    for _ in range(steps):
        d = sum(1.6 / CLIENTS * (w - v[i]) @ (q[i] - np.eye(INPUTS)).T for i in range(CLIENTS))
        w = w + d
        for i in range(CLIENTS):
            move = (w - v[i]) @ q[i].T
            if normalise:
                move = move / np.linalg.norm(move, axis=1)[:, None]
            v[i] = v[i] + 1.6 * move
    return v


@pytest.mark.parametrize("normalise", [False, True])
@pytest.mark.parametrize("steps", [1, 2, 6])
def test_the_official_iteration_is_the_authors(steps: int, normalise: bool) -> None:
    complements = torch.eye(INPUTS, dtype=torch.float64) - PROJECTIONS
    found = run_official(MODELS, complements, START, steps=steps, step_size=1.6, normalise=normalise)
    expected = official_by_hand(steps, normalise=normalise)
    assert found.numpy() == pytest.approx(np.stack(expected), abs=1e-9)


@pytest.mark.parametrize("steps", [1, 3])
def test_the_official_iteration_at_its_two_ends(steps: int) -> None:
    eye = torch.eye(INPUTS, dtype=torch.float64).expand(CLIENTS, -1, -1)
    # Data that nobody sees: W stays, and each V_i goes to it by a factor 1 - eta.
    free = run_official(MODELS, eye, START, steps=steps, step_size=0.5, normalise=False)
    assert torch.allclose(free, START + (MODELS - START) * 0.5**steps)
    # Data that fill the space: no V_i moves.
    assert torch.equal(run_official(MODELS, 0 * eye, START, steps=steps, step_size=0.5, normalise=False), MODELS)
